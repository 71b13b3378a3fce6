//! Runs conformance cases, and says which hold.
//!
//! ```sh
//! cargo xtask conformance                     # the cases of this project
//! cargo xtask conformance DIR case.jsonl      # others of the same format
//! cargo xtask conformance --filter aggregate  # those whose name holds a text
//! cargo xtask conformance --summary           # only counts, and what is missing
//! ```
//!
//! The last line is `N passed, N failed`. The exit code is 0 if none failed.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use integration_tests::conformance::{Outcome, Summary, case_files, check, own_cases};

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
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let own = [own_cases()];
    let paths = if arguments.paths.is_empty() { &own[..] } else { &arguments.paths };
    let mut out = io::stdout().lock();
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
    let done = summary.failed() == 0 && summary.passed() > 0;
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
