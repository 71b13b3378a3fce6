//! Counts words: a stateful stream job on a broker inside the process, or on a Kafka cluster.
//!
//! ```sh
//! cargo run --release --example word_count -- FILE...
//! cargo run --release --example word_count -- --bootstrap localhost:9092 FILE...
//! ```
//!
//! Lines of text go into the topic `lines`; the job cuts them into words, groups by word over a
//! repartition topic, counts in a store, and writes every count to the topic `counts`. Broker and
//! state lie in a directory, so a second run goes on counting. Without a file a part of Shakespeare
//! is counted.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use headwater::broker::simple::{self, TopicWriter};
use headwater::broker::{Broker, BrokerError, Clock, SystemClock};
use headwater::embedded::{Embedded, EmbeddedOptions};
use headwater::kafka::{BootstrapServers, Kafka, KafkaOptions};
use headwater::prelude::*;
use headwater::{Headwater, Instance, StreamsConfig};
use tokio::signal::unix::{SignalKind, signal};

const APPLICATION: &str = "word-count";
const LINES: &str = "lines";
const COUNTS: &str = "counts";
const REPARTITION: &str = "word-count-counts-repartition";
const PARTITIONS: i32 = 4;

#[derive(Parser)]
struct Arguments {
    /// Text files to count; none: the text that comes with the example.
    files: Vec<PathBuf>,
    /// Servers of a Kafka cluster, HOST:PORT; without them a broker runs inside this process.
    #[arg(long, value_name = "HOST:PORT,...")]
    bootstrap: Option<BootstrapServers>,
    /// Where the state is kept, and the broker if it is inside.
    #[arg(long, default_value = "headwater-data")]
    data_dir: PathBuf,
    /// Stream threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Time between two commits.
    #[arg(long, default_value_t = 200)]
    commit_interval_ms: u64,
    /// How many of the most frequent words to show.
    #[arg(long, default_value_t = 10)]
    top: usize,
    /// Print the topology as JSON, for `headwater describe` and `headwater diff`, and do nothing else.
    #[arg(long)]
    describe: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")),
        )
        .with_writer(std::io::stderr)
        .init();
    let arguments = Arguments::parse();
    if arguments.describe {
        say(&word_count()?.describe_json(APPLICATION)?);
        return Ok(());
    }
    let broker = broker(&arguments).await?;
    for topic in [LINES, COUNTS] {
        simple::create_topic(&*broker, topic, PARTITIONS).await?;
    }
    let written = write_input(&*broker, &arguments.files).await?;
    say(&format!("{written} lines written to topic {LINES}"));

    let instance = start(&broker, &arguments).await?;
    let stopped = tokio::select! {
        biased;
        signal = stop_signal() => { say(&format!("{} received", signal?)); true }
        result = wait_until_counted(&*broker, &instance) => { result?; false }
    };
    instance.close(Duration::from_secs(30)).await?;
    say(if stopped { "committed and closed; run again to go on" } else { "committed and closed" });
    show_top(&*broker, arguments.top).await
}

/// The job. This is all of it.
fn word_count() -> Result<Topology, DslError> {
    let builder = StreamsBuilder::new();
    builder
        .stream(LINES, Consumed::with(Utf8, Utf8))
        .flat_map_values(|line, out| words(line).for_each(|word| out.emit(word)))
        .group_by(|_, word| word.clone(), Grouped::with(Utf8, Utf8))
        .count(Materialized::named("counts"))
        .to_stream()
        .to(COUNTS, Produced::with(Utf8, Long));
    builder.build()
}

fn words(line: &str) -> impl Iterator<Item = String> {
    line.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

/// What this program writes its input to and reads its output from, and the job works on.
async fn broker(arguments: &Arguments) -> anyhow::Result<Arc<dyn Broker>> {
    if let Some(servers) = &arguments.bootstrap {
        let options = KafkaOptions::new(servers.clone());
        return Ok(Arc::new(Kafka::connect(options).await?));
    }
    let directory = arguments.data_dir.join("broker");
    Ok(Arc::new(Embedded::open(directory, EmbeddedOptions::default())?))
}

async fn start(broker: &Arc<dyn Broker>, arguments: &Arguments) -> anyhow::Result<Instance> {
    let config = StreamsConfig::new(APPLICATION)
        .state_dir(arguments.data_dir.join("state"))
        .num_stream_threads(arguments.threads)
        .commit_interval_ms(arguments.commit_interval_ms);
    let topology = word_count()?;
    say(&topology.describe());
    let builder = Headwater::builder(topology).config(config);
    let builder = match &arguments.bootstrap {
        Some(servers) => builder.bootstrap_servers(servers.to_string()),
        None => builder.broker(Arc::clone(broker)),
    };
    Ok(builder.start().await?)
}

/// Appends the lines of all files to the topic.
async fn write_input(broker: &dyn Broker, files: &[PathBuf]) -> anyhow::Result<i64> {
    let mut writer = TopicWriter::new(broker, LINES).await?;
    let mut written = 0;
    // A topic keeps records for as long as their timestamps say.
    let now_ms = SystemClock::new().wall_ms();
    let mut write = |text: &str| {
        for line in text.lines() {
            writer.add(now_ms, None, Some(line.as_bytes()))?;
            written += 1;
        }
        Ok::<(), BrokerError>(())
    };
    if files.is_empty() {
        write(include_str!("text/shakespeare.txt"))?;
    }
    for file in files {
        write(&read_text(file)?)?;
    }
    writer.flush().await?;
    Ok(written)
}

/// A file's text; bytes that are not UTF-8 are replaced.
fn read_text(file: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Shows progress until everything is processed and committed.
async fn wait_until_counted(broker: &dyn Broker, instance: &Instance) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(Duration::from_millis(250));
    loop {
        ticks.tick().await;
        if let Some(error) = instance.error() {
            anyhow::bail!("the job stopped: {error}");
        }
        let lines = simple::lag(broker, APPLICATION, LINES).await?;
        let words = simple::lag(broker, APPLICATION, REPARTITION).await?;
        say(&format!("{:?}: {lines} lines and {words} words to go", instance.state()));
        if lines + words == 0 {
            return Ok(());
        }
    }
}

/// Waits for Ctrl-C or SIGTERM.
async fn stop_signal() -> anyhow::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        biased;
        _ = terminate.recv() => Ok("SIGTERM"),
        result = tokio::signal::ctrl_c() => result.map(|()| "Ctrl-C").map_err(Into::into),
    }
}

/// Reads the topic of counts, as any consumer could, and shows the largest.
async fn show_top(broker: &dyn Broker, top: usize) -> anyhow::Result<()> {
    let mut last = HashMap::new();
    for record in simple::read_topic(broker, COUNTS).await? {
        let word = String::from_utf8(record.key.unwrap_or_default())?;
        let count: [u8; 8] = record.value.as_deref().unwrap_or_default().try_into()?;
        last.insert(word, i64::from_be_bytes(count));
    }
    let mut counts: Vec<(String, i64)> = last.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let total: i64 = counts.iter().map(|(_, count)| count).sum();
    say(&format!("{total} words counted, {} different ones; the most frequent:", counts.len()));
    for (word, count) in counts.iter().take(top) {
        say(&format!("{count:>10}  {word}"));
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a program talks to its user")]
fn say(text: &str) {
    println!("{text}");
}
