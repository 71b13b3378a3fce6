//! What can go wrong while a task processes.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use headwater_broker::{BrokerError, TopicName, TopicPartition};
use headwater_records::RecordsError;
use headwater_store::StoreError;
use headwater_topology::TaskId;

/// An error of user code: of a function, a processor, or a serde.
pub type UserError = Box<dyn Error + Send + Sync + 'static>;

/// Which step failed; each has a handler of its own (feature rows E2 to E4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKind {
    /// An input record could not be read.
    Deserialization,
    /// A user function or processor failed or panicked.
    Processing,
    /// An output record could not be written.
    Production,
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deserialization => "deserialization",
            Self::Processing => "processing",
            Self::Production => "production",
        })
    }
}

/// The input record a task was at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPosition {
    /// Where it came from.
    pub topic_partition: TopicPartition,
    /// Its offset.
    pub offset: i64,
}

impl fmt::Display for RecordPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.topic_partition, self.offset)
    }
}

/// Ends the work of a task until it has been rewound to its last commit.
///
/// As large as a pointer: every node of a topology answers with one or with nothing, for every
/// record.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct TaskError(Box<TaskErrorKind>);

impl TaskError {
    /// What has happened.
    pub fn kind(&self) -> &TaskErrorKind {
        &self.0
    }
}

impl From<TaskErrorKind> for TaskError {
    #[cold]
    fn from(kind: TaskErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

/// What ended the work of a task.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TaskErrorKind {
    /// A record could not be read, processed or written, and the handler said to fail.
    #[error("{kind} failed in task {task}, node {node}, {}: {source}", At(position.as_ref()))]
    Record {
        /// The step.
        kind: FailureKind,
        /// The task.
        task: TaskId,
        /// The node.
        node: Arc<str>,
        /// The input record; `None` in a punctuation.
        position: Option<RecordPosition>,
        /// What user code said.
        source: Arc<dyn Error + Send + Sync + 'static>,
    },
    /// A store could not be read.
    #[error("store {store} of task {task} failed: {source}")]
    Store {
        /// The task.
        task: TaskId,
        /// The store.
        store: Arc<str>,
        /// What the backend said.
        source: Arc<StoreError>,
    },
    /// A fetched batch is damaged.
    #[error("task {task} cannot read a batch of {topic_partition}: {source}")]
    DamagedBatch {
        /// The task.
        task: TaskId,
        /// Where the batch came from.
        topic_partition: TopicPartition,
        /// What the codec said.
        source: RecordsError,
    },
    /// An output record does not fit a batch.
    #[error("task {task} cannot write a record to {topic}: {source}")]
    Unwritable {
        /// The task.
        task: TaskId,
        /// The topic.
        topic: TopicName,
        /// What the codec said.
        source: RecordsError,
    },
    /// An output record is larger than its topic takes.
    #[error(
        "a record of task {task} makes a batch of {bytes} bytes, and topic {topic} takes {limit}; raise max.message.bytes of the topic and max.request.size, or skip such records in the production exception handler"
    )]
    TooLarge {
        /// The task.
        task: TaskId,
        /// The topic.
        topic: TopicName,
        /// Bytes of the record, or of a batch of it alone.
        bytes: usize,
        /// The lower one of the topic's `max.message.bytes` and `max.request.size`.
        limit: usize,
    },
    /// The broker did not take a record, and the handler said to fail.
    #[error("a record of task {task}, node {node}, could not be written: {source}")]
    Refused {
        /// The task that began the record's batch.
        task: TaskId,
        /// The node.
        node: Arc<str>,
        /// What the broker said.
        source: Arc<BrokerError>,
    },
    /// A handler named a dead-letter topic that was not looked up at start.
    #[error(
        "dead-letter topic {topic} is unknown: it must exist at start and be named by its handler's `topics`"
    )]
    UnknownDeadLetterTopic {
        /// The topic.
        topic: TopicName,
    },
    /// A partitioner named a partition that the topic does not have.
    #[error("a partitioner chose partition {partition} of {topic}, which has {partitions}")]
    NoSuchPartition {
        /// The topic.
        topic: TopicName,
        /// What the partitioner said.
        partition: i32,
        /// How many there are.
        partitions: i32,
    },
}

struct At<'a>(Option<&'a RecordPosition>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(position) => write!(f, "record {position}"),
            None => f.write_str("punctuation"),
        }
    }
}

/// A panic of user code, as an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("user code panicked: {message}")]
pub struct UserPanic {
    /// The panic's text, or a word that there was none.
    pub message: String,
}

impl UserPanic {
    /// Takes the text out of what `catch_unwind` caught.
    pub fn new(payload: &(dyn std::any::Any + Send)) -> Self {
        let message = payload
            .downcast_ref::<&'static str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "(no text)".to_owned());
        Self { message }
    }
}
