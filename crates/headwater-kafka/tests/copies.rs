//! What a fetch costs besides reading it from the socket: nothing that grows with its size.
//!
//! Alone in its process, because it counts what the allocator is asked for.

#![expect(dead_code, reason = "the other tests use more of the peer")]

use std::alloc::System;
use std::time::Duration;

use bytes::Bytes;
use headwater_broker::{Broker, FetchPartition, FetchRequest, Isolation, TopicPartition};
use headwater_kafka::Kafka;
use kafka_protocol::messages::ApiKey;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::protocol::StrBytes;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::peer::{Peer, Reply};

#[path = "it/peer.rs"]
mod peer;

type WireFetch = kafka_protocol::messages::FetchRequest;
type WireAnswer = kafka_protocol::messages::FetchResponse;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SIZE: usize = 8 * 1024 * 1024;

#[tokio::test]
async fn batches_stay_where_they_were_read() {
    let batches = Bytes::from(vec![7; SIZE]);
    let expected = batches.clone();
    // Encoded before anything is counted; all that differs between answers is sent in front.
    let tail = std::sync::OnceLock::new();
    let peer = Peer::start(move |asked| {
        (asked.key == ApiKey::Fetch).then(|| {
            let tail = tail.get_or_init(|| {
                let partition = PartitionData::default()
                    .with_high_watermark(10)
                    .with_log_start_offset(0)
                    .with_records(Some(batches.clone()));
                let topic = FetchableTopicResponse::default()
                    .with_topic(StrBytes::from_static_str("lines").into())
                    .with_partitions(vec![partition]);
                let body = WireAnswer::default().with_responses(vec![topic]);
                match asked.answer::<WireFetch>(&body) {
                    Reply::Answer(answer) => answer.slice(4..),
                    _ => Bytes::new(),
                }
            });
            Reply::AnswerAfterId(tail.clone())
        })
    });
    let peer = peer.await;
    let kafka = Kafka::connect(peer.options()).await.expect("a broker is there");
    let mut reader = kafka.reader();
    let topic_partition = TopicPartition::new("lines", 0);
    let request = FetchRequest {
        partitions: vec![FetchPartition {
            topic_partition,
            topic_id: None,
            offset: 0,
            max_bytes: SIZE,
        }],
        max_wait: Duration::from_mins(1),
        max_bytes: SIZE,
        isolation: Isolation::ReadUncommitted,
    };
    let mut fetch = async || {
        let mut answer = reader.fetch(&request).await.expect("the fetch is answered");
        answer.remove(0).outcome.expect("the partition can be read").batches
    };
    drop(fetch().await);
    let region = Region::new(ALLOCATOR);
    let fetched = fetch().await;
    let taken = region.change().bytes_allocated;
    assert_eq!(fetched, expected);
    assert!(taken >= SIZE, "it is somewhere: {taken} bytes");
    assert!(taken < SIZE + SIZE / 8, "{taken} bytes for {SIZE}: it was copied");
}
