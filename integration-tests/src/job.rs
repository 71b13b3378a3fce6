//! The word count under test, on an embedded broker in a directory.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use headwater::broker::TopicPartition;
use headwater::broker::simple;
use headwater::embedded::{Embedded, EmbeddedOptions};
use headwater::prelude::*;
use headwater::{Headwater, RestoreListener, StreamsConfig};

/// The application's id.
pub(crate) const APPLICATION: &str = "word-count";
/// Where lines come in.
pub(crate) const LINES: &str = "lines";
/// Where counts go out.
pub(crate) const COUNTS: &str = "counts";
/// Between the two sub-topologies.
pub(crate) const REPARTITION: &str = "word-count-counts-repartition";
/// Where the counts are logged.
pub(crate) const CHANGELOG: &str = "word-count-counts-changelog";
/// Partitions of every topic.
pub(crate) const PARTITIONS: i32 = 4;

/// How the job runs.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// Where broker and state are kept.
    pub data_dir: PathBuf,
    /// Stream threads.
    pub threads: usize,
    /// Time between two commits, in milliseconds.
    pub commit_interval_ms: u64,
    /// Record cache in bytes; 0: every update goes downstream.
    pub cache_bytes: u64,
}

/// The job.
#[derive(Debug)]
pub struct Job;

impl Job {
    /// The broker in the job's directory. Only one process at a time can have it.
    ///
    /// # Errors
    /// When the directory is in use or damaged.
    pub fn open_broker(data_dir: &Path) -> anyhow::Result<Embedded> {
        Ok(Embedded::open(data_dir.join("broker"), EmbeddedOptions::default())?)
    }

    /// Words of a line, as the job counts them.
    pub fn words(line: &str) -> impl Iterator<Item = &str> {
        line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
    }

    /// Runs until everything is counted and committed, then closes. Tells restores on standard
    /// output, one a line: `restore TOPIC-PARTITION FROM END`, then
    /// `restored TOPIC-PARTITION RECORDS`.
    ///
    /// # Errors
    /// When the job cannot start, or stops.
    pub async fn run(options: &JobOptions) -> anyhow::Result<()> {
        let broker = Self::open_broker(&options.data_dir)?;
        let config = StreamsConfig::new(APPLICATION)
            .state_dir(options.data_dir.join("state"))
            .num_stream_threads(options.threads)
            .commit_interval_ms(options.commit_interval_ms)
            .statestore_cache_max_bytes(options.cache_bytes)
            // The trial looks at every record afterwards.
            .repartition_purge_interval_ms(86_400_000);
        let instance = Headwater::builder(Self::topology()?)
            .config(config)
            .broker(Arc::new(broker.clone()))
            .restore_listener(Arc::new(TellRestores))
            .start()
            .await
            .context("the job does not start")?;
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        loop {
            ticks.tick().await;
            if let Some(error) = instance.error() {
                anyhow::bail!("the job stopped: {error}");
            }
            let lines = simple::lag(&broker, APPLICATION, LINES).await?;
            if lines == 0 && simple::lag(&broker, APPLICATION, REPARTITION).await? == 0 {
                break;
            }
        }
        instance.close(Duration::from_mins(1)).await?;
        tell("closed");
        Ok(())
    }

    fn topology() -> Result<Topology, DslError> {
        let builder = StreamsBuilder::new();
        builder
            .stream(LINES, Consumed::with(Utf8, Utf8))
            .flat_map_values(|line, out| {
                Self::words(line).for_each(|word| out.emit(word.to_owned()));
            })
            .group_by(|_, word| word.clone(), Grouped::with(Utf8, Utf8))
            .count(Materialized::named("counts"))
            .to_stream()
            .to(COUNTS, Produced::with(Utf8, Long));
        builder.build()
    }
}

#[derive(Debug)]
struct TellRestores;

impl RestoreListener for TellRestores {
    fn on_restore_start(&self, changelog: &TopicPartition, _store: &str, start: i64, end: i64) {
        tell(&format!("restore {changelog} {start} {end}"));
    }

    fn on_restore_end(&self, changelog: &TopicPartition, _store: &str, total: u64) {
        tell(&format!("restored {changelog} {total}"));
    }
}

/// One line to the parent; a parent that is gone has nobody to hear it.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    let told = writeln!(out, "{line}").and_then(|()| out.flush());
    drop(told);
}
