//! Requests and answers once the broker is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use headwater_broker::{
    BrokerError, Isolation, OffsetQuery, OffsetSpec, Offsets, TopicPartition, Topics,
};
use headwater_kafka::Kafka;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ApiKey, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest};

use crate::peer::{Asked, Peer, Reply, one_node};

fn latest(partition: i32) -> OffsetQuery {
    let topic_partition = TopicPartition::new("lines", partition);
    OffsetQuery { topic_partition, spec: OffsetSpec::Latest }
}

/// Answers a question for offsets with this code, and with offsets 100 and 101 if it is 0.
fn offsets(asked: &Asked, code: i16) -> Reply {
    let request: ListOffsetsRequest = asked.request();
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            ListOffsetsPartitionResponse::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(code)
                .with_offset(100 + i64::from(partition.partition_index))
        });
        ListOffsetsTopicResponse::default()
            .with_partitions(partitions.collect())
            .with_name(topic.name)
    });
    let body = ListOffsetsResponse::default().with_topics(topics.collect());
    asked.answer::<ListOffsetsRequest>(&body)
}

/// What to do about a request.
type Replying = fn(&Asked) -> Reply;

/// A peer that answers question number n for offsets (from 0) as told.
async fn peer_of_offsets(
    reply: impl Fn(usize, &Asked) -> Reply + Send + Sync + 'static,
) -> (Peer, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&count);
    let peer = Peer::start(move |asked| {
        (asked.key == ApiKey::ListOffsets)
            .then(|| reply(counting.fetch_add(1, Ordering::Relaxed), asked))
    });
    (peer.await, count)
}

async fn list(kafka: &Kafka) -> Result<Vec<Option<i64>>, BrokerError> {
    let queries = [latest(1), latest(0)];
    let listed = kafka.list_offsets(&queries, Isolation::ReadUncommitted).await?;
    Ok(listed.into_iter().map(|listed| listed.map(|listed| listed.offset)).collect())
}

#[tokio::test]
async fn what_may_pass_is_tried_again() {
    // Not the leader, loading, hung up, silent, then an answer.
    let (peer, count) = peer_of_offsets(|number, asked| match number {
        0 => offsets(asked, 6),
        1 => offsets(asked, 78),
        2 => Reply::Close,
        3 => Reply::Silence,
        _ => offsets(asked, 0),
    })
    .await;
    let mut options = peer.options();
    options.request_timeout = Duration::from_millis(50);
    options.reconnect_backoff = Duration::from_millis(1);
    let kafka = Kafka::connect(options).await.expect("a broker is there");
    let listed = list(&kafka).await.expect("it succeeds in the end");
    assert_eq!(listed, [Some(101), Some(100)], "in the order of the questions");
    assert_eq!(count.load(Ordering::Relaxed), 5);
    assert_eq!(peer.connections(), 3, "one more after each that ended");
}

#[tokio::test]
async fn what_will_not_pass_is_told_at_once() {
    let cases = [(29, "not authorised"), (999, "does not know (999)"), (-1, "UNKNOWN_SERVER")];
    for (code, expected) in cases {
        let (peer, count) = peer_of_offsets(move |_, asked| offsets(asked, code)).await;
        let kafka = Kafka::connect(peer.options()).await.expect("a broker is there");
        let error = list(&kafka).await.expect_err("it is refused").to_string();
        assert!(error.contains(expected) && error.contains("lines-1"), "{error}");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn a_broker_that_never_answers_is_a_time_out() {
    let (peer, _) = peer_of_offsets(|_, _| Reply::Silence).await;
    let mut options = peer.options();
    options.request_timeout = Duration::from_millis(20);
    options.api_timeout = Duration::from_millis(100);
    let kafka = Kafka::connect(options).await.expect("a broker is there");
    let error = list(&kafka).await.expect_err("nobody answers");
    let expected =
        format!("no connection to {} for ListOffsets: no answer within 20 ms", peer.address);
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn answers_that_make_no_sense_are_named() {
    let other_id = |asked: &Asked| {
        let mut bytes = BytesMut::new();
        bytes.put_i32(asked.correlation_id.wrapping_add(1));
        bytes.put_bytes(0, 8);
        Reply::Answer(bytes.freeze())
    };
    let cut_off = |asked: &Asked| match offsets(asked, 0) {
        Reply::Answer(answer) => Reply::Answer(answer.slice(..answer.len() - 3)),
        other => other,
    };
    let lie = |_: &Asked| Reply::AnswerAfterId(Bytes::from_static(&[0xff; 30]));
    let cases: [(Replying, &str); 4] = [
        (other_id, "correlation id"),
        (cut_off, "ListOffsets"),
        (lie, "ListOffsets"),
        (|_| Reply::Raw(vec![0, 0, 0, 2, 1, 1]), "2 bytes"),
    ];
    for (reply, expected) in cases {
        let (peer, _) = peer_of_offsets(move |_, asked| reply(asked)).await;
        let kafka = Kafka::connect(peer.options()).await.expect("a broker is there");
        let error = list(&kafka).await.expect_err("the answer makes no sense");
        assert!(matches!(error, BrokerError::Malformed { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(expected) && text.contains(&peer.address.to_string()), "{text}");
        kafka.list_topics().await.expect("the next request has a sound connection");
    }
}

#[tokio::test]
async fn dropping_a_call_harms_nobody() {
    let (peer, count) = peer_of_offsets(|_, asked| offsets(asked, 0)).await;
    let kafka = Kafka::connect(peer.options()).await.expect("a broker is there");
    list(&kafka).await.expect("leaders get known");
    for polls in 1..6 {
        let mut call = Box::pin(list(&kafka));
        for _ in 0..polls {
            tokio::select! { biased; _ = &mut call => break, () = tokio::task::yield_now() => {} }
        }
        drop(call);
        assert_eq!(list(&kafka).await.expect("it goes on"), [Some(101), Some(100)]);
    }
    assert!(count.load(Ordering::Relaxed) > 6);
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn many_calls_share_a_connection() {
    let (peer, count) = peer_of_offsets(|_, asked| offsets(asked, 0)).await;
    let kafka = Kafka::connect(peer.options()).await.expect("a broker is there");
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let kafka = kafka.clone();
        calls.spawn(async move { list(&kafka).await.expect("it is answered") });
    }
    while let Some(listed) = calls.join_next().await {
        assert_eq!(listed.expect("no call panics"), [Some(101), Some(100)]);
    }
    assert_eq!(count.load(Ordering::Relaxed), 100);
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn a_missing_topic_or_partition_is_certain() {
    let peer = Peer::start(|_| None).await;
    let kafka = Kafka::connect(peer.options()).await.expect("a broker is there");
    let topic_partition = TopicPartition::new("nowhere", 0);
    let nowhere = OffsetQuery { topic_partition, spec: OffsetSpec::Latest };
    let error = kafka.list_offsets(&[nowhere], Isolation::ReadUncommitted).await;
    assert!(matches!(error, Err(BrokerError::UnknownTopic { .. })), "{error:?}");
    let error = kafka.list_offsets(&[latest(2)], Isolation::ReadUncommitted).await;
    assert!(matches!(error, Err(BrokerError::UnknownPartition { .. })), "{error:?}");
    let described = kafka.describe_topics(&["nowhere".into(), "lines".into()]).await;
    let described = described.expect("a broker answers");
    assert!(described[0].is_none() && described[1].as_ref().is_some_and(|t| t.partitions == 2));
}

#[tokio::test]
async fn when_all_nodes_are_gone_the_first_servers_are_asked_again() {
    // The broker says that the cluster's only node listens where nobody does.
    let asked_for_metadata = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked_for_metadata);
    let peer = Peer::start(move |asked| {
        (asked.key == ApiKey::Metadata && count.fetch_add(1, Ordering::Relaxed) == 0)
            .then(|| asked.answer::<MetadataRequest>(&one_node(1, asked.version, &[])))
    });
    let peer = peer.await;
    let kafka = Kafka::connect(peer.options()).await.expect("a broker is there");
    let topics = kafka.list_topics().await.expect("the first server is still there");
    assert!(topics.is_empty());
    assert_eq!(asked_for_metadata.load(Ordering::Relaxed), 2);
}
