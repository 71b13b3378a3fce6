//! An application whose user may do what `headwater acls` prints, and nothing else.

use std::time::Duration;

use headwater::kafka::{Kafka, KafkaOptions};
use headwater::prelude::*;
use headwater::{AclTopics, StreamsConfig, needed_acls};
use headwater_broker::{Isolation, OffsetQuery, OffsetSpec, Offsets, TopicPartition};
use kafka_nodes::{Cluster, ClusterOptions};

use crate::environment::{nodes, unique};
use crate::witness::{Seen, Witness};

const LINES: i64 = 20;
const POLL: Duration = Duration::from_millis(50);
const LIMIT: Duration = Duration::from_mins(2);

/// A node that lets alice in by `SASL`, where rules say what she may do; whoever comes to its plain listener
/// may do everything.
fn guarded() -> Cluster {
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
    let options = ClusterOptions::nodes(1)
        .listener("SASL", "SASL_PLAINTEXT", "localhost")
        .setting("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
        .setting("super.users", "User:ANONYMOUS")
        .setting("sasl.enabled.mechanisms", "PLAIN")
        .setting(
            "listener.name.sasl.plain.sasl.jaas.config",
            format!("{module} required user_alice=\"alice-secret\";"),
        );
    Cluster::start(&nodes(), &options).unwrap()
}

/// An error with all that is behind it.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        text = format!("{text}: {error}");
        behind = error.source();
    }
    text
}

/// How many records a topic holds, markers of transactions included.
async fn end(cluster: &Cluster, topic: &str) -> i64 {
    let options = KafkaOptions::new(cluster.bootstrap().parse().unwrap());
    let kafka = Kafka::connect(options).await.unwrap();
    let query =
        OffsetQuery { topic_partition: TopicPartition::new(topic, 0), spec: OffsetSpec::Latest };
    kafka.list_offsets(&[query], Isolation::ReadCommitted).await.unwrap()[0].unwrap().offset
}

/// Lines by key, counted by value: with a repartition topic and a changelog.
fn topology(lines: &str, counts: &str) -> Topology {
    let builder = StreamsBuilder::new();
    builder
        .stream(lines, Consumed::with(Utf8, Utf8))
        .group_by(|_, line| line.clone(), Grouped::with(Utf8, Utf8))
        .count(Materialized::named("counts"))
        .to_stream()
        .to(counts, Produced::with(Utf8, Long));
    builder.build().unwrap()
}

fn config(
    cluster: &Cluster,
    application: &str,
    guarantee: &str,
    home: &tempfile::TempDir,
) -> StreamsConfig {
    let servers = cluster.listener(1, "SASL").unwrap();
    let text = format!(
        "bootstrap.servers={servers}\napplication.id={application}\nprocessing.guarantee={guarantee}\n\
         security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nstatestore.cache.max.bytes=0\n\
         repartition.purge.interval.ms=100\ncommit.interval.ms=100\n\
         sasl.jaas.config=PlainLoginModule required username=alice password=alice-secret;\n"
    );
    StreamsConfig::from_properties(&text).unwrap().state_dir(home.path())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_that_are_printed_are_enough_and_without_them_the_missing_one_is_named() {
    let cluster = guarded();
    let witness = Witness::connect(&cluster.bootstrap()).await;
    for (guarantee, exactly_once) in [("at_least_once", false), ("exactly_once_v2", true)] {
        let (application, lines, counts) = (unique("app"), unique("lines"), unique("counts"));
        for topic in [&lines, &counts] {
            witness.create_topic(topic, 1, 1).await;
        }
        let home = tempfile::tempdir().unwrap();
        let start = || {
            let config = config(&cluster, &application, guarantee, &home);
            Headwater::builder(topology(&lines, &counts)).config(config).start()
        };
        // Kafka does not tell who may not describe a topic that it exists.
        let refused = match start().await {
            Err(error) => whole(&error),
            Ok(instance) => {
                while instance.error().is_none() {
                    tokio::time::sleep(POLL).await;
                }
                let error = whole(&instance.error().expect("just seen"));
                instance.close(Duration::from_secs(30)).await.unwrap();
                error
            }
        };
        assert!(refused.contains(&lines) || refused.contains(&application), "{refused}");

        let json = topology(&lines, &counts).describe_json(&application).unwrap();
        let graph = headwater::topology::Topology::from_json(&json).unwrap();
        let rules = needed_acls(&application, &AclTopics::of(&graph), exactly_once);
        for rule in &rules {
            let arguments = rule.tool_arguments("User:alice");
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            cluster.tool("org.apache.kafka.tools.AclCommand", &arguments).unwrap();
        }
        let records: Vec<Seen> =
            (0..LINES).map(|number| Seen::new(number, number.to_string(), "line")).collect();
        witness.write(&lines, 1, &records).await;
        let instance = start().await.unwrap();
        let deadline = tokio::time::Instant::now() + LIMIT;
        while end(&cluster, &counts).await < LINES {
            assert_eq!(instance.error().map(|error| error.to_string()), None);
            assert!(tokio::time::Instant::now() < deadline, "{:?}", instance.state());
            tokio::time::sleep(POLL).await;
        }
        instance.close(Duration::from_secs(30)).await.unwrap();
    }
}
