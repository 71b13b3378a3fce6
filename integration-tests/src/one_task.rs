//! One whole task without threads, time or a broker: batches in, counted, batches out. The ground of
//! the benches and of the proof that the record path does not allocate.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use headwater::broker::{Clock, SystemClock, TopicPartition};
use headwater::records::{Batch, set_base_offset};
use headwater::runtime::{
    Application, CommittedTask, FetchedInput, FromWorker, InputStart, MetricsScope, NewTask, Now,
    RecordingLevel, Step, StreamsConfig, TaskWatch, ToWorker, Worker, WorkerConfig,
};
use headwater::store::{OpenOptions, StoreBackend};
use headwater::topology::TaskId;
use headwater_testing::RecordedMetrics;

mod work;

pub use work::Work;

use work::{BATCH_RECORDS, BATCHES, batches};

const TASK: TaskId = TaskId::new(0, 0);
const APPLICATION: &str = "one-task";
/// The largest batch is a fraction of this.
const BATCH_BYTES_MAX: usize = 1 << 24;

/// What the task runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneTaskOptions {
    /// What it does.
    pub work: Work,
    /// Different keys, uniformly drawn.
    pub keys: u64,
    /// Bytes of record cache; 0: every update goes downstream.
    pub cache_bytes: usize,
    /// Bytes of clean entries kept for reading.
    pub read_cache_bytes: usize,
    /// Records between two commits.
    pub commit_records: u64,
    /// Different batches. When the last was given the first comes again, and time goes back.
    pub batches: usize,
    /// How long a batch takes, by the clock of the metrics, when these are told to a recorder, all there are.
    pub recorded: Option<Duration>,
}

impl Default for OneTaskOptions {
    fn default() -> Self {
        Self {
            work: Work::Count,
            keys: 10_000,
            cache_bytes: 0,
            read_cache_bytes: 64 << 20,
            commit_records: 100_000,
            batches: BATCHES,
            recorded: None,
        }
    }
}

/// A task, and the batches it is fed with.
#[derive(Debug)]
pub struct OneTask {
    worker: Worker,
    now: Now,
    /// Encoded, each with base offset 0.
    batches: Vec<Vec<u8>>,
    next_batch: usize,
    /// Of each input.
    next_offsets: Vec<i64>,
    options: OneTaskOptions,
    uncommitted: u64,
    /// Records written, to output and changelog together.
    written: u64,
}

impl OneTask {
    /// A task whose store is kept by `backend` in `directory`.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub fn new(
        backend: &dyn StoreBackend,
        directory: &Path,
        options: OneTaskOptions,
    ) -> anyhow::Result<Self> {
        let topology = options.work.topology(options.cache_bytes > 0)?;
        let graph = topology.topology(APPLICATION).map_err(anyhow::Error::from_boxed)?;
        let programs = topology.programs(&graph).map_err(anyhow::Error::from_boxed)?;
        let program = programs.into_values().next().context("the topology has no sub-topology")?;
        let mut storages = vec![backend.open(directory, &OpenOptions::default())?];
        let stores = NewTask::open_places(&program, &mut storages, |_| 0)?;
        let now = Now { monotonic: Duration::ZERO, wall_ms: 0 };
        let counts = options.work.written().into_iter().map(|topic| (topic.into(), 1));
        let config = WorkerConfig {
            cache_bytes_max: options.cache_bytes,
            unacknowledged_bytes_max: usize::MAX,
            uncommitted_bytes_max: usize::MAX,
            partition_counts: Arc::new(counts.collect::<BTreeMap<_, _>>()),
            metrics: options.recorded.map(|_| {
                let config =
                    StreamsConfig::new(APPLICATION).metrics_recording_level(RecordingLevel::Debug);
                MetricsScope::new(RecordedMetrics::new().recorder(), &config)
            }),
            stopwatch: options.recorded.map(|_| Arc::new(SystemClock::new()) as Arc<dyn Clock>),
            ..WorkerConfig::default()
        };
        let mut worker = Worker::new(config, now);
        worker.handle(ToWorker::AddTask(Box::new(NewTask {
            id: TASK,
            application_id: APPLICATION.into(),
            program,
            inputs: options.work.inputs().iter().map(|input| start_of(input)).collect(),
            storages,
            stores,
            state_dir: std::path::PathBuf::new(),
            global_stores: headwater::runtime::hosting::GlobalStores::default(),
            read_cache_bytes: options.read_cache_bytes,
            watch: Arc::new(TaskWatch::default()),
        })));
        let batches = batches(options)?;
        Ok(Self {
            worker,
            now,
            batches,
            next_batch: 0,
            next_offsets: vec![0; options.work.inputs().len()],
            options,
            uncommitted: 0,
            written: 0,
        })
    }

    /// Processes so many batches of 500 records each, and answers how many records that were.
    pub fn run(&mut self, batches: usize) -> u64 {
        for _ in 0..batches {
            self.feed();
            self.work();
        }
        batches as u64 * u64::from(BATCH_RECORDS)
    }

    /// Commits what is not committed yet.
    pub fn commit(&mut self) {
        self.worker.handle(ToWorker::CommitNow);
        self.work();
        self.uncommitted = 0;
    }

    /// Records written so far, to output and changelog together.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// What a fetcher does: a batch off the wire, checked, handed over.
    fn feed(&mut self) {
        let inputs = self.options.work.inputs();
        let (input, next_offset) = {
            let turn = self.next_batch % inputs.len();
            (inputs[turn], &mut self.next_offsets[turn])
        };
        let mut bytes = self.batches[self.next_batch].clone();
        self.next_batch = (self.next_batch + 1) % self.batches.len();
        let offset = *next_offset;
        *next_offset += i64::from(BATCH_RECORDS);
        let next_offset = *next_offset;
        set_base_offset(&mut bytes, offset, 0).expect("a batch has a header");
        let batch = Batch::new(bytes.into()).expect("a batch of our own");
        let records = batch.decompress(BATCH_BYTES_MAX).expect("a batch of our own");
        self.worker.handle(ToWorker::Fetched(vec![FetchedInput {
            task: TASK,
            topic_partition: TopicPartition::new(input, 0),
            batches: vec![records],
            bytes: 0,
            offset,
            next_offset,
            end_offset: next_offset,
        }]));
        self.uncommitted += u64::from(BATCH_RECORDS);
        self.now.monotonic += self.options.recorded.unwrap_or_default();
        if self.uncommitted >= self.options.commit_records {
            self.uncommitted = 0;
            self.worker.handle(ToWorker::CommitNow);
        }
    }

    /// Steps until there is nothing to do, in the place of sender and committer.
    fn work(&mut self) {
        loop {
            let step = self.worker.step(self.now);
            let messages: Vec<FromWorker> = self.worker.take_messages().collect();
            for message in messages {
                match message {
                    FromWorker::Produce(output) => {
                        let mut produced = output.batch;
                        self.written += u64::from(produced.batch.count());
                        std::hint::black_box(produced.batch.stamp_none());
                    }
                    FromWorker::Commit(commit) => {
                        let tasks = commit.tasks.into_iter().map(|sealed| CommittedTask {
                            task: sealed.task,
                            storages: sealed
                                .storages
                                .into_iter()
                                .map(|mut sealed| {
                                    let batch = sealed.batch.sort();
                                    let applied = sealed.storage.apply(batch, &sealed.meta);
                                    applied.expect("the store takes the writes");
                                    sealed.storage
                                })
                                .collect(),
                        });
                        let tasks = tasks.collect();
                        self.worker.handle(ToWorker::Committed(tasks));
                    }
                    FromWorker::Consumed { .. } => {}
                    FromWorker::TaskClosed(_)
                    | FromWorker::TaskFailed { .. }
                    | FromWorker::Abort => {
                        unreachable!("the task goes on for ever")
                    }
                }
            }
            if step != Step::Again {
                return;
            }
        }
    }
}

fn start_of(input: &str) -> InputStart {
    InputStart {
        topic_partition: TopicPartition::new(input, 0),
        offset: 0,
        partition_time: -1,
        processor_metadata: BTreeMap::default(),
    }
}
