//! Produce: batches of many partitions in one request, and its answer partition by partition.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_broker::{TopicName, TopicPartition};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use uuid::Uuid;

use crate::names::wire_topic;

/// From this version on topics have ids in place of names (KIP-516).
const TOPIC_IDS: i16 = 13;
/// All replicas in sync have a batch before it is acknowledged.
const ALL: i16 = -1;

/// A batch on its way, with where it came from.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) topic_partition: TopicPartition,
    pub(super) topic_id: Option<Uuid>,
    /// Number of its lane.
    pub(super) lane: usize,
    /// Its number in the lane.
    pub(super) number: u64,
}

/// A request with these batches, no two of the same partition.
pub(super) fn request(batches: &[(Sent, Bytes)], timeout_ms: i32, version: i16) -> ProduceRequest {
    let mut topics: BTreeMap<&TopicName, TopicProduceData> = BTreeMap::new();
    for (sent, bytes) in batches {
        let at = &sent.topic_partition;
        let topic = topics.entry(&at.topic).or_insert_with(|| {
            if version >= TOPIC_IDS {
                TopicProduceData::default().with_topic_id(sent.topic_id.unwrap_or_default())
            } else {
                TopicProduceData::default().with_name(wire_topic(&at.topic))
            }
        });
        let partition = PartitionProduceData::default()
            .with_index(at.partition)
            .with_records(Some(bytes.clone()));
        topic.partition_data.push(partition);
    }
    ProduceRequest::default()
        .with_acks(ALL)
        .with_timeout_ms(timeout_ms)
        .with_topic_data(topics.into_values().collect())
}

/// What an answer says about each batch, in their order; `None` where it says nothing.
pub(super) fn told<'a>(
    answer: &'a ProduceResponse,
    batches: &[Sent],
) -> Vec<Option<&'a PartitionProduceResponse>> {
    let mut by_name = BTreeMap::new();
    let mut by_id = BTreeMap::new();
    for topic in &answer.responses {
        for partition in &topic.partition_responses {
            if topic.topic_id.is_nil() {
                by_name.insert((topic.name.as_str(), partition.index), partition);
            } else {
                by_id.insert((topic.topic_id, partition.index), partition);
            }
        }
    }
    let of = |sent: &Sent| {
        let TopicPartition { topic, partition } = &sent.topic_partition;
        let named = by_name.get(&(topic.as_str(), *partition));
        named.or_else(|| by_id.get(&(sent.topic_id?, *partition))).copied()
    };
    batches.iter().map(of).collect()
}
