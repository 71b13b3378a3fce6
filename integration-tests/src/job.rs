//! The word count under test, on an embedded broker in a directory or on a real Kafka.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use headwater::broker::{Broker, BrokerError, OffsetSpec, TopicPartition, simple};
use headwater::embedded::{Embedded, EmbeddedOptions};
use headwater::kafka::{Kafka, KafkaOptions};
use headwater::prelude::*;
use headwater::{Headwater, ProcessingGuarantee, RestoreListener, StreamsConfig};
use tokio::time::Instant;

/// Partitions of every topic.
pub const PARTITIONS: i32 = 4;
/// A Kafka that is away for longer is given up.
const KAFKA_AWAY_LIMIT: Duration = Duration::from_mins(3);

/// How the job runs.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// The application's id; its topics begin with it.
    pub application: String,
    /// Bootstrap servers of a Kafka; `None`: the embedded broker in the directory.
    pub bootstrap: Option<String>,
    /// Where state is kept, and the embedded broker.
    pub data_dir: PathBuf,
    /// Stream threads.
    pub threads: usize,
    /// Time between two commits, in milliseconds.
    pub commit_interval_ms: u64,
    /// Record cache in bytes; 0: every update goes downstream.
    pub cache_bytes: u64,
    /// The job is not done before so many lines have come.
    pub lines_expected: i64,
    /// Whether each word is to be counted exactly once. Then the job is a static member of its group,
    /// so that a restart after a kill need not wait for a session to end.
    pub exactly_once: bool,
}

impl JobOptions {
    /// Where lines come in.
    pub fn lines(&self) -> String {
        format!("{}.lines", self.application)
    }

    /// Where counts go out.
    pub fn counts(&self) -> String {
        format!("{}.counts", self.application)
    }

    /// Between the two sub-topologies.
    pub fn repartition(&self) -> String {
        format!("{}-counts-repartition", self.application)
    }

    /// Where the counts are logged.
    pub fn changelog(&self) -> String {
        format!("{}-counts-changelog", self.application)
    }

    /// The job's broker. Only one process at a time can have the embedded one.
    ///
    /// # Errors
    /// When its directory is in use or damaged, or the Kafka does not answer.
    pub async fn broker(&self) -> anyhow::Result<Arc<dyn Broker>> {
        if let Some(bootstrap) = &self.bootstrap {
            let options = KafkaOptions::new(bootstrap.parse()?);
            return Ok(Arc::new(Kafka::connect(options).await?));
        }
        Ok(Arc::new(Embedded::open(self.data_dir.join("broker"), EmbeddedOptions::default())?))
    }
}

/// The job.
#[derive(Debug)]
pub struct Job;

impl Job {
    /// Words of a line, as the job counts them.
    pub fn words(line: &str) -> impl Iterator<Item = &str> {
        line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
    }

    /// Runs until everything is counted and committed, then closes. Tells restores on standard
    /// output, one a line: `restore TOPIC-PARTITION FROM END`, then
    /// `restored TOPIC-PARTITION RECORDS`; and `running MILLISECONDS` when all tasks process, with the time
    /// since it began.
    ///
    /// # Errors
    /// When the job cannot start, or stops.
    pub async fn run(options: &JobOptions) -> anyhow::Result<()> {
        let began = Instant::now();
        let broker = options.broker().await?;
        let mut config = StreamsConfig::new(&options.application)
            .state_dir(options.data_dir.join("state"))
            .num_stream_threads(options.threads)
            .commit_interval_ms(options.commit_interval_ms)
            .statestore_cache_max_bytes(options.cache_bytes)
            // The trial looks at every record afterwards.
            .repartition_purge_interval_ms(86_400_000);
        if options.exactly_once {
            config = config
                .processing_guarantee(ProcessingGuarantee::ExactlyOnceV2)
                .group_instance_id("job");
        }
        let instance = Headwater::builder(Self::topology(options)?)
            .config(config)
            .broker(Arc::clone(&broker))
            .restore_listener(Arc::new(TellRestores))
            .start()
            .await
            .context("the job does not start")?;
        let work = async {
            instance.wait_for(|state| state == InstanceState::Running).await;
            tell(&format!("running {}", began.elapsed().as_millis()));
            Self::all_counted(&*broker, options).await
        };
        tokio::select! {
            biased;
            error = Self::failure(&instance) => return Err(error),
            counted = work => counted?,
        }
        instance.close(Duration::from_mins(1)).await?;
        tell("closed");
        Ok(())
    }

    /// Why the instance stopped, as soon as it does.
    async fn failure(instance: &Instance) -> anyhow::Error {
        instance.wait_for(InstanceState::is_ending).await;
        match instance.error() {
            Some(error) => anyhow::anyhow!("the job stopped: {error}"),
            None => anyhow::anyhow!("the job stopped without an error"),
        }
    }

    /// Until everything is counted and committed. A real Kafka may be away for a while; an
    /// embedded one may not.
    async fn all_counted(broker: &dyn Broker, options: &JobOptions) -> anyhow::Result<()> {
        let every = if options.bootstrap.is_some() { 500 } else { 20 };
        let mut ticks = tokio::time::interval(Duration::from_millis(every));
        let mut away_since = None;
        loop {
            let now = ticks.tick().await;
            match Self::left(broker, options).await {
                Ok(0) => return Ok(()),
                Ok(_) => away_since = None,
                Err(error) => {
                    let since = *away_since.get_or_insert(now);
                    let is_patient = options.bootstrap.is_some();
                    if !is_patient || now.duration_since(since) > KAFKA_AWAY_LIMIT {
                        return Err(error.into());
                    }
                    tell(&format!("cannot ask: {error}"));
                }
            }
        }
    }

    /// Records that are not counted and committed yet.
    async fn left(broker: &dyn Broker, options: &JobOptions) -> Result<i64, BrokerError> {
        let lines = simple::lag(broker, &options.application, &options.lines()).await?;
        let partitions = simple::partitions(broker, &options.lines()).await?;
        let ends = simple::offsets(broker, &partitions, OffsetSpec::Latest).await?;
        let lines = lines + (options.lines_expected - ends.iter().sum::<i64>()).max(0);
        if lines > 0 {
            return Ok(lines);
        }
        simple::lag(broker, &options.application, &options.repartition()).await
    }

    /// What the job runs.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn topology(options: &JobOptions) -> Result<Topology, DslError> {
        let builder = StreamsBuilder::new();
        builder
            .stream(options.lines(), Consumed::with(Utf8, Utf8))
            .flat_map_values(|line, out| {
                Self::words(line).for_each(|word| out.emit(word.to_owned()));
            })
            .group_by(|_, word| word.clone(), Grouped::with(Utf8, Utf8))
            .count(Materialized::named("counts"))
            .to_stream()
            .to(options.counts(), Produced::with(Utf8, Long));
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
