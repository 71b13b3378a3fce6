//! An application whose user may do what `headwater acls` prints, and nothing else.

use std::time::Duration;

use headwater::kafka::{Kafka, KafkaOptions};
use headwater::prelude::*;
use headwater::{AclOperation, AclResource, AclRule, AclTopics, StreamsConfig, needed_acls};
use headwater_broker::{Isolation, OffsetQuery, OffsetSpec, Offsets, TopicPartition};
use kafka_nodes::{Cluster, ClusterOptions};
use kafka_protocol::messages::CreateAclsRequest;
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::protocol::StrBytes;

use crate::application::whole;
use crate::environment::{nodes, unique};
use crate::fleet::figure;
use crate::logs::Log;
use crate::raw::ask;
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
        witness.write(&lines, 1, &records()).await;
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

fn records() -> Vec<Seen> {
    (0..LINES).map(|number| Seen::new(number, number.to_string(), "line")).collect()
}

/// A right of alice's: one operation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Right {
    resource: AclResource,
    name: String,
    prefixed: bool,
    operation: AclOperation,
}

impl Right {
    /// Each of the rights of these rules.
    fn of(rules: &[AclRule]) -> Vec<Self> {
        let of_rule = |rule: &AclRule| {
            let AclRule { resource, name, prefixed, .. } = rule.clone();
            let right = move |operation| {
                let name = name.clone();
                Self { resource, name, prefixed, operation }
            };
            rule.operations.clone().into_iter().map(right)
        };
        rules.iter().flat_map(of_rule).collect()
    }

    /// As the protocol has it.
    fn creation(&self) -> AclCreation {
        let text = |text: &str| StrBytes::from_string(text.to_owned());
        AclCreation::default()
            .with_resource_type(match self.resource {
                AclResource::Topic => 2,
                AclResource::Group => 3,
                AclResource::TransactionalId => 5,
                other => panic!("{other:?} is new"),
            })
            .with_resource_name(text(&self.name))
            .with_resource_pattern_type(if self.prefixed { 4 } else { 3 })
            .with_principal(text("User:alice"))
            .with_host(text("*"))
            .with_permission_type(3)
            .with_operation(match self.operation {
                AclOperation::Read => 3,
                AclOperation::Write => 4,
                AclOperation::Create => 5,
                AclOperation::Delete => 6,
                AclOperation::DescribeConfigs => 10,
                other => panic!("{other:?} is new"),
            })
    }
}

/// Gives alice these rights.
async fn give(cluster: &Cluster, rights: &[Right]) {
    let creations = rights.iter().map(Right::creation).collect();
    let request = CreateAclsRequest::default().with_creations(creations);
    let answer = ask(&cluster.address(1), 3, &request).await;
    assert!(answer.results.iter().all(|result| result.error_code == 0), "{answer:?}");
}

/// What an application says that lacks this right, and only this: an error with which it ends, or a warning
/// beside its work.
async fn said_without(cluster: &Cluster, witness: &Witness, lacking: &Lacking<'_>) -> String {
    let (application, lines, counts) = (unique("app"), unique("lines"), unique("counts"));
    for topic in [&lines, &counts] {
        witness.create_topic(topic, 1, 1).await;
    }
    let topology = || topology(&lines, &counts);
    let graph = topology().describe_json(&application).unwrap();
    let graph = headwater::topology::Topology::from_json(&graph).unwrap();
    let rules = needed_acls(&application, &AclTopics::of(&graph), true);
    let names = [("LINES", &lines), ("COUNTS", &counts), ("APP", &application)];
    let plain = |text: &str| {
        names.iter().fold(text.to_owned(), |text, (plain, name)| text.replace(*name, plain))
    };
    let mut rights = Right::of(&rules);
    let before = rights.len();
    rights
        .retain(|right| (right.resource, plain(&right.name).as_str(), right.operation) != *lacking);
    assert_eq!(before, rights.len() + 1, "{lacking:?} is one of {rules:?}");
    give(cluster, &rights).await;
    witness.write(&lines, 1, &records()).await;
    let home = tempfile::tempdir().unwrap();
    let log = Log::from_now();
    let config = config(cluster, &application, "exactly_once_v2", &home);
    let instance = match Headwater::builder(topology()).config(config).start().await {
        Ok(instance) => instance,
        Err(error) => return plain(&whole(&error)),
    };
    let said = async {
        loop {
            if instance.state().is_final() {
                return whole(&*instance.error().expect("it says why"));
            }
            let text = log.text();
            if let Some(line) = text.lines().find(|line| line.contains("cannot purge")) {
                assert_eq!(instance.error().map(|error| whole(&*error)), None);
                return line.split_once("WARN ").map_or(line, |(_, line)| line).to_owned();
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let said = tokio::time::timeout(LIMIT, said).await;
    let said = plain(&said.unwrap_or_else(|_| panic!("{lacking:?}: {}", log.text())));
    instance.close(Duration::from_secs(30)).await.unwrap();
    said
}

type Lacking<'a> = (AclResource, &'a str, AclOperation);

/// Takes each right away, and nothing else: what is said names the resource and the right.
#[tokio::test(flavor = "multi_thread")]
async fn each_right_that_is_taken_away_is_named() {
    use AclOperation::{Create, Delete, DescribeConfigs, Read, Write};
    use AclResource::{Group, Topic, TransactionalId};
    let cluster = guarded();
    let witness = Witness::connect(&cluster.bootstrap()).await;
    let expected: [(Lacking<'_>, &str); 9] = [
        // To read or to write is to describe, which is asked for first.
        ((Topic, "LINES", Read), "not authorised to describe topic LINES at"),
        ((Topic, "COUNTS", Write), "not authorised to describe topic COUNTS at"),
        ((Topic, "APP-", Read), "not authorised to read partition APP-counts-repartition-0 at"),
        ((Topic, "APP-", Write), "not authorised to write partition APP-counts-repartition-0 at"),
        ((Topic, "APP-", Create), "not authorised to create topic APP-counts-changelog at"),
        ((Topic, "APP-", Delete), "not authorised to delete partition APP-counts-repartition-0 at"),
        (
            (Topic, "APP-", DescribeConfigs),
            "not authorised to describe the configuration of topic APP-counts-",
        ),
        ((Group, "APP", Read), "not authorised to describe group APP at"),
        ((TransactionalId, "APP-", Write), "not authorised to describe transactional id APP-"),
    ];
    let mut wrong = Vec::new();
    for (lacking, part) in expected {
        let said = said_without(&cluster, &witness, &lacking).await;
        figure(&format!("without {lacking:?}: {said}"));
        if !said.contains(part) {
            wrong.push((lacking, said));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
