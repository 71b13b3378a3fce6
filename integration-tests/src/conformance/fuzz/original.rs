//! The original itself: Kafka Streams, run by a program that fills in what cases expect.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value as Json;
use tempfile::TempDir;

/// Kafka Streams on a JVM, behind the oracle: a directory with a `run.sh` that writes for each case of a file what
/// came of it. It builds itself there when it runs for the first time.
#[derive(Debug)]
pub struct Original {
    program: PathBuf,
    files: TempDir,
}

/// How many lines of what the oracle said an error shows.
const LINES_SHOWN: usize = 8;

impl Original {
    /// The original behind the oracle in a directory.
    ///
    /// # Errors
    /// When the directory holds no oracle, or Java does not start.
    pub fn at(directory: &Path) -> Result<Self> {
        let program = directory.join("run.sh");
        ensure!(
            program.is_file(),
            "no oracle in {}: it has no run.sh. Give the directory of the oracle with --oracle or \
             HEADWATER_ORACLE",
            directory.display()
        );
        let java = Command::new("java").arg("-version").output();
        let java =
            java.context("the original needs Java 17 or newer, and `java` does not start")?;
        ensure!(java.status.success(), "`java -version` fails, and the original needs Java 17");
        let files = TempDir::new().context("a directory for the cases")?;
        Ok(Self { program, files })
    }

    /// The cases with what the original expects, in the same order. With `flags` they say too what the result hangs
    /// on, which takes several times as long.
    ///
    /// # Errors
    /// When the oracle fails.
    pub fn ask(&self, cases: &[Json], flags: bool) -> Result<Vec<Json>> {
        let lines: Vec<String> = cases.iter().map(Json::to_string).collect();
        let asked = self.files.path().join("cases.jsonl");
        let answers = self.files.path().join("answers");
        let answered = answers.join("cases.jsonl");
        fs::write(&asked, lines.join("\n")).context("the cases for the oracle")?;
        if answered.exists() {
            fs::remove_file(&answered).context("the last answers of the oracle")?;
        }
        let mut command = Command::new("bash");
        command.arg(&self.program).arg(&asked).arg("--out").arg(&answers);
        if flags {
            command.arg("--check");
        }
        let output = command.output().context("the oracle does not start")?;
        let said = String::from_utf8_lossy(&output.stderr);
        // A case that is none makes the program fail in the end, with all the others answered.
        ensure!(
            answered.is_file(),
            "the oracle gives no answers ({}); it says\n{}",
            output.status,
            last_lines(&said)
        );
        let text = fs::read_to_string(&answered).context("the answers of the oracle")?;
        let answers = text.lines().map(serde_json::from_str::<Json>);
        let answers: Vec<Json> =
            answers.collect::<Result<_, _>>().context("the answers of the oracle are JSON")?;
        ensure!(
            answers.len() == cases.len(),
            "{} answers of the oracle for {} cases; it says\n{}",
            answers.len(),
            cases.len(),
            last_lines(&said)
        );
        Ok(answers)
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
}
