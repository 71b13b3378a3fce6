//! Runs conformance cases, and says which hold.
//!
//! ```sh
//! cargo xtask conformance                     # the cases of this project
//! cargo xtask conformance DIR case.jsonl      # others of the same format
//! cargo xtask conformance --filter aggregate  # those whose name holds a text
//! cargo xtask conformance --summary           # only counts, and what is missing
//! cargo xtask conformance --vectors           # the byte vectors only
//! ```
//!
//! Without paths and filter the byte vectors are held against the crates too, a group a line.
//!
//! The last line is `N passed, N failed`, of cases; of vectors where only those are checked. The exit code is 0 if
//! none failed.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use integration_tests::conformance::{
    Outcome, Summary, case_files, check, check_vectors, own_cases, vector_summary,
};

#[derive(Parser)]
#[command(name = "conformance", about = "Runs conformance cases, and says which hold")]
struct Arguments {
    /// Files with one case a line, or directories of such files. Without: the cases of the project.
    paths: Vec<PathBuf>,
    /// Only cases whose name holds this text.
    #[arg(long)]
    filter: Option<String>,
    /// Counts by file and by what is missing, instead of each failure.
    #[arg(long)]
    summary: bool,
    /// The byte vectors only.
    #[arg(long)]
    vectors: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let own = [own_cases()];
    let paths = if arguments.paths.is_empty() { &own[..] } else { &arguments.paths };
    let mut out = io::stdout().lock();
    let all = arguments.paths.is_empty() && arguments.filter.is_none();
    let wrong_vectors = if arguments.vectors || all { tell_vectors(&mut out)? } else { 0 };
    if arguments.vectors {
        return Ok(exit_code(wrong_vectors == 0));
    }
    let mut summary = Summary::default();
    for file in case_files(paths)? {
        let filter = arguments.filter.as_deref().unwrap_or_default();
        for case in file.cases.iter().filter(|case| case.name().contains(filter)) {
            let outcome = check(case);
            if !arguments.summary {
                tell(&mut out, case.name(), &outcome)?;
            }
            summary.add(&file.name, case, outcome);
        }
    }
    write!(out, "{}", summary.overview())?;
    writeln!(out, "{} passed, {} failed", summary.passed(), summary.failed())?;
    Ok(exit_code(summary.failed() == 0 && summary.passed() > 0 && wrong_vectors == 0))
}

const fn exit_code(done: bool) -> ExitCode {
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tells of the byte vectors, and gives how many are wrong.
fn tell_vectors(out: &mut impl io::Write) -> anyhow::Result<usize> {
    let groups = check_vectors()?;
    write!(out, "{}", vector_summary(&groups))?;
    let held: usize = groups.iter().map(|group| group.held).sum();
    let failed = groups.iter().map(|group| group.failed.len()).sum();
    let left_out: usize =
        groups.iter().filter_map(|group| group.left_out).map(|(count, _)| count).sum();
    writeln!(out, "vectors: {held} passed, {failed} failed, {left_out} left out")?;
    Ok(failed)
}

fn tell(out: &mut impl io::Write, name: &str, outcome: &Outcome) -> io::Result<()> {
    match outcome {
        Outcome::Passed => Ok(()),
        Outcome::Missing(what) => writeln!(out, "{name}: not there yet: {what}"),
        Outcome::Failed(differences) => {
            for difference in differences {
                writeln!(out, "{name}: {}: {}", difference.what, difference.text)?;
            }
            Ok(())
        }
    }
}
