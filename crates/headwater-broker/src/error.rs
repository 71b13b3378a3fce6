//! What can go wrong with a broker, and what to do next.

use std::fmt;
use std::time::Duration;

use crate::{GroupId, RefusedRecord, TopicName, TopicPartition};

/// What a caller should do after a [`BrokerError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// The same call may succeed later; the caller counts the time against its own limit.
    Retry,
    /// The position is gone: apply the offset reset policy, or restore from the beginning.
    ResetOffset,
    /// The membership is stale or lost: give the tasks up and join again.
    Rejoin,
    /// The transaction cannot be committed: abort it. Then the writer can go on.
    Abort,
    /// A newer writer with the same transactional id is at work: whatever this one's owner holds may
    /// belong to somebody else by now.
    Fenced,
    /// This writer is finished, since its state is unknown. A new one can go on.
    ReplaceWriter,
    /// Nothing helps but a change from outside (configuration, permissions, disk space).
    Fail,
}

/// An error of a broker call. The variants follow Kafka's error codes where there is one.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// The connection broke or could not be made.
    #[error("no connection to {address} for {call}: {cause}")]
    Disconnected {
        /// The broker's address.
        address: String,
        /// The request.
        call: &'static str,
        /// What the connection said.
        cause: String,
    },
    /// There is a server, but none this client can work with: no broker, or one too old.
    #[error("{address} is not a broker this client can work with ({call}): {cause}")]
    Incompatible {
        /// The server's address.
        address: String,
        /// The request that showed it.
        call: &'static str,
        /// What shows it.
        cause: String,
    },
    /// One side does not trust the other's certificate, or they have no version of TLS in common.
    #[error("{address} and this client do not trust each other (TLS): {cause}")]
    Untrusted {
        /// The broker's address.
        address: String,
        /// What is wrong, for instance the name in the certificate.
        cause: String,
    },
    /// The broker does not believe this client to be whom it says it is.
    #[error("{address} does not let this client in (SASL {mechanism}): {cause}")]
    Unauthenticated {
        /// The broker's address.
        address: String,
        /// The mechanism, for instance `SCRAM-SHA-256`.
        mechanism: &'static str,
        /// What the broker says; never the secret.
        cause: String,
    },
    /// There is no token just now to tell the broker who this client is. Its provider is asked again.
    #[error("there is no token for {address} just now: {cause}")]
    NoToken {
        /// The broker's address.
        address: String,
        /// What the provider of tokens says.
        cause: String,
    },
    /// An answer that makes no sense.
    #[error("the answer of {address} to {call} cannot be read: {cause}")]
    Malformed {
        /// The broker's address.
        address: String,
        /// The request.
        call: &'static str,
        /// What is wrong with the answer.
        cause: String,
    },
    /// The broker refused a request with an error that has no variant of its own here.
    #[error("{address} refused {call} for {subject}: {name} ({code}){}{message}", if message.is_empty() { "" } else { ": " })]
    Refused {
        /// The broker's address.
        address: String,
        /// The request.
        call: &'static str,
        /// What it was about, for instance `topic lines`.
        subject: String,
        /// Kafka's error code.
        code: i16,
        /// Kafka's name of the code, for instance `POLICY_VIOLATION`.
        name: String,
        /// What the broker says besides; may be empty.
        message: String,
        /// Whether the same request may succeed later.
        retriable: bool,
    },
    /// No answer in time; for a write it is unknown whether it happened.
    #[error("no answer to {call} within {} ms", limit.as_millis())]
    TimedOut {
        /// The request.
        call: &'static str,
        /// The limit that passed.
        limit: Duration,
    },
    /// The topic or partition does not exist.
    #[error("topic {topic} does not exist on this broker")]
    UnknownTopic {
        /// The topic asked for.
        topic: TopicName,
    },
    /// The topic exists but has no such partition.
    #[error("partition {topic_partition} does not exist on this broker")]
    UnknownPartition {
        /// The partition asked for.
        topic_partition: TopicPartition,
    },
    /// A topic of that name exists already.
    #[error("topic {topic} exists already")]
    TopicExists {
        /// The topic to be created.
        topic: TopicName,
    },
    /// A name or setting of a topic is not valid.
    #[error("topic {topic}: {setting} is not valid: {why}")]
    InvalidTopic {
        /// The topic.
        topic: TopicName,
        /// The setting, or `name`.
        setting: String,
        /// What is wrong with it.
        why: String,
    },
    /// The broker asked for is not the leader of the partition just now.
    #[error("partition {topic_partition} has no leader at the moment")]
    NoLeader {
        /// The partition.
        topic_partition: TopicPartition,
    },
    /// The offset lies outside of the log.
    #[error(
        "offset {offset} of {topic_partition} is out of range: the log holds {log_start_offset} to {end_offset}"
    )]
    OffsetOutOfRange {
        /// The partition.
        topic_partition: TopicPartition,
        /// The offset asked for.
        offset: i64,
        /// First offset that can be read.
        log_start_offset: i64,
        /// The offset after the last.
        end_offset: i64,
    },
    /// The topic has been deleted and created again (KIP-516): offsets of the old one mean nothing.
    #[error(
        "topic {} has been deleted and created again: offset {offset} of {topic_partition} is of the old one",
        .topic_partition.topic
    )]
    TopicRecreated {
        /// The partition.
        topic_partition: TopicPartition,
        /// The offset asked for.
        offset: i64,
    },
    /// A batch is larger than the topic allows (`max.message.bytes`).
    #[error(
        "batch of {size_bytes} bytes for {topic_partition} is above the limit (max.message.bytes) of {}",
        number_or_unknown(*.limit_bytes)
    )]
    BatchTooLarge {
        /// The partition.
        topic_partition: TopicPartition,
        /// Size of the batch.
        size_bytes: usize,
        /// The topic's limit; `None` where we may not ask for it.
        limit_bytes: Option<usize>,
    },
    /// The broker does not take records of a batch, and so nothing of it.
    #[error(
        "{topic_partition} does not take {}: {name} ({code}){}",
        records_or_batch(records),
        reasons(message, records)
    )]
    RecordsRefused {
        /// The partition.
        topic_partition: TopicPartition,
        /// Kafka's error code.
        code: i16,
        /// Kafka's name of the code, for instance `INVALID_RECORD`.
        name: String,
        /// What the broker says of the batch; may be empty.
        message: String,
        /// The records that it does not take; empty when it does not tell which (before 2.4).
        records: Vec<RefusedRecord>,
    },
    /// Records of a batch were [refused](Self::is_refusal), but nobody knows what has become of an earlier
    /// attempt to write it, or one behind it. What is to be sent in its place cannot be decided then: a
    /// new writer is to write it, and decides when it is refused again.
    #[error(
        "{topic_partition} has refused a batch while an attempt to write was in doubt: {cause}"
    )]
    RefusedInDoubt {
        /// The partition.
        topic_partition: TopicPartition,
        /// What the refusal says.
        cause: String,
    },
    /// All that was left to write of a batch were records that the broker does not take, and they
    /// were left out, as their [judge](crate::RecordJudge) has decided. Nothing has failed.
    #[error("the records of a batch for {topic_partition} were left out")]
    LeftOut {
        /// The partition.
        topic_partition: TopicPartition,
    },
    /// Bytes of a batch do not make sense.
    #[error("corrupt batch in {topic_partition}: {source}")]
    CorruptBatch {
        /// The partition.
        topic_partition: TopicPartition,
        /// What the codec says.
        source: headwater_records::RecordsError,
    },
    /// A sequence number came twice or out of order, and the first was not the same batch.
    #[error(
        "producer {producer_id} is out of order on {topic_partition}: sequence {sequence}, expected {}",
        number_or_unknown(*.expected)
    )]
    OutOfOrderSequence {
        /// The partition.
        topic_partition: TopicPartition,
        /// The producer.
        producer_id: i64,
        /// The sequence that came.
        sequence: i32,
        /// The one that should have come, where the broker tells it.
        expected: Option<i32>,
    },
    /// A newer producer with the same id is at work, or the transaction was open for longer than its
    /// time-out and the broker has aborted it.
    #[error("producer {producer_id} with epoch {epoch} was fenced by a newer one")]
    ProducerFenced {
        /// The producer.
        producer_id: i64,
        /// The stale epoch.
        epoch: i16,
    },
    /// The transaction's state does not allow the call.
    #[error("transaction {transactional_id} cannot {call} now: {why}")]
    InvalidTransaction {
        /// The transactional id.
        transactional_id: String,
        /// The call.
        call: &'static str,
        /// Why not.
        why: String,
    },
    /// The transaction cannot be committed any more; it is still to be aborted.
    #[error("the transaction of {transactional_id} can only be aborted: {why}")]
    TransactionAbortable {
        /// The transactional id.
        transactional_id: String,
        /// What has failed.
        why: String,
    },
    /// The last transaction of this id is decided, but its markers are not all written yet.
    #[error("the last transaction of {transactional_id} is not complete yet")]
    ConcurrentTransactions {
        /// The transactional id.
        transactional_id: String,
    },
    /// The member is not part of the group any more.
    #[error("member {member_id} is unknown to group {group}")]
    UnknownMember {
        /// The group.
        group: GroupId,
        /// The member.
        member_id: String,
    },
    /// The generation is not the group's present one.
    #[error("generation {generation} of group {group} is over")]
    StaleGeneration {
        /// The group.
        group: GroupId,
        /// The generation sent.
        generation: i32,
    },
    /// The group is in the middle of a rebalance.
    #[error("group {group} is rebalancing")]
    RebalanceInProgress {
        /// The group.
        group: GroupId,
    },
    /// Another member uses the same `group.instance.id`.
    #[error(
        "another member of group {group} uses the instance id {instance_id}; each instance needs its own"
    )]
    FencedInstanceId {
        /// The group.
        group: GroupId,
        /// The shared id.
        instance_id: String,
    },
    /// The live members of the group speak another protocol.
    #[error(
        "group {group} has members of protocol {protocol}, which cannot work together with ours; stop them first"
    )]
    InconsistentProtocol {
        /// The group.
        group: GroupId,
        /// What the members speak.
        protocol: String,
    },
    /// A transaction of somebody else is pending on the offsets (KIP-447, require-stable).
    #[error("offsets of {topic_partition} are not stable: a transaction is pending")]
    UnstableOffset {
        /// The partition.
        topic_partition: TopicPartition,
    },
    /// The broker does not allow the call.
    #[error("not authorised to {operation} {resource}")]
    NotAuthorised {
        /// For instance `read`.
        operation: String,
        /// For instance `topic lines`.
        resource: String,
    },
    /// A call this broker does not have.
    #[error("this broker does not support {call}")]
    Unsupported {
        /// The call.
        call: &'static str,
    },
    /// The broker is shut down.
    #[error("the broker is closed")]
    Closed,
    /// The broker could not store or read its own data.
    #[error("the broker failed to {operation}: {cause}")]
    Storage {
        /// What it tried.
        operation: String,
        /// What the operating system said.
        cause: String,
    },
}

fn number_or_unknown(number: Option<impl fmt::Display>) -> String {
    number.map_or_else(|| "unknown".to_owned(), |number| number.to_string())
}

fn records_or_batch(records: &[RefusedRecord]) -> String {
    match records {
        [] => "a batch".to_owned(),
        [record] => format!("record {} of a batch", record.index),
        more => format!("{} records of a batch", more.len()),
    }
}

fn reasons(message: &str, records: &[RefusedRecord]) -> String {
    let first = records.iter().map(|record| record.message.as_str()).find(|it| !it.is_empty());
    let reason = first.unwrap_or(message);
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

impl BrokerError {
    /// What to do next.
    pub fn next_step(&self) -> NextStep {
        match self {
            Self::Disconnected { .. }
            | Self::NoToken { .. }
            | Self::TimedOut { .. }
            | Self::NoLeader { .. }
            | Self::UnstableOffset { .. }
            | Self::Refused { retriable: true, .. }
            | Self::ConcurrentTransactions { .. }
            | Self::RebalanceInProgress { .. } => NextStep::Retry,
            Self::OffsetOutOfRange { .. } | Self::TopicRecreated { .. } => NextStep::ResetOffset,
            Self::UnknownMember { .. } | Self::StaleGeneration { .. } => NextStep::Rejoin,
            Self::TransactionAbortable { .. } => NextStep::Abort,
            Self::ProducerFenced { .. } => NextStep::Fenced,
            Self::OutOfOrderSequence { .. }
            | Self::RefusedInDoubt { .. }
            | Self::InvalidTransaction { .. } => NextStep::ReplaceWriter,
            Self::UnknownTopic { .. }
            | Self::UnknownPartition { .. }
            | Self::TopicExists { .. }
            | Self::InvalidTopic { .. }
            | Self::BatchTooLarge { .. }
            | Self::RecordsRefused { .. }
            | Self::LeftOut { .. }
            | Self::CorruptBatch { .. }
            | Self::FencedInstanceId { .. }
            | Self::InconsistentProtocol { .. }
            | Self::NotAuthorised { .. }
            | Self::Incompatible { .. }
            | Self::Untrusted { .. }
            | Self::Unauthenticated { .. }
            | Self::Malformed { .. }
            | Self::Refused { retriable: false, .. }
            | Self::Unsupported { .. }
            | Self::Closed
            | Self::Storage { .. } => NextStep::Fail,
        }
    }

    /// The topic that does not exist, or has not as many partitions.
    pub const fn missing_topic(&self) -> Option<&TopicName> {
        match self {
            Self::UnknownTopic { topic } => Some(topic),
            Self::UnknownPartition { topic_partition } => Some(&topic_partition.topic),
            _ => None,
        }
    }

    /// Whether a leader has found records of a batch that it does not take, before it has written
    /// anything.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::BatchTooLarge { .. } | Self::RecordsRefused { .. })
    }

    /// What becomes of a batch that was refused with this error, while an attempt to write it, or one behind
    /// it, was in doubt.
    #[must_use]
    pub fn in_doubt(&self, topic_partition: &TopicPartition) -> Self {
        let topic_partition = topic_partition.clone();
        Self::RefusedInDoubt { topic_partition, cause: self.to_string() }
    }

    /// Whether a batch was not delivered in time, or there is no such partition (any more): a failure
    /// of the batch, not of who writes it or of his rights.
    pub fn is_undelivered(&self) -> bool {
        let is_gone = matches!(self, Self::UnknownTopic { .. } | Self::UnknownPartition { .. });
        is_gone || self.next_step() == NextStep::Retry
    }
}
