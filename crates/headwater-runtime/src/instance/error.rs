//! What can go wrong with an instance.

use headwater_assignor::AssignError;
use headwater_broker::{BrokerError, TopicName, TopicPartition};
use headwater_changelog::ChangelogError;
use headwater_store::StoreError;
use headwater_topology::TaskId;

use crate::config::ConfigError;
use crate::global::GlobalError;
use crate::process::{TaskError, UserError};
use crate::state_dir::StateDirError;
use crate::topics_check::TopicsError;

/// Why an instance could not be started. Nothing is left half-done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting cannot be used.
    #[error("the configuration cannot be used")]
    Config(#[from] ConfigError),
    /// The builder was not told which broker to use.
    #[error("no broker given; call `bootstrap_servers` or `broker` on the builder")]
    NoBroker,
    /// The settings name servers, but the program has no client for a cluster.
    #[error(
        "bootstrap.servers is {bootstrap_servers}, but this program was built without a client \
         for a cluster (feature `kafka`)"
    )]
    NoConnector {
        /// The servers in the settings.
        bootstrap_servers: String,
    },
    /// There is no client for the servers in the settings.
    #[error("no client for the cluster of {bootstrap_servers}")]
    Connect {
        /// The servers in the settings.
        bootstrap_servers: String,
        /// What the client says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The topology cannot be built for this application.
    #[error("the topology cannot be built for application {application_id}")]
    Topology {
        /// The application.
        application_id: String,
        /// What is wrong with it.
        source: UserError,
    },
    /// The state directory cannot be used.
    #[error("the state directory cannot be used")]
    StateDir(#[from] StateDirError),
    /// Topics are missing or not as they must be.
    #[error("the topics do not fit the topology")]
    Topics(#[from] TopicsError),
}

/// Why an instance, or one of its threads, cannot go on. Given to the uncaught-error handler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstanceError {
    /// A task failed on a record, and the handler of such records said to fail.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A stream thread panicked: a bug of the library, since panics of user code are caught.
    #[error("stream thread {thread} panicked; this is a bug")]
    ThreadPanicked {
        /// Number of the thread, from 1.
        thread: usize,
    },
    /// The state of a task could not be opened.
    #[error("the state of task {task} cannot be opened")]
    Open {
        /// The task.
        task: TaskId,
        /// What the store says.
        source: StoreError,
    },
    /// The directory of a task could not be removed to be made anew.
    #[error("the state of task {task} cannot be rebuilt")]
    Wipe {
        /// The task.
        task: TaskId,
        /// What the operating system says.
        source: StateDirError,
    },
    /// The state of a task could not be restored.
    #[error("the state of task {task} cannot be restored")]
    Restore {
        /// The task.
        task: TaskId,
        /// What went wrong.
        source: ChangelogError,
    },
    /// A changelog is gone.
    #[error("changelog {topic} of task {task} does not exist any more")]
    NoChangelog {
        /// The task.
        task: TaskId,
        /// The topic.
        topic: TopicName,
    },
    /// An input has no offset to begin at, and its reset policy says `none`.
    #[error(
        "{topic_partition} has no valid committed offset and its reset policy is none; commit an offset, or choose earliest or latest"
    )]
    NoOffset {
        /// The input.
        topic_partition: TopicPartition,
    },
    /// The broker could not be asked, or refused, for longer than `task.timeout.ms`.
    #[error("task {task} cannot {operation}")]
    Broker {
        /// The task.
        task: TaskId,
        /// What was tried.
        operation: &'static str,
        /// What the broker said.
        source: Box<BrokerError>,
    },
    /// Output, changelogs or offsets could not be written.
    #[error("stream thread {thread} cannot {operation}")]
    Commit {
        /// Number of the thread, from 1.
        thread: usize,
        /// What was tried.
        operation: &'static str,
        /// What the broker said.
        source: Box<BrokerError>,
    },
    /// Committed state could not be written to the store.
    #[error("stream thread {thread} cannot write committed state of task {task}")]
    Apply {
        /// Number of the thread, from 1.
        thread: usize,
        /// The task.
        task: TaskId,
        /// What the store says.
        source: StoreError,
    },
    /// Global state cannot be kept up: records of global topics failed, or the stores.
    #[error("the global state cannot be kept up")]
    Global(#[from] GlobalError),
    /// The group does not take this member.
    #[error("this instance cannot be a member of the group")]
    Membership {
        /// What the broker said.
        source: BrokerError,
    },
    /// Topics have changed while the instance ran, and do not fit the topology any more: a source is
    /// missing, or has a number of partitions that does not go with the internal topics that there are, or an
    /// internal topic is gone.
    #[error("the topics do not fit the topology any more")]
    Topics(#[source] Box<TopicsError>),
    /// The source topics have changed while the instance ran, and the topology cannot be built for them.
    #[error("the topology cannot be built for the source topics that there are now")]
    Topology {
        /// What is wrong with it.
        source: UserError,
    },
    /// No plan could be made for the group.
    #[error("the tasks cannot be assigned")]
    Assign(#[from] AssignError),
    /// The leader asked the whole application to stop, because a member's handler wanted it.
    #[error("the application was asked to stop by one of its instances")]
    ShutdownRequested,
    /// A part of the instance panicked.
    #[error("a part of the instance panicked; this is a bug")]
    JobPanicked,
    /// Work that blocks ended without a result.
    #[error(
        "work on the state of task {task} ended without a result: it panicked, or the process is stopping"
    )]
    Blocking {
        /// The task.
        task: TaskId,
    },
}

/// [`close`](crate::Instance::close) did not end in time; what was not committed will be done
/// again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("closing took longer than {} ms; {} tasks were given up without a last commit", .limit.as_millis(), .tasks.len())]
#[non_exhaustive]
pub struct CloseTimeout {
    /// The limit that passed.
    pub limit: std::time::Duration,
    /// The tasks that had not ended.
    pub tasks: Vec<TaskId>,
}
