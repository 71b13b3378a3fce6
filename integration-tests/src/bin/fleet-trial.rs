//! One instance of a fleet, for the tests that start, close, freeze and kill several of them on a real
//! Kafka.
//!
//! ```sh
//! fleet-trial worker --bootstrap localhost:9092 --application count --name a --data-dir state
//! ```

use clap::{Parser, Subcommand};
use integration_tests::fleet::{Worker, WorkerOptions};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs an instance until it is told to close.
    Worker(WorkerOptions),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match Arguments::parse().command {
        Command::Worker(options) => Worker::run(&options).await,
    }
}
