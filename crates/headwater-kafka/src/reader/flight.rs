//! A fetch on its way to one node and back.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::BoxFuture;
use headwater_broker::{
    AbortedTransaction, BrokerError, FetchedData, Isolation, TopicId, TopicName, TopicPartition,
};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{FetchRequest, FetchResponse};
use tokio::time::Instant;
use uuid::Uuid;

use super::session::{Ends, Plan, Session, Terms};
use crate::call::{Answer, Client, Destination};
use crate::codes::{About, Failure, Remedy};
use crate::names::{wire_text, wire_topic};
use crate::offsets::isolation_level;
use crate::topics::millis;

const OFFSET_OUT_OF_RANGE: i16 = ResponseError::OffsetOutOfRange.code();
const SESSION_NOT_FOUND: i16 = ResponseError::FetchSessionIdNotFound.code();
const SESSION_EPOCH: i16 = ResponseError::InvalidFetchSessionEpoch.code();
const SESSION_TOPIC_ID: i16 = ResponseError::FetchSessionTopicIdError.code();

/// The first version that names topics by id.
const TOPIC_IDS: i16 = 13;
/// The first version that asks for the nearest replica.
const RACKS: i16 = 11;

/// What a fetch is about.
#[derive(Debug)]
pub(super) struct Flight {
    /// The partitions it waits for, with the session's others left out: what the node was told to
    /// fetch.
    pub(super) asked: BTreeMap<TopicPartition, Terms>,
    pub(super) isolation: Isolation,
    /// When the node answers at the latest, if all is well.
    pub(super) lands_by: Instant,
}

/// Limits of one fetch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) max_wait: Duration,
    pub(super) max_bytes: usize,
    pub(super) isolation: Isolation,
    /// Whether the node may name a nearer replica.
    pub(super) by_rack: bool,
}

/// What a node said of one partition.
#[derive(Debug)]
pub(super) enum Said {
    /// How it stands there, perhaps with data.
    Data(FetchedData),
    /// Nothing here; another replica is nearer.
    Elsewhere(i32),
    /// The offset is not in this node's log.
    OutOfRange,
    /// Something is wrong.
    Wrong(Failure),
}

/// What comes back.
pub(super) type Landing = Result<Answer<FetchResponse>, Failure>;

/// Sends a fetch. The request is out once the future has been polled and the connection is open.
pub(super) fn take_off(
    client: &Client,
    node: i32,
    plan: Plan,
    limits: Limits,
) -> BoxFuture<'static, Landing> {
    let client = client.clone();
    Box::pin(async move {
        let options = &client.cluster.options;
        let limit = options.request_timeout + limits.max_wait;
        let rack = options.client_rack.clone().filter(|_| limits.by_rack);
        let min_bytes = options.fetch_min_bytes;
        // Names or ids, for all topics alike.
        let by_id = plan.ask.iter().all(|(_, terms)| terms.topic_id.is_some())
            && plan.forget.iter().all(|(_, id)| id.is_some());
        let newest = if by_id { i16::MAX } else { TOPIC_IDS - 1 };
        let to = Destination::Node(node);
        client
            .call_once_up_to(newest, to, limit, |version| {
                let by_id = version >= TOPIC_IDS;
                let request = FetchRequest::default()
                    .with_max_wait_ms(millis(limits.max_wait))
                    .with_min_bytes(min_bytes)
                    .with_max_bytes(wire_size(limits.max_bytes))
                    .with_isolation_level(isolation_level(limits.isolation))
                    .with_session_id(plan.session_id)
                    .with_session_epoch(plan.epoch)
                    .with_topics(asked_topics(&plan.ask, by_id))
                    .with_forgotten_topics_data(forgotten_topics(&plan.forget, by_id));
                Ok(match rack {
                    Some(rack) if version >= RACKS => request.with_rack_id(wire_text(&rack)),
                    _ => request,
                })
            })
            .await
    })
}

/// A size as requests have it: at least one byte, or the node would give nothing at all.
pub(super) fn wire_size(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX).max(1)
}

/// Neighbours of one topic go together; the order of the partitions is kept.
fn asked_topics(ask: &[(TopicPartition, Terms)], by_id: bool) -> Vec<FetchTopic> {
    let mut topics: Vec<FetchTopic> = Vec::new();
    let mut last: Option<&TopicName> = None;
    for (at, terms) in ask {
        if last != Some(&at.topic) {
            last = Some(&at.topic);
            topics.push(if by_id {
                FetchTopic::default().with_topic_id(terms.topic_id.unwrap_or_default())
            } else {
                FetchTopic::default().with_topic(wire_topic(&at.topic))
            });
        }
        let partition = FetchPartition::default()
            .with_partition(at.partition)
            .with_current_leader_epoch(terms.leader_epoch)
            .with_fetch_offset(terms.offset)
            .with_partition_max_bytes(terms.max_bytes);
        if let Some(topic) = topics.last_mut() {
            topic.partitions.push(partition);
        }
    }
    topics
}

fn forgotten_topics(forget: &[(TopicPartition, Option<Uuid>)], by_id: bool) -> Vec<ForgottenTopic> {
    let topics = forget.iter().map(|(at, id)| {
        let topic = ForgottenTopic::default().with_partitions(vec![at.partition]);
        if by_id {
            topic.with_topic_id(id.unwrap_or_default())
        } else {
            topic.with_topic(wire_topic(&at.topic))
        }
    });
    topics.collect()
}

/// Takes what a node said of all partitions of a flight out of its answer, and notes in the
/// session what it is to know.
///
/// # Errors
/// The failure of all of them.
pub(super) fn land(
    landing: Landing,
    flight: &Flight,
    session: &mut Session,
) -> Result<BTreeMap<TopicPartition, Said>, Failure> {
    let mut answer = landing.inspect_err(|_| session.in_doubt())?;
    match answer.body.error_code {
        0 => session.answered(answer.body.session_id),
        SESSION_NOT_FOUND | SESSION_EPOCH | SESSION_TOPIC_ID => {
            session.forgotten();
            return Err(again(&answer, flight));
        }
        _ => {
            session.in_doubt();
            return Err(again(&answer, flight));
        }
    }
    let names: BTreeMap<Uuid, &TopicName> =
        flight.asked.iter().filter_map(|(at, terms)| Some((terms.topic_id?, &at.topic))).collect();
    let mut said = BTreeMap::new();
    for mut topic in std::mem::take(&mut answer.body.responses) {
        let name = if answer.version >= TOPIC_IDS {
            // A topic that is not asked for any more may still be in the session.
            match names.get(&topic.topic_id) {
                Some(name) => (*name).clone(),
                None => continue,
            }
        } else {
            TopicName::from(topic.topic.as_str())
        };
        for partition in std::mem::take(&mut topic.partitions) {
            let at = TopicPartition::new(name.clone(), partition.partition_index);
            if let Some(terms) = flight.asked.get(&at) {
                let is_said = read(&answer, (&at, terms.topic_id), partition, session);
                said.insert(at, is_said);
            }
        }
    }
    // What is not mentioned is as it was.
    for (at, terms) in &flight.asked {
        if said.contains_key(at) {
            continue;
        }
        let is_said = if let Some(ends) = session.ends(at) {
            Said::Data(data(ends, terms.topic_id))
        } else {
            // The node thinks it has told, and it has not: everything anew.
            session.in_doubt();
            let error = BrokerError::NoLeader { topic_partition: at.clone() };
            Said::Wrong(Failure::new(error, Remedy::Again))
        };
        said.insert(at.clone(), is_said);
    }
    Ok(said)
}

fn again(answer: &Answer<FetchResponse>, flight: &Flight) -> Failure {
    let code = answer.body.error_code;
    match flight.asked.keys().next() {
        Some(at) => answer.refused(code, About::Topic(&at.topic), None),
        None => answer.empty(),
    }
}

fn read(
    answer: &Answer<FetchResponse>,
    (at, topic_id): (&TopicPartition, Option<Uuid>),
    partition: PartitionData,
    session: &mut Session,
) -> Said {
    match partition.error_code {
        0 => {}
        OFFSET_OUT_OF_RANGE => return Said::OutOfRange,
        code => return Said::Wrong(answer.refused(code, About::Partition(at), None)),
    }
    let PartitionData { high_watermark, log_start_offset, .. } = partition;
    // Below version 4 of the log there is none of its own; -1 says so.
    let last_stable_offset = match partition.last_stable_offset {
        -1 => high_watermark,
        offset => offset,
    };
    if high_watermark < 0 || log_start_offset < 0 {
        let cause = format!("the log of {at} ends at {high_watermark}");
        return Said::Wrong(Failure::new(answer.malformed(cause), Remedy::Again));
    }
    let ends = Ends { log_start_offset, high_watermark, last_stable_offset };
    session.told(at, ends);
    // The ends above are told with it, and will not be told again.
    if partition.preferred_read_replica.0 >= 0 {
        return Said::Elsewhere(partition.preferred_read_replica.0);
    }
    let aborted = partition.aborted_transactions.unwrap_or_default().into_iter();
    let aborted = aborted.map(|aborted| AbortedTransaction {
        producer_id: aborted.producer_id.0,
        first_offset: aborted.first_offset,
    });
    Said::Data(FetchedData {
        batches: partition.records.unwrap_or_default(),
        aborted: aborted.collect(),
        ..data(ends, topic_id)
    })
}

/// Nothing new between these ends.
fn data(ends: Ends, topic_id: Option<Uuid>) -> FetchedData {
    FetchedData {
        topic_id: topic_id.map(TopicId),
        batches: bytes::Bytes::new(),
        aborted: Vec::new(),
        log_start_offset: ends.log_start_offset,
        high_watermark: ends.high_watermark,
        last_stable_offset: ends.last_stable_offset,
    }
}

/// The error of a partition nobody answered for in time.
pub(super) fn overdue(limit: Duration) -> BrokerError {
    BrokerError::TimedOut { call: "Fetch", limit }
}
