//! Counts real text under `kill -9`, and compares with an independent count.
//!
//! ```sh
//! cargo run --release -p integration-tests --bin word-count-trial -- try --lines 1000000 --kills 20
//! ```
//!
//! On the embedded broker, or with `--bootstrap HOST:PORT` on a Kafka.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::{Args, Parser, Subcommand};
use integration_tests::{Again, Job, JobOptions, Trial, TrialOptions, TrialReport, real_lines};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the job once, until everything is counted.
    Run(RunArguments),
    /// Kills the job again and again and compares its result with an independent count.
    Try(TryArguments),
}

#[derive(Args)]
struct RunArguments {
    /// Bootstrap servers of a Kafka. Without: the embedded broker.
    #[arg(long)]
    bootstrap: Option<String>,
    /// The application's id, with which its topics begin. On a Kafka, one that it has not seen.
    #[arg(long, default_value = "word-count")]
    application: String,
    /// Where state is kept, and the embedded broker.
    #[arg(long)]
    data_dir: PathBuf,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    #[arg(long, default_value_t = 100)]
    commit_interval_ms: u64,
    #[arg(long, default_value_t = 10_485_760)]
    cache_bytes: u64,
    /// The job is not done before so many lines have come.
    #[arg(long, default_value_t = 0)]
    lines_expected: i64,
    /// Count each word exactly once.
    #[arg(long)]
    exactly_once: bool,
}

#[derive(Args)]
struct TryArguments {
    #[arg(long, default_value_t = 1_000_000)]
    lines: usize,
    /// How often the job is killed; 0: stop and restart in good order must be exact.
    #[arg(long, default_value_t = 20)]
    kills: usize,
    /// The longest time between start and kill.
    #[arg(long, default_value_t = 1_500)]
    longest_life_ms: u64,
    /// Random instants follow from it.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    run: RunArguments,
}

impl RunArguments {
    fn options(&self) -> JobOptions {
        JobOptions {
            application: self.application.clone(),
            bootstrap: self.bootstrap.clone(),
            data_dir: self.data_dir.clone(),
            threads: self.threads,
            commit_interval_ms: self.commit_interval_ms,
            cache_bytes: self.cache_bytes,
            lines_expected: self.lines_expected,
            exactly_once: self.exactly_once,
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match Arguments::parse().command {
        Command::Run(run) => Job::run(&run.options()).await,
        Command::Try(arguments) => try_it(&arguments).await,
    }
}

async fn try_it(arguments: &TryArguments) -> anyhow::Result<()> {
    ensure!(
        !arguments.run.data_dir.exists(),
        "{} exists; a trial begins with nothing",
        arguments.run.data_dir.display()
    );
    let seed = arguments.seed.unwrap_or_else(|| u64::from(std::process::id()));
    say(&format!("seed {seed}"));
    let lines = real_lines(arguments.lines);
    let options = TrialOptions {
        program: std::env::current_exe()?,
        job: arguments.run.options(),
        kills: arguments.kills,
        longest_life: Duration::from_millis(arguments.longest_life_ms),
        seed,
    };
    // In good order: half, close, the other half.
    let (first, second) = lines.split_at(lines.len() / 2);
    let trial = if arguments.kills == 0 {
        let trial = Trial::prepare(options, first).await?;
        show("first half", &trial.run().await?);
        trial.add(second).await?
    } else {
        Trial::prepare(options, &lines).await?
    };
    let report = trial.run().await?;
    show("in the end", &report);
    if !report.verdict.lost.is_empty() || !report.verdict.invented.is_empty() {
        bail!("records were lost or invented: {:?}", report.verdict);
    }
    ensure!(
        report.verdict.excess <= report.uncommitted,
        "more was counted twice ({}) than was uncommitted ({})",
        report.verdict.excess,
        report.uncommitted
    );
    if let Some(Again { written, counted }) = report.again {
        ensure!(
            report.verdict.excess == written + counted,
            "{} were counted twice, but {written} written and {counted} counted again",
            report.verdict.excess
        );
        say(&format!(
            "each record is accounted for: {written} words written again, {counted} counted again"
        ));
    }
    Ok(())
}

fn show(when: &str, report: &TrialReport) {
    say(&format!(
        "{when}: {} words, {} kills, {} words lost, {} counted again, of at most {} uncommitted",
        report.expected_total,
        report.kills,
        report.verdict.lost.len(),
        report.verdict.excess,
        report.uncommitted
    ));
    for (start, restores) in report.restores.iter().enumerate() {
        for restore in restores {
            say(&format!(
                "  start {start}: {} read from {} to {} ({} records)",
                restore.changelog,
                restore.from,
                restore.end,
                restore.end - restore.from
            ));
        }
    }
    say(&format!("  changelog ends {:?}", report.changelog_ends));
}

#[expect(clippy::print_stdout, reason = "a program talks to its user")]
fn say(text: &str) {
    println!("{text}");
}
