//! An application that counts words over a repartition topic, a broker, and ways to look at both.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headwater_broker::{
    Broker, Clock, CommittedOffset, FetchPartition, FetchRequest, GroupId, Isolation, NewTopic,
    OffsetQuery, OffsetSpec, Offsets, ProduceBatch, TopicName, TopicPartition, Topics,
    WriterOptions,
};
use headwater_changelog::{CommittedFilter, RestoreListener};
use headwater_embedded::{Embedded, EmbeddedOptions};
use headwater_records::{BatchBuilder, Batches, Compression, Record};
use headwater_runtime::{
    Application, Cx, Execution, FailureKind, Instance, InstanceBuilder, InstanceState, NodeIndex,
    Partitioning, Program, RawRecord, SinkProgram, SinkSlot, SourceNode, SourceProgram, StartError,
    StateDirError, StoreBackendChoice, StoreProgram, StoreSlot, StreamsConfig, TaskError,
    UserError,
};
use headwater_store::{MemoryBackend, StoreBackend};
use headwater_topology::{
    InternalTopicProperties, SinkTopic, SourceOptions, StoreKind, StoreSpec, Topics as Reads,
    Topology, TopologyBuilder,
};

pub(super) const APPLICATION: &str = "count";
pub(super) const CHANGELOG: &str = "count-counts-changelog";
pub(super) const REPARTITION: &str = "count-words-repartition";
/// Partitions of `lines`, `counts` and the repartition topic.
pub(super) const PARTITIONS: i32 = 2;

/// Counts the words of topic `lines` into store `counts` and topic `counts`.
#[derive(Debug, Default)]
pub(super) struct WordCount {
    /// Called with every word before it is counted.
    pub(super) on_word: Option<OnWord>,
}

#[derive(Clone)]
pub(super) struct OnWord(pub(super) Arc<WordHook>);

type WordHook = dyn Fn(&str) -> Result<(), UserError> + Send + Sync;

/// Key and value of a record to write.
type KeyValue<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

impl fmt::Debug for OnWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnWord")
    }
}

impl Application for WordCount {
    fn topology(&self, application_id: &str) -> Result<Topology, UserError> {
        let mut builder = TopologyBuilder::new();
        let from = SourceOptions::default;
        builder.add_source("lines", Reads::one("lines"), from())?;
        builder.add_sink("to-words", SinkTopic::named("words-repartition"), ["lines"])?;
        builder.add_internal_topic("words-repartition", InternalTopicProperties::default());
        builder.add_source("words", Reads::one("words-repartition"), from())?;
        builder.add_processor("count", ["words"])?;
        let store = StoreSpec::new("counts", StoreKind::TimestampedKeyValue);
        builder.add_state_store(store, ["count"])?;
        builder.add_sink("to-counts", SinkTopic::named("counts"), ["count"])?;
        Ok(builder.build(application_id)?)
    }

    fn programs(&self, topology: &Topology) -> Result<BTreeMap<u32, Arc<Program>>, UserError> {
        let split = Program {
            operators: Vec::new(),
            global_stores: Vec::new(),
            chooses_topics: false,
            nodes: vec!["lines".into(), "to-words".into()],
            sources: vec![source("lines", Arc::new(Split))],
            sinks: vec![SinkProgram { node: NodeIndex(1), topic: TopicName::from(REPARTITION) }],
            ..Program::default()
        };
        let store = topology.store("counts").expect("it was added");
        let counter = Arc::new(Count { on_word: self.on_word.clone() });
        let count = Program {
            operators: Vec::new(),
            global_stores: Vec::new(),
            chooses_topics: false,
            nodes: vec!["words".into(), "count".into(), "to-counts".into()],
            sources: vec![source(REPARTITION, counter)],
            stores: vec![StoreProgram {
                spec: (*store.spec).clone(),
                backend: StoreBackendChoice::Persistent,
                changelog: Some(TopicName::from(CHANGELOG)),
                source_is_changelog: false,
                by_time: false,
                with_headers: false,
                own_retention_ms: None,
                flush: None,
                formats: None,
            }],
            sinks: vec![SinkProgram { node: NodeIndex(2), topic: TopicName::from("counts") }],
            ..Program::default()
        };
        Ok(BTreeMap::from([(0, Arc::new(split)), (1, Arc::new(count))]))
    }
}

fn source(topic: &str, source: Arc<dyn SourceNode>) -> SourceProgram {
    SourceProgram { node: NodeIndex(0), topics: vec![topic.into()], source, reset: None }
}

/// Sends every word of a line to the repartition topic.
#[derive(Debug)]
struct Split;

impl SourceNode for Split {
    fn process(&self, cx: &mut Cx<'_>, record: &RawRecord<'_>) -> Result<(), TaskError> {
        let line = record.value.unwrap_or_default();
        for word in line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()) {
            cx.send(SinkSlot(0), Some(word), Some(b""), record.timestamp, Partitioning::Default)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Count {
    on_word: Option<OnWord>,
}

impl SourceNode for Count {
    fn process(&self, cx: &mut Cx<'_>, record: &RawRecord<'_>) -> Result<(), TaskError> {
        let word = record.key.expect("words have keys");
        cx.enter(NodeIndex(1));
        if let Some(OnWord(on_word)) = &self.on_word
            && let Err(error) = on_word(&String::from_utf8_lossy(word))
        {
            return cx.failed(NodeIndex(1), FailureKind::Processing, error);
        }
        let stored = cx.get(StoreSlot(0), word)?;
        let count = stored.map_or(0, |stored| number(&stored[8..])) + 1;
        cx.put(StoreSlot(0), word, Some(&count.to_be_bytes()), record.timestamp)?;
        let value = count.to_be_bytes();
        cx.send(SinkSlot(0), Some(word), Some(&value), record.timestamp, Partitioning::Default)
    }
}

pub(super) fn number(bytes: &[u8]) -> i64 {
    i64::from_be_bytes(bytes.try_into().expect("8 bytes"))
}

/// Tokio's time, which tests pause.
#[derive(Debug)]
pub(super) struct TestClock {
    start: tokio::time::Instant,
    wall_ms: i64,
}

impl TestClock {
    /// A clock whose wall-clock time is `wall_ms` now.
    pub(super) fn new(wall_ms: i64) -> Self {
        Self { start: tokio::time::Instant::now(), wall_ms }
    }
}

impl Clock for TestClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
    fn wall_ms(&self) -> i64 {
        self.wall_ms + i64::try_from(self.start.elapsed().as_millis()).unwrap()
    }
}

/// Hears where restores begin and how much they read.
#[derive(Debug, Default)]
pub(super) struct Restores(Mutex<Vec<String>>);

impl RestoreListener for Restores {
    fn on_restore_start(&self, changelog: &TopicPartition, _: &str, start: i64, end: i64) {
        self.0.lock().unwrap().push(format!("{} from {start} to {end}", changelog.partition));
    }
    fn on_restore_end(&self, changelog: &TopicPartition, _: &str, total: u64) {
        self.0.lock().unwrap().push(format!("{} read {total}", changelog.partition));
    }
}

impl Restores {
    /// What was heard since the last call, sorted.
    pub(super) fn take(&self) -> Vec<String> {
        let mut heard = std::mem::take(&mut *self.0.lock().unwrap());
        heard.sort();
        heard
    }
}

/// A broker with the application's topics, and a place for state.
#[derive(Debug)]
pub(super) struct World {
    pub(super) broker: Embedded,
    pub(super) clock: Arc<TestClock>,
    pub(super) directory: tempfile::TempDir,
    pub(super) backend: MemoryBackend,
    pub(super) restores: Arc<Restores>,
}

impl World {
    pub(super) async fn new() -> Self {
        let world = Self::without_topics();
        for topic in ["lines", "counts"] {
            world.create(topic, PARTITIONS, &[]).await;
        }
        world
    }

    pub(super) fn without_topics() -> Self {
        let clock = Arc::new(TestClock::new(1_700_000_000_000));
        let options = EmbeddedOptions::new()
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .maintenance_interval(None);
        Self {
            broker: Embedded::in_memory_with(options),
            clock,
            directory: tempfile::tempdir().unwrap(),
            backend: MemoryBackend::durable(),
            restores: Arc::default(),
        }
    }

    pub(super) async fn create(&self, name: &str, partitions: i32, configs: &[(&str, &str)]) {
        let configs = configs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let topic = NewTopic { name: name.into(), partitions, replication_factor: None, configs };
        self.broker.create_topic(&topic).await.unwrap();
    }

    pub(super) fn config(&self) -> StreamsConfig {
        StreamsConfig::new(APPLICATION)
            .state_dir(self.directory.path())
            .commit_interval_ms(100)
            .session_timeout_ms(3000)
            .heartbeat_interval_ms(50)
            .task_timeout_ms(2000)
            .statestore_cache_max_bytes(0)
    }

    pub(super) fn builder(&self, application: impl Application + 'static) -> InstanceBuilder {
        let backend: Arc<dyn StoreBackend> = Arc::new(self.backend.clone());
        Instance::builder(application)
            .config(self.config())
            .broker(Arc::new(self.broker.clone()))
            .store_backend(backend)
            .clock(Arc::clone(&self.clock) as Arc<dyn Clock>)
            .execution(Execution::InPlace)
            .restore_listener(Arc::clone(&self.restores) as Arc<dyn RestoreListener>)
    }

    pub(super) async fn start(&self) -> Instance {
        self.builder(WordCount::default()).start().await.unwrap()
    }

    /// Starts after a crash: what was dropped lets go of the state directory a moment later.
    pub(super) async fn start_again(&self) -> Instance {
        loop {
            match self.builder(WordCount::default()).start().await {
                Ok(instance) => return instance,
                Err(StartError::StateDir(StateDirError::Locked { .. })) => {
                    tokio::task::yield_now().await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Writes a line to `lines`, partition 0.
    pub(super) async fn write(&self, line: &str) {
        self.write_to("lines", 0, &[(None, Some(line.as_bytes()))]).await;
    }

    pub(super) async fn write_to(&self, topic: &str, partition: i32, records: &[KeyValue<'_>]) {
        write_to((&self.broker, &self.clock), topic, partition, records).await;
    }

    /// Key and value of every record of a topic, partition by partition.
    pub(super) async fn read(&self, topic: &str) -> Vec<(String, Option<Vec<u8>>)> {
        self.read_as(topic, Isolation::ReadUncommitted).await
    }

    pub(super) async fn read_as(
        &self,
        topic: &str,
        isolation: Isolation,
    ) -> Vec<(String, Option<Vec<u8>>)> {
        let description = self.broker.describe_topics(&[topic.into()]).await.unwrap().remove(0);
        let mut found = Vec::new();
        for partition in 0..description.map_or(0, |topic| topic.partitions) {
            let at = TopicPartition::new(topic, partition);
            self.read_partition(&at, isolation, &mut found).await;
        }
        found
    }

    async fn read_partition(
        &self,
        topic_partition: &TopicPartition,
        isolation: Isolation,
        found: &mut Vec<(String, Option<Vec<u8>>)>,
    ) {
        let mut offset = self.offset(topic_partition, OffsetSpec::Earliest).await;
        let mut reader = self.broker.reader();
        loop {
            let partition = FetchPartition {
                topic_partition: topic_partition.clone(),
                topic_id: None,
                offset,
                max_bytes: 1 << 20,
            };
            let request = FetchRequest {
                partitions: vec![partition],
                max_wait: Duration::ZERO,
                max_bytes: 1 << 20,
                isolation,
            };
            let data = reader.fetch(&request).await.unwrap().remove(0).outcome.unwrap();
            if data.batches.is_empty() {
                return;
            }
            let mut filter = CommittedFilter::new(data.aborted);
            for batch in Batches::new(data.batches) {
                let batch = batch.unwrap();
                offset = batch.header().last_offset + 1;
                if !filter.counts(&batch).unwrap() {
                    continue;
                }
                for record in &batch.decompress(1 << 20).unwrap() {
                    let record = record.unwrap();
                    let key = String::from_utf8_lossy(record.key.unwrap_or_default());
                    found.push((key.into_owned(), record.value.map(<[u8]>::to_vec)));
                }
            }
        }
    }

    pub(super) async fn offset(&self, topic_partition: &TopicPartition, spec: OffsetSpec) -> i64 {
        let query = OffsetQuery { topic_partition: topic_partition.clone(), spec };
        let found = self.broker.list_offsets(&[query], Isolation::ReadUncommitted).await.unwrap();
        found[0].unwrap().offset
    }

    /// The last count of every word in topic `counts`.
    pub(super) async fn counts(&self) -> BTreeMap<String, i64> {
        let records = self.read("counts").await;
        records.into_iter().map(|(word, count)| (word, number(&count.unwrap()))).collect()
    }

    /// Waits until topic `counts` says this.
    pub(super) async fn wait_for_counts(&self, expected: &[(&str, i64)]) {
        let expected: BTreeMap<String, i64> =
            expected.iter().map(|(word, count)| ((*word).to_owned(), *count)).collect();
        let counts = self.wait_until(|counts| *counts == expected).await;
        assert_eq!(counts, expected);
    }

    /// Waits, not for ever, until topic `counts` says what is wanted; what it says then.
    pub(super) async fn wait_until(
        &self,
        is_it: impl Fn(&BTreeMap<String, i64>) -> bool,
    ) -> BTreeMap<String, i64> {
        for _ in 0..600 {
            let counts = self.counts().await;
            if is_it(&counts) {
                return counts;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.counts().await
    }

    /// Waits, not for ever, until all input is processed and that is committed.
    pub(super) async fn wait_for_the_end(&self) {
        for _ in 0..600 {
            if self.is_at_the_end("lines").await && self.is_at_the_end(REPARTITION).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the input is not processed");
    }

    async fn is_at_the_end(&self, topic: &str) -> bool {
        for (partition, committed) in (0..).zip(self.committed(topic).await) {
            let topic_partition = TopicPartition::new(topic, partition);
            let end = self.offset(&topic_partition, OffsetSpec::Latest).await;
            if committed.unwrap_or(0) != end {
                return false;
            }
        }
        true
    }

    /// What the group has committed for a topic, by partition.
    pub(super) async fn committed(&self, topic: &str) -> Vec<Option<i64>> {
        let partitions: Vec<_> =
            (0..PARTITIONS).map(|partition| TopicPartition::new(topic, partition)).collect();
        let group = GroupId::from(APPLICATION);
        let committed = self.broker.committed_offsets(&group, &partitions, true).await.unwrap();
        let offset = |committed: Option<CommittedOffset>| committed.map(|it| it.offset);
        committed.into_iter().map(offset).collect()
    }
}

/// Writes records with the present time.
pub(super) async fn write_to(
    (broker, clock): (&Embedded, &TestClock),
    topic: &str,
    partition: i32,
    records: &[KeyValue<'_>],
) {
    let mut writer = broker.writer(WriterOptions::default()).await.unwrap();
    let mut batch = BatchBuilder::new(Compression::None);
    for &(key, value) in records {
        let timestamp = clock.wall_ms();
        batch.append(Record { timestamp, key, value, headers: &[] }).unwrap();
    }
    let topic_partition = TopicPartition::new(topic, partition);
    writer.send(ProduceBatch { topic_partition, batch: batch.finish() }).await.unwrap();
}

/// Waits until the instance runs.
pub(super) async fn running(instance: &Instance) {
    let until = instance.wait_for(|state| state == InstanceState::Running || state.is_final());
    let state = tokio::time::timeout(Duration::from_mins(1), until).await;
    assert_eq!(state, Ok(InstanceState::Running), "{:?}", instance.error());
}

/// Waits until the instance has stopped.
pub(super) async fn stopped(instance: &Instance) -> InstanceState {
    let until = instance.wait_for(InstanceState::is_final);
    tokio::time::timeout(Duration::from_mins(1), until).await.expect("it stops")
}

pub(super) async fn close(instance: Instance) {
    instance.close(Duration::from_secs(30)).await.unwrap();
}

/// Whether any task directory is there.
pub(super) fn files(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .map(|entries| {
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}
