//! What a driver consists of: one stream thread's worker, the tasks on it, and the logs around it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{OffsetCommit, TopicName, TopicPartition};
use headwater_records::partition_for_key;
use headwater_runtime::hosting::{QueryableStores, dropped_records};
use headwater_runtime::{
    CalledRecord, DroppedRecords, Now, Program, StoreQuestion, StoreSlot, TaskError, TaskWatch,
    ToWorker, Worker,
};
use headwater_store::{Direction, KeyRange, KeyValueBytes};
use headwater_topology::TaskId;
use tokio::sync::oneshot;

use super::global::Global;
use super::opening::StatePlaces;
use super::plan::{Plan, TaskSpec};
use crate::logs::Logs;
use crate::{Commits, ProducedRecord, TestDriverError, TopologyTestDriverBuilder};

/// The state of a driver.
pub(crate) struct Core {
    pub(super) worker: Worker,
    pub(super) now: Now,
    pub(super) application_id: Arc<str>,
    pub(super) global: Option<Global>,
    pub(super) tasks: BTreeMap<TaskId, TaskEntry>,
    /// Who reads a partition.
    pub(super) readers: BTreeMap<TopicPartition, TaskId>,
    /// All partitions are read as partition 0.
    pub(super) one_partition: bool,
    /// Topics whose records have one sequence of offsets.
    counted_together: Vec<Vec<TopicName>>,
    pub(super) commits: Commits,
    pub(super) logs: Logs,
    /// Up to where a partition has been handed to its task.
    pub(super) fed: BTreeMap<TopicPartition, i64>,
    pub(super) committed: BTreeMap<TopicPartition, OffsetCommit>,
    /// Under exactly once: what the open transaction has written, which nobody sees yet.
    pub(super) transaction: Option<Vec<ProducedRecord>>,
    pub(super) failed: BTreeMap<TaskId, TaskError>,
    pub(super) stores: QueryableStores,
    pub(super) places: StatePlaces,
    partition_counts: Arc<BTreeMap<TopicName, i32>>,
    /// Where the next record without key goes, by topic.
    keyless: BTreeMap<TopicName, i32>,
    pub(super) produced: Vec<ProducedRecord>,
}

/// A task of the application.
pub(super) struct TaskEntry {
    pub(super) program: Arc<Program>,
    pub(super) inputs: Vec<TopicPartition>,
    /// The same over all lives of the task, so that it goes on counting.
    pub(super) watch: Arc<TaskWatch>,
}

/// A record that is piped in, as bytes.
#[derive(Clone, Debug)]
pub(crate) struct InputRecord {
    pub(crate) partition: Option<i32>,
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Core {
    pub(crate) fn start(builder: TopologyTestDriverBuilder) -> Result<Self, TestDriverError> {
        let plan = Plan::new(&builder)?;
        let now = Now { monotonic: Duration::ZERO, wall_ms: builder.wall_ms };
        let global = plan.global.as_ref().map(|global| (global.id, &*global.program));
        let stores = QueryableStores::new(&plan.programs, &plan.tasks, global);
        let places = StatePlaces::new(builder.backend, builder.state_dir)?;
        let application_id: Arc<str> = builder.config.application_id.as_str().into();
        let open = |spec| Global::open(spec, Arc::clone(&application_id), (&places, &stores), now);
        let global = plan.global.map(open).transpose()?;
        let mut core = Self {
            worker: Worker::new(plan.worker, now),
            now,
            application_id,
            global,
            tasks: BTreeMap::new(),
            readers: BTreeMap::new(),
            one_partition: plan.one_partition,
            counted_together: plan.counted_together,
            commits: builder.commits,
            logs: Logs::default(),
            fed: BTreeMap::new(),
            committed: BTreeMap::new(),
            transaction: plan.exactly_once.then(Vec::new),
            failed: BTreeMap::new(),
            stores,
            places,
            partition_counts: plan.partition_counts,
            keyless: BTreeMap::new(),
            produced: Vec::new(),
        };
        for TaskSpec { id, program, inputs } in plan.specs {
            core.readers.extend(inputs.iter().map(|input| (input.clone(), id)));
            core.tasks.insert(id, TaskEntry { program, inputs, watch: Arc::default() });
        }
        for id in core.task_ids() {
            core.open(id, false)?;
        }
        core.settle()?;
        Ok(core)
    }

    pub(crate) fn pipe(
        &mut self,
        topic: &TopicName,
        record: InputRecord,
    ) -> Result<(), TestDriverError> {
        self.check_failed()?;
        let partition = self.partition(topic, &record)?;
        let InputRecord { timestamp, key, value, headers, .. } = record;
        let topic = topic.clone();
        let offset = -1;
        let is_global = self.is_global(&topic);
        let record = ProducedRecord { topic, partition, offset, timestamp, key, value, headers };
        if is_global {
            return self.pipe_global(record);
        }
        self.append(record);
        self.settle()
    }

    pub(crate) fn advance_wall_clock_time(&mut self, by: Duration) -> Result<(), TestDriverError> {
        self.check_failed()?;
        self.now.monotonic += by;
        let ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.now.wall_ms = self.now.wall_ms.saturating_add(ms);
        self.settle()
    }

    pub(crate) fn commit_and_settle(&mut self) -> Result<(), TestDriverError> {
        self.check_failed()?;
        self.commit_now()?;
        self.settle()
    }

    pub(crate) fn wall_ms(&self) -> i64 {
        self.now.wall_ms
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }

    pub(crate) fn worker_mut(&mut self) -> &mut Worker {
        &mut self.worker
    }

    /// The wall clock says this from now on; nothing is run that is due by it.
    pub(crate) fn set_wall_ms(&mut self, wall_ms: i64) {
        self.now.wall_ms = wall_ms;
        self.worker.set_now(self.now);
    }

    pub(crate) fn task_ids(&self) -> Vec<TaskId> {
        self.tasks.keys().copied().collect()
    }

    pub(crate) fn stores(&self) -> &QueryableStores {
        &self.stores
    }

    pub(crate) fn dropped_records(&self) -> DroppedRecords {
        let tasks = self.tasks.iter().map(|(&id, task)| (id, &*task.watch));
        dropped_records(tasks.chain(self.global.as_ref().map(Global::watch)))
    }

    pub(crate) fn committed(&self, partition: &TopicPartition) -> Option<&OffsetCommit> {
        self.committed.get(partition)
    }

    /// Every record that was sent, in order.
    pub(crate) fn produced(&self) -> &[ProducedRecord] {
        &self.produced
    }

    pub(super) fn check_failed(&self) -> Result<(), TestDriverError> {
        let failed = self.global.as_ref().and_then(|global| global.failed.as_ref());
        if let Some(source) = failed {
            return Err(TestDriverError::Global { source: Arc::clone(source) });
        }
        match self.failed.first_key_value() {
            Some((&task, source)) => Err(TestDriverError::Task { task, source: source.clone() }),
            None => Ok(()),
        }
    }

    /// Adds a record to its log, where its reader finds it.
    pub(super) fn append(&mut self, record: ProducedRecord) -> i64 {
        let partition = if self.one_partition { 0 } else { record.partition };
        let to = TopicPartition::new(record.topic.clone(), partition);
        // What else is read by the same pattern, where the original counts it as one topic.
        let others = self.counted_together.iter().filter(|topics| topics.contains(&record.topic));
        let ends = others
            .flatten()
            .map(|topic| self.logs.end(&TopicPartition::new(topic.clone(), partition)));
        let not_before = ends.max().unwrap_or(0);
        self.logs.append(to, record, not_before)
    }

    /// What the tasks have in a store, committed or not.
    pub(super) fn uncommitted_entries(
        &mut self,
        store: &str,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Vec<KeyValueBytes>, TestDriverError> {
        let mut entries = Vec::new();
        for task in self.task_ids() {
            let (answer, mut answered) = oneshot::channel();
            let (store, range) = (Arc::from(store), range.clone());
            let limit = usize::MAX;
            let question = StoreQuestion { task, store, range, direction, limit, answer };
            self.tell(ToWorker::Ask(question));
            // A task that does not have the store does not answer.
            if let Ok(found) = answered.try_recv() {
                entries.extend(found.map_err(|source| TestDriverError::Store { task, source })?);
            }
        }
        Ok(entries)
    }

    /// Writes a store by key, as a processor of the task with that partition would, and commits.
    pub(crate) fn write_store(
        &mut self,
        store: &str,
        key: &[u8],
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<(), TestDriverError> {
        self.check_failed()?;
        let place = |(&id, entry): (&TaskId, &TaskEntry)| {
            let slot = entry.program.stores.iter().position(|known| known.spec.name == store)?;
            Some((id, StoreSlot(u32::try_from(slot).expect("a program has few stores"))))
        };
        let places: Vec<(TaskId, StoreSlot)> = self.tasks.iter().filter_map(place).collect();
        let count = i32::try_from(places.len()).unwrap_or(i32::MAX);
        if count == 0 {
            return Err(TestDriverError::GlobalStore { store: store.to_owned() });
        }
        let partition = usize::try_from(partition_for_key(key, count)).expect("it is one of them");
        let (task, slot) = places[partition];
        let called = CalledRecord { timestamp, ..CalledRecord::default() };
        let written = self.worker.call(task, &called, |cx| cx.put(slot, key, value, timestamp));
        match written {
            Some(Err(source)) => Err(TestDriverError::Task { task, source }),
            Some(Ok(())) | None => self.commit_and_settle(),
        }
    }

    pub(super) fn tell(&mut self, message: ToWorker) {
        self.worker.handle(message);
    }

    /// Where a Kafka client would put the record.
    fn partition(
        &mut self,
        topic: &TopicName,
        record: &InputRecord,
    ) -> Result<i32, TestDriverError> {
        let global = self.global.as_ref().map_or(0, |global| global.count(topic));
        let tasks = self.readers.keys().filter(|known| known.topic == *topic).count();
        let partitions = global + tasks;
        let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
        if partitions == 0 {
            let mut known: Vec<_> = self.readers.keys().map(|read| read.topic.clone()).collect();
            known.extend(self.global.iter().flat_map(Global::topics).cloned());
            known.dedup();
            return Err(TestDriverError::UnknownTopic { topic: topic.clone(), known });
        }
        // A topic can have more partitions than are read only if nobody counted them.
        let partitions = self.partition_counts.get(topic).map_or(partitions, |count| *count);
        let partition = match (record.partition, &record.key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => partition_for_key(key, partitions),
            (None, None) => {
                let next = self.keyless.entry(topic.clone()).or_default();
                let partition = *next;
                *next = (partition + 1) % partitions;
                partition
            }
        };
        if !(0..partitions).contains(&partition) {
            let topic = topic.clone();
            return Err(TestDriverError::NoSuchPartition { topic, partition, partitions });
        }
        Ok(partition)
    }
}
