//! Answers that lie.

use std::alloc::System;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, CreateTopicsRequest, DescribeConfigsRequest, FetchRequest,
    FetchResponse, FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest,
    InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest, ListOffsetsRequest,
    ListOffsetsResponse, MetadataRequest, MetadataResponse, OffsetCommitRequest,
    OffsetFetchRequest, ProduceRequest, ResponseHeader, SaslAuthenticateRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::{Encodable, HeaderVersion, Message, Request, StrBytes};
use proptest::prelude::*;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use super::{Frame, decode};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What one decoding stays below. The other tests of this process count too, so this is far more
/// than it takes, and still far less than a length that lies would.
const BYTES_MAX: usize = 256 * 1024 * 1024;

fn answer<R: Request>(body: &R::Response, version: i16) -> Bytes {
    let mut bytes = BytesMut::new();
    let header = ResponseHeader::default().with_correlation_id(5);
    header.encode(&mut bytes, R::Response::header_version(version)).expect("a header fits");
    body.encode(&mut bytes, version).expect("the body fits its version");
    bytes.freeze()
}

fn metadata(version: i16) -> Bytes {
    let partitions = (0..3).map(|number| {
        MetadataResponsePartition::default()
            .with_partition_index(number)
            .with_replica_nodes(vec![BrokerId(1), BrokerId(2)])
            .with_isr_nodes(vec![BrokerId(1)])
    });
    let topic = MetadataResponseTopic::default()
        .with_name(Some(StrBytes::from_static_str("lines").into()))
        .with_partitions(partitions.collect());
    let node = MetadataResponseBroker::default()
        .with_host(StrBytes::from_static_str("localhost"))
        .with_port(9092);
    let body = MetadataResponse::default().with_brokers(vec![node]).with_topics(vec![topic]);
    answer::<MetadataRequest>(&body, version)
}

fn fetch(version: i16) -> Bytes {
    let partition = PartitionData::default()
        .with_aborted_transactions(Some(vec![AbortedTransaction::default()]))
        .with_records(Some(Bytes::from(vec![9; 300])));
    let mut topic = FetchableTopicResponse::default().with_partitions(vec![partition]);
    if version < 13 {
        topic.topic = StrBytes::from_static_str("lines").into();
    }
    answer::<FetchRequest>(&FetchResponse::default().with_responses(vec![topic]), version)
}

fn list_offsets(version: i16) -> Bytes {
    let partition = ListOffsetsPartitionResponse::default().with_offset(7);
    let topic = ListOffsetsTopicResponse::default()
        .with_name(StrBytes::from_static_str("lines").into())
        .with_partitions(vec![partition; 4]);
    let body = ListOffsetsResponse::default().with_topics(vec![topic]);
    answer::<ListOffsetsRequest>(&body, version)
}

fn find_coordinator(version: i16) -> Bytes {
    let host = StrBytes::from_static_str("localhost");
    let body = if version >= 4 {
        let found = Coordinator::default().with_host(host).with_port(9092);
        FindCoordinatorResponse::default().with_coordinators(vec![found])
    } else {
        FindCoordinatorResponse::default().with_host(host).with_port(9092)
    };
    answer::<FindCoordinatorRequest>(&body, version)
}

/// Decodes and tells whether it went well. Fails if it asks for memory out of all proportion.
fn check<R: Request>(bytes: &Bytes, version: i16) -> bool {
    let region = Region::new(ALLOCATOR);
    let result = decode::<R>(bytes.clone(), version);
    let taken = region.change().bytes_allocated;
    assert!(taken < BYTES_MAX, "{taken} bytes for one of {} in version {version}", bytes.len());
    result.is_ok()
}

fn check_kind(kind: usize, version: i16, change: impl FnOnce(Bytes) -> Bytes) -> bool {
    let in_range = |range: kafka_protocol::protocol::VersionRange| {
        range.min + version.rem_euclid(range.max - range.min + 1)
    };
    match kind {
        0 => {
            let version = in_range(MetadataRequest::VERSIONS);
            check::<MetadataRequest>(&change(metadata(version)), version)
        }
        1 => {
            let version = in_range(FetchRequest::VERSIONS);
            check::<FetchRequest>(&change(fetch(version)), version)
        }
        2 => {
            let version = in_range(ListOffsetsRequest::VERSIONS);
            check::<ListOffsetsRequest>(&change(list_offsets(version)), version)
        }
        _ => {
            let version = in_range(FindCoordinatorRequest::VERSIONS);
            check::<FindCoordinatorRequest>(&change(find_coordinator(version)), version)
        }
    }
}

/// The answers of a broker that were recorded: API key, version, bytes.
fn recorded() -> Vec<(i16, i16, Bytes)> {
    let text = include_str!("recorded.txt");
    let answers = text.split("\n\n").skip(1).map(|answer| {
        let (head, hex) = answer.split_once('\n').expect("bytes follow the head");
        let (key, version) = head.split_once(' ').expect("key and version");
        let digits: Vec<u8> = hex
            .chars()
            .filter_map(|digit| digit.to_digit(16))
            .map(|digit| u8::try_from(digit).expect("a digit is small"))
            .collect();
        let bytes = digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]);
        let number = |text: &str| text.parse().expect("a number");
        (number(key), number(version), bytes.collect())
    });
    answers.collect()
}

fn check_recorded(key: i16, version: i16, bytes: &Bytes) -> bool {
    match key {
        0 => check::<ProduceRequest>(bytes, version),
        1 => check::<FetchRequest>(bytes, version),
        2 => check::<ListOffsetsRequest>(bytes, version),
        3 => check::<MetadataRequest>(bytes, version),
        8 => check::<OffsetCommitRequest>(bytes, version),
        9 => check::<OffsetFetchRequest>(bytes, version),
        10 => check::<FindCoordinatorRequest>(bytes, version),
        11 => check::<JoinGroupRequest>(bytes, version),
        12 => check::<HeartbeatRequest>(bytes, version),
        13 => check::<LeaveGroupRequest>(bytes, version),
        14 => check::<SyncGroupRequest>(bytes, version),
        18 => check::<ApiVersionsRequest>(bytes, version),
        19 => check::<CreateTopicsRequest>(bytes, version),
        22 => check::<InitProducerIdRequest>(bytes, version),
        32 => check::<DescribeConfigsRequest>(bytes, version),
        _ => panic!("no request has key {key}"),
    }
}

#[test]
fn recorded_answers_are_read_and_their_mutations_do_no_harm() {
    let recorded = recorded();
    assert_eq!(recorded.len(), 15);
    for (key, version, bytes) in recorded {
        assert!(check_recorded(key, version, &bytes), "key {key}");
        for length in 0..bytes.len() {
            let is_read = check_recorded(key, version, &bytes.slice(..length));
            assert!(!is_read, "key {key}, the first {length} bytes");
        }
        for place in 4..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.to_vec();
                changed[place] = value;
                check_recorded(key, version, &Bytes::from(changed));
            }
            for lie in [&[0x7f, 0xff, 0xff, 0xff][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]] {
                let mut lying = bytes.to_vec();
                for (byte, lie) in lying.iter_mut().skip(place).zip(lie) {
                    *byte = *lie;
                }
                check_recorded(key, version, &Bytes::from(lying));
            }
        }
    }
}

#[test]
fn honest_answers_are_read_in_every_version() {
    for kind in 0..4 {
        for version in 0..20 {
            assert!(check_kind(kind, version, |bytes| bytes), "kind {kind}, version {version}");
        }
    }
}

#[test]
fn a_longer_answer_is_not_believed() {
    for kind in 0..4 {
        let longer = |bytes: Bytes| {
            let mut longer = BytesMut::from(&bytes[..]);
            longer.put_u8(0);
            longer.freeze()
        };
        assert!(!check_kind(kind, 0, longer));
    }
}

#[test]
fn every_truncation_is_an_error() {
    for kind in 0..4 {
        for version in 0..20 {
            for cut in 1..80 {
                let shorter = |bytes: Bytes| bytes.slice(..bytes.len().saturating_sub(cut));
                assert!(!check_kind(kind, version, shorter), "kind {kind}, version {version}");
            }
        }
    }
}

#[test]
fn lengths_that_lie_cost_nothing() {
    // Each place, to the last, is made the largest length there can be, old encoding and new.
    for kind in 0..4 {
        for version in 0..20 {
            for place in 4..400 {
                for lie in [&[0x7f, 0xff, 0xff, 0xff][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]] {
                    let lying = |bytes: Bytes| {
                        let mut lying = bytes.to_vec();
                        for (byte, lie) in lying.iter_mut().skip(place).zip(lie) {
                            *byte = *lie;
                        }
                        Bytes::from(lying)
                    };
                    check_kind(kind, version, lying);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn no_mutation_is_more_than_an_error(
        kind in 0_usize..4,
        version in 0_i16..20,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        check_kind(kind, version, |bytes| {
            let mut changed = bytes.to_vec();
            for (place, value) in changes {
                let place = place.index(changed.len());
                changed[place] = value;
            }
            Bytes::from(changed)
        });
    }
}

#[test]
fn the_text_of_a_request_holds_nothing_of_it() {
    let request = SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from_static(b"hidden"));
    let frame = Frame::encode(&request, 2, &StrBytes::from_static_str("c")).expect("it fits");
    assert_eq!(format!("{frame:?}"), "Frame { bytes: 24, .. }");
}
