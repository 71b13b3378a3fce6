//! What an instance is set up with.

use std::fmt;
use std::sync::Arc;

use headwater_assignor::TaskAssignor;
use headwater_broker::{Broker, Clock, SystemClock};
use headwater_changelog::{Blocking, RestoreListener, StandbyUpdateListener};
use headwater_store::{MemoryBackend, OpenOptions, StoreBackend};
use uuid::Uuid;

use super::assignor::ChosenAssignor;
use super::uncaught::Hooks;
use super::{
    Application, Connector, Execution, InstanceError, InstanceState, TaskListener, UncaughtReaction,
};
use crate::config::StreamsConfig;
use crate::metrics::SharedRecorder;
use crate::process::Handlers;
use crate::state_dir::{StateDirError, StateDirectory};

/// A recorder of the user's.
pub(super) struct Recorder(pub(super) SharedRecorder);

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

/// Sets an instance up.
#[derive(Debug)]
pub struct InstanceBuilder {
    pub(super) application: Arc<dyn Application>,
    pub(super) config: StreamsConfig,
    pub(super) broker: Option<Arc<dyn Broker>>,
    pub(super) connector: Option<Arc<dyn Connector>>,
    pub(super) backend: Arc<dyn StoreBackend>,
    pub(super) open_options: OpenOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) execution: Execution,
    pub(super) blocking: Option<Arc<dyn Blocking>>,
    pub(super) process_id: Option<Uuid>,
    pub(super) handlers: Option<Handlers>,
    pub(super) assignor: Option<ChosenAssignor>,
    pub(super) fallback_assignor: Option<ChosenAssignor>,
    pub(super) recorder: Option<Recorder>,
    pub(super) hooks: Hooks,
}

impl InstanceBuilder {
    pub(super) fn new(application: Arc<dyn Application>) -> Self {
        Self {
            application,
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

    /// Asked about errors that no other handler took (KIP-671). Must not block. If it panics, that is logged, and the
    /// default reaction taken.
    pub fn uncaught_exception_handler(
        mut self,
        handler: impl Fn(&InstanceError) -> UncaughtReaction + Send + Sync + 'static,
    ) -> Self {
        self.hooks.uncaught = Arc::new(handler);
        self
    }

    /// Hears of changes of the state: the new one, then the old one. Must not block. As with all listeners, a panic of
    /// it is logged and ends with it: it is called again the next time.
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
}
