//! Runs conformance cases, and says which hold.
//!
//! ```sh
//! cargo xtask conformance                     # the cases of this project
//! cargo xtask conformance DIR case.jsonl      # others of the same format
//! cargo xtask conformance --filter aggregate  # those whose name holds a text
//! cargo xtask conformance --summary           # only counts, and what is missing
//! cargo xtask conformance --vectors           # the byte vectors only
//! cargo xtask conformance --fuzz 7 2000       # 2,000 random cases of the seed 7, against the original
//! ```
//!
//! Without paths and filter the byte vectors are held against the crates too, a group a line.
//!
//! The last line is `N passed, N failed`, of cases; of vectors where only those are checked. The exit code is 0 if
//! none failed.
//!
//! Random cases need the original: Java, and the directory of the oracle in `--oracle` or `HEADWATER_ORACLE`. The last
//! line is then `N equal, N differ`. With `--keep FILE` those that differ are made smaller and written to a file of
//! cases.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use anyhow::{Context as _, ensure};
use clap::Parser;
use headwater::broker::{Clock as _, SystemClock};
use integration_tests::conformance::{
    Hunt, Hunted, Original, Outcome, Summary, case_files, check, check_vectors, own_cases,
    vector_summary,
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
    /// So many random cases that follow from a seed, against the original.
    #[arg(
        long,
        num_args = 2,
        value_names = ["SEED", "N"],
        conflicts_with_all = ["paths", "filter", "summary", "vectors"]
    )]
    fuzz: Option<Vec<u64>>,
    /// The directory of the oracle, which runs the original. Also taken from `HEADWATER_ORACLE`.
    #[arg(long, value_name = "DIR", requires = "fuzz")]
    oracle: Option<PathBuf>,
    /// Makes the random cases that differ smaller, and writes them to this file.
    #[arg(long, value_name = "FILE", requires = "fuzz")]
    keep: Option<PathBuf>,
    /// Leaves cases that are kept as they are. To make them smaller the original is asked many times.
    #[arg(long, requires = "keep")]
    whole: bool,
}

/// How many random cases the original is asked about at a time.
const BATCH: usize = 500;

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut out = io::stdout().lock();
    if let Some(&[seed, count]) = arguments.fuzz.as_deref() {
        return fuzz(&mut out, &arguments, seed, count);
    }
    let own = [own_cases()];
    let paths = if arguments.paths.is_empty() { &own[..] } else { &arguments.paths };
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

/// Compares random cases with the original.
fn fuzz(
    out: &mut impl io::Write,
    arguments: &Arguments,
    seed: u64,
    count: u64,
) -> anyhow::Result<ExitCode> {
    ensure!(count > 0, "--fuzz {seed} 0 compares nothing: give a number of cases");
    let named = env::var_os("HEADWATER_ORACLE").filter(|name| !name.is_empty()).map(PathBuf::from);
    let oracle = arguments.oracle.clone().or(named);
    let oracle = oracle.context(
        "random cases are compared with the original: give the directory of the oracle with \
         --oracle or HEADWATER_ORACLE",
    )?;
    let original = Original::at(&oracle)?;
    let hunt =
        Hunt { original: &original, seed, shrinks: arguments.keep.is_some() && !arguments.whole };
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let (mut total, mut kept) = (Hunted::default(), Vec::new());
    for first in (0..count).step_by(BATCH) {
        let hunted = hunt.run((first..count).take(BATCH))?;
        total.equal += hunted.equal;
        total.by_order += hunted.by_order;
        total.drops_by_order += hunted.drops_by_order;
        total.by_store += hunted.by_store;
        total.by_mistake += hunted.by_mistake;
        for (case, outcome) in hunted.differing {
            tell(out, case["name"].as_str().unwrap_or_default(), &outcome)?;
            kept.push(case.to_string());
        }
        if let Some(file) = &arguments.keep {
            keep(file, &kept)?;
        }
    }
    let seconds = clock.monotonic().saturating_sub(began).as_secs_f64().max(0.001);
    let cases = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let Hunted { equal, by_order, drops_by_order, by_store, by_mistake, .. } = total;
    writeln!(
        out,
        "seed {seed}: {:.1} cases a second; set aside: {by_order} that hang on the order of topics, \
         {drops_by_order} more whose number of dropped records does, {by_store} on what stores in memory and caches of the original show, {by_mistake} that it cannot build or run",
        cases / seconds
    )?;
    writeln!(out, "{equal} equal, {} differ", kept.len())?;
    Ok(exit_code(kept.is_empty()))
}

/// Writes cases to a file, one a line; nothing if there are none.
fn keep(file: &Path, cases: &[String]) -> anyhow::Result<()> {
    if cases.is_empty() {
        return Ok(());
    }
    let lines = cases.join("\n") + "\n";
    fs::write(file, lines).with_context(|| format!("the cases that differ, in {}", file.display()))
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
