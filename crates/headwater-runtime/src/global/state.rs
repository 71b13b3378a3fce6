//! The one task that keeps the global stores up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::TopicPartition;
use headwater_records::BatchRecords;
use headwater_store::{ChangelogPosition, StoreError, TaskStorage};
use headwater_topology::TaskId;

use super::{GlobalError, GlobalStores, OpenedGlobal};
use crate::config::StreamsConfig;
use crate::instance::ChangelogEnds;
use crate::process::{ExceptionHandler, Failure, Handlers, Program, Reaction, log_and_fail};
use crate::query::LocalStore;
use crate::task::{InputStart, MaxTaskIdle, NewTask, StorePlace, TaskWatch};
use crate::worker::{
    CommittedTask, FetchedInput, FromWorker, Now, SealedCommit, SealedStorage, SealedTask, Step,
    ToWorker, Worker, WorkerConfig,
};

/// What was fetched of one partition of a global topic.
#[derive(Debug)]
pub struct GlobalFetch {
    /// The partition.
    pub topic_partition: TopicPartition,
    /// Checked and decompressed batches with data.
    pub batches: Vec<BatchRecords>,
    /// Where the fetch began.
    pub offset: i64,
    /// Where the next one begins.
    pub next_offset: i64,
    /// Where the partition ended when it was fetched.
    pub end_offset: i64,
}

/// The global stores of an instance, with what fills them. It has no I/O but that of its backends, and
/// does nothing unless it is told: [`take`](Self::take) blocks.
#[derive(Debug)]
pub struct GlobalState {
    worker: Worker,
    id: TaskId,
    stores: GlobalStores,
    inputs: BTreeMap<TopicPartition, Input>,
    /// Bytes written since the last sync.
    unsynced: usize,
}

/// How far a partition has been read, and into which of the storages.
#[derive(Debug)]
struct Input {
    position: ChangelogPosition,
    storage: usize,
}

type Storages = Vec<Box<dyn TaskStorage>>;

/// What is read for long is made safe in stretches of so many bytes, so that a crash does not cost all.
const SYNC_BYTES: usize = 64 * 1024 * 1024;

/// The settings of the worker of global stores: no cache, since others read what it has written; and
/// no commit but those that it is told to do.
///
/// Dead letters are not written, as in Kafka Streams (feature row E6): there is no writer.
pub fn global_worker_config(config: &StreamsConfig, handlers: &Handlers) -> WorkerConfig {
    let deserialization: Arc<dyn ExceptionHandler> =
        Arc::new(WithoutDeadLetters(Arc::clone(&handlers.deserialization)));
    let processing: Arc<dyn ExceptionHandler> =
        if config.processing_exception_handler_global_enabled {
            Arc::new(WithoutDeadLetters(Arc::clone(&handlers.processing)))
        } else {
            Arc::new(log_and_fail())
        };
    let production = Arc::clone(&handlers.production);
    let handlers = Handlers { deserialization, processing, production };
    WorkerConfig {
        exactly_once: false,
        commit_interval: Duration::MAX,
        max_task_idle: MaxTaskIdle::Never,
        cache_bytes_max: 0,
        ..WorkerConfig::of_thread(config, handlers, Arc::default())
    }
}

/// A handler whose dead letters are dropped like other records.
struct WithoutDeadLetters(Arc<dyn ExceptionHandler>);

impl ExceptionHandler for WithoutDeadLetters {
    fn handle(&self, failure: &Failure<'_>) -> Reaction {
        match self.0.handle(failure) {
            Reaction::DeadLetter(topic) => {
                tracing::warn!(node = failure.node, %topic, "records of global topics are no dead letters");
                Reaction::Continue
            }
            reaction => reaction,
        }
    }
}

impl GlobalState {
    /// Sets the global stores up, as far as they hold their topics; `ends` are those of the partitions
    /// of `opened`. Stores that have to be read anew are emptied.
    ///
    /// # Errors
    /// What the backends report, or a processor that cannot be made.
    pub fn new(
        (id, application_id): (TaskId, Arc<str>),
        program: Arc<Program>,
        mut opened: OpenedGlobal,
        ends: &[ChangelogEnds],
        (config, watch, now): (WorkerConfig, Arc<TaskWatch>, Now),
    ) -> Result<Self, GlobalError> {
        let failed = |source| GlobalError::Store { source };
        let begins = opened.begin(ends, now.wall_ms).map_err(failed)?;
        let OpenedGlobal { state_dir, storages, places, partitions, .. } = opened;
        let stores = GlobalStores::new(local_stores(&program, &storages, &places));
        let inputs: BTreeMap<TopicPartition, Input> = partitions
            .iter()
            .zip(begins)
            .map(|(partition, position)| {
                let storage = places[partition.store].storage;
                (partition.topic_partition.clone(), Input { position, storage })
            })
            .collect();
        let starts = inputs.iter().map(|(topic_partition, input)| InputStart {
            topic_partition: topic_partition.clone(),
            offset: input.position.next_offset,
            partition_time: -1,
            processor_metadata: BTreeMap::new(),
        });
        let task = NewTask {
            id,
            application_id,
            state_dir,
            program,
            inputs: starts.collect(),
            storages,
            stores: places,
            global_stores: GlobalStores::default(),
            read_cache_bytes: 0,
            watch,
        };
        let mut worker = Worker::new(config, now);
        worker.handle(ToWorker::AddTask(Box::new(task)));
        let mut state = Self { worker, id, stores, inputs, unsynced: 0 };
        state.settle(now)?;
        Ok(state)
    }

    /// The stores, to be read by tasks and queries. They stay readable for as long as this lives.
    pub fn stores(&self) -> GlobalStores {
        self.stores.clone()
    }

    /// The id that the global stores have among the tasks.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// The partitions, and where the next fetch of each begins.
    pub fn positions(&self) -> impl Iterator<Item = (&TopicPartition, i64)> {
        self.inputs.iter().map(|(partition, input)| (partition, input.position.next_offset))
    }

    /// Where the next fetch of a partition begins.
    pub(crate) fn position(&self, topic_partition: &TopicPartition) -> i64 {
        self.inputs.get(topic_partition).map_or(0, |input| input.position.next_offset)
    }

    /// Processes what was fetched, and writes what came of it to the stores: all of a record or, if
    /// the process is killed meanwhile, perhaps part of it, which the next start reads once more.
    ///
    /// `complete_at_ms`: when the stores are known to hold everything that was in the topics then.
    ///
    /// # Errors
    /// A record that failed, or what the backends report; the state is of no use then.
    pub fn take(
        &mut self,
        fetched: Vec<GlobalFetch>,
        complete_at_ms: Option<i64>,
        now: Now,
    ) -> Result<(), GlobalError> {
        let task = self.id;
        let inputs = fetched.into_iter().map(|fetch| {
            let GlobalFetch { topic_partition, batches, offset, next_offset, end_offset } = fetch;
            FetchedInput {
                task,
                topic_partition,
                batches,
                bytes: 0,
                offset,
                next_offset,
                end_offset,
            }
        });
        self.worker.handle(ToWorker::Fetched(inputs.collect()));
        self.settle(now)?;
        if let Some(ms) = complete_at_ms {
            self.inputs.values_mut().for_each(|input| input.position.at_end_ms = Some(ms));
            self.worker.handle(ToWorker::CommitTask(self.id));
        }
        self.worker.handle(ToWorker::CommitNow);
        self.settle(now).map(drop)
    }

    /// Makes everything safe that was written.
    ///
    /// # Errors
    /// What the backends report.
    pub fn close(mut self, now: Now) -> Result<(), GlobalError> {
        let id = self.id;
        self.worker.handle(ToWorker::CommitTask(id));
        self.worker.handle(ToWorker::CloseTask(id));
        let Some(storages) = self.settle(now)? else { return Ok(()) };
        let closed = storages.into_iter().try_for_each(TaskStorage::close);
        closed.map_err(|source| GlobalError::Store { source })
    }

    /// Works until there is nothing more to do. The storages come back when the task has left.
    fn settle(&mut self, now: Now) -> Result<Option<Storages>, GlobalError> {
        let mut left = None;
        loop {
            let step = self.worker.step(now);
            let messages: Vec<FromWorker> = self.worker.take_messages().collect();
            let mut has_committed = false;
            for message in messages {
                match message {
                    FromWorker::Commit(commit) => {
                        self.apply(commit)?;
                        has_committed = true;
                    }
                    FromWorker::TaskFailed { error, .. } => return Err(error.into()),
                    FromWorker::TaskClosed(closed) => left = Some(closed.storages),
                    FromWorker::Consumed { .. } | FromWorker::Abort => {}
                    FromWorker::Produce(_) => unreachable!("global processors have no sinks"),
                }
            }
            if step != Step::Again && !has_committed {
                self.worker.publish_metrics();
                return Ok(left);
            }
        }
    }

    /// Writes what was processed to the backends, with how far the topics are in it.
    fn apply(&mut self, commit: SealedCommit) -> Result<(), GlobalError> {
        let failed = |source| GlobalError::Store { source };
        let mut committed = Vec::with_capacity(commit.tasks.len());
        for SealedTask { task, offsets, storages } in commit.tasks {
            for offset in offsets {
                if let Some(input) = self.inputs.get_mut(&offset.topic_partition) {
                    input.position.next_offset = offset.offset;
                }
            }
            let mut applied = Vec::with_capacity(storages.len());
            for (index, sealed) in storages.into_iter().enumerate() {
                applied.push(self.apply_to(index, sealed).map_err(failed)?);
            }
            committed.push(CommittedTask { task, storages: applied });
        }
        self.stores.changed();
        self.worker.handle(ToWorker::Committed(committed));
        Ok(())
    }

    fn apply_to(
        &mut self,
        index: usize,
        sealed: SealedStorage,
    ) -> Result<Box<dyn TaskStorage>, StoreError> {
        let SealedStorage { mut storage, mut batch, mut meta, .. } = sealed;
        let own = self.inputs.iter().filter(|(_, input)| input.storage == index);
        meta.extend(own.map(|(TopicPartition { topic, partition }, input)| {
            input.position.update(topic.as_str(), *partition)
        }));
        self.unsynced += batch.bytes();
        storage.apply(batch.sort(), &meta)?;
        if self.unsynced >= SYNC_BYTES {
            self.unsynced = 0;
            storage.sync()?;
        }
        Ok(storage)
    }
}

fn local_stores(
    program: &Program,
    storages: &[Box<dyn TaskStorage>],
    places: &[StorePlace],
) -> Vec<LocalStore> {
    let stores = program.stores.iter().zip(places);
    let local = stores.map(|(store, place)| LocalStore {
        name: store.spec.name.as_str().into(),
        space: place.space,
        reader: storages[place.storage].reader(),
    });
    local.collect()
}
