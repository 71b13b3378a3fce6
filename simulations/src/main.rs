//! Runs the standard simulations.
//!
//! ```sh
//! cargo xtask sim                                      # some hundreds of schedules, and a fresh seed
//! cargo xtask sim --seeds 0..20000                     # many
//! cargo xtask sim --seeds 17..18 --guarantee exactly-once --workload count
//! ```

use std::io::{self, Write as _};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use clap::Parser;
use headwater_broker::{Clock as _, SystemClock};
use headwater_runtime::ProcessingGuarantee;
use headwater_testing::sim::{SimulationError, Summary, Violation};
use simulations::{KEPT, Scheduled, Workload};

#[derive(Parser)]
#[command(name = "simulate", about = "Runs the standard simulations")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
struct Arguments {
    /// The seeds, as 0..500. Without: 0..300 and a fresh one, which is printed.
    #[arg(long, value_parser = seeds)]
    seeds: Option<Range<u64>>,
    /// `at-least-once` or `exactly-once`. Without: both, in turn.
    #[arg(long, value_parser = guarantee)]
    guarantee: Option<ProcessingGuarantee>,
    /// `stateless`, `count`, `cached-count`, `windowed`, `join` or `tight`. Without: all, in turn.
    #[arg(long)]
    workload: Option<Workload>,
    /// Groups of up to five instances, with standbys and warm-ups, and everything that can befall a group.
    #[arg(long)]
    group: bool,
    /// With `--group`: every group is of static members, and not one in four.
    #[arg(long = "static", requires = "group")]
    is_static: bool,
    /// The seeds that have found something, each without the kinds of faults that came later.
    #[arg(long, conflicts_with_all = ["seeds", "guarantee", "workload", "group"])]
    kept: bool,
    /// Stops after so many violations.
    #[arg(long, default_value_t = 1)]
    violations: usize,
    /// Only the last line of each violation's story, and the totals.
    #[arg(long)]
    brief: bool,
}

const STANDARD: Range<u64> = 0..300;
/// Between two lines that say how far it has come.
const TOLD_EVERY: Duration = Duration::from_secs(20);

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut out = io::stdout().lock();
    let clock = SystemClock::new();
    let mut total = Summary::default();
    let mut violations: Vec<Violation> = Vec::new();
    let mut told = Duration::ZERO;
    for run in runs(&arguments, &clock, &mut out)? {
        let workload = run.workload;
        match run.simulation()?.run_all(run.seed..run.seed + 1) {
            Ok(summary) => total.merge(&summary),
            Err(SimulationError::Violation(violation)) => {
                if arguments.brief {
                    let headline = violation.to_string();
                    writeln!(out, "{workload}: {}", headline.lines().next().unwrap_or_default())?;
                } else {
                    writeln!(out, "{workload}: {violation}")?;
                }
                violations.push(*violation);
            }
            Err(error) => return Err(error.into()),
        }
        if violations.len() >= arguments.violations {
            break;
        }
        let elapsed = clock.monotonic();
        if elapsed > told + TOLD_EVERY {
            told = elapsed;
            writeln!(out, "{}", so_far(&total, violations.len(), elapsed))?;
        }
    }
    writeln!(out, "{}", so_far(&total, violations.len(), clock.monotonic()))?;
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is to be run, in this order.
fn runs(
    arguments: &Arguments,
    clock: &SystemClock,
    out: &mut impl io::Write,
) -> Result<Vec<Scheduled>> {
    if arguments.kept {
        return Ok(KEPT.to_vec());
    }
    let mut ranges = vec![arguments.seeds.clone().unwrap_or(STANDARD)];
    if arguments.seeds.is_none() {
        let fresh = u64::try_from(clock.wall_ms()).unwrap_or(0);
        writeln!(out, "a fresh seed: {fresh}")?;
        ranges.push(fresh..fresh + 1);
    }
    let run = |seed| {
        let (workload, guarantee) = Workload::of_seed(seed);
        Scheduled {
            workload: arguments.workload.unwrap_or(workload),
            guarantee: arguments.guarantee.unwrap_or(guarantee),
            is_group: arguments.group,
            is_static: arguments.is_static,
            all_leave: false,
            without: &[],
            seed,
        }
    };
    Ok(ranges.into_iter().flatten().map(run).collect())
}

fn so_far(total: &Summary, violations: usize, elapsed: Duration) -> String {
    let per_minute = u128::from(total.schedules) * 60_000 / elapsed.as_millis().max(1);
    format!(
        "{} schedules, {} of static members, {} records, {} faults, {} crashes, {} back that were to remain, {} s of their time; {per_minute} a minute; {violations} violations",
        total.schedules,
        total.of_static,
        total.records,
        total.faults,
        total.crashes,
        total.returned,
        total.lasted_ms / 1_000
    )
}

fn seeds(text: &str) -> Result<Range<u64>> {
    let (from, to) = text.split_once("..").ok_or_else(|| anyhow!("seeds are given as 0..500"))?;
    Ok(from.parse().context("the first seed")?..to.parse().context("the seed after the last")?)
}

fn guarantee(text: &str) -> Result<ProcessingGuarantee> {
    match text {
        "at-least-once" => Ok(ProcessingGuarantee::AtLeastOnce),
        "exactly-once" => Ok(ProcessingGuarantee::ExactlyOnceV2),
        other => Err(anyhow!("{other} is no guarantee: at-least-once or exactly-once")),
    }
}
