//! What can go wrong in a test.

use std::sync::Arc;

use headwater_broker::TopicName;
use headwater_changelog::ChangelogError;
use headwater_dsl::DslError;
use headwater_records::RecordsError;
use headwater_runtime::hosting::GlobalError;
use headwater_runtime::{ConfigError, InstanceError, QueryError, TaskError};
use headwater_store::serde::SerdeError;
use headwater_store::{Part, StoreError};
use headwater_topology::{TaskId, TaskPlanError, TopologyError};

/// Why the driver cannot do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestDriverError {
    /// The topology cannot be made out for the application.
    #[error("the topology cannot be made out for the application")]
    Topology {
        /// Why.
        source: DslError,
    },
    /// The topics that were named do not fit the patterns of the topology.
    #[error("the topics that were named do not fit the topology")]
    Patterns {
        /// Why.
        source: TopologyError,
    },
    /// The tasks cannot be counted.
    #[error("the partitions of the topics do not go together")]
    Tasks {
        /// Why.
        source: TaskPlanError,
    },
    /// All sub-topologies were to be one task, and a source topic has several partitions.
    #[error(
        "topic {topic} has {partitions} partitions, but as one task an application reads only one of each topic; leave Tasks::OnePerApplication out"
    )]
    SeveralPartitions {
        /// The topic.
        topic: TopicName,
        /// How many it has.
        partitions: i32,
    },
    /// A setting has a value that it cannot have.
    #[error("the configuration is wrong")]
    Config {
        /// Which.
        source: ConfigError,
    },
    /// No source of the topology reads the topic.
    #[error("no source of the topology reads topic {topic}; it reads {known:?}")]
    UnknownTopic {
        /// The topic.
        topic: TopicName,
        /// Those that are read.
        known: Vec<TopicName>,
    },
    /// The topic has no such partition.
    #[error("topic {topic} has {partitions} partitions, none of which is {partition}")]
    NoSuchPartition {
        /// The topic.
        topic: TopicName,
        /// What was asked for.
        partition: i32,
        /// How many there are.
        partitions: i32,
    },
    /// A key or value that a test puts into a store has no bytes.
    #[error("a key or value for store {store} cannot be written")]
    StoreSerde {
        /// The store.
        store: String,
        /// What the serde says.
        source: SerdeError,
    },
    /// A test writes a store that is global: pipe the record into its topic.
    #[error(
        "store {store} is global; pipe a record into its topic, so that its processor writes it"
    )]
    GlobalStore {
        /// The store.
        store: String,
    },
    /// There is no task of this id.
    #[error("the application has no task {task}")]
    UnknownTask {
        /// The id.
        task: TaskId,
    },
    /// A task has failed. It stays failed until it is restarted.
    #[error("task {task} has failed")]
    Task {
        /// The task.
        task: TaskId,
        /// Why.
        source: TaskError,
    },
    /// The global stores cannot be kept up. They stay so.
    #[error("the global stores cannot be kept up")]
    Global {
        /// Why.
        source: Arc<GlobalError>,
    },
    /// A record to be piped in cannot be written, or one that came out cannot be read.
    #[error("the {part} of a record of topic {topic} has other bytes than its serde knows")]
    Serde {
        /// The topic.
        topic: TopicName,
        /// Key or value.
        part: Part,
        /// What the serde says.
        source: SerdeError,
    },
    /// A record does not fit a record batch.
    #[error("a record of topic {topic} does not fit a batch")]
    Record {
        /// The topic.
        topic: TopicName,
        /// Why.
        source: RecordsError,
    },
    /// Nothing has come out that was not read yet.
    #[error("topic {topic} has no record that was not read yet")]
    NoRecord {
        /// The topic.
        topic: TopicName,
    },
    /// A store cannot be opened.
    #[error("the stores of task {task} cannot be opened")]
    Open {
        /// The task.
        task: TaskId,
        /// What the backend says.
        source: Box<InstanceError>,
    },
    /// A store cannot be written or closed.
    #[error("the stores of task {task} cannot be used")]
    Store {
        /// The task.
        task: TaskId,
        /// What the backend says.
        source: StoreError,
    },
    /// A store cannot be restored.
    #[error("the stores of task {task} cannot be restored")]
    Restore {
        /// The task.
        task: TaskId,
        /// Why.
        source: ChangelogError,
    },
    /// A store cannot be read.
    #[error("the store cannot be read")]
    Query {
        /// Why.
        #[from]
        source: QueryError,
    },
    /// No directory for state can be made.
    #[error("no directory for the state can be made")]
    StateDirectory {
        /// Why.
        source: std::io::Error,
    },
}
