//! Our request against kafka-protocol's, byte by byte.

use bytes::Bytes;
use headwater_broker::TopicPartition;
use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::protocol::{Message, StrBytes};
use uuid::Uuid;

use super::{Sent, frame, newest};
use crate::frame::Frame;
use crate::names::{wire_text, wire_topic};

fn batch(topic: &str, partition: i32, size: usize) -> (Sent, Bytes) {
    let topic_partition = TopicPartition::new(topic, partition);
    let topic_id = Some(Uuid::from_u128(topic.len() as u128));
    let sent = Sent { topic_partition, topic_id, lane: 0, number: 0 };
    (sent, vec![7; size].into())
}

fn bytes_of(frame: Frame) -> Vec<u8> {
    let pieces: Vec<Bytes> = frame.stamped(5).collect();
    pieces.concat()
}

#[test]
fn a_request_is_kafkas_in_every_version() {
    let client_id = StrBytes::from_static_str("c");
    let batches =
        [batch("b", 1, 100), batch("long", 0, 0), batch("b", 0, 127), batch("b", 200, 70_000)];
    let versions = ProduceRequest::VERSIONS.min..=ProduceRequest::VERSIONS.max;
    let cases = versions.flat_map(|version| [(version, None), (version, Some("app-1"))]);
    for (version, transactional_id) in cases {
        let topic = |name: &str, indexes: &[usize]| {
            let partitions = indexes.iter().map(|index| {
                let (sent, bytes) = &batches[*index];
                PartitionProduceData::default()
                    .with_index(sent.topic_partition.partition)
                    .with_records(Some(bytes.clone()))
            });
            let topic = TopicProduceData::default().with_partition_data(partitions.collect());
            if version >= 13 {
                topic.with_topic_id(Uuid::from_u128(name.len() as u128))
            } else {
                topic.with_name(wire_topic(&name.into()))
            }
        };
        let request = ProduceRequest::default()
            .with_transactional_id(transactional_id.map(|id| wire_text(id).into()))
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![topic("b", &[0, 2, 3]), topic("long", &[1])]);
        let expected = Frame::encode(&request, version, &client_id).unwrap();
        let ours = frame(&batches, transactional_id, 30_000, version, &client_id).unwrap();
        assert_eq!(bytes_of(ours), bytes_of(expected), "version {version}");
    }
}

#[test]
fn batches_are_not_copied() {
    let batches = [batch("a", 0, 1000), batch("a", 1, 1000)];
    let frame = frame(&batches, None, 0, 13, &StrBytes::from_static_str("c")).unwrap();
    let pieces: Vec<Bytes> = frame.stamped(1).collect();
    for (_, bytes) in &batches {
        assert!(pieces.iter().any(|piece| piece.as_ptr() == bytes.as_ptr()));
    }
    let copied: usize = pieces.iter().map(Bytes::len).sum::<usize>() - 2000;
    assert!(copied < 100, "{copied} bytes besides");
}

#[test]
fn without_ids_topics_go_by_name() {
    let mut batches = [batch("a", 0, 1), batch("b", 0, 1)];
    assert_eq!(newest(&batches), i16::MAX);
    batches[1].0.topic_id = None;
    assert_eq!(newest(&batches), 12);
    assert_eq!(newest(&[]), i16::MAX);
}
