//! Writers and members live through what happens to brokers: nothing lost, nothing twice, the order
//! kept, and every acknowledgement true.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater::records::{BatchBuilder, Compression, Record};
use headwater_broker::{
    Acknowledgement, Broker, Clock, GroupEvent, GroupOptions, LogWriter, MemberAssignment,
    Membership, OffsetCommit, Offsets, ProduceBatch, SystemClock, TopicPartition, WriterOptions,
};
use headwater_kafka::{Kafka, KafkaOptions};
use kafka_nodes::{Cluster, ClusterOptions};

use crate::environment::{Tier, nodes, unique};
use crate::witness::Witness;

const PARTITIONS: i32 = 3;
const BATCH_RECORDS: usize = 7;

async fn connect(cluster: &Cluster) -> Kafka {
    let mut options = KafkaOptions::new(cluster.bootstrap().parse().unwrap());
    // So long a frozen node is waited for.
    options.request_timeout = Duration::from_secs(5);
    Kafka::connect(options).await.unwrap()
}

/// A stream of numbered records, each batch acknowledged on its own.
struct Numbers {
    topic: String,
    writer: Box<dyn LogWriter>,
    sent: Vec<Sent>,
    acknowledged: usize,
}

struct Sent {
    partition: i32,
    first: usize,
    acknowledgement: Acknowledgement,
}

impl Numbers {
    async fn new(kafka: &Kafka, topic: &str) -> Self {
        let writer = kafka.writer(WriterOptions::default()).await.unwrap();
        Self { topic: topic.to_owned(), writer, sent: Vec::new(), acknowledged: 0 }
    }

    /// Sends so many batches, to the partitions in turn, without waiting.
    fn send(&mut self, batches: usize) {
        for _ in 0..batches {
            let number = self.acknowledged + self.sent.len();
            let partition = i32::try_from(number).unwrap() % PARTITIONS;
            let first = number / usize::try_from(PARTITIONS).unwrap() * BATCH_RECORDS;
            // A broker that restarts knows those of now again, and forgets those of long ago.
            let timestamp = if partition == 0 { 1 } else { SystemClock::new().wall_ms() };
            let mut builder = BatchBuilder::new(Compression::None);
            for number in first..first + BATCH_RECORDS {
                let value = number.to_string();
                let value = Some(value.as_bytes());
                builder.append(Record { timestamp, key: None, value, headers: &[] }).unwrap();
            }
            let topic_partition = TopicPartition::new(self.topic.as_str(), partition);
            let batch = ProduceBatch { topic_partition, batch: builder.finish() };
            let acknowledgement = self.writer.send(batch);
            self.sent.push(Sent { partition, first, acknowledgement });
        }
    }

    /// Waits for the next so many acknowledgements.
    async fn acknowledged(&mut self, batches: usize) {
        for Sent { partition, first, acknowledgement } in self.sent.drain(..batches) {
            let appended = acknowledgement.await.unwrap();
            let first = i64::try_from(first).unwrap();
            assert_eq!(appended.base_offset, first, "partition {partition}");
            self.acknowledged += 1;
        }
    }

    /// Has another client read it all.
    async fn check(self, cluster: &Cluster) {
        assert!(self.sent.is_empty(), "all is acknowledged");
        let witness = Witness::connect(&cluster.bootstrap()).await;
        let mut next = [0; 3];
        for seen in witness.read(&self.topic, PARTITIONS).await {
            let next = &mut next[usize::try_from(seen.partition).unwrap()];
            let value = String::from_utf8(seen.value.unwrap()).unwrap();
            assert_eq!(value, next.to_string(), "in partition {}", seen.partition);
            assert_eq!(seen.offset, *next);
            *next += 1;
        }
        let written = i64::try_from(self.acknowledged * BATCH_RECORDS).unwrap();
        assert_eq!(next.iter().sum::<i64>(), written, "{next:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_dies_and_one_that_restarts_cost_a_writer_time_only() {
    let mut cluster = Cluster::start(&nodes(), &ClusterOptions::nodes(1)).unwrap();
    let topic = unique("numbers");
    Witness::connect(&cluster.bootstrap()).await.create_topic(&topic, PARTITIONS, 1).await;
    let kafka = connect(&cluster).await;
    let mut numbers = Numbers::new(&kafka, &topic).await;
    for _ in 0..Tier::of_this_run().pick(1, 5) {
        numbers.send(600);
        numbers.acknowledged(100).await;
        cluster.kill(1).unwrap();
        numbers.send(100);
        cluster.restart(1).unwrap();
        numbers.acknowledged(200).await;
        // A clean stop, after which the broker knows only the last batch of each producer.
        cluster.stop(1).unwrap();
        cluster.restart(1).unwrap();
        numbers.acknowledged(400).await;
    }
    numbers.check(&cluster).await;
    cluster.shut_down().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_that_die_or_freeze_cost_a_writer_time_only() {
    let mut cluster = Cluster::start(&nodes(), &ClusterOptions::nodes(3)).unwrap();
    let topic = unique("numbers");
    Witness::connect(&cluster.bootstrap()).await.create_topic(&topic, PARTITIONS, 3).await;
    let kafka = connect(&cluster).await;
    let mut numbers = Numbers::new(&kafka, &topic).await;
    for node in 1..=Tier::of_this_run().pick(1, 3) {
        numbers.send(600);
        numbers.acknowledged(100).await;
        // Each node leads a partition.
        cluster.kill(node).unwrap();
        numbers.acknowledged(100).await;
        cluster.restart(node).unwrap();
        numbers.acknowledged(100).await;
        let other = node % 3 + 1;
        cluster.pause(other).unwrap();
        numbers.acknowledged(100).await;
        cluster.resume(other).unwrap();
        numbers.acknowledged(200).await;
    }
    numbers.check(&cluster).await;
    cluster.shut_down().unwrap();
}

/// Joins, and plans for itself.
async fn enter(member: &mut dyn Membership) -> headwater_broker::Grant {
    member.join(Bytes::from_static(b"facts"));
    loop {
        match member.next_event().await.unwrap() {
            GroupEvent::PlanWanted { members, .. } => {
                let plan = members.into_iter().map(|joined| MemberAssignment {
                    member_id: joined.member_id,
                    assignment: joined.facts,
                    partitions: vec![TopicPartition::new("elsewhere", 0)],
                });
                member.plan(plan.collect());
            }
            GroupEvent::Assigned { grant, .. } => return grant,
            event => panic!("{event:?}"),
        }
    }
}

fn group_options(group: &str) -> GroupOptions {
    GroupOptions {
        group: group.into(),
        protocol: "numbers".to_owned(),
        client_id: "numbers".to_owned(),
        group_instance_id: None,
        replaces: None,
        topics: vec!["elsewhere".into()],
        session_timeout: Duration::from_secs(45),
        rebalance_timeout: Duration::from_mins(1),
        heartbeat_interval: Duration::from_millis(100),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_outlives_its_coordinator_and_tools_show_it() {
    let mut cluster = Cluster::start(&nodes(), &ClusterOptions::nodes(1)).unwrap();
    let topic = unique("inputs");
    Witness::connect(&cluster.bootstrap()).await.create_topic(&topic, 1, 1).await;
    let kafka = Arc::new(connect(&cluster).await);
    let group = unique("group");
    let mut member = kafka.membership(group_options(&group));
    let grant = enter(&mut *member).await;
    let beating = tokio::spawn(async move {
        let event = member.next_event().await;
        (member, event)
    });
    let tools = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
    let asked = ["--describe", "--group", &group, "--members", "--verbose"];
    let shown = cluster.tool(tools, &asked).unwrap();
    assert!(shown.contains("elsewhere(0)") || shown.contains("elsewhere:0"), "{shown}");

    cluster.kill(1).unwrap();
    cluster.restart(1).unwrap();
    let offset = OffsetCommit {
        topic_partition: TopicPartition::new(topic.as_str(), 0),
        offset: 5,
        metadata: String::new(),
    };
    kafka.commit_offsets(&grant, &[offset]).await.unwrap();
    assert!(!beating.is_finished(), "nothing happened to the member");
    beating.abort();
    cluster.shut_down().unwrap();
}
