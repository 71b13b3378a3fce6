//! What metadata changes, and what it does not.

use std::time::Duration;

use headwater_broker::{TopicName, TopicPartition};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataResponse};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Facts, Leader, NoLeader};

const AGE: Duration = Duration::from_mins(5);

/// A topic `lines` with these leaders and epochs.
fn lines(id: u128, leaders: &[(i32, i32)]) -> MetadataResponse {
    let partitions = (0..).zip(leaders).map(|(number, (leader, epoch))| {
        MetadataResponsePartition::default()
            .with_partition_index(number)
            .with_leader_id(BrokerId(*leader))
            .with_leader_epoch(*epoch)
    });
    let topic = MetadataResponseTopic::default()
        .with_name(Some(StrBytes::from_static_str("lines").into()))
        .with_topic_id(Uuid::from_u128(id))
        .with_partitions(partitions.collect());
    MetadataResponse::default().with_topics(vec![topic])
}

fn refused(code: i16) -> MetadataResponse {
    let mut told = lines(0, &[]);
    told.topics[0].error_code = code;
    told
}

fn at(partition: i32) -> TopicPartition {
    TopicPartition::new("lines", partition)
}

fn leader(node: i32, epoch: i32, id: u128) -> Leader {
    Leader { node, epoch, topic_id: Some(Uuid::from_u128(id)) }
}

#[tokio::test(start_paused = true)]
async fn leaders_are_known_until_doubted_or_old() {
    let now = Instant::now();
    let mut facts = Facts::default();
    assert_eq!(facts.leader(&at(0), now, AGE), Err(NoLeader::Unasked));
    facts.learn(&lines(1, &[(7, 3), (-1, 4)]), now);
    assert_eq!(facts.leader(&at(0), now, AGE), Ok(leader(7, 3, 1)));
    assert_eq!(facts.leader(&at(1), now, AGE), Err(NoLeader::JustNow));
    assert_eq!(facts.leader(&at(2), now, AGE), Err(NoLeader::Partition));
    assert_eq!(facts.leader(&at(-1), now, AGE), Err(NoLeader::Partition));
    assert_eq!(facts.leader(&at(0), now + AGE, AGE), Err(NoLeader::Unasked));
    facts.doubt(&TopicName::from("lines"));
    assert_eq!(facts.leader(&at(0), now, AGE), Err(NoLeader::Unasked));
    assert_eq!(facts.leader_as_told(&at(0)), Ok(leader(7, 3, 1)));
}

#[tokio::test(start_paused = true)]
async fn an_earlier_leader_is_not_believed() {
    let now = Instant::now();
    let mut facts = Facts::default();
    facts.learn(&lines(1, &[(7, 3)]), now);
    facts.learn(&lines(1, &[(8, 2)]), now);
    assert_eq!(facts.leader_as_told(&at(0)), Ok(leader(7, 3, 1)), "epoch 2 was before");
    facts.learn(&lines(1, &[(8, 4)]), now);
    assert_eq!(facts.leader_as_told(&at(0)), Ok(leader(8, 4, 1)));
    facts.learn(&lines(2, &[(9, 0)]), now);
    assert_eq!(facts.leader_as_told(&at(0)), Ok(leader(9, 0, 2)), "another topic of that name");
}

#[tokio::test(start_paused = true)]
async fn missing_topics_are_asked_for_again() {
    let now = Instant::now();
    let mut facts = Facts::default();
    facts.learn(&refused(3), now);
    assert_eq!(facts.leader(&at(0), now, AGE), Err(NoLeader::Unasked));
    assert_eq!(facts.leader_as_told(&at(0)), Err(NoLeader::Topic(3)));
    assert_eq!(facts.topics_in_use().count(), 0);
    assert!(facts.was_told(&"lines".into(), now));
    facts.learn(&MetadataResponse::default(), now + AGE);
    assert_eq!(facts.leader_as_told(&at(0)), Err(NoLeader::Unasked), "long forgotten");
}

#[tokio::test(start_paused = true)]
async fn partitions_that_do_not_fit_are_not_believed() {
    let now = Instant::now();
    let mut facts = Facts::default();
    let mut told = lines(1, &[(1, 0), (2, 0), (3, 0)]);
    told.topics[0].partitions.swap(0, 2);
    told.topics[0].partitions[0].partition_index = 9;
    facts.learn(&told, now);
    assert_eq!(facts.leader_as_told(&at(0)), Ok(leader(1, 0, 1)));
    assert_eq!(facts.leader_as_told(&at(1)), Ok(leader(2, 0, 1)));
    assert_eq!(facts.leader_as_told(&at(2)), Err(NoLeader::Partition));
}

#[tokio::test(start_paused = true)]
async fn nodes_are_replaced_but_never_by_none() {
    let now = Instant::now();
    let node = |id: i32, port| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(id))
            .with_host(StrBytes::from_static_str("h"))
            .with_port(port)
    };
    let mut facts = Facts::default();
    let told = MetadataResponse::default().with_brokers(vec![node(1, 9092), node(2, 70_000)]);
    facts.learn(&told, now);
    facts.learn(&MetadataResponse::default(), now);
    let nodes: Vec<_> =
        facts.nodes.iter().map(|(id, address)| (*id, address.to_string())).collect();
    assert_eq!(nodes, [(1, "h:9092".to_owned())]);
}
