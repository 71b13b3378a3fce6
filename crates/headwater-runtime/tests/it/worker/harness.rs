//! A worker with one counting task, and the test in the place of fetcher and committer.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::TopicPartition;
use headwater_records::{Batch, BatchBuilder, BatchRecords, Compression, Record};
use headwater_runtime::{
    CachedUpdate, CommittedTask, Cx, FailureKind, FetchedInput, FlushListener, FromWorker,
    InputStart, NewTask, NodeIndex, Now, NullPart, Partitioning, Program, RawRecord, SealedCommit,
    SinkProgram, SinkSlot, SourceNode, SourceProgram, Step, StoreBackendChoice, StoreProgram,
    StoreSlot, TaskError, TaskWatch, ToWorker, Worker, WorkerConfig,
};
use headwater_store::{MemoryBackend, OpenOptions, StoreBackend, WriteBatch};
use headwater_topology::{StoreKind, StoreSpec, TaskId};

pub(super) const TASK: TaskId = TaskId::new(0, 0);

/// Counts records by key; forwards `old->new` of each count.
#[derive(Debug)]
struct CountSource;

impl SourceNode for CountSource {
    fn process(&self, cx: &mut Cx<'_>, record: &RawRecord<'_>) -> Result<(), TaskError> {
        let node = NodeIndex(1);
        cx.enter(node);
        let Some(key) = record.key else {
            return cx.null_record(node, NullPart::Key);
        };
        match record.value {
            Some(b"panic") => panic!("told to"),
            Some(b"fail") => return cx.failed(node, FailureKind::Processing, "told to".into()),
            Some(b"commit") => cx.request_commit(),
            _ => {}
        }
        let stored = cx.get(StoreSlot(0), key)?;
        let old = stored.map(|bytes| u64::from_be_bytes(bytes[8..].try_into().unwrap()));
        let new = old.unwrap_or(0) + 1;
        cx.put(StoreSlot(0), key, Some(&new.to_be_bytes()), record.timestamp)?;
        if cx.application_id() == "cached" {
            return Ok(());
        }
        send_change(cx, key, old, Some(new), record.timestamp)
    }
}

/// Forwards `old->new` of a count that leaves the cache; does not like one of the keys.
#[derive(Debug)]
struct CountListener;

impl FlushListener for CountListener {
    fn forward(&self, cx: &mut Cx<'_>, update: CachedUpdate<'_>) -> Result<(), TaskError> {
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
        let (old, new) = (update.old.map(number), update.new.map(number));
        assert_ne!(update.key, b"panic", "told to");
        send_change(cx, update.key, old, new, update.timestamp)
    }
}

fn send_change(
    cx: &mut Cx<'_>,
    key: &[u8],
    old: Option<u64>,
    new: Option<u64>,
    timestamp: i64,
) -> Result<(), TaskError> {
    let show =
        |count: Option<u64>| count.map_or_else(|| "none".to_owned(), |count| count.to_string());
    let text = format!("{}->{}", show(old), show(new));
    cx.send(SinkSlot(0), Some(key), Some(text.as_bytes()), timestamp, Partitioning::Default)
}

pub(super) fn counting_program(caching: bool) -> Program {
    let nodes = ["source", "count", "sink"].map(Arc::from).to_vec();
    let store = StoreSpec::new("counts", StoreKind::TimestampedKeyValue).with_caching(caching);
    Program {
        operators: Vec::new(),
        global_stores: Vec::new(),
        chooses_topics: false,
        nodes,
        sources: vec![SourceProgram {
            node: NodeIndex(0),
            topics: vec!["in".into(), "in2".into()],
            source: Arc::new(CountSource),
            reset: None,
        }],
        stores: vec![StoreProgram {
            spec: store,
            backend: StoreBackendChoice::InMemory,
            changelog: Some("app-counts-changelog".into()),
            source_is_changelog: false,
            by_time: false,
            with_headers: false,
            own_retention_ms: None,
            flush: Some(Arc::new(CountListener)),
            formats: None,
        }],
        processors: Vec::new(),
        sinks: vec![SinkProgram { node: NodeIndex(2), topic: "out".into() }],
    }
}

pub(super) struct Harness {
    pub(super) worker: Worker,
    pub(super) now: Now,
    offsets: BTreeMap<TopicPartition, i64>,
    /// What was written, by topic, as `key=value@timestamp`.
    pub(super) written: BTreeMap<String, Vec<String>>,
    commits: Vec<SealedCommit>,
    /// Everything else the worker said.
    pub(super) said: Vec<FromWorker>,
    pub(super) unacknowledged: usize,
}

impl Harness {
    pub(super) fn new(mut config: WorkerConfig) -> Self {
        let counts = ["out", "app-counts-changelog", "dead"].map(|topic| (topic.into(), 1));
        config.partition_counts = Arc::new(BTreeMap::from(counts));
        let now = Now { monotonic: Duration::from_secs(100), wall_ms: 1_000_000 };
        Self {
            worker: Worker::new(config, now),
            now,
            offsets: BTreeMap::new(),
            written: BTreeMap::new(),
            commits: Vec::new(),
            said: Vec::new(),
            unacknowledged: 0,
        }
    }

    /// A worker that counts; `caching` with a cache of 1 MiB.
    pub(super) fn counting(config: WorkerConfig, caching: bool) -> Self {
        let mut harness = Self::new(config);
        let name = if caching { "cached" } else { "app" };
        harness.add_task(counting_program(caching), name, &["in"]);
        harness
    }

    pub(super) fn add_task(&mut self, program: Program, application_id: &str, inputs: &[&str]) {
        let backend = MemoryBackend::new();
        let storage = backend.open(Path::new("0_0"), &OpenOptions::default()).unwrap();
        let mut storages = vec![storage];
        let stores = NewTask::open_places(&program, &mut storages, |_| 0).unwrap();
        let inputs = inputs.iter().map(|topic| InputStart {
            topic_partition: TopicPartition::new(*topic, 0),
            offset: 0,
            partition_time: -1,
            processor_metadata: BTreeMap::default(),
        });
        self.worker.handle(ToWorker::AddTask(Box::new(NewTask {
            id: TASK,
            application_id: application_id.into(),
            program: Arc::new(program),
            inputs: inputs.collect(),
            storages,
            stores,
            state_dir: std::path::PathBuf::new(),
            global_stores: headwater_runtime::hosting::GlobalStores::default(),
            read_cache_bytes: 1 << 20,
            watch: Arc::new(TaskWatch::default()),
        })));
    }

    /// Gives the task records of `topic`, `(key, value, timestamp)`; an empty key is null.
    pub(super) fn fetch(&mut self, topic: &str, records: &[(&str, &str, i64)]) {
        self.fetch_with_end(topic, records, 0);
    }

    /// As [`fetch`](Self::fetch); so many records more are at the broker.
    pub(super) fn fetch_with_end(&mut self, topic: &str, records: &[(&str, &str, i64)], more: i64) {
        let topic_partition = TopicPartition::new(topic, 0);
        let offset = self.offsets.entry(topic_partition.clone()).or_default();
        let batches = batch(*offset, records);
        *offset += i64::try_from(records.len()).unwrap();
        let (next_offset, end_offset) = (*offset, *offset + more);
        self.worker.handle(ToWorker::Fetched(vec![FetchedInput {
            task: TASK,
            topic_partition,
            batches,
            bytes: 100,
            offset: next_offset - i64::try_from(records.len()).unwrap(),
            next_offset,
            end_offset,
        }]));
    }

    /// As [`fetch`](Self::fetch), from an offset of the test's choice.
    pub(super) fn fetch_at(&mut self, topic: &str, offset: i64, records: &[(&str, &str, i64)]) {
        self.offsets.insert(TopicPartition::new(topic, 0), offset);
        self.fetch(topic, records);
    }

    /// Tells the task that an input begins anew at another offset, because its own is not in the log.
    pub(super) fn reset(&mut self, topic: &str, to: i64) {
        let topic_partition = TopicPartition::new(topic, 0);
        let offset = self.offsets.insert(topic_partition.clone(), to).unwrap_or_default();
        self.worker.handle(ToWorker::Fetched(vec![FetchedInput {
            task: TASK,
            topic_partition,
            batches: Vec::new(),
            bytes: 0,
            offset,
            next_offset: to,
            end_offset: to,
        }]));
    }

    /// Steps until the worker waits, and takes in what it says.
    pub(super) fn run(&mut self) -> Step {
        for _ in 0..1_000 {
            let step = self.worker.step(self.now);
            self.listen();
            if step != Step::Again {
                return step;
            }
        }
        panic!("the worker does not come to rest");
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now.monotonic += time;
        self.now.wall_ms += i64::try_from(time.as_millis()).unwrap();
    }

    fn listen(&mut self) {
        let messages: Vec<FromWorker> = self.worker.take_messages().collect();
        for message in messages {
            match message {
                FromWorker::Produce(output) => {
                    let mut produced = output.batch;
                    self.unacknowledged += produced.batch.size_bytes();
                    let topic = produced.topic_partition.topic.to_string();
                    let batch = Batch::new(produced.batch.stamp_none()).unwrap();
                    let records = batch.decompress(1 << 20).unwrap();
                    let lines = records.iter().map(|record| show(&record.unwrap()));
                    self.written.entry(topic).or_default().extend(lines);
                }
                FromWorker::Commit(commit) => self.commits.push(commit),
                other => self.said.push(other),
            }
        }
    }

    /// What was written to a topic since the last call.
    pub(super) fn take_written(&mut self, topic: &str) -> Vec<String> {
        self.written.remove(topic).unwrap_or_default()
    }

    pub(super) fn take_commit(&mut self) -> Option<SealedCommit> {
        assert!(self.commits.len() <= 1, "at most one commit is under way");
        self.commits.pop()
    }

    /// Does what a committer does, and tells the worker. Answers the committed offsets.
    pub(super) fn finish_commit(&mut self) -> Vec<(String, i64)> {
        let commit = self.take_commit().expect("a commit is under way");
        let mut offsets = Vec::new();
        let mut tasks = Vec::new();
        for sealed in commit.tasks {
            for offset in &sealed.offsets {
                offsets.push((offset.topic_partition.to_string(), offset.offset));
            }
            let mut storages = Vec::new();
            for mut stored in sealed.storages {
                let mut batch: WriteBatch = stored.batch;
                stored.storage.apply(batch.sort(), &stored.meta).unwrap();
                storages.push(stored.storage);
            }
            tasks.push(CommittedTask { task: sealed.task, storages });
        }
        self.worker.handle(ToWorker::Committed(tasks));
        offsets
    }
}

fn batch(base_offset: i64, records: &[(&str, &str, i64)]) -> Vec<BatchRecords> {
    if records.is_empty() {
        return Vec::new();
    }
    let mut builder = BatchBuilder::new(Compression::None);
    for (key, value, timestamp) in records {
        let key = (!key.is_empty()).then_some(key.as_bytes());
        let value = Some(value.as_bytes());
        builder.append(Record { timestamp: *timestamp, key, value, headers: &[] }).unwrap();
    }
    let mut bytes = builder.finish().stamp_none().to_vec();
    headwater_records::set_base_offset(&mut bytes, base_offset, 0).unwrap();
    vec![Batch::new(bytes.into()).unwrap().decompress(1 << 20).unwrap()]
}

fn show(record: &headwater_records::RecordRef<'_>) -> String {
    let text = |bytes: Option<&[u8]>| match bytes {
        None => "null".to_owned(),
        Some(bytes) => match <[u8; 8]>::try_from(bytes) {
            Ok(number) => u64::from_be_bytes(number).to_string(),
            Err(_) => String::from_utf8_lossy(bytes).into_owned(),
        },
    };
    format!("{}={}@{}", text(record.key), text(record.value), record.timestamp)
}
