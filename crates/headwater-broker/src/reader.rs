//! Reading logs.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{BrokerError, Isolation, TopicId, TopicPartition};

/// One partition of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// What to read.
    pub topic_partition: TopicPartition,
    /// The id of the topic that the offset is of ([`FetchedData::topic_id`] of an earlier answer). When there is
    /// another topic of that name meanwhile the answer is [`BrokerError::TopicRecreated`]. `None`: whatever
    /// topic has the name.
    pub topic_id: Option<TopicId>,
    /// The first offset wanted. The answer may begin with a batch that starts before it.
    pub offset: i64,
    /// At most so many bytes for this partition. A batch that is larger comes only as the first of
    /// an answer, whole; if it is not the first, another fetch brings it.
    pub max_bytes: usize,
}

/// A fetch of any number of partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// The partitions, each at most once.
    pub partitions: Vec<FetchPartition>,
    /// How long to wait when none of them has anything to say.
    pub max_wait: Duration,
    /// At most so many bytes in all; the first batch comes whole even if larger.
    pub max_bytes: usize,
    /// Whether records of open and aborted transactions are wanted.
    pub isolation: Isolation,
}

/// An aborted transaction that overlaps fetched data: data batches of `producer_id` from
/// `first_offset` up to its next abort marker are to be skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer_id: i64,
    /// First offset of the transaction in this partition.
    pub first_offset: i64,
}

/// What a fetch brought for one partition. All fields are true even when `batches` is empty, which
/// idling and restoring need.
#[derive(Clone, Debug)]
pub struct FetchedData {
    /// The id of the topic; `None` when the broker has none (before 2.8).
    pub topic_id: Option<TopicId>,
    /// Whole batches of format 2, in offset order; the last may be cut off.
    pub batches: Bytes,
    /// Under [`Isolation::ReadCommitted`]: the aborted transactions among `batches`.
    pub aborted: Vec<AbortedTransaction>,
    /// First offset that can be read.
    pub log_start_offset: i64,
    /// The offset after the last acknowledged record.
    pub high_watermark: i64,
    /// The offset before which no transaction is open.
    pub last_stable_offset: i64,
}

/// The answer for one partition.
#[derive(Debug)]
pub struct FetchedPartition {
    /// The partition.
    pub topic_partition: TopicPartition,
    /// Data, or what is wrong with this partition alone.
    pub outcome: Result<FetchedData, BrokerError>,
}

/// Reads logs with long polls.
#[async_trait]
pub trait LogReader: fmt::Debug + Send {
    /// Answers as soon as one of the partitions has data at its offset or an error, or when
    /// `max_wait` has passed. Partitions without news may be left out of the answer unless
    /// `max_wait` passed: then every partition is answered, so positions and ends get known.
    ///
    /// # Errors
    /// When the whole request failed. What concerns one partition stands in its outcome.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the next fetch names its offsets again.
    async fn fetch(&mut self, request: &FetchRequest)
    -> Result<Vec<FetchedPartition>, BrokerError>;
}
