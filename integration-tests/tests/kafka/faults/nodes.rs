//! Nodes do what they are told; everything else here stands on it.

use std::collections::BTreeSet;

use headwater::broker::Topics as _;
use headwater::kafka::{Kafka, KafkaOptions};
use kafka_nodes::{Cluster, ClusterOptions, NodesError, answers_api_versions, nodes_named_by};

use crate::environment::{nodes, unique};
use crate::witness::{Seen, Witness};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_has_its_data_when_it_comes_back() {
    let mut cluster = Cluster::start(&nodes(), &ClusterOptions::nodes(1)).unwrap();
    let topic = unique("kept");
    let records: Vec<Seen> =
        (0..100).map(|number| Seen::new(number, "key", number.to_string())).collect();
    let witness = Witness::connect(&cluster.bootstrap()).await;
    witness.create_topic(&topic, 1, 1).await;
    witness.write(&topic, 1, &records).await;

    cluster.kill(1).unwrap();
    answers_api_versions(&cluster.address(1)).unwrap_err();
    assert!(matches!(cluster.kill(1), Err(NodesError::WrongState { node: 1, .. })));
    cluster.restart(1).unwrap();
    let witness = Witness::connect(&cluster.bootstrap()).await;
    assert_eq!(witness.read(&topic, 1).await.len(), 100);

    cluster.stop(1).unwrap();
    cluster.restart(1).unwrap();
    let witness = Witness::connect(&cluster.bootstrap()).await;
    assert_eq!(witness.read(&topic, 1).await.len(), 100);
    cluster.shut_down().unwrap();
}

#[test]
fn a_frozen_node_answers_nothing_until_it_goes_on() {
    let mut cluster = Cluster::start(&nodes(), &ClusterOptions::nodes(1)).unwrap();
    cluster.pause(1).unwrap();
    answers_api_versions(&cluster.address(1)).unwrap_err();
    cluster.resume(1).unwrap();
    answers_api_versions(&cluster.address(1)).unwrap();
}

#[test]
fn three_nodes_know_each_other() {
    let cluster = Cluster::start(&nodes(), &ClusterOptions::nodes(3)).unwrap();
    let named: Vec<i32> =
        nodes_named_by(&cluster.address(2)).unwrap().iter().map(|node| node.id).collect();
    assert_eq!(named, [1, 2, 3]);
    let topics = "org.apache.kafka.tools.TopicCommand";
    let create = ["--create", "--topic", "copied", "--partitions", "2"];
    cluster.tool(topics, &create).unwrap();
    let described = cluster.tool(topics, &["--describe", "--topic", "copied"]).unwrap();
    assert!(described.contains("ReplicationFactor: 3"), "{described}");
}

/// What rack-aware assignment stands on.
#[tokio::test(flavor = "multi_thread")]
async fn the_racks_of_replicas_are_told() {
    let cluster = Cluster::start(&nodes(), &ClusterOptions::nodes(3)).unwrap();
    let witness = Witness::connect(&cluster.bootstrap()).await;
    witness.create_topic("everywhere", 2, 3).await;
    witness.create_topic("somewhere", 3, 1).await;
    let options = KafkaOptions::new(cluster.bootstrap().parse().unwrap());
    let kafka = Kafka::connect(options).await.unwrap();
    let topics = ["everywhere".into(), "somewhere".into()];
    let described = kafka.describe_topics(&topics).await.unwrap();
    let racks: Vec<Vec<BTreeSet<String>>> =
        described.into_iter().map(|topic| topic.unwrap().racks).collect();
    let all = BTreeSet::from([1, 2, 3].map(|node| format!("rack-{node}")));
    assert_eq!(racks[0], [all.clone(), all.clone()]);
    assert_eq!(racks[1].len(), 3);
    for of_partition in &racks[1] {
        assert!(of_partition.len() == 1 && of_partition.is_subset(&all), "{racks:?}");
    }
    cluster.shut_down().unwrap();
}

#[test]
fn a_node_that_cannot_start_shows_its_log() {
    let options = ClusterOptions::nodes(1).setting("num.io.threads", "none");
    let error = Cluster::start(&nodes(), &options).unwrap_err().to_string();
    assert!(error.contains("ended before it was ready"), "{error}");
    assert!(error.contains("num.io.threads"), "{error}");
}
