//! Produce: batches of many partitions in one request, and its answer partition by partition.
//!
//! The request is written here and not by kafka-protocol, which would copy the batches: they are
//! nearly all of it.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use headwater_broker::{TopicName, TopicPartition};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::frame::{Frame, FrameBuilder};

/// From this version on the encoding is the flexible one (KIP-482).
const FLEXIBLE: i16 = 9;
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

/// The newest version in which these batches can be sent.
pub(super) fn newest(batches: &[(Sent, Bytes)]) -> i16 {
    // In a cluster with brokers before 2.8 topics have no ids.
    if batches.iter().all(|(sent, _)| sent.topic_id.is_some()) { i16::MAX } else { TOPIC_IDS - 1 }
}

/// A request with these batches, no two of the same partition. They are not copied.
///
/// # Errors
/// What cannot be said in this version.
pub(super) fn frame(
    batches: &[(Sent, Bytes)],
    transactional_id: Option<&str>,
    timeout_ms: i32,
    version: i16,
    client_id: &StrBytes,
) -> Result<Frame, String> {
    let mut topics: BTreeMap<&TopicName, Vec<&(Sent, Bytes)>> = BTreeMap::new();
    for batch in batches {
        topics.entry(&batch.0.topic_partition.topic).or_default().push(batch);
    }
    let mut frame = FrameBuilder::new::<ProduceRequest>(version, client_id)?;
    let out = frame.buffer();
    match transactional_id {
        None if version >= FLEXIBLE => out.put_u8(0),
        None => out.put_i16(-1),
        Some(id) => put_text(out, id, version),
    }
    out.put_i16(ALL);
    out.put_i32(timeout_ms);
    put_length(out, topics.len(), version);
    for (topic, batches) in topics {
        let out = frame.buffer();
        match batches.first() {
            Some((sent, _)) if version >= TOPIC_IDS => {
                out.put_slice(sent.topic_id.unwrap_or_default().as_bytes());
            }
            _ => put_text(out, topic.as_str(), version),
        }
        put_length(out, batches.len(), version);
        for (sent, bytes) in batches {
            let out = frame.buffer();
            out.put_i32(sent.topic_partition.partition);
            put_length(out, bytes.len(), version);
            frame.put_shared(bytes.clone());
            put_no_tags(frame.buffer(), version);
        }
        put_no_tags(frame.buffer(), version);
    }
    put_no_tags(frame.buffer(), version);
    Ok(frame.finish())
}

/// The length of an array or of bytes.
fn put_length(out: &mut BytesMut, length: usize, version: i16) {
    if version < FLEXIBLE {
        out.put_i32(i32::try_from(length).unwrap_or(i32::MAX));
        return;
    }
    // One more than it is, seven bits at a time.
    let mut rest = u32::try_from(length).unwrap_or(u32::MAX).saturating_add(1);
    while rest >= 0x80 {
        out.put_u8(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest.to_le_bytes()[0]);
}

fn put_text(out: &mut BytesMut, text: &str, version: i16) {
    if version < FLEXIBLE {
        // Names of topics have at most 249 characters, transactional ids not many more.
        out.put_i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
    } else {
        put_length(out, text.len(), version);
    }
    out.put_slice(text.as_bytes());
}

fn put_no_tags(out: &mut BytesMut, version: i16) {
    if version >= FLEXIBLE {
        out.put_u8(0);
    }
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

#[cfg(test)]
mod tests;
