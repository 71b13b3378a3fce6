//! The stores of an instance as queries see them: which there are, and which are here now.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_store::{
    CommittedSegments, CommittedStore, Direction, KeyRange, KeyValueBytes, KeyValueRead as _,
    Layout, SpaceId, StorageReader, StoreError,
};
use headwater_topology::{StoreKind, TaskId, TaskPlan};
use tokio::sync::{mpsc, oneshot, watch};

use super::QueryError;
use crate::instance::InstanceState;
use crate::process::{Program, StoreFormats, StoreProgram};
use crate::task::TaskState;
use crate::worker::{StoreQuestion, ToWorker};

/// A store of a task, open on this instance.
#[derive(Clone, Debug)]
pub(crate) struct LocalStore {
    pub(crate) name: Arc<str>,
    pub(crate) space: SpaceId,
    pub(crate) reader: Arc<dyn StorageReader>,
}

/// A task of this instance whose stores are open.
#[derive(Clone, Debug)]
pub(crate) struct LocalTask {
    pub(crate) state: TaskState,
    pub(crate) stores: Arc<[LocalStore]>,
    /// Its stream thread; `None` where there is nothing uncommitted to ask for, in global stores.
    pub(crate) thread: Option<mpsc::UnboundedSender<ToWorker>>,
}

impl LocalTask {
    /// Whether both are the same task in the same life.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let threads = match (&self.thread, &other.thread) {
            (Some(thread), Some(other)) => thread.same_channel(other),
            (thread, other) => thread.is_none() && other.is_none(),
        };
        threads
            && self.stores.len() == other.stores.len()
            && self.stores.iter().zip(&*other.stores).all(|(store, other)| {
                store.space == other.space && Arc::ptr_eq(&store.reader, &other.reader)
            })
    }
}

/// All of them.
pub(crate) type LocalTasks = BTreeMap<TaskId, LocalTask>;

/// A store of the topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownStore {
    pub(crate) subtopology: u32,
    pub(crate) partitions: u32,
    pub(crate) layout: Layout,
    /// How long its windows are, if it has windows.
    pub(crate) window_size_ms: i64,
    formats: Option<StoreFormats>,
}

impl KnownStore {
    fn new(store: &StoreProgram, subtopology: u32, partitions: u32) -> Self {
        let window_size_ms = match store.spec.kind {
            StoreKind::Window { window_size_ms, .. } => window_size_ms,
            _ => 0,
        };
        let (layout, formats) = (store.layout(), store.formats.clone());
        Self { subtopology, partitions, layout, window_size_ms, formats }
    }
}

/// The stores of the topology, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownStores(BTreeMap<String, KnownStore>);

impl KnownStores {
    /// The stores of these programs, whose tasks are those, and the global stores.
    pub(crate) fn new(
        programs: &BTreeMap<u32, Arc<Program>>,
        tasks: &TaskPlan,
        global: Option<(TaskId, &Program)>,
    ) -> Self {
        let mut known = BTreeMap::new();
        if let Some((task, program)) = global {
            for store in &program.stores {
                let facts = KnownStore::new(store, task.subtopology.0, 1);
                known.insert(store.spec.name.clone(), facts);
            }
        }
        for (&subtopology, program) in programs {
            let own = tasks.tasks.keys().filter(|task| task.subtopology.0 == subtopology);
            let partitions = own.map(|task| task.partition + 1).max().unwrap_or(0);
            for store in &program.stores {
                let facts = KnownStore::new(store, subtopology, partitions);
                known.insert(store.spec.name.clone(), facts);
            }
        }
        Self(known)
    }

    /// The store of this name.
    pub(crate) fn of_any_type(&self, name: &str) -> Result<&KnownStore, QueryError> {
        self.0.get(name).ok_or_else(|| QueryError::UnknownStore {
            store: name.to_owned(),
            known: self.0.keys().cloned().collect(),
        })
    }

    /// The store of this name, if it can be read as what is wanted.
    pub(crate) fn get(&self, name: &str, wanted: &WantedType) -> Result<&KnownStore, QueryError> {
        let known = self.of_any_type(name)?;
        let store = name.to_owned();
        let same_formats = known.formats.as_ref().is_none_or(|formats| *formats == wanted.formats);
        if !(wanted.accepts)(known.layout) || !same_formats {
            let found = describe(known.layout.name(), known.formats.as_ref());
            let expected = describe(wanted.name, Some(&wanted.formats));
            return Err(QueryError::WrongType { store, expected, found });
        }
        Ok(known)
    }
}

/// What a store is to be read as.
#[derive(Clone, Debug)]
#[expect(unnameable_types, reason = "part of a sealed trait")]
pub struct WantedType {
    /// The name of the proper layout.
    pub(crate) name: &'static str,
    /// Whether a store of this layout will do.
    pub(crate) accepts: fn(Layout) -> bool,
    pub(crate) formats: StoreFormats,
}

fn describe(kind: &str, formats: Option<&StoreFormats>) -> String {
    match formats {
        Some(StoreFormats { key, value }) => format!("{kind} <{key}, {value}>"),
        None => kind.to_owned(),
    }
}

/// Which of a store's partitions are wanted, in which condition.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WantedPartitions {
    pub(crate) partition: Option<u32>,
    /// Stores that are still being restored will do.
    pub(crate) stale: bool,
}

impl WantedPartitions {
    /// The tasks to read, or why not.
    pub(crate) fn select(
        self,
        name: &str,
        known: &KnownStore,
        instance: InstanceState,
        tasks: &LocalTasks,
        all: &BTreeMap<TaskId, TaskState>,
    ) -> Result<Vec<TaskId>, QueryError> {
        let store = || name.to_owned();
        let partitions = known.partitions;
        if let Some(partition) = self.partition.filter(|partition| *partition >= partitions) {
            return Err(QueryError::NoSuchPartition { store: store(), partition, partitions });
        }
        if instance.is_ending() {
            return Err(QueryError::Stopped { state: instance });
        }
        let is_wanted = |task: &TaskId| {
            task.subtopology.0 == known.subtopology
                && self.partition.is_none_or(|partition| partition == task.partition)
        };
        let mut selected = Vec::new();
        for (&task, &state) in all.iter().filter(|(task, _)| is_wanted(task)) {
            if !tasks.get(&task).is_some_and(|local| self.will_do(local)) {
                return Err(QueryError::NotRunning { store: store(), task, state });
            }
            selected.push(task);
        }
        if selected.is_empty() {
            return Err(QueryError::NotHere { store: store() });
        }
        Ok(selected)
    }

    fn will_do(self, task: &LocalTask) -> bool {
        match task.state {
            TaskState::Running => true,
            TaskState::Restoring => self.stale,
            TaskState::Created | TaskState::Suspended => false,
        }
    }
}

/// A store as one query handle sees it: the tasks it was made for.
#[derive(Clone, Debug)]
#[expect(unnameable_types, reason = "part of a sealed trait")]
pub struct StoreView {
    pub(crate) store: Arc<str>,
    pub(crate) known: KnownStore,
    pub(crate) wanted: WantedPartitions,
    pub(crate) tasks: Vec<TaskId>,
    pub(crate) local: watch::Receiver<LocalTasks>,
}

impl StoreView {
    /// The store in each of the tasks, by partition.
    pub(crate) fn open(&self) -> Result<Vec<CommittedStore>, QueryError> {
        self.open_as(|LocalStore { name, space, reader }| {
            Ok(CommittedStore::new(&**name, *space, Arc::clone(reader)))
        })
    }

    /// The store of windows or sessions in each of the tasks, by partition.
    pub(crate) fn open_segments(&self) -> Result<Vec<CommittedSegments>, QueryError> {
        let Layout::Segmented(options) = self.known.layout else { return Ok(Vec::new()) };
        self.open_as(|LocalStore { name, space, reader }| {
            CommittedSegments::new(name, *space, Arc::clone(reader), options)
        })
    }

    fn open_as<S>(
        &self,
        make: impl Fn(&LocalStore) -> Result<S, StoreError>,
    ) -> Result<Vec<S>, QueryError> {
        let local = self.local.borrow();
        let open = |task: &TaskId| {
            let found = local.get(task).filter(|local| self.wanted.will_do(local));
            let found =
                found.and_then(|local| local.stores.iter().find(|store| store.name == self.store));
            let Some(found) = found else {
                return Err(QueryError::Migrated { store: self.store.to_string(), task: *task });
            };
            let failed = |source| QueryError::Store { store: self.store.to_string(), source };
            make(found).map_err(failed)
        };
        self.tasks.iter().map(open).collect()
    }

    /// Asks the stream thread of a task for entries, uncommitted ones too.
    pub(crate) async fn ask(
        &self,
        task: TaskId,
        (range, direction, limit): (KeyRange, Direction, usize),
    ) -> Result<Vec<KeyValueBytes>, QueryError> {
        let migrated = || QueryError::Migrated { store: self.store.to_string(), task };
        let (answer, answered) = oneshot::channel();
        let store = Arc::clone(&self.store);
        let is_asked = {
            let local = self.local.borrow();
            let running = |local: &&LocalTask| local.state == TaskState::Running;
            let local = local.get(&task).filter(running).ok_or_else(migrated)?;
            if let Some(thread) = &local.thread {
                let range = range.clone();
                let question = StoreQuestion { task, store, range, direction, limit, answer };
                thread.send(ToWorker::Ask(question)).map_err(|_| migrated())?;
            }
            local.thread.is_some()
        };
        if !is_asked {
            return self.read_committed(task, range, direction, limit);
        }
        let answer = answered.await.map_err(|_| migrated())?;
        answer.map_err(|source| QueryError::Store { store: self.store.to_string(), source })
    }

    /// Entries of a store in which all is committed.
    fn read_committed(
        &self,
        task: TaskId,
        range: KeyRange,
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<KeyValueBytes>, QueryError> {
        let failed = |source| QueryError::Store { store: self.store.to_string(), source };
        let at = self.tasks.iter().position(|known| *known == task);
        let mut stores = self.open()?;
        let store = &mut stores[at.expect("a view asks its own tasks")];
        let mut cursor = store.range(range, direction).map_err(failed)?;
        let mut entries = Vec::new();
        while entries.len() < limit
            && let Some((key, value)) = store.next(&mut cursor).map_err(failed)?
        {
            entries.push((key.to_vec(), value.to_vec()));
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: KnownStore = KnownStore {
        subtopology: 1,
        partitions: 3,
        layout: Layout::KeyValue,
        window_size_ms: 0,
        formats: None,
    };

    /// The tasks of sub-topology 1 by partition, each in a state, and one of another sub-topology.
    #[track_caller]
    fn check(
        wanted: WantedPartitions,
        instance: InstanceState,
        states: &[(u32, TaskState)],
        expected: Result<&[u32], &str>,
    ) {
        let mut all: BTreeMap<TaskId, TaskState> =
            states.iter().map(|&(partition, state)| (TaskId::new(1, partition), state)).collect();
        all.insert(TaskId::new(0, 0), TaskState::Created);
        let open = all.iter().filter(|(_, state)| **state != TaskState::Created);
        let local: LocalTasks = open
            .map(|(&task, &state)| {
                (task, LocalTask { state, stores: Arc::default(), thread: None })
            })
            .collect();
        let selected = wanted.select("counts", &KNOWN, instance, &local, &all);
        let selected = selected.map_err(|error| error.to_string());
        let partitions = selected.map(|tasks| tasks.iter().map(|task| task.partition).collect());
        let expected = expected.map(<[u32]>::to_vec).map_err(str::to_owned);
        assert_eq!(partitions, expected);
    }

    #[test]
    fn running_tasks_are_read_and_others_named() {
        use InstanceState::{PendingShutdown, Rebalancing, Running};
        use TaskState as Task;
        let all = WantedPartitions::default();
        let one = |partition| WantedPartitions { partition: Some(partition), stale: false };
        let stale = WantedPartitions { stale: true, ..all };
        let running = [(0, Task::Running), (2, Task::Running)];
        check(all, Running, &running, Ok(&[0, 2]));
        check(all, Rebalancing, &running, Ok(&[0, 2]));
        check(one(2), Running, &running, Ok(&[2]));
        let not_here = "this instance has no partition of store counts that was asked for; another instance has it, or it is just being assigned";
        check(one(1), Running, &running, Err(not_here));
        check(all, Running, &[], Err(not_here));
        check(one(3), Running, &running, Err("store counts has partitions 0 to 2, not 3"));
        check(
            all,
            PendingShutdown,
            &running,
            Err("the instance is PENDING_SHUTDOWN and has no stores any more"),
        );
        let some = [(0, Task::Running), (1, Task::Restoring)];
        let restoring = "store counts of task 1_1 cannot be read while the task is restoring; try again, or enable stale stores";
        check(all, Rebalancing, &some, Err(restoring));
        check(one(0), Rebalancing, &some, Ok(&[0]));
        check(stale, Rebalancing, &some, Ok(&[0, 1]));
        let created = "store counts of task 1_1 cannot be read while the task is created; try again, or enable stale stores";
        check(stale, Rebalancing, &[(1, Task::Created)], Err(created));
        let suspended = "store counts of task 1_1 cannot be read while the task is suspended; try again, or enable stale stores";
        check(stale, Rebalancing, &[(1, Task::Suspended)], Err(suspended));
    }
}
