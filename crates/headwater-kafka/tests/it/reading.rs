//! Fetches: sessions, leaders that move, nearer replicas, calls that are dropped.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use headwater_broker::{
    Broker, BrokerError, FetchPartition, FetchRequest, FetchedPartition, Isolation, TopicPartition,
};
use headwater_kafka::{Kafka, KafkaOptions};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, BrokerId, FetchResponse, MetadataRequest, MetadataResponse,
};
use kafka_protocol::protocol::StrBytes;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::peer::{Asked, Peer, Reply};

type WireFetch = kafka_protocol::messages::FetchRequest;

const LINES: Uuid = Uuid::from_u128(77);

/// Node `1` and node `2`, and who leads the one partition of `lines`.
fn cluster(ports: [u16; 2], leader: i32, epoch: i32) -> MetadataResponse {
    let nodes = (1..).zip(ports).map(|(node, port)| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(node))
            .with_host(StrBytes::from_static_str("127.0.0.1"))
            .with_port(i32::from(port))
    });
    let partition = MetadataResponsePartition::default()
        .with_leader_id(BrokerId(leader))
        .with_leader_epoch(epoch);
    let topic = MetadataResponseTopic::default()
        .with_name(Some(StrBytes::from_static_str("lines").into()))
        .with_topic_id(LINES)
        .with_partitions(vec![partition]);
    MetadataResponse::default()
        .with_brokers(nodes.collect())
        .with_controller_id(BrokerId(1))
        .with_topics(vec![topic])
}

/// How the partition stands, with these bytes for batches.
fn standing(bytes: &'static [u8]) -> PartitionData {
    PartitionData::default()
        .with_high_watermark(10)
        .with_last_stable_offset(10)
        .with_log_start_offset(0)
        .with_records(Some(Bytes::from_static(bytes)))
}

fn fetched(session: i32, partition: Option<PartitionData>) -> FetchResponse {
    let topics = partition.into_iter().map(|partition| {
        FetchableTopicResponse::default().with_topic_id(LINES).with_partitions(vec![partition])
    });
    FetchResponse::default().with_session_id(session).with_responses(topics.collect())
}

fn request(offset: i64, max_wait: Duration) -> FetchRequest {
    let topic_partition = TopicPartition::new("lines", 0);
    FetchRequest {
        partitions: vec![FetchPartition {
            topic_partition,
            topic_id: None,
            offset,
            max_bytes: 1000,
        }],
        max_wait,
        max_bytes: 1000,
        isolation: Isolation::ReadUncommitted,
    }
}

/// The one partition of an answer: its bytes and ends.
fn told(answer: Result<Vec<FetchedPartition>, BrokerError>) -> (Bytes, i64, i64) {
    let mut answer = answer.expect("the fetch is answered");
    assert_eq!(answer.len(), 1);
    let data = answer.remove(0).outcome.expect("the partition can be read");
    (data.batches, data.log_start_offset, data.high_watermark)
}

/// Two nodes; `fetch` answers the fetches of node 1 and 2, `leader` says who leads with what epoch.
async fn two_nodes(
    fetch: impl Fn(i32, &Asked, WireFetch) -> FetchResponse + Send + Sync + 'static,
    leader: impl Fn() -> (i32, i32) + Send + Sync + 'static,
) -> ([Peer; 2], KafkaOptions) {
    let (fetch, leader) = (Arc::new(fetch), Arc::new(leader));
    let ports = Arc::new(Mutex::new([1_u16; 2]));
    let start = |node: i32| {
        let (fetch, leader, ports) = (Arc::clone(&fetch), Arc::clone(&leader), Arc::clone(&ports));
        Peer::start(move |asked| match asked.key {
            ApiKey::Metadata => {
                let (leader, epoch) = leader();
                let ports = *ports.lock().expect("no test panics with it");
                Some(asked.answer::<MetadataRequest>(&cluster(ports, leader, epoch)))
            }
            ApiKey::Fetch => Some(asked.answer::<WireFetch>(&fetch(node, asked, asked.request()))),
            _ => None,
        })
    };
    let peers = [start(1).await, start(2).await];
    *ports.lock().expect("no test panics with it") = [peers[0].address.port, peers[1].address.port];
    let options = peers[0].options();
    (peers, options)
}

#[tokio::test]
async fn a_session_says_only_what_changed() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let (_peers, options) = two_nodes(
        move |_, _, asked| {
            let offsets: Vec<i64> = asked
                .topics
                .iter()
                .flat_map(|topic| topic.partitions.iter().map(|asked| asked.fetch_offset))
                .collect();
            let mut log = log.lock().expect("no test panics with it");
            log.push((asked.session_id, asked.session_epoch, offsets));
            match log.len() {
                1 => fetched(5, Some(standing(b"batches"))),
                2 | 3 => fetched(5, None),
                4 => fetched(0, None).with_error_code(70),
                _ => fetched(6, Some(standing(b"more"))),
            }
        },
        || (1, 0),
    )
    .await;
    let kafka = Kafka::connect(options).await.expect("a broker is there");
    let mut reader = kafka.reader();
    let mut fetch = async |offset| told(reader.fetch(&request(offset, Duration::ZERO)).await);
    assert_eq!(fetch(0).await, (Bytes::from_static(b"batches"), 0, 10));
    assert_eq!(fetch(10).await, (Bytes::new(), 0, 10), "as it was told before");
    assert_eq!(fetch(10).await, (Bytes::new(), 0, 10));
    let answer = reader.fetch(&request(10, Duration::from_mins(1))).await;
    assert_eq!(told(answer), (Bytes::from_static(b"more"), 0, 10), "with another session");
    let expected =
        [(0, 0, vec![0]), (5, 1, vec![10]), (5, 2, vec![]), (5, 3, vec![]), (0, 0, vec![10])];
    assert_eq!(*seen.lock().expect("no test panics with it"), expected);
}

#[tokio::test]
async fn a_moved_leader_is_found() {
    let moved = Arc::new(Mutex::new(false));
    let (seen, leads) = (Arc::clone(&moved), Arc::clone(&moved));
    let (_peers, options) = two_nodes(
        move |node, _, asked| {
            let partition = &asked.topics[0].partitions[0];
            if node == 1 {
                *seen.lock().expect("no test panics with it") = true;
                assert_eq!(partition.current_leader_epoch, 3);
                return fetched(0, Some(standing(b"").with_error_code(6)));
            }
            assert_eq!(partition.current_leader_epoch, 4);
            fetched(0, Some(standing(b"batches")))
        },
        move || if *leads.lock().expect("no test panics with it") { (2, 4) } else { (1, 3) },
    )
    .await;
    let kafka = Kafka::connect(options).await.expect("a broker is there");
    let answer = kafka.reader().fetch(&request(0, Duration::from_mins(1))).await;
    assert_eq!(told(answer), (Bytes::from_static(b"batches"), 0, 10));
}

#[tokio::test]
async fn a_partition_without_leader_is_told_when_time_is_over() {
    let (_peers, options) = two_nodes(|_, _, _| fetched(0, None), || (-1, 3)).await;
    let kafka = Kafka::connect(options).await.expect("a broker is there");
    let answer = kafka.reader().fetch(&request(0, Duration::from_millis(50))).await;
    let outcome = answer.expect("the fetch is answered").remove(0).outcome;
    assert!(matches!(outcome, Err(BrokerError::NoLeader { .. })), "{outcome:?}");
}

#[tokio::test]
async fn the_nearest_replica_is_read_until_it_fails() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let (_peers, mut options) = two_nodes(
        move |node, _, asked| {
            assert_eq!(asked.rack_id.as_str(), "here");
            let mut log = log.lock().expect("no test panics with it");
            log.push(node);
            match log.len() {
                1 => fetched(0, Some(standing(b"").with_preferred_read_replica(BrokerId(2)))),
                2 => fetched(0, Some(standing(b"near"))),
                // It lags behind.
                3 => fetched(0, Some(standing(b"").with_error_code(1))),
                _ => fetched(0, Some(standing(b"far"))),
            }
        },
        || (1, 0),
    )
    .await;
    options.client_rack = Some("here".to_owned());
    let kafka = Kafka::connect(options).await.expect("a broker is there");
    let mut reader = kafka.reader();
    let mut fetch =
        async |offset| told(reader.fetch(&request(offset, Duration::from_mins(1))).await).0;
    assert_eq!(fetch(0).await, "near");
    assert_eq!(fetch(9).await, "far");
    assert_eq!(*seen.lock().expect("no test panics with it"), [1, 2, 2, 1]);
}

#[tokio::test]
async fn when_the_nearest_replica_is_gone_the_leader_is_read() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let (peers, mut options) = two_nodes(
        move |node, _, asked| {
            let rack = asked.rack_id.to_string();
            log.lock().expect("no test panics with it").push((node, rack.clone()));
            // It goes on naming the replica to whoever says where it is.
            let nearer = BrokerId(if rack.is_empty() { -1 } else { 2 });
            let bytes: &[u8] = if rack.is_empty() { b"far" } else { b"" };
            fetched(0, Some(standing(bytes).with_preferred_read_replica(nearer)))
        },
        || (1, 0),
    )
    .await;
    let [leader, replica] = peers;
    drop(replica);
    options.client_rack = Some("here".to_owned());
    let kafka = Kafka::connect(options).await.expect("a broker is there");
    let answer = kafka.reader().fetch(&request(0, Duration::from_mins(1))).await;
    assert_eq!(told(answer).0, "far");
    let expected = [(1, "here".to_owned()), (1, String::new())];
    assert_eq!(*seen.lock().expect("no test panics with it"), expected);
    drop(leader);
}

#[tokio::test]
async fn ends_that_came_with_a_nearer_replica_are_kept() {
    let (peers, mut options) = two_nodes(
        |_, _, asked| {
            // Nothing has changed since the leader named the replica.
            let first = asked.session_epoch == 0;
            fetched(5, first.then(|| standing(b"").with_preferred_read_replica(BrokerId(2))))
        },
        || (1, 0),
    )
    .await;
    let [_leader, replica] = peers;
    drop(replica);
    options.client_rack = Some("here".to_owned());
    let kafka = Kafka::connect(options).await.expect("a broker is there");
    let answer = kafka.reader().fetch(&request(10, Duration::from_millis(300))).await;
    assert_eq!(told(answer), (Bytes::new(), 0, 10));
}

#[tokio::test]
async fn a_partition_that_is_never_told_of_is_asked_for_anew() {
    let count = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&count);
    let (_peers, options) = two_nodes(
        move |_, _, asked| {
            let mut count = counted.lock().expect("no test panics with it");
            *count += 1;
            let asked_for = asked.topics.len();
            match *count {
                1 => fetched(5, None),
                _ => fetched(6, (asked_for == 1).then(|| standing(b"batches"))),
            }
        },
        || (1, 0),
    )
    .await;
    let kafka = Kafka::connect(options).await.expect("a broker is there");
    let answer = kafka.reader().fetch(&request(0, Duration::from_mins(1))).await;
    assert_eq!(told(answer).0, "batches");
}

#[tokio::test]
async fn what_a_dropped_fetch_brings_is_not_fetched_again() {
    let fetches = Arc::new(Semaphore::new(0));
    let count = Arc::clone(&fetches);
    let (_peers, options) = two_nodes(
        move |_, _, _| {
            count.add_permits(1);
            fetched(0, Some(standing(b"batches")))
        },
        || (1, 0),
    )
    .await;
    let kafka = Kafka::connect(options).await.expect("a broker is there");
    let mut reader = kafka.reader();
    let wanted = request(0, Duration::from_mins(1));
    // The peer has answered when the call is dropped.
    tokio::select! {
        biased;
        permit = fetches.acquire() => drop(permit.expect("it is not closed")),
        _ = reader.fetch(&wanted) => {}
    }
    assert_eq!(told(reader.fetch(&wanted).await), (Bytes::from_static(b"batches"), 0, 10));
    assert_eq!(fetches.available_permits(), 1);
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_told() {
    let peer = Peer::start(|asked| {
        let nonsense = Bytes::from_static(&[0xff; 40]);
        (asked.key == ApiKey::Fetch).then_some(Reply::AnswerAfterId(nonsense))
    });
    let peer = peer.await;
    let kafka = Kafka::connect(peer.options()).await.expect("a broker is there");
    let answer = kafka.reader().fetch(&request(0, Duration::from_mins(1))).await;
    let outcome = answer.expect("the fetch is answered").remove(0).outcome;
    let Err(error @ BrokerError::Malformed { call: "Fetch", .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(error.to_string().contains(&peer.address.to_string()), "{error}");
}
