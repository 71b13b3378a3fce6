//! Offsets of logs and of groups.

use async_trait::async_trait;

use crate::{BrokerError, Grant, GroupId, TopicPartition};

/// Whether a reader sees records of transactions that are not committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Everything up to the high watermark.
    #[default]
    ReadUncommitted,
    /// Only what is committed, up to the last stable offset.
    ReadCommitted,
}

/// Which offset of a partition is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The first that can be read.
    Earliest,
    /// The one after the last: the high watermark, or the last stable offset when reading
    /// committed.
    Latest,
    /// The first whose timestamp is at or after this one, in milliseconds since 1970.
    AtTimestamp(i64),
}

/// A question for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetQuery {
    /// The partition.
    pub topic_partition: TopicPartition,
    /// What is asked.
    pub spec: OffsetSpec,
}

/// An offset found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedOffset {
    /// The offset.
    pub offset: i64,
    /// The leader epoch there, where it is known: of the record, or for the end of the log the epoch
    /// of its leader now.
    pub leader_epoch: Option<i32>,
}

/// A question about a leader epoch of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochQuery {
    /// The partition.
    pub topic_partition: TopicPartition,
    /// The leader epoch.
    pub leader_epoch: i32,
}

/// Where the records of a leader epoch end (KIP-320).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The newest epoch of the log that is not newer than the one asked for.
    pub leader_epoch: i32,
    /// The offset after its last record: where the next epoch begins, or the end of the log. A
    /// reader that has seen the epoch asked for beyond this offset has seen records that the log
    /// has lost.
    pub end_offset: i64,
}

/// An offset to be committed for one partition: the next one to process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    /// The partition.
    pub topic_partition: TopicPartition,
    /// The next offset to process.
    pub offset: i64,
    /// Free text kept beside it (Kafka Streams keeps stream time there, feature row R16).
    pub metadata: String,
}

/// An offset a group has committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset to process.
    pub offset: i64,
    /// The text committed with it.
    pub metadata: String,
}

/// Offsets of logs and of groups.
#[async_trait]
pub trait Offsets: Send + Sync {
    /// Looks offsets up; the answers are in the order of the questions. `None`: no record at or
    /// after the timestamp.
    ///
    /// # Errors
    /// The first partition that cannot be answered fails the call.
    async fn list_offsets(
        &self,
        queries: &[OffsetQuery],
        isolation: Isolation,
    ) -> Result<Vec<Option<ListedOffset>>, BrokerError>;

    /// Looks up where leader epochs end; the answers are in the order of the questions. `None`: the
    /// log has had no such epoch yet, so that the asker has seen what this log never held.
    ///
    /// # Errors
    /// The first partition that cannot be answered fails the call.
    async fn epoch_ends(
        &self,
        queries: &[EpochQuery],
    ) -> Result<Vec<Option<EpochEnd>>, BrokerError>;

    /// What the group has committed, in the order of the partitions; `None` where nothing is.
    ///
    /// # Errors
    /// With `require_stable`: [`BrokerError::UnstableOffset`] while a transaction is pending on
    /// one of them.
    async fn committed_offsets(
        &self,
        group: &GroupId,
        partitions: &[TopicPartition],
        require_stable: bool,
    ) -> Result<Vec<Option<CommittedOffset>>, BrokerError>;

    /// Commits offsets under a grant. All or none.
    ///
    /// # Errors
    /// [`BrokerError::StaleGeneration`], [`BrokerError::UnknownMember`] or
    /// [`BrokerError::RebalanceInProgress`] when the grant does not hold (any more).
    async fn commit_offsets(
        &self,
        grant: &Grant,
        offsets: &[OffsetCommit],
    ) -> Result<(), BrokerError>;
}
