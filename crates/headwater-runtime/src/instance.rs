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
mod state;
mod storages;
mod thread;
mod topics;
mod uncaught;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use headwater_assignor::TaskAssignor;
use headwater_broker::{Broker, Clock, GroupId, SystemClock, TopicName};
use headwater_changelog::{
    Blocking, BlockingExt, FollowProgress, InlineBlocking, RestoreListener, RestoreMemory,
    RestorePartition, StandbyUpdateListener, TokioBlocking,
};
use headwater_store::{MemoryBackend, OpenOptions, StoreBackend};
use headwater_topology::{TaskId, Topology};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::config::{BadRecord, StreamsConfig};
use crate::metrics::{MetricsScope, SharedRecorder};
use crate::process::{
    DroppedRecords, ExceptionHandler, Handlers, Program, UserError, dead_letter, log_and_continue,
    log_and_fail,
};
use crate::query::{
    KnownStores, LocalTasks, QueryError, QueryableStoreType, StoreQueryParameters, StoreView,
};
use crate::state_dir::{StateDirError, StateDirectory};
use crate::task::{TaskState, TaskWatch};
use crate::topics_check::{CheckedTopics, check_topics, existing_topics, message_bytes};
use assignor::ChosenAssignor;
use coordinator::{Coordinator, InstanceCommand, Views};
use global::GlobalPlan;
use hosts::Hosts;
use kept_topics::KeptTopics;
use matched::MatchedTopology;
use memory::InstanceMemory;
use shared::Shared;
use uncaught::Hooks;

pub(crate) use opener::local_stores;
#[cfg(feature = "fuzzing")]
pub(crate) use plan::lead;

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

/// Memory in which all restores of an instance together gather what they have read: enough for about
/// 250,000 entries of 100 bytes.
const RESTORE_MEMORY_BYTES: usize = 48 * 1024 * 1024;

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
    local_changelogs: local::LocalChangelogs,
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
        InstanceBuilder {
            application: Arc::new(application),
            config: StreamsConfig::new(String::new()),
            broker: None,
            connector: None,
            backend: Arc::new(MemoryBackend::new()),
            open_options: OpenOptions::default(),
            clock: Arc::new(SystemClock::new()),
            execution: Execution::Threads,
            blocking: None,
            process_id: None,
            handlers: None,
            assignor: None,
            fallback_assignor: None,
            recorder: None,
            hooks: Hooks {
                uncaught: Arc::new(|_| UncaughtReaction::default()),
                state: None,
                restore: Arc::new(()),
                standby: Arc::new(()),
                tasks: Arc::new(()),
            },
        }
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

/// A recorder of the user's.
struct Recorder(SharedRecorder);

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

/// Sets an instance up.
#[derive(Debug)]
pub struct InstanceBuilder {
    application: Arc<dyn Application>,
    config: StreamsConfig,
    broker: Option<Arc<dyn Broker>>,
    connector: Option<Arc<dyn Connector>>,
    backend: Arc<dyn StoreBackend>,
    open_options: OpenOptions,
    clock: Arc<dyn Clock>,
    execution: Execution,
    blocking: Option<Arc<dyn Blocking>>,
    process_id: Option<Uuid>,
    handlers: Option<Handlers>,
    assignor: Option<ChosenAssignor>,
    fallback_assignor: Option<ChosenAssignor>,
    recorder: Option<Recorder>,
    hooks: Hooks,
}

impl InstanceBuilder {
    /// The settings; their default has no application id.
    pub fn config(mut self, config: StreamsConfig) -> Self {
        self.config = config;
        self
    }

    /// The application's id, over the one in the settings.
    pub fn application_id(mut self, application_id: impl Into<String>) -> Self {
        self.config.application_id = application_id.into();
        self
    }

    /// Servers of the cluster to work with, `host:port`, separated by commas; over those in the
    /// settings. The client is made at the start, by the [`connector`](Self::connector).
    pub fn bootstrap_servers(mut self, servers: impl Into<String>) -> Self {
        self.config = self.config.bootstrap_servers(servers);
        self
    }

    /// Makes the client for the servers in the settings.
    pub fn connector(mut self, connector: Arc<dyn Connector>) -> Self {
        self.connector = Some(connector);
        self
    }

    /// The broker to work with, whatever servers the settings name.
    pub fn broker(mut self, broker: Arc<dyn Broker>) -> Self {
        self.broker = Some(broker);
        self
    }

    /// Where stores keep their state unless they say otherwise.
    pub fn store_backend(mut self, backend: Arc<dyn StoreBackend>) -> Self {
        self.backend = backend;
        self
    }

    /// How storages are opened.
    pub fn open_options(mut self, options: OpenOptions) -> Self {
        self.open_options = options;
        self
    }

    /// Time. Default: the clock of the operating system.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// How stream threads run.
    pub fn execution(mut self, execution: Execution) -> Self {
        self.execution = execution;
        self
    }

    /// Runs what may block: disks, above all. Default: tokio's pool for such work, or in place under
    /// [`Execution::InPlace`]. A simulator makes disks slow here, and instances stand still.
    pub fn blocking(mut self, blocking: Arc<dyn Blocking>) -> Self {
        self.blocking = Some(blocking);
        self
    }

    /// The process id when the state directory has none yet. Default: a random one.
    pub fn process_id(mut self, process_id: Uuid) -> Self {
        self.process_id = Some(process_id);
        self
    }

    /// Handlers of records that cannot be read, processed or written, in place of those that the
    /// settings name.
    pub fn exception_handlers(mut self, handlers: Handlers) -> Self {
        self.handlers = Some(handlers);
        self
    }

    /// Decides which instance runs which task whenever this instance leads the group (KIP-924), in
    /// place of the built-in one that [`StreamsConfig::task_assignor`] names. All instances should be
    /// given the same one.
    ///
    /// Its plan is checked before it goes out. What is wrong with it, what it fails with and its
    /// panics go to the uncaught-error handler as [`InstanceError::Assign`], unless there is a
    /// [fallback](Self::fallback_task_assignor).
    ///
    /// It is told tasks with their partitions and the ends of their changelogs, capacities, tags,
    /// racks, who runs what, who has state of what and how far it lags, the settings, and its
    /// standing plan. When the ends of changelogs cannot be found out in time, lags are unknown.
    pub fn task_assignor(mut self, assignor: impl TaskAssignor + Send + Sync + 'static) -> Self {
        self.assignor = Some(ChosenAssignor::new(assignor));
        self
    }

    /// Asked when the assignor fails, or gives a plan that cannot be carried out; the failure is
    /// logged then. Default: none.
    pub fn fallback_task_assignor(
        mut self,
        assignor: impl TaskAssignor + Send + Sync + 'static,
    ) -> Self {
        self.fallback_assignor = Some(ChosenAssignor::new(assignor));
        self
    }

    /// Asked about errors that no other handler took (KIP-671). Must not block.
    pub fn uncaught_exception_handler(
        mut self,
        handler: impl Fn(&InstanceError) -> UncaughtReaction + Send + Sync + 'static,
    ) -> Self {
        self.hooks.uncaught = Arc::new(handler);
        self
    }

    /// Hears of changes of the state: the new one, then the old one. Must not block.
    pub fn state_listener(
        mut self,
        listener: impl Fn(InstanceState, InstanceState) + Send + Sync + 'static,
    ) -> Self {
        self.hooks.state = Some(Arc::new(listener));
        self
    }

    /// Where the metrics of this instance go: any recorder of the [`metrics`](https://docs.rs/metrics) crate, such as
    /// that of `metrics-exporter-prometheus`. Default: the global recorder of the process, if one is installed when the
    /// instance starts; else nothing is told. A global recorder of a type without any data cannot be told from none:
    /// give such a one here.
    ///
    /// Several instances in one process can share one: every metric has the client, the thread or the
    /// task in its labels. A recorder of its own is what a test wants.
    pub fn metrics_recorder(mut self, recorder: SharedRecorder) -> Self {
        self.recorder = Some(Recorder(recorder));
        self
    }

    /// Hears how restores go. Must not block.
    pub fn restore_listener(mut self, listener: Arc<dyn RestoreListener>) -> Self {
        self.hooks.restore = listener;
        self
    }

    /// Hears how standbys and warm-ups get on (KIP-988). Must not block.
    pub fn standby_update_listener(mut self, listener: Arc<dyn StandbyUpdateListener>) -> Self {
        self.hooks.standby = listener;
        self
    }

    /// Hears of every stage of every task, and so of each moment in which one does not process and
    /// why. Must not block.
    pub fn task_listener(mut self, listener: Arc<dyn TaskListener>) -> Self {
        self.hooks.tasks = listener;
        self
    }

    /// Removes the state of all tasks from the state directory; the next start restores it from the
    /// changelogs (feature row R28). It blocks.
    ///
    /// # Errors
    /// When the directory is in use, or cannot be removed.
    pub fn clean_up(&self) -> Result<(), StateDirError> {
        StateDirectory::open(&self.config.state_dir, &self.config.application_id, Uuid::new_v4())?
            .clean_up()
    }

    /// Checks everything that can be checked, creates internal topics and the state directory, and
    /// starts. Returns as soon as the instance has begun to join its group.
    ///
    /// # Errors
    /// What is wrong with settings, topology, state directory or topics; nothing has been started
    /// then, and no topic created.
    pub async fn start(self) -> Result<Instance, StartError> {
        self.config.validate()?;
        for finding in &self.config.findings {
            tracing::warn!("{finding}");
        }
        for key in self.application.settings_not_built_with(&self.config) {
            tracing::warn!(
                "{key} has no effect: the topology was not built with this configuration (`build_with`)"
            );
        }
        let (shared, held) = self.prepare().await?;
        let process_id = shared.process_id;
        let (commands, told) = mpsc::unbounded_channel();
        let error = Arc::new(OnceLock::new());
        let views = Views {
            state: watch::Sender::new(InstanceState::Created),
            tasks: watch::Sender::new(BTreeMap::new()),
            watches: watch::Sender::new(BTreeMap::new()),
            local: watch::Sender::new(LocalTasks::new()),
            followed: watch::Sender::new(BTreeMap::new()),
            restoring: watch::Sender::new(BTreeMap::new()),
            hosts: watch::Sender::new(None),
            known_stores: watch::Sender::new(shared.known_stores()),
            threads: watch::Sender::new(
                (0..self.config.num_stream_threads)
                    .map(|it| Some(shared.thread_name(it)))
                    .collect(),
            ),
            error: Arc::clone(&error),
        };
        let (state, tasks) = (views.state.subscribe(), views.tasks.subscribe());
        let (watches, local) = (views.watches.subscribe(), views.local.subscribe());
        let (followed, restoring) = (views.followed.subscribe(), views.restoring.subscribe());
        let (hosts, known_stores) = (views.hosts.subscribe(), views.known_stores.subscribe());
        let server = self.config.application_server.as_ref();
        let host_info = server.and_then(|server| server.parse().ok());
        let local_changelogs = local::LocalChangelogs::new(&shared);
        let global_task = shared.global.as_ref().map(|plan| plan.id);
        let memory = Arc::clone(&shared.memory);
        let thread_names = views.threads.subscribe();
        let hooks = shared.measured(self.hooks);
        let (coordinator, hears) =
            Coordinator::new(Arc::new(shared), self.execution, hooks, views, told);
        let coordinator = tokio::spawn(coordinator.run(hears, held));
        Ok(Instance {
            commands,
            state,
            tasks,
            watches,
            local,
            followed,
            restoring,
            hosts,
            local_changelogs,
            host_info,
            known_stores,
            memory,
            global_task,
            thread_names,
            error,
            process_id,
            coordinator,
        })
    }

    async fn prepare(&self) -> Result<(Shared, HeldState), StartError> {
        let application_id = self.config.application_id.clone();
        let wrong =
            |source| StartError::Topology { application_id: application_id.clone(), source };
        let topology = self.application.topology(&application_id).map_err(wrong)?;
        if self.config.ensure_explicit_internal_resource_naming {
            topology.check_generated_names().map_err(|source| wrong(Box::new(source)))?;
        }
        let broker = self.find_broker().await?;
        let blocking: Arc<dyn Blocking> = match (&self.blocking, self.execution) {
            (Some(blocking), _) => Arc::clone(blocking),
            (None, Execution::Threads) => Arc::new(TokioBlocking),
            (None, Execution::InPlace) => Arc::new(InlineBlocking),
        };
        let new_process_id = self.process_id.unwrap_or_else(Uuid::new_v4);
        let (state_dir, held) = self.open_state_dir(&*blocking, new_process_id).await?;
        let handlers = self.handlers.clone().unwrap_or_else(|| configured_handlers(&self.config));
        let (matched, checked) =
            check_topics(&*broker, &topology, &self.config, handlers.topics()).await?;
        let source_topics = checked.source_topics(&matched);
        let CheckedTopics { plan, mut topics } = checked;
        let kept_internal = matched.internal_topics();
        let matched = MatchedTopology::new(&*self.application, &matched, plan, source_topics);
        let matched = matched.map_err(wrong)?;
        let kept_topics = KeptTopics::new(&kept_internal, &matched.changelogs, &topics);
        let programs = &matched.programs;
        let global = self.application.global_program(&topology).map_err(wrong)?;
        if programs.values().any(|program| program.chooses_topics) {
            topics.extend(existing_topics(&*broker).await?);
        }
        let partition_counts: BTreeMap<TopicName, i32> =
            topics.iter().map(|(name, topic)| (name.clone(), topic.partitions)).collect();
        let sinks = programs.values().flat_map(|program| &program.sinks).map(|sink| &sink.topic);
        let sinks: BTreeSet<&TopicName> = sinks.collect();
        let message_bytes = message_bytes(&*broker, sinks).await;
        let partitions = |topic: &str| partition_counts.get(topic).copied().unwrap_or(0);
        let global = global.and_then(|program| GlobalPlan::new(&topology, program, partitions));
        let configured = || ChosenAssignor::new(self.config.task_assignor.assignor());
        let shared = Shared {
            handlers,
            assignor: self.assignor.clone().unwrap_or_else(configured),
            fallback_assignor: self.fallback_assignor.clone(),
            group: GroupId::from(application_id.as_str()),
            process_id: state_dir.as_ref().map_or(new_process_id, StateDirectory::process_id),
            broker,
            clock: Arc::clone(&self.clock),
            blocking,
            backend: Arc::clone(&self.backend),
            open_options: self.open_options.clone(),
            restore_memory: RestoreMemory::new(RESTORE_MEMORY_BYTES),
            state_dir: state_dir.map(Arc::new),
            application: Arc::clone(&self.application),
            topology,
            matched: Arc::new(matched),
            kept_topics: Arc::new(kept_topics),
            global,
            partition_counts: Arc::new(partition_counts),
            message_bytes: Arc::new(message_bytes),
            memory: Arc::default(),
            metrics: MetricsScope::find(self.recorder.as_ref().map(|it| &it.0), &self.config),
            config: self.config.clone(),
        };
        Ok((shared, held))
    }

    /// A backend that keeps nothing on disk needs no directory.
    async fn open_state_dir(
        &self,
        blocking: &dyn Blocking,
        new_process_id: Uuid,
    ) -> Result<(Option<StateDirectory>, HeldState), StateDirError> {
        if !self.backend.capabilities().persistent {
            return Ok((None, HeldState::new()));
        }
        let (root, application_id) =
            (self.config.state_dir.clone(), self.config.application_id.clone());
        let opened = blocking.call(move || {
            let state_dir = StateDirectory::open(&root, &application_id, new_process_id)?;
            let tasks = state_dir.tasks()?.into_iter();
            let held = tasks.map(|task| (task, state_dir.offset_sum(task))).collect();
            Ok((Some(state_dir), held))
        });
        opened.await.expect("opening the state directory does not panic")
    }
}

/// The tasks that there is state of, with the sum of the changelog offsets that it holds, if known.
type HeldState = BTreeMap<TaskId, Option<u64>>;

/// The handlers that the settings name.
pub fn configured_handlers(config: &StreamsConfig) -> Handlers {
    let topic = config.errors_dead_letter_queue_topic_name.as_deref();
    let handler = |policy: BadRecord| -> Arc<dyn ExceptionHandler> {
        match (policy, topic) {
            (BadRecord::Fail, _) => Arc::new(log_and_fail()),
            (BadRecord::Continue | BadRecord::DeadLetter, Some(topic)) => {
                Arc::new(dead_letter(topic))
            }
            (BadRecord::Continue | BadRecord::DeadLetter, None) => Arc::new(log_and_continue()),
        }
    };
    Handlers {
        deserialization: handler(config.deserialization_exception_handler),
        processing: handler(config.processing_exception_handler),
        production: handler(config.production_exception_handler),
    }
}
