//! Runs a built case, as section 11 of the format says: every input record is processed to the end,
//! internal topics included, before the next one, with a commit after each record.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headwater::broker::TopicPartition;
use headwater::records::{Batch, BatchBuilder, BatchRecords, Compression, Header, Record};
use headwater::runtime::{
    CommittedTask, FetchedInput, FromWorker, InputStart, NewTask, Now, Program, SealedCommit, Step,
    TaskWatch, ToWorker, Worker, WorkerConfig,
};
use headwater::store::{MemoryBackend, OpenOptions, StoreBackend};
use headwater::topology::TaskId;

/// More than any record of a case.
const LIMIT_BYTES: usize = 1 << 20;

/// A record in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) timestamp: i64,
    pub(super) headers: Vec<(String, Option<Vec<u8>>)>,
}

/// A stream thread with a task for each sub-topology, and the logs around it.
pub(super) struct Driver {
    worker: Worker,
    now: Now,
    /// The task that reads a topic.
    readers: BTreeMap<String, TaskId>,
    offsets: BTreeMap<String, i64>,
    waiting: BTreeMap<String, VecDeque<Bytes>>,
    /// What was written since the last call of [`take_written`](Self::take_written).
    written: Vec<(String, Bytes)>,
    commits: Vec<SealedCommit>,
    failed: Option<String>,
}

impl Driver {
    pub(super) fn new(
        programs: &BTreeMap<u32, Arc<Program>>,
        config: WorkerConfig,
        wall_ms: i64,
    ) -> Self {
        let now = Now { monotonic: Duration::ZERO, wall_ms };
        let mut driver = Self {
            worker: Worker::new(config, now),
            now,
            readers: BTreeMap::new(),
            offsets: BTreeMap::new(),
            waiting: BTreeMap::new(),
            written: Vec::new(),
            commits: Vec::new(),
            failed: None,
        };
        for (&number, program) in programs {
            driver.add_task(number, program);
        }
        driver.run();
        driver
    }

    fn add_task(&mut self, number: u32, program: &Arc<Program>) {
        let id = TaskId::new(number, 0);
        let topics: Vec<String> =
            program.sources.iter().flat_map(|it| &it.topics).map(ToString::to_string).collect();
        let storage = MemoryBackend::new()
            .open(Path::new("task"), &OpenOptions::default())
            .expect("memory can be opened");
        let mut storages = vec![storage];
        let stores = NewTask::open_places(program, &mut storages, |_| 0).expect("a new storage");
        let input = |topic: &String| InputStart {
            topic_partition: TopicPartition::new(topic.as_str(), 0),
            offset: 0,
            partition_time: -1,
        };
        self.worker.handle(ToWorker::AddTask(Box::new(NewTask {
            id,
            application_id: "app".into(),
            program: Arc::clone(program),
            inputs: topics.iter().map(input).collect(),
            storages,
            stores,
            read_cache_bytes: 0,
            watch: Arc::new(TaskWatch::default()),
        })));
        for topic in topics {
            self.readers.insert(topic.clone(), id);
            self.fetch(&topic, Vec::new(), 0);
        }
    }

    /// Processes a record of a topic, and all that follows from it. Answers whether the task still
    /// runs.
    pub(super) fn pipe(&mut self, topic: &str, record: Bytes) -> bool {
        if self.readers.contains_key(topic) {
            self.waiting.entry(topic.to_owned()).or_default().push_back(record);
        }
        self.process_waiting();
        self.failed.is_none()
    }

    pub(super) fn advance_wall_clock(&mut self, ms: u64) -> bool {
        self.now.monotonic += Duration::from_millis(ms);
        self.now.wall_ms += i64::try_from(ms).expect("a short time");
        self.run();
        self.process_waiting();
        self.failed.is_none()
    }

    /// Topics and records in the order in which they were written.
    pub(super) fn take_written(&mut self) -> Vec<(String, Bytes)> {
        std::mem::take(&mut self.written)
    }

    /// Why the task has failed.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    fn process_waiting(&mut self) {
        while self.failed.is_none() {
            let heads = self.waiting.iter().filter_map(|(topic, records)| {
                records.front().map(|record| (record.timestamp, topic.clone()))
            });
            let Some((_, topic)) = heads.min() else { return };
            let record = self.waiting.get_mut(&topic).and_then(VecDeque::pop_front);
            let record = record.expect("the topic has a head");
            let offset = self.offsets.entry(topic.clone()).or_default();
            let batches = batch(*offset, &record);
            *offset += 1;
            let next_offset = *offset;
            self.fetch(&topic, batches, next_offset);
            self.run();
        }
    }

    /// At most one record, which ends before `next_offset`.
    fn fetch(&mut self, topic: &str, batches: Vec<BatchRecords>, next_offset: i64) {
        self.worker.handle(ToWorker::Fetched(FetchedInput {
            task: self.readers[topic],
            topic_partition: TopicPartition::new(topic, 0),
            offset: next_offset - i64::try_from(batches.len()).expect("at most one"),
            batches,
            bytes: 0,
            next_offset,
            end_offset: next_offset,
        }));
    }

    /// Steps until nothing is left to do, commits, and steps again.
    fn run(&mut self) {
        self.step_to_rest();
        self.worker.handle(ToWorker::CommitNow);
        self.step_to_rest();
        while let Some(commit) = self.commits.pop() {
            let tasks = commit.tasks.into_iter().map(|sealed| {
                let storages = sealed.storages.into_iter().map(|mut stored| {
                    let mut batch = stored.batch;
                    stored.storage.apply(batch.sort(), &stored.meta).expect("memory takes it");
                    stored.storage
                });
                CommittedTask { task: sealed.task, storages: storages.collect() }
            });
            let tasks = tasks.collect();
            self.worker.handle(ToWorker::Committed(tasks));
            self.step_to_rest();
        }
    }

    fn step_to_rest(&mut self) {
        for _ in 0..10_000 {
            let step = self.worker.step(self.now);
            let messages: Vec<FromWorker> = self.worker.take_messages().collect();
            for message in messages {
                self.listen(message);
            }
            if step != Step::Again {
                return;
            }
        }
        panic!("the worker does not come to rest");
    }

    fn listen(&mut self, message: FromWorker) {
        match message {
            FromWorker::Produce(mut produced) => {
                let bytes = produced.batch.size_bytes();
                let batch = Batch::new(produced.batch.stamp_none()).expect("our own batch");
                let records = batch.decompress(LIMIT_BYTES).expect("our own batch");
                let topic = produced.topic_partition.topic.to_string();
                for record in &records {
                    let record = record.expect("our own record");
                    let headers = record
                        .headers
                        .iter()
                        .map(|header| (header.name.to_owned(), header.value.map(<[u8]>::to_vec)));
                    let record = Bytes {
                        key: record.key.map(<[u8]>::to_vec),
                        value: record.value.map(<[u8]>::to_vec),
                        timestamp: record.timestamp,
                        headers: headers.collect(),
                    };
                    if self.readers.contains_key(&topic) {
                        self.waiting.entry(topic.clone()).or_default().push_back(record.clone());
                    }
                    self.written.push((topic.clone(), record));
                }
                self.worker.handle(ToWorker::Acknowledged { bytes });
            }
            FromWorker::Commit(commit) => self.commits.push(commit),
            FromWorker::TaskFailed { error, .. } => {
                self.failed.get_or_insert_with(|| error.to_string());
            }
            FromWorker::Consumed { .. } | FromWorker::TaskClosed(_) => {}
            FromWorker::Abort => unreachable!("the cases are run at least once"),
        }
    }
}

fn batch(base_offset: i64, record: &Bytes) -> Vec<BatchRecords> {
    let headers: Vec<Header<'_>> = record
        .headers
        .iter()
        .map(|(name, value)| Header { name, value: value.as_deref() })
        .collect();
    let mut builder = BatchBuilder::new(Compression::None);
    let record = Record {
        timestamp: record.timestamp,
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &headers,
    };
    builder.append(record).expect("a small record");
    let mut bytes = builder.finish().stamp_none().to_vec();
    headwater::records::set_base_offset(&mut bytes, base_offset, 0).expect("our own batch");
    let batch = Batch::new(bytes.into()).expect("our own batch");
    vec![batch.decompress(LIMIT_BYTES).expect("our own batch")]
}
