//! Setting a driver up.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use headwater_broker::TopicName;
use headwater_dsl::Topology;
use headwater_runtime::{Handlers, SharedRecorder, StreamsConfig};
use headwater_store::{MemoryBackend, StoreBackend};

use crate::{TestDriverError, TopologyTestDriver};

/// When the tasks commit, and with that flush their record caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Commits {
    /// After each record that is taken from any topic, internal ones included, as the original's driver does. So a
    /// cache merges only what one record has caused.
    #[default]
    AfterEachRecord,
    /// When `commit.interval.ms` of wall-clock time has passed, as in production: see
    /// [`TopologyTestDriver::advance_wall_clock_time`].
    AtInterval,
    /// When a processor asks for it, and when [`TopologyTestDriver::commit`] is called.
    OnRequest,
}

/// How many tasks run the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tasks {
    /// One for each sub-topology and partition, as in an instance.
    #[default]
    PerPartition,
    /// One for all of it, task `0_0`, as in the original's driver: all sub-topologies have one stream time, and the next
    /// record is the one with the lowest timestamp among all that wait, in internal topics too. Every topic is read as one
    /// partition, whichever a partitioner chose. The topics of a pattern have one sequence of offsets.
    OnePerApplication,
}

/// A recorder of the test's.
pub(crate) struct Recorder(pub(crate) SharedRecorder);

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

/// Sets a [`TopologyTestDriver`] up. Made by [`TopologyTestDriver::builder`].
///
/// ```
/// use headwater::prelude::*;
/// use headwater_testing::{Commits, TopologyTestDriver};
///
/// # let builder = StreamsBuilder::new();
/// # builder.stream("in", Consumed::with(Utf8, Utf8)).to("out", Produced::with(Utf8, Utf8));
/// let driver = TopologyTestDriver::builder(builder.build()?)
///     .config(StreamsConfig::new("orders").statestore_cache_max_bytes(0))
///     .partitions("in", 4)
///     .commits(Commits::AtInterval)
///     .build()?;
/// assert_eq!(driver.task_ids().len(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TopologyTestDriverBuilder {
    pub(crate) topology: Topology,
    pub(crate) config: StreamsConfig,
    pub(crate) handlers: Option<Handlers>,
    pub(crate) partitions: BTreeMap<TopicName, i32>,
    pub(crate) topic_order: Vec<TopicName>,
    pub(crate) backend: Arc<dyn StoreBackend>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) wall_ms: i64,
    pub(crate) tasks: Tasks,
    pub(crate) commits: Commits,
    pub(crate) recorder: Option<Recorder>,
}

impl TopologyTestDriverBuilder {
    pub(crate) fn new(topology: Topology) -> Self {
        Self {
            topology,
            config: StreamsConfig::new("test"),
            handlers: None,
            partitions: BTreeMap::new(),
            topic_order: Vec::new(),
            backend: Arc::new(MemoryBackend::durable()),
            state_dir: None,
            wall_ms: 0,
            tasks: Tasks::default(),
            commits: Commits::default(),
            recorder: None,
        }
    }

    /// The settings; of those that only concern a cluster none has an effect. Default: application `test`, all else as
    /// in production.
    pub fn config(self, config: StreamsConfig) -> Self {
        Self { config, ..self }
    }

    /// The application's id, with which the names of internal topics begin.
    pub fn application_id(mut self, application_id: impl Into<String>) -> Self {
        self.config.application_id = application_id.into();
        self
    }

    /// Handlers of bad records in place of those that the settings name.
    pub fn exception_handlers(self, handlers: Handlers) -> Self {
        Self { handlers: Some(handlers), ..self }
    }

    /// How many partitions a topic has. Topics that are not named have one; so have those that a pattern of the topology is
    /// to match, which must be named here. Internal topics follow from the others.
    pub fn partitions(mut self, topic: impl Into<TopicName>, partitions: i32) -> Self {
        self.partitions.insert(topic.into(), partitions);
        self
    }

    /// Which of several topics comes first where a task has records of one timestamp in them: of two topics that named
    /// earlier here, then all others by name, internal topics by their full names (`test-orders-repartition`). Default: all
    /// by name. No application may rely on such an order; a test with another one shows whether it does.
    pub fn topic_order(self, topics: impl IntoIterator<Item = impl Into<TopicName>>) -> Self {
        Self { topic_order: topics.into_iter().map(Into::into).collect(), ..self }
    }

    /// Keeps the stores that are not in memory. Default: memory that outlives restarts of tasks, as a disk would.
    pub fn store_backend(self, backend: Arc<dyn StoreBackend>) -> Self {
        Self { backend, ..self }
    }

    /// Where a backend keeps its files. Default: a temporary directory, removed with the driver.
    pub fn state_dir(self, state_dir: impl Into<PathBuf>) -> Self {
        Self { state_dir: Some(state_dir.into()), ..self }
    }

    /// What the wall clock says first, in milliseconds since 1970. Default: 0.
    pub fn initial_wall_clock_time_ms(self, wall_ms: i64) -> Self {
        Self { wall_ms, ..self }
    }

    /// How many tasks run the application.
    pub fn tasks(self, tasks: Tasks) -> Self {
        Self { tasks, ..self }
    }

    /// When the tasks commit.
    pub fn commits(self, commits: Commits) -> Self {
        Self { commits, ..self }
    }

    /// Where metrics go, for instance to [`RecordedMetrics`](crate::RecordedMetrics). Default: nowhere. The thread of a
    /// driver is called `test-driver` in them.
    pub fn metrics_recorder(self, recorder: SharedRecorder) -> Self {
        Self { recorder: Some(Recorder(recorder)), ..self }
    }

    /// Starts the tasks.
    ///
    /// # Errors
    /// What is wrong with settings, topology or topics; and what goes wrong when a task starts.
    pub fn build(self) -> Result<TopologyTestDriver, TestDriverError> {
        TopologyTestDriver::start(self)
    }
}
