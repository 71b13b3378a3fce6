//! The calls of a transactional writer: to the coordinator of its id, and to that of a group.
//!
//! A cluster offers one of two protocols (KIP-890, the feature `transaction.version`). In the first
//! the coordinator is told of each partition before anything is written to it, and of each group. In
//! the second a broker that is written to does so itself, and every end of a transaction gives its
//! producer a new epoch, so that nothing that comes late gets into the next one.

use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{BrokerError, Grant, OffsetCommit, TopicPartition};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest,
    ProducerId, TransactionalId, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};

use super::lane::Producer;
use crate::call::{Answer, Client, Destination};
use crate::codes::{About, Failure};
use crate::names::{by_topic, wire_text, wire_topic};
use crate::topics::millis;

/// The feature that says which protocol there is, and from which level on the second.
const FEATURE: &str = "transaction.version";
const SECOND_FROM: i16 = 2;

/// Newer versions of `AddPartitionsToTxn` are for brokers among themselves.
const NEWEST_ADD_PARTITIONS: i16 = 3;

/// How the coordinator learns of what is in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// It is told.
    First,
    /// The brokers tell it (KIP-890).
    Second,
}

impl Protocol {
    /// What the cluster offers.
    ///
    /// # Errors
    /// When no node can be asked.
    pub(super) async fn offered(client: &Client) -> Result<Self, BrokerError> {
        let mut attempts = crate::call::Attempts::new(&client.cluster);
        loop {
            match client.cluster.any_peer().await {
                Ok(peer) => {
                    let level = peer.versions.features().get(FEATURE).copied();
                    let is_second = level.is_some_and(|level| level >= SECOND_FROM);
                    return Ok(if is_second { Self::Second } else { Self::First });
                }
                Err(failure) => attempts.pause_after(failure).await?,
            }
        }
    }

    /// The newest version of Produce that is not of the next protocol.
    pub(super) fn newest_produce(self) -> i16 {
        match self {
            Self::First => 11,
            Self::Second => i16::MAX,
        }
    }

    fn newest_end(self) -> i16 {
        match self {
            Self::First => 4,
            Self::Second => 5,
        }
    }

    fn newest_offsets(self) -> i16 {
        match self {
            Self::First => 4,
            Self::Second => 5,
        }
    }
}

/// The calls of one writer. Clones share their connections.
#[derive(Clone, Debug)]
pub(super) struct Transactions {
    client: Client,
    pub(super) id: Arc<str>,
    pub(super) protocol: Protocol,
    timeout: Duration,
}

impl Transactions {
    pub(super) fn new(client: Client, id: &str, protocol: Protocol, timeout: Duration) -> Self {
        Self { client, id: id.into(), protocol, timeout }
    }

    fn coordinator(&self) -> Destination<'_> {
        Destination::TransactionCoordinator(&self.id)
    }

    fn wire_id(&self) -> TransactionalId {
        wire_text(&self.id).into()
    }

    fn about(&self, producer: Producer) -> About<'_> {
        About::Transaction { id: &self.id, producer_id: producer.id, epoch: producer.epoch }
    }

    /// Becomes the writer of the id, or, as the present one, gets another epoch (KIP-360). What was
    /// open is complete then.
    pub(super) async fn init(&self, present: Option<Producer>) -> Result<Producer, BrokerError> {
        let known = present.unwrap_or(Producer { id: -1, epoch: -1 });
        let build = |version| {
            if present.is_some() && version < 3 {
                let call = "InitProducerId of a writer that goes on (Kafka 2.5)";
                return Err(BrokerError::Unsupported { call });
            }
            Ok(InitProducerIdRequest::default()
                .with_transactional_id(Some(self.wire_id()))
                .with_transaction_timeout_ms(millis(self.timeout))
                .with_producer_id(ProducerId(known.id))
                .with_producer_epoch(known.epoch))
        };
        let read = |answer: Answer<_>| {
            let body: &kafka_protocol::messages::InitProducerIdResponse = &answer.body;
            match body.error_code {
                0 => Ok(Producer { id: body.producer_id.0, epoch: body.producer_epoch }),
                code => Err(answer.refused(code, self.about(known), None)),
            }
        };
        self.client.call::<InitProducerIdRequest, _>(self.coordinator(), build, read).await
    }

    /// Tells the coordinator of partitions that are to be written.
    pub(super) async fn add_partitions(
        &self,
        producer: Producer,
        partitions: &[TopicPartition],
    ) -> Result<(), BrokerError> {
        let build = |_| {
            let topics = by_topic(partitions.iter().map(|at| (at, ()))).into_iter();
            let topics = topics.map(|(topic, partitions)| {
                let numbers = partitions.into_iter().map(|(number, ())| number).collect();
                AddPartitionsToTxnTopic::default()
                    .with_name(wire_topic(topic))
                    .with_partitions(numbers)
            });
            Ok(AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(self.wire_id())
                .with_v3_and_below_producer_id(ProducerId(producer.id))
                .with_v3_and_below_producer_epoch(producer.epoch)
                .with_v3_and_below_topics(topics.collect()))
        };
        let read = |answer: Answer<_>| {
            let body: &kafka_protocol::messages::AddPartitionsToTxnResponse = &answer.body;
            for topic in &body.results_by_topic_v3_and_below {
                for told in &topic.results_by_partition {
                    let code = told.partition_error_code;
                    // Not tried because of another, whose own error counts.
                    let is_passed_over = ResponseError::try_from_code(code)
                        == Some(ResponseError::OperationNotAttempted);
                    if code == 0 || is_passed_over {
                        continue;
                    }
                    let at = TopicPartition::new(topic.name.as_str(), told.partition_index);
                    let abouts = [self.about(producer)];
                    return Err(telling(&answer, code, &abouts, About::Partition(&at)));
                }
            }
            Ok(())
        };
        self.client
            .call_up_to::<AddPartitionsToTxnRequest, _>(
                NEWEST_ADD_PARTITIONS,
                self.coordinator(),
                build,
                read,
            )
            .await
    }

    /// Puts offsets of a group into the transaction.
    pub(super) async fn add_offsets(
        &self,
        producer: Producer,
        grant: &Grant,
        offsets: &[OffsetCommit],
    ) -> Result<(), BrokerError> {
        if self.protocol == Protocol::First {
            self.add_group(producer, grant).await?;
        }
        let build = |version| {
            if version < 3 {
                let call = "TxnOffsetCommit with the generation of the group (Kafka 2.5)";
                return Err(BrokerError::Unsupported { call });
            }
            Ok(self.offsets_request(producer, grant, offsets))
        };
        let read = |answer: Answer<TxnOffsetCommitResponse>| {
            let topics = answer.body.topics.iter();
            let mut told = topics.flat_map(|topic| {
                topic.partitions.iter().map(move |partition| (&topic.name, partition))
            });
            let Some((topic, refused)) = told.find(|(_, told)| told.error_code != 0) else {
                return Ok(());
            };
            let at = TopicPartition::new(topic.as_str(), refused.partition_index);
            // What is wrong with the writer or the member is wrong for all partitions; what is wrong
            // with one is told of that one.
            let abouts = [self.about(producer), About::Member(grant)];
            Err(telling(&answer, refused.error_code, &abouts, About::Partition(&at)))
        };
        let to = Destination::GroupCoordinator(&grant.group);
        let newest = self.protocol.newest_offsets();
        self.client.call_up_to::<TxnOffsetCommitRequest, _>(newest, to, build, read).await
    }

    fn offsets_request(
        &self,
        producer: Producer,
        grant: &Grant,
        offsets: &[OffsetCommit],
    ) -> TxnOffsetCommitRequest {
        let wanted = offsets.iter().map(|offset| (&offset.topic_partition, offset));
        let topics = by_topic(wanted).into_iter().map(|(topic, partitions)| {
            let partitions = partitions.into_iter().map(|(number, commit)| {
                TxnOffsetCommitRequestPartition::default()
                    .with_partition_index(number)
                    .with_committed_offset(commit.offset)
                    .with_committed_metadata(Some(wire_text(&commit.metadata)))
            });
            TxnOffsetCommitRequestTopic::default()
                .with_name(wire_topic(topic))
                .with_partitions(partitions.collect())
        });
        TxnOffsetCommitRequest::default()
            .with_transactional_id(self.wire_id())
            .with_group_id(wire_text(grant.group.as_str()).into())
            .with_producer_id(ProducerId(producer.id))
            .with_producer_epoch(producer.epoch)
            .with_generation_id(grant.generation)
            .with_member_id(wire_text(grant.member_id.as_str()))
            .with_group_instance_id(grant.group_instance_id.as_deref().map(wire_text))
            .with_topics(topics.collect())
    }

    /// Tells the coordinator of a group whose offsets are to be put in.
    async fn add_group(&self, producer: Producer, grant: &Grant) -> Result<(), BrokerError> {
        let build = |_| {
            Ok(AddOffsetsToTxnRequest::default()
                .with_transactional_id(self.wire_id())
                .with_producer_id(ProducerId(producer.id))
                .with_producer_epoch(producer.epoch)
                .with_group_id(wire_text(grant.group.as_str()).into()))
        };
        let read = |answer: Answer<_>| {
            let body: &kafka_protocol::messages::AddOffsetsToTxnResponse = &answer.body;
            match body.error_code {
                0 => Ok(()),
                code => {
                    let abouts = [About::Group(&grant.group)];
                    Err(telling(&answer, code, &abouts, self.about(producer)))
                }
            }
        };
        self.client.call::<AddOffsetsToTxnRequest, _>(self.coordinator(), build, read).await
    }

    /// Ends the transaction, and gives the producer of the next one. May be asked again.
    pub(super) async fn end(
        &self,
        producer: Producer,
        commit: bool,
    ) -> Result<Producer, BrokerError> {
        let build = |_| {
            Ok(EndTxnRequest::default()
                .with_transactional_id(self.wire_id())
                .with_producer_id(ProducerId(producer.id))
                .with_producer_epoch(producer.epoch)
                .with_committed(commit))
        };
        let read = |answer: Answer<_>| {
            let body: &kafka_protocol::messages::EndTxnResponse = &answer.body;
            match body.error_code {
                0 if answer.version >= 5 && body.producer_id.0 >= 0 => {
                    Ok(Producer { id: body.producer_id.0, epoch: body.producer_epoch })
                }
                0 => Ok(producer),
                code => Err(answer.refused(code, self.about(producer), None)),
            }
        };
        let newest = self.protocol.newest_end();
        self.client.call_up_to::<EndTxnRequest, _>(newest, self.coordinator(), build, read).await
    }
}

/// The failure that a code stands for, which may be about one of several things: the first that it can be
/// about, and of which it says more than its name; else about the last.
fn telling<T>(answer: &Answer<T>, code: i16, abouts: &[About<'_>], last: About<'_>) -> Failure {
    let failures = abouts.iter().filter(|about| about.fits(code));
    let mut failures = failures.map(|about| answer.refused(code, *about, None));
    failures
        .find(|failure| !matches!(*failure.error, BrokerError::Refused { .. }))
        .unwrap_or_else(|| answer.refused(code, last, None))
}
