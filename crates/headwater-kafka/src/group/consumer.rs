//! The bytes that a group of protocol type `consumer` exchanges: a subscription from each member,
//! an assignment to each. Ours carry the member's facts and the leader's decision as user data.
//!
//! They are Kafka's structures, version 0, so that the brokers and Java's tools can read what
//! concerns them. A broker looks for the subscribed topics: as long as the group lives it keeps the
//! committed offsets of these however old they are, and those of others only for
//! `offsets.retention.minutes` (KIP-211). The tools show the assigned partitions.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use headwater_broker::{TopicName, TopicPartition};

/// Later versions only append fields.
const VERSION: i16 = 0;

/// What a member joins with.
pub(super) fn subscription(topics: &[TopicName], facts: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(facts.len() + 64);
    bytes.put_i16(VERSION);
    put_count(&mut bytes, topics.len());
    for topic in topics {
        put_text(&mut bytes, topic.as_str());
    }
    put_bytes(&mut bytes, facts);
    bytes.freeze()
}

/// The user data of a subscription.
///
/// # Errors
/// What is wrong with the bytes.
pub(crate) fn facts_of(subscription: Bytes) -> Result<Bytes, &'static str> {
    let mut bytes = subscription;
    take_version(&mut bytes)?;
    for _ in 0..take_count(&mut bytes)? {
        take_text(&mut bytes)?;
    }
    take_bytes(&mut bytes)
}

/// What a member is told.
pub(super) fn assignment(partitions: &[TopicPartition], decision: &[u8]) -> Bytes {
    let mut by_topic: BTreeMap<&TopicName, Vec<i32>> = BTreeMap::new();
    for TopicPartition { topic, partition } in partitions {
        by_topic.entry(topic).or_default().push(*partition);
    }
    let mut bytes = BytesMut::with_capacity(decision.len() + 64);
    bytes.put_i16(VERSION);
    put_count(&mut bytes, by_topic.len());
    for (topic, numbers) in by_topic {
        put_text(&mut bytes, topic.as_str());
        put_count(&mut bytes, numbers.len());
        for number in numbers {
            bytes.put_i32(number);
        }
    }
    put_bytes(&mut bytes, decision);
    bytes.freeze()
}

/// What an assignment names for tools to show, and its user data.
///
/// # Errors
/// What is wrong with the bytes.
pub(crate) fn read_assignment(
    assignment: Bytes,
) -> Result<(Vec<TopicPartition>, Bytes), &'static str> {
    let mut bytes = assignment;
    let mut partitions = Vec::new();
    if bytes.is_empty() {
        return Ok((partitions, bytes));
    }
    take_version(&mut bytes)?;
    for _ in 0..take_count(&mut bytes)? {
        let topic = TopicName::from(&*String::from_utf8_lossy(&take_text(&mut bytes)?));
        for _ in 0..take_count(&mut bytes)? {
            let partition = bytes.try_get_i32().map_err(|_| CUT_OFF)?;
            partitions.push(TopicPartition::new(topic.clone(), partition));
        }
    }
    Ok((partitions, take_bytes(&mut bytes)?))
}

/// The user data of an assignment. No bytes at all, which the coordinator gives to members that a
/// plan does not name, are no decision.
///
/// # Errors
/// What is wrong with the bytes.
pub(super) fn decision_of(assignment: Bytes) -> Result<Bytes, &'static str> {
    read_assignment(assignment).map(|(_, decision)| decision)
}

const CUT_OFF: &str = "it ends too early";
const NEGATIVE: &str = "a length is negative";

fn put_count(bytes: &mut BytesMut, count: usize) {
    bytes.put_i32(i32::try_from(count).unwrap_or(i32::MAX));
}

fn put_text(bytes: &mut BytesMut, text: &str) {
    // Names of topics have at most 249 characters.
    bytes.put_i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
    bytes.put_slice(text.as_bytes());
}

fn put_bytes(bytes: &mut BytesMut, data: &[u8]) {
    put_count(bytes, data.len());
    bytes.put_slice(data);
}

fn take_version(bytes: &mut Bytes) -> Result<(), &'static str> {
    match bytes.try_get_i16() {
        Ok(version) if version >= VERSION => Ok(()),
        Ok(_) => Err("its version is negative"),
        Err(_) => Err(CUT_OFF),
    }
}

/// A number of things that follow; it need not be true.
fn take_count(bytes: &mut Bytes) -> Result<usize, &'static str> {
    usize::try_from(bytes.try_get_i32().map_err(|_| CUT_OFF)?).map_err(|_| NEGATIVE)
}

fn take_text(bytes: &mut Bytes) -> Result<Bytes, &'static str> {
    let length = bytes.try_get_i16().map_err(|_| CUT_OFF)?;
    let length = usize::try_from(length).map_err(|_| NEGATIVE)?;
    if length > bytes.len() {
        return Err(CUT_OFF);
    }
    Ok(bytes.split_to(length))
}

/// Bytes with their length; null is no bytes.
fn take_bytes(bytes: &mut Bytes) -> Result<Bytes, &'static str> {
    match bytes.try_get_i32().map_err(|_| CUT_OFF)? {
        -1 => Ok(Bytes::new()),
        length => {
            let length = usize::try_from(length).map_err(|_| NEGATIVE)?;
            if length > bytes.len() {
                return Err(CUT_OFF);
            }
            Ok(bytes.split_to(length))
        }
    }
}

#[cfg(test)]
mod tests;
