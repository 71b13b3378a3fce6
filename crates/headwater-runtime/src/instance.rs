//! An instance: one running process of the application.
//!
//! ```text
//!            group task ──events──▶ coordinator ◀──ends── restore loop
//!                                   │  ▲     │
//!                         tasks ────┘  │     └──── what to fetch
//!                           ▼          │                 ▼
//!                     stream threads   │              fetcher ──batches──▶ stream threads
//!                           │          │
//!              batches, commits        closed, failed
//!                           ▼          │
//!                       committers ────┘  (one per thread: output, offsets, stores)
//! ```
//!
//! The [coordinator](coordinator) owns the table of tasks and never waits; all others do one thing
//! each. Everything spawned belongs to the coordinator, so dropping it is a crash, and a crash at
//! any instant costs reading changelogs from the stored positions.

mod assignor;
mod beats;
mod builder;
mod close;
mod committer;
mod connect;
mod coordinator;
mod ends;
mod error;
mod fetcher;
mod global;
mod group;
mod hosts;
mod kept_topics;
mod life_cycle;
mod local;
mod matched;
mod memory;
mod opener;
mod plan;
mod purge;
mod reset;
mod shared;
mod stages;
mod start;
mod state;
mod storages;
mod thread;
mod topics;
mod uncaught;
mod waits;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use headwater_changelog::{FollowProgress, RestorePartition};
use headwater_topology::{TaskId, Topology};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::config::StreamsConfig;
use crate::process::{DroppedRecords, Program, UserError};
use crate::query::{
    KnownStores, LocalTasks, QueryError, QueryableStoreType, StoreQueryParameters, StoreView,
};
use crate::task::{TaskState, TaskWatch};
use coordinator::InstanceCommand;
use hosts::Hosts;
use local::LocalChangelogs;
use memory::InstanceMemory;

pub(crate) use opener::local_stores;
#[cfg(feature = "fuzzing")]
pub(crate) use plan::lead;

pub use builder::InstanceBuilder;
pub use close::{CloseOptions, GroupMembership};
pub use connect::Connector;
pub use coordinator::{TaskRole, TaskStatus};
pub use error::{CloseTimeout, InstanceError, StartError};
pub use global::global_task;
pub use hosts::{HostInfo, HostInfoError, KeyQueryMetadata, StreamsMetadata};
pub use local::{LagInfo, ThreadMetadata};
pub use memory::{MemoryBytes, MemoryUse};
pub use opener::{ChangelogEnds, PreparedRestore, prepare_restore, restore_starts};
pub use stages::{StageChange, TaskListener, TaskStage};
pub use start::configured_handlers;
pub use state::InstanceState;
pub(crate) use storages::{Contents, contents, empty, wipe_storages};
pub use storages::{OpenedStorages, StorageOptions, StorePosition, open_storages, rebuild};
pub use thread::Execution;
pub use uncaught::UncaughtReaction;

/// What an instance runs. The names of internal topics, and so the topology, depend on the
/// application id; the topics of patterns on the cluster.
pub trait Application: fmt::Debug + Send + Sync {
    /// The graph, for an application of this id.
    ///
    /// # Errors
    /// What is wrong with it.
    fn topology(&self, application_id: &str) -> Result<Topology, UserError>;

    /// The programs of the sub-topologies that have tasks, by their numbers.
    ///
    /// # Errors
    /// What is wrong with it.
    fn programs(&self, topology: &Topology) -> Result<BTreeMap<u32, Arc<Program>>, UserError>;

    /// The one program of all sub-topologies that feed global stores; `None` if there are none.
    ///
    /// # Errors
    /// What is wrong with it.
    fn global_program(&self, topology: &Topology) -> Result<Option<Arc<Program>>, UserError> {
        let _: &Topology = topology;
        Ok(None)
    }

    /// The keys of settings that count when a topology is built, and that it was built otherwise than `config` says. An
    /// instance warns of them when it starts.
    fn settings_not_built_with(&self, config: &StreamsConfig) -> Vec<&'static str> {
        let _: &StreamsConfig = config;
        Vec::new()
    }
}

/// A running instance. Dropping it is a crash: nothing more is committed, and threads end as soon
/// as they come back from what they are at. [`close`](Self::close) ends it in good order.
#[derive(Debug)]
pub struct Instance {
    commands: mpsc::UnboundedSender<InstanceCommand>,
    state: watch::Receiver<InstanceState>,
    tasks: watch::Receiver<BTreeMap<TaskId, TaskStatus>>,
    watches: watch::Receiver<BTreeMap<TaskId, Arc<TaskWatch>>>,
    local: watch::Receiver<LocalTasks>,
    followed: watch::Receiver<BTreeMap<TaskId, Arc<FollowProgress>>>,
    restoring: watch::Receiver<BTreeMap<TaskId, Vec<RestorePartition>>>,
    hosts: watch::Receiver<Hosts>,
    local_changelogs: LocalChangelogs,
    /// Where this instance itself can be asked.
    host_info: Option<HostInfo>,
    known_stores: watch::Receiver<KnownStores>,
    memory: Arc<InstanceMemory>,
    /// The id of the global stores among the tasks, if there are any.
    global_task: Option<TaskId>,
    /// In order of their numbers; `None`: removed.
    thread_names: watch::Receiver<Vec<Option<String>>>,
    error: Arc<OnceLock<Arc<InstanceError>>>,
    process_id: Uuid,
    coordinator: JoinHandle<()>,
}

impl Instance {
    /// An instance to be.
    pub fn builder(application: impl Application + 'static) -> InstanceBuilder {
        InstanceBuilder::new(Arc::new(application))
    }

    /// Where the instance stands.
    pub fn state(&self) -> InstanceState {
        *self.state.borrow()
    }

    /// Waits until the instance is in a state.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn wait_for(&self, mut is_it: impl FnMut(InstanceState) -> bool) -> InstanceState {
        let mut state = self.state.clone();
        // The sender lives as long as the coordinator; without it the last state is the final one.
        let found = state.wait_for(|state| is_it(*state)).await.map(|state| *state);
        found.unwrap_or_else(|_| self.state())
    }

    /// The tasks of this instance.
    pub fn tasks(&self) -> BTreeMap<TaskId, TaskStatus> {
        self.tasks.borrow().clone()
    }

    /// A typed view of a store, over all of its partitions that this instance has: interactive
    /// queries (KIP-67). The [module](crate::query) says what a read sees.
    ///
    /// ```no_run
    /// # fn print(instance: &headwater_runtime::Instance) -> Result<(), headwater_runtime::QueryError> {
    /// use headwater_runtime::{QueryableStoreTypes, StoreQueryParameters};
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let counts = QueryableStoreTypes::key_value::<String, i64, _, _>(Utf8, Long);
    /// let counts = instance.store(StoreQueryParameters::new("counts", counts))?;
    /// println!("{:?}", counts.get("word")?);
    /// for entry in counts.all()? {
    ///     let (word, count) = entry?;
    ///     println!("{word}: {count}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`] says which: no such store, other types, no such partition, not here, not
    /// running (yet), or the instance has stopped.
    pub fn store<T: QueryableStoreType>(
        &self,
        parameters: StoreQueryParameters<T>,
    ) -> Result<T::Store, QueryError> {
        let StoreQueryParameters { store_name, store_type, wanted } = parameters;
        let known = self.known_stores.borrow().get(&store_name, &store_type.wanted())?.clone();
        // Whoever wants the present state has no use for copies that follow it.
        let serves = |status: &TaskStatus| wanted.stale || status.role == TaskRole::Active;
        let tasks = self.tasks.borrow();
        let mut states: BTreeMap<TaskId, TaskState> = tasks
            .iter()
            .filter(|(_, status)| serves(status))
            .map(|(&task, status)| (task, status.state))
            .collect();
        drop(tasks);
        if let Some(task) = self.global_task {
            let is_here = self.local.borrow().contains_key(&task);
            let state = if is_here { TaskState::Running } else { TaskState::Restoring };
            states.insert(task, state);
        }
        let tasks =
            wanted.select(&store_name, &known, self.state(), &self.local.borrow(), &states)?;
        let local = self.local.clone();
        let store = store_name.as_str().into();
        Ok(store_type.create(StoreView { store, known, wanted, tasks, local }))
    }

    /// The records that were dropped so far, by task, node and reason. Every record that ends early
    /// is in here.
    pub fn dropped_records(&self) -> DroppedRecords {
        let mut dropped = DroppedRecords::default();
        for (&task, watch) in &*self.watches.borrow() {
            dropped.add(task, watch.drops());
        }
        dropped
    }

    /// Why the instance is in, or on its way to, [`InstanceState::Error`].
    pub fn error(&self) -> Option<Arc<InstanceError>> {
        self.error.get().cloned()
    }

    /// The id of this process, the same over restarts with the same state directory.
    pub fn process_id(&self) -> Uuid {
        self.process_id
    }

    /// Stops processing; state, membership and partitions are kept (KIP-834).
    pub fn pause(&self) {
        self.command(InstanceCommand::Pause(true));
    }

    /// Goes on after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.command(InstanceCommand::Pause(false));
    }

    fn command(&self, command: InstanceCommand) {
        if let Err(unsent) = self.commands.send(command) {
            tracing::debug!(command = ?unsent.0, "the instance has ended already");
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.coordinator.abort();
    }
}
