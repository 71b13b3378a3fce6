//! What to do with a record that cannot be read, processed or written (KIP-1033, KIP-1034;
//! feature rows E1 to E6).

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use headwater_broker::{TopicName, TopicPartition};
use headwater_topology::TaskId;

use crate::process::{FailureKind, Headers, RecordPosition};

/// What is known about a failure.
#[derive(Debug)]
pub struct Failure<'a> {
    /// Which step failed.
    pub kind: FailureKind,
    /// The task.
    pub task: TaskId,
    /// The node.
    pub node: &'a str,
    /// The input record; `None` in a punctuation, and for output that the broker did not take: that is
    /// known only when its input is no longer at hand.
    pub position: Option<&'a RecordPosition>,
    /// The input record's key, as read from the topic.
    pub raw_key: Option<&'a [u8]>,
    /// The input record's value, as read from the topic.
    pub raw_value: Option<&'a [u8]>,
    /// The record's headers.
    pub headers: &'a Headers,
    /// The record's timestamp.
    pub timestamp: i64,
    /// The record as it was to be written, for output that the broker did not take.
    pub output: Option<OutputRecord<'a>>,
    /// What went wrong; for output that the broker did not take a
    /// [`BrokerError`](headwater_broker::BrokerError).
    pub error: &'a (dyn Error + Send + Sync + 'static),
}

/// A record that was to be written.
#[derive(Clone, Copy, Debug)]
pub struct OutputRecord<'a> {
    /// Where.
    pub topic_partition: &'a TopicPartition,
    /// The key's bytes.
    pub key: Option<&'a [u8]>,
    /// The value's bytes.
    pub value: Option<&'a [u8]>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// The task fails; its records since the last commit will be processed again.
    Fail,
    /// The record ends here, counted as dropped; the task goes on.
    Continue,
    /// As [`Continue`](Self::Continue), and the input record goes to this topic with its origin and the
    /// error in headers; of output that the broker did not take, the output record. The topic must
    /// exist.
    DeadLetter(TopicName),
    /// Only for output that was not delivered within `delivery.timeout.ms`, or whose topic is gone
    /// (KIP-1065): the tasks of the thread begin anew at their last commit, and so it is written again.
    /// Elsewhere as [`Fail`](Self::Fail).
    Retry,
}

/// Decides on failures. Called on stream threads, and for output that the broker did not take on those
/// of the async runtime; it must not block.
pub trait ExceptionHandler: Send + Sync + 'static {
    /// Decides on one failure.
    fn handle(&self, failure: &Failure<'_>) -> Reaction;

    /// The dead-letter topics it may name. They are looked up when the application starts.
    fn topics(&self) -> Vec<TopicName> {
        Vec::new()
    }
}

impl<F> ExceptionHandler for F
where
    F: Fn(&Failure<'_>) -> Reaction + Send + Sync + 'static,
{
    fn handle(&self, failure: &Failure<'_>) -> Reaction {
        self(failure)
    }
}

/// The three handlers of an application. All fail unless told otherwise, as in Kafka Streams.
#[derive(Clone)]
pub struct Handlers {
    /// For input records that cannot be read.
    pub deserialization: Arc<dyn ExceptionHandler>,
    /// For failing functions and processors.
    pub processing: Arc<dyn ExceptionHandler>,
    /// For output records that cannot be written.
    pub production: Arc<dyn ExceptionHandler>,
}

impl Handlers {
    /// The dead-letter topics they may name.
    pub fn topics(&self) -> Vec<TopicName> {
        let all = [&self.deserialization, &self.processing, &self.production];
        all.iter().flat_map(|handler| handler.topics()).collect()
    }

    /// The handler for a kind of failure.
    pub fn of(&self, kind: FailureKind) -> &dyn ExceptionHandler {
        match kind {
            FailureKind::Deserialization => &*self.deserialization,
            FailureKind::Processing => &*self.processing,
            FailureKind::Production => &*self.production,
        }
    }
}

impl Default for Handlers {
    fn default() -> Self {
        let fail: Arc<dyn ExceptionHandler> = Arc::new(log_and_fail());
        Self { deserialization: Arc::clone(&fail), processing: Arc::clone(&fail), production: fail }
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers").finish_non_exhaustive()
    }
}

/// A handler that logs the failure and lets the task fail.
pub fn log_and_fail() -> impl ExceptionHandler {
    |failure: &Failure<'_>| {
        log(failure, "the task fails");
        Reaction::Fail
    }
}

/// A handler that logs the failure and drops the record.
pub fn log_and_continue() -> impl ExceptionHandler {
    |failure: &Failure<'_>| {
        log(failure, "the record is dropped");
        Reaction::Continue
    }
}

/// A handler that logs the failure and sends the record to a dead-letter topic, which must exist.
pub fn dead_letter(topic: impl Into<TopicName>) -> impl ExceptionHandler {
    DeadLetterHandler { topic: topic.into() }
}

struct DeadLetterHandler {
    topic: TopicName,
}

impl ExceptionHandler for DeadLetterHandler {
    fn handle(&self, failure: &Failure<'_>) -> Reaction {
        log(failure, "the record goes to the dead-letter topic");
        Reaction::DeadLetter(self.topic.clone())
    }

    fn topics(&self) -> Vec<TopicName> {
        vec![self.topic.clone()]
    }
}

fn log(failure: &Failure<'_>, reaction: &'static str) {
    let (topic, partition, offset) = failure.position.map_or(("", -1, -1), |position| {
        let topic_partition = &position.topic_partition;
        (topic_partition.topic.as_str(), topic_partition.partition, position.offset)
    });
    tracing::warn!(
        task = %failure.task,
        node = failure.node,
        topic,
        partition,
        offset,
        error = failure.error as &dyn Error,
        "{} failed: {reaction}",
        failure.kind
    );
}
