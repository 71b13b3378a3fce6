//! What a benchmark needs beside the program under test: input topics, a look at a running program
//! from outside, and checksums of what it wrote.

mod input;
mod measure;
mod sums;

use clap::{Parser, Subcommand};
use headwater::broker::{NewTopic, Topics as _};
use headwater::kafka::{Kafka, KafkaOptions};

#[derive(Parser)]
struct Arguments {
    /// Bootstrap servers.
    #[arg(long, global = true, default_value = "localhost:9092")]
    bootstrap: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Creates an output topic of four partitions, whose records stay.
    Create { topic: String },
    /// Creates and fills one of the input topics.
    Fill {
        /// Its name: u10k, m10k, x10k, u1m, s100k, t100k, left, right.
        topic: String,
    },
    /// Watches a program until its group has committed everything, and tells what it took.
    Measure(measure::Arguments),
    /// Counts records and tells checksums over all of them and over the last of each key.
    Sums { topic: String },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let kafka = Kafka::connect(KafkaOptions::new(arguments.bootstrap.parse()?)).await?;
    let text = match &arguments.command {
        Command::Create { topic } => {
            create(&kafka, topic).await?;
            format!("{topic} created")
        }
        Command::Fill { topic } => {
            create(&kafka, topic).await?;
            format!("{topic} filled with {} records", input::fill(&kafka, topic).await?)
        }
        Command::Measure(arguments) => measure::run(&kafka, arguments).await?.to_string(),
        Command::Sums { topic } => sums::of_topic(&kafka, topic).await?.to_string(),
    };
    say(&text);
    Ok(())
}

async fn create(kafka: &Kafka, topic: &str) -> anyhow::Result<()> {
    let keep_all = ("retention.ms".to_owned(), "-1".to_owned());
    kafka
        .create_topic(&NewTopic {
            name: topic.into(),
            partitions: 4,
            replication_factor: Some(1),
            configs: [keep_all].into(),
        })
        .await?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a program talks to its user")]
fn say(text: &str) {
    println!("{text}");
}

/// The last step of splitmix64: a number that looks random.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
