//! Bytes against kafka-protocol's, and bytes that lie.

use bytes::{Bytes, BytesMut};
use headwater_broker::{TopicName, TopicPartition};
use kafka_protocol::messages::consumer_protocol_assignment::TopicPartition as Assigned;
use kafka_protocol::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use proptest::prelude::*;

use super::{assignment, decision_of, facts_of, subscription};

#[test]
fn a_subscription_is_kafkas() {
    let topics: Vec<TopicName> = vec!["lines".into(), "ä".into()];
    let bytes = subscription(&topics, b"facts");
    let mut rest = bytes.slice(2..);
    let read = ConsumerProtocolSubscription::decode(&mut rest, 0).unwrap();
    assert!(rest.is_empty() && bytes[..2] == [0, 0]);
    let expected = ConsumerProtocolSubscription::default()
        .with_topics(vec![StrBytes::from_static_str("lines"), StrBytes::from_static_str("ä")])
        .with_user_data(Some(Bytes::from_static(b"facts")));
    assert_eq!(read, expected);
    assert_eq!(facts_of(bytes).unwrap(), "facts");
}

#[test]
fn an_assignment_is_kafkas() {
    let partitions = [("b", 1), ("a", 0), ("b", 0)].map(|(t, p)| TopicPartition::new(t, p));
    let bytes = assignment(&partitions, b"decision");
    let mut rest = bytes.slice(2..);
    let read = ConsumerProtocolAssignment::decode(&mut rest, 0).unwrap();
    assert!(rest.is_empty() && bytes[..2] == [0, 0]);
    let topic = |name, partitions| {
        let name = StrBytes::from_static_str(name).into();
        Assigned::default().with_topic(name).with_partitions(partitions)
    };
    let expected = ConsumerProtocolAssignment::default()
        .with_assigned_partitions(vec![topic("a", vec![0]), topic("b", vec![1, 0])])
        .with_user_data(Some(Bytes::from_static(b"decision")));
    assert_eq!(read, expected);
    assert_eq!(decision_of(bytes).unwrap(), "decision");
}

#[test]
fn later_versions_are_read() {
    let mut bytes = BytesMut::from(&[0, 3][..]);
    let later = ConsumerProtocolSubscription::default()
        .with_topics(vec![StrBytes::from_static_str("t")])
        .with_user_data(Some(Bytes::from_static(b"facts")))
        .with_generation_id(7);
    later.encode(&mut bytes, 3).unwrap();
    assert_eq!(facts_of(bytes.freeze()).unwrap(), "facts");
}

#[test]
fn what_is_missing_is_no_bytes_or_an_error() {
    let check = |bytes: &'static [u8], facts: Result<&str, &str>, decision: Result<&str, &str>| {
        let text = |read: Result<Bytes, _>| read.map(|b| String::from_utf8(b.to_vec()).unwrap());
        let bytes = Bytes::from_static(bytes);
        assert_eq!(text(facts_of(bytes.clone())).as_deref(), facts.as_ref().copied());
        assert_eq!(text(decision_of(bytes)).as_deref(), decision.as_ref().copied());
    };
    check(&[], Err("it ends too early"), Ok(""));
    check(&[0, 0, 0, 0, 0, 0, 255, 255, 255, 255], Ok(""), Ok(""));
    check(&[255, 255, 0, 0], Err("its version is negative"), Err("its version is negative"));
    check(&[0, 0, 127, 0, 0, 0], Err("it ends too early"), Err("it ends too early"));
    check(&[0, 0, 255, 0, 0, 0], Err("a length is negative"), Err("a length is negative"));
    check(&[0, 0, 0, 0, 0, 0, 127, 0, 0, 0, 1], Err("it ends too early"), Err("it ends too early"));
}

proptest! {
    #[test]
    fn no_bytes_are_too_much(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let bytes = Bytes::from(bytes);
        for read in [facts_of(bytes.clone()), decision_of(bytes.clone())].into_iter().flatten() {
            prop_assert!(read.len() <= bytes.len());
        }
    }
}
