//! For whoever runs tasks without an [`Instance`](crate::Instance), as a test driver does: opening and
//! restoring a task's stores in the same way, and reading them from outside.
//!
//! The order is that of an instance: [`open_storages`], [`restore_starts`], [`rebuild`] of those that
//! need it, [`prepare_restore`], the restore loop of `headwater-changelog`, then
//! [`NewTask`](crate::NewTask) and [`ToWorker::AddTask`](crate::ToWorker::AddTask).

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_store::{Direction, KeyRange, KeyValueBytes, KeyValueRead as _, TaskStorage};
use headwater_topology::{TaskId, TaskPlan};
use tokio::sync::{mpsc, watch};

pub use crate::global::{
    GlobalError, GlobalFetch, GlobalPartition, GlobalState, GlobalStores, OpenedGlobal,
    global_worker_config, open_global_state,
};
pub use crate::instance::{
    ChangelogEnds, OpenedStorages, PreparedRestore, StorageOptions, StorePosition,
    configured_handlers, global_task, open_storages, prepare_restore, rebuild, restore_starts,
};

use crate::instance::{InstanceState, local_stores};
use crate::process::{DroppedRecords, Program};
use crate::query::{
    KnownStore, KnownStores, LocalTask, LocalTasks, QueryError, QueryableStoreType,
    StoreQueryParameters, StoreView, WantedPartitions,
};
use crate::task::{StorePlace, TaskState, TaskWatch};

/// The records that tasks have dropped.
pub fn dropped_records<'a>(
    tasks: impl IntoIterator<Item = (TaskId, &'a TaskWatch)>,
) -> DroppedRecords {
    let mut dropped = DroppedRecords::default();
    for (task, watch) in tasks {
        dropped.add(task, watch.drops());
    }
    dropped
}

/// The stores of the tasks that are here, for interactive queries of committed state: what
/// [`Instance::store`](crate::Instance::store) asks.
#[derive(Debug)]
pub struct QueryableStores {
    known: KnownStores,
    local: watch::Sender<LocalTasks>,
}

impl QueryableStores {
    /// The stores of these programs, whose tasks are those, and of the program of the global stores, with
    /// the id that it has among the tasks. None of them is here yet.
    pub fn new(
        programs: &BTreeMap<u32, Arc<Program>>,
        tasks: &TaskPlan,
        global: Option<(TaskId, &Program)>,
    ) -> Self {
        let known = KnownStores::new(programs, tasks, global);
        Self { known, local: watch::Sender::new(LocalTasks::new()) }
    }

    /// A task runs with these storages.
    pub fn add_task(
        &self,
        task: TaskId,
        program: &Program,
        storages: &[Box<dyn TaskStorage>],
        places: &[StorePlace],
    ) {
        let stores = local_stores(program, storages, places);
        // There is no stream thread to ask: uncommitted reads find the task migrated.
        let (thread, _) = mpsc::unbounded_channel();
        let task_here = LocalTask { state: TaskState::Running, stores, thread: Some(thread) };
        self.local.send_modify(|local| {
            local.insert(task, task_here);
        });
    }

    /// The global stores are here.
    pub fn add_global(&self, task: TaskId, stores: &GlobalStores) {
        let stores = stores.local_stores();
        let global = LocalTask { state: TaskState::Running, stores, thread: None };
        self.local.send_modify(|local| {
            local.insert(task, global);
        });
    }

    /// A task is no longer here; its storages are let go.
    pub fn remove_task(&self, task: TaskId) {
        self.local.send_modify(|local| {
            local.remove(&task);
        });
    }

    /// A typed view of a store.
    ///
    /// # Errors
    /// As [`Instance::store`](crate::Instance::store).
    pub fn store<T: QueryableStoreType>(
        &self,
        parameters: StoreQueryParameters<T>,
    ) -> Result<T::Store, QueryError> {
        let StoreQueryParameters { store_name, store_type, wanted } = parameters;
        let known = self.known.get(&store_name, &store_type.wanted())?;
        Ok(store_type.create(self.view(&store_name, known, wanted)?))
    }

    /// Whether there is such a store.
    ///
    /// # Errors
    /// [`QueryError::UnknownStore`].
    pub fn check(&self, store_name: &str) -> Result<(), QueryError> {
        self.known.of_any_type(store_name).map(drop)
    }

    /// What a store holds, as its bytes lie in the backends: one partition after the other.
    ///
    /// # Errors
    /// As [`store`](Self::store), and when a store cannot be read.
    pub fn raw_range(
        &self,
        store_name: &str,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Vec<KeyValueBytes>, QueryError> {
        let known = self.known.of_any_type(store_name)?;
        let failed = |source| QueryError::Store { store: store_name.to_owned(), source };
        let mut entries = Vec::new();
        for mut store in self.view(store_name, known, WantedPartitions::default())?.open()? {
            let mut cursor = store.range(range.clone(), direction).map_err(failed)?;
            while let Some((key, value)) = store.next(&mut cursor).map_err(failed)? {
                entries.push((key.to_vec(), value.to_vec()));
            }
        }
        Ok(entries)
    }

    fn view(
        &self,
        name: &str,
        known: &KnownStore,
        wanted: WantedPartitions,
    ) -> Result<StoreView, QueryError> {
        let local = self.local.subscribe();
        let tasks = {
            let here = local.borrow();
            let states = here.iter().map(|(&task, local)| (task, local.state)).collect();
            wanted.select(name, known, InstanceState::Running, &here, &states)?
        };
        Ok(StoreView { store: name.into(), known: known.clone(), wanted, tasks, local })
    }
}
