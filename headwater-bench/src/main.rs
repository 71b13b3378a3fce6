//! Headwater as the application under test of a benchmark: the program that a measuring kit starts
//! with a workload's name, topics and options, that tells what happens on standard output, and that
//! ends in good order at SIGTERM.
//!
//! ```sh
//! headwater-bench --workload W3 --bootstrap localhost:9092 --app-id count --state-dir state \
//!     --in lines --out counts
//! ```
//!
//! It uses the public interface of `headwater` only, so what is measured is what a user gets.

mod copy;
mod events;
mod joins;
mod options;
mod streams;
mod topologies;
mod windows;

use std::process::ExitCode;

use clap::Parser as _;

use options::{Options, Workload};

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")),
        )
        .with_writer(std::io::stderr)
        .init();
    let options = Options::parse();
    match run(&options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            events::say("ERROR", &format!("{error:#}").replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> anyhow::Result<()> {
    options.check()?;
    match options.workload {
        Workload::B1 => copy::run(options).await,
        _ => streams::run(options).await,
    }
}
