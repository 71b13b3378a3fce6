//! What Kafka's error codes mean to us: the one table.

use headwater_broker::{BrokerError, Grant, GroupId, TopicName, TopicPartition};
use kafka_protocol::ResponseError;

/// What may help after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing that this client can do.
    None,
    /// The same again, a little later.
    Again,
    /// To ask who leads the partition, or the cluster, now; then again.
    FreshMetadata,
    /// To ask who coordinates now; then again.
    FindCoordinator,
}

/// An error with what may help.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Boxed: what may fail should not be as large as its largest failure.
    pub(crate) error: Box<BrokerError>,
    pub(crate) remedy: Remedy,
}

impl Failure {
    pub(crate) fn new(error: BrokerError, remedy: Remedy) -> Self {
        Self { error: Box::new(error), remedy }
    }

    /// A failure that nothing helps.
    pub(crate) fn last(error: BrokerError) -> Self {
        Self::new(error, Remedy::None)
    }
}

/// What a request was about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About<'a> {
    Cluster,
    Topic(&'a TopicName),
    Partition(&'a TopicPartition),
    Group(&'a GroupId),
    TransactionalId(&'a str),
    /// Of this writer.
    Transaction {
        id: &'a str,
        producer_id: i64,
        epoch: i16,
    },
    Member(&'a Grant),
}

impl About<'_> {
    fn subject(self) -> String {
        match self {
            Self::Cluster => "the cluster".to_owned(),
            Self::Topic(topic) => format!("topic {topic}"),
            Self::Partition(at) => format!("partition {at}"),
            Self::Group(group) => format!("group {group}"),
            Self::TransactionalId(id) | Self::Transaction { id, .. } => {
                format!("transactional id {id}")
            }
            Self::Member(grant) => format!("member {} of group {}", grant.member_id, grant.group),
        }
    }

    /// Whether a code can be about this: one of missing rights says itself to what.
    pub(crate) fn fits(self, code: i16) -> bool {
        use ResponseError as E;
        match ResponseError::try_from_code(code) {
            Some(E::TopicAuthorizationFailed) => {
                matches!(self, Self::Topic(_) | Self::Partition(_))
            }
            Some(E::GroupAuthorizationFailed) => matches!(self, Self::Group(_) | Self::Member(_)),
            Some(E::TransactionalIdAuthorizationFailed) => {
                matches!(self, Self::TransactionalId(_) | Self::Transaction { .. })
            }
            Some(E::ClusterAuthorizationFailed) => matches!(self, Self::Cluster),
            _ => true,
        }
    }

    /// To what a right is missing, when a request about this is denied.
    fn denied(self, by: ResponseError) -> String {
        use ResponseError as E;
        match (self, by) {
            (_, E::ClusterAuthorizationFailed) => Self::Cluster.subject(),
            (Self::Member(grant), E::GroupAuthorizationFailed) => {
                Self::Group(&grant.group).subject()
            }
            (about, by) if about.fits(by.code()) => about.subject(),
            (_, E::GroupAuthorizationFailed) => "the group".to_owned(),
            (_, E::TransactionalIdAuthorizationFailed) => "the transactional id".to_owned(),
            _ => "a topic".to_owned(),
        }
    }
}

/// Who refused what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal<'a> {
    pub(crate) address: &'a str,
    pub(crate) call: &'static str,
    pub(crate) about: About<'a>,
    /// What the broker says besides.
    pub(crate) message: Option<&'a str>,
}

/// What may help after an error code.
pub(crate) fn remedy(code: i16) -> Remedy {
    use ResponseError as E;
    let Some(error) = ResponseError::try_from_code(code) else {
        return Remedy::None;
    };
    match error {
        E::UnknownTopicOrPartition
        | E::LeaderNotAvailable
        | E::NotLeaderOrFollower
        | E::ReplicaNotAvailable
        | E::NotController
        | E::KafkaStorageError
        | E::ListenerNotFound
        | E::FencedLeaderEpoch
        | E::UnknownLeaderEpoch
        | E::UnknownTopicId
        | E::InconsistentTopicId => Remedy::FreshMetadata,
        E::CoordinatorNotAvailable | E::NotCoordinator => Remedy::FindCoordinator,
        // The port hands this one to its caller, who knows how long to wait.
        E::UnstableOffsetCommit => Remedy::None,
        E::ConcurrentTransactions => Remedy::Again,
        other if other.is_retriable() => Remedy::Again,
        _ => Remedy::None,
    }
}

/// The failure an error code stands for.
///
/// Codes whose meaning needs more than the code (bounds of a log, size of a batch, sequence
/// numbers, protocols of a group) are read by their callers before this; here they are
/// [`BrokerError::Refused`], by name.
pub(crate) fn failure(code: i16, of: Refusal<'_>) -> Failure {
    Failure::new(error(code, of), remedy(code))
}

fn error(code: i16, of: Refusal<'_>) -> BrokerError {
    use ResponseError as E;
    let known = ResponseError::try_from_code(code);
    let own = known.and_then(|known| match of.about {
        About::Topic(topic) => of_topic(known, topic, of.message),
        About::Partition(at) => of_partition(known, at),
        About::Member(grant) => of_member(known, grant),
        About::Transaction { id, producer_id, epoch } => {
            of_transaction(known, of.call, id, (producer_id, epoch))
        }
        About::Cluster | About::Group(_) | About::TransactionalId(_) => None,
    });
    own.unwrap_or_else(|| match known {
        Some(E::UnsupportedVersion) => BrokerError::Unsupported { call: of.call },
        Some(
            denied @ (E::TopicAuthorizationFailed
            | E::GroupAuthorizationFailed
            | E::ClusterAuthorizationFailed
            | E::TransactionalIdAuthorizationFailed),
        ) => {
            let resource = format!("{} at {} ({})", of.about.denied(denied), of.address, of.call);
            BrokerError::NotAuthorised { operation: right(denied, of.call).to_owned(), resource }
        }
        known => BrokerError::Refused {
            address: of.address.to_owned(),
            call: of.call,
            subject: of.about.subject(),
            code,
            name: known.map_or_else(|| "NONE".to_owned(), name),
            message: of.message.unwrap_or_default().to_owned(),
            retriable: remedy(code) != Remedy::None,
        },
    })
}

fn of_topic(error: ResponseError, topic: &TopicName, message: Option<&str>) -> Option<BrokerError> {
    use ResponseError as E;
    let topic = topic.clone();
    match error {
        E::UnknownTopicOrPartition | E::UnknownTopicId => Some(BrokerError::UnknownTopic { topic }),
        E::TopicAlreadyExists => Some(BrokerError::TopicExists { topic }),
        invalid => {
            let setting = setting(invalid)?.to_owned();
            let why = message.map_or_else(|| name(invalid), str::to_owned);
            Some(BrokerError::InvalidTopic { topic, setting, why })
        }
    }
}

fn of_partition(error: ResponseError, at: &TopicPartition) -> Option<BrokerError> {
    use ResponseError as E;
    let topic_partition = at.clone();
    match error {
        E::UnknownTopicOrPartition | E::UnknownTopicId => {
            Some(BrokerError::UnknownPartition { topic_partition })
        }
        E::LeaderNotAvailable
        | E::NotLeaderOrFollower
        | E::ReplicaNotAvailable
        | E::FencedLeaderEpoch
        | E::UnknownLeaderEpoch
        | E::InconsistentTopicId
        | E::OffsetNotAvailable
        | E::KafkaStorageError => Some(BrokerError::NoLeader { topic_partition }),
        E::UnstableOffsetCommit => Some(BrokerError::UnstableOffset { topic_partition }),
        _ => None,
    }
}

fn of_member(error: ResponseError, grant: &Grant) -> Option<BrokerError> {
    use ResponseError as E;
    let group = grant.group.clone();
    match error {
        E::IllegalGeneration => {
            Some(BrokerError::StaleGeneration { group, generation: grant.generation })
        }
        // A group that is gone has no members.
        E::UnknownMemberId | E::GroupIdNotFound => {
            let member_id = grant.member_id.to_string();
            Some(BrokerError::UnknownMember { group, member_id })
        }
        E::RebalanceInProgress => Some(BrokerError::RebalanceInProgress { group }),
        E::FencedInstanceId => {
            let instance_id = grant.group_instance_id.clone().unwrap_or_default();
            Some(BrokerError::FencedInstanceId { group, instance_id })
        }
        _ => None,
    }
}

fn of_transaction(
    error: ResponseError,
    call: &'static str,
    id: &str,
    (producer_id, epoch): (i64, i16),
) -> Option<BrokerError> {
    use ResponseError as E;
    let transactional_id = id.to_owned();
    match error {
        // The epoch is stale because of a newer writer, or because the transaction was open for too
        // long (KIP-588).
        E::ProducerFenced | E::InvalidProducerEpoch => {
            Some(BrokerError::ProducerFenced { producer_id, epoch })
        }
        E::TransactionAbortable | E::UnknownProducerId => {
            Some(BrokerError::TransactionAbortable { transactional_id, why: name(error) })
        }
        E::InvalidTxnState | E::InvalidProducerIdMapping => {
            Some(BrokerError::InvalidTransaction { transactional_id, call, why: name(error) })
        }
        E::ConcurrentTransactions => Some(BrokerError::ConcurrentTransactions { transactional_id }),
        _ => None,
    }
}

/// The right that a call needs to what it was denied, as Kafka's rules name it.
fn right(denied: ResponseError, call: &str) -> &'static str {
    use ResponseError as E;
    match (denied, call) {
        (E::ClusterAuthorizationFailed, "Produce" | "InitProducerId") => "write idempotently to",
        // Of the offsets of a group in a transaction only the transactional id is written.
        (E::GroupAuthorizationFailed, "AddOffsetsToTxn")
        | (E::GroupAuthorizationFailed | E::TopicAuthorizationFailed, "TxnOffsetCommit") => "read",
        (_, call) => right_of_call(call),
    }
}

fn right_of_call(call: &str) -> &'static str {
    match call {
        "Produce" | "InitProducerId" | "AddPartitionsToTxn" | "AddOffsetsToTxn" | "EndTxn"
        | "TxnOffsetCommit" => "write",
        "CreateTopics" => "create",
        "DeleteTopics" | "DeleteRecords" => "delete",
        "DescribeConfigs" => "describe the configuration of",
        "Fetch" | "OffsetCommit" | "JoinGroup" | "SyncGroup" | "Heartbeat" | "LeaveGroup"
        | "DescribeProducers" => "read",
        _ => "describe",
    }
}

/// What of a topic a code finds fault with.
fn setting(error: ResponseError) -> Option<&'static str> {
    use ResponseError as E;
    match error {
        E::InvalidTopicException => Some("name"),
        E::InvalidPartitions => Some("number of partitions"),
        E::InvalidReplicationFactor => Some("replication factor"),
        E::InvalidReplicaAssignment => Some("replica assignment"),
        E::InvalidConfig => Some("configuration"),
        E::PolicyViolation => Some("what the cluster's policy allows"),
        _ => None,
    }
}

/// Kafka's name of a code, as in its documentation: `NOT_LEADER_OR_FOLLOWER`.
pub(crate) fn name(error: ResponseError) -> String {
    let ResponseError::Unknown(_) = error else {
        let mut name = String::new();
        for (number, letter) in error.to_string().chars().enumerate() {
            if number > 0 && letter.is_ascii_uppercase() {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        return name;
    };
    "a code this client does not know".to_owned()
}

#[cfg(test)]
mod tests;
