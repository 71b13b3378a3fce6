//! A group on the embedded broker, as it is shown.

use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use headwater::broker::{Broker, simple};
use headwater::embedded::Embedded;
use headwater::kafka::KafkaOptions;
use headwater::prelude::*;
use headwater::runtime::Execution;
use headwater::store::MemoryBackend;
use headwater::{TaskRole, view_group};
use uuid::Uuid;

use super::{Arguments, options, show};

async fn start(broker: &Embedded, process: u128) -> Instance {
    let builder = StreamsBuilder::new();
    builder
        .stream("words", Consumed::with(Utf8, Utf8))
        .group_by_key(Grouped::with(Utf8, Utf8))
        .count(Materialized::named("counts"))
        .to_stream()
        .to("counts", Produced::with(Utf8, Long));
    let config = StreamsConfig::new("app")
        .client_id(format!("client-{process}"))
        .num_standby_replicas(1)
        .commit_interval_ms(50);
    Headwater::builder(builder.build().unwrap())
        .config(config)
        .broker(Arc::new(broker.clone()))
        .store_backend(Arc::new(MemoryBackend::new()))
        .execution(Execution::InPlace)
        .process_id(Uuid::from_u128(process))
        .start()
        .await
        .unwrap()
}

/// Until each of two instances runs a task and follows one.
async fn settle(instances: [&Instance; 2]) {
    let holds = |instance: &Instance| {
        let count = |role| instance.tasks_with_role(role).len();
        instance.state() == InstanceState::Running
            && (count(TaskRole::Active), count(TaskRole::Standby)) == (1, 1)
    };
    while !instances.into_iter().all(holds) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn check(broker: &dyn Broker, expected: &Expect) {
    let view = view_group(broker, "app").await.unwrap();
    expected.assert_eq(&show::text(&view));
}

#[tokio::test(start_paused = true)]
async fn a_group_shows_who_does_what_and_why() {
    let broker = Embedded::in_memory();
    for topic in ["words", "counts"] {
        simple::create_topic(&broker, topic, 2).await.unwrap();
    }
    check(
        &broker,
        &expect![[r#"
        group app: Dead, no members
    "#]],
    )
    .await;
    let a = start(&broker, 1).await;
    let b = start(&broker, 2).await;
    settle([&a, &b]).await;
    check(
        &broker,
        &expect![[r#"
            group app: Stable, generation 2, 2 members

            member client-1-0-0, process 00000000-0000-0000-0000-000000000001, 1 thread
              TASK  DUTY     WHY       BEHIND
              0_0   active   no_owner  0
              0_1   standby  replica   0
              0 records of 1 inputs are not committed

            member client-2-0-2, process 00000000-0000-0000-0000-000000000002, 1 thread
              TASK  DUTY     WHY       BEHIND
              0_0   standby  replica   0
              0_1   active   no_owner  0
              0 records of 1 inputs are not committed
        "#]],
    )
    .await;

    let view = view_group(&broker, "app").await.unwrap();
    let json: serde_json::Value = serde_json::from_str(&show::json(&view)).unwrap();
    assert_eq!(json["state"], "Stable");
    let members = json["members"].as_array().unwrap();
    assert_eq!(members.len(), 2);
    for member in members {
        let duties: Vec<&str> = member["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["duty"].as_str().unwrap())
            .collect();
        assert!(duties == ["active", "standby"] || duties == ["standby", "active"], "{duties:?}");
        assert_eq!(member["input_lags"][0]["lag"], 0);
    }
    a.close(Duration::from_secs(30)).await.unwrap();
    b.close(Duration::from_secs(30)).await.unwrap();
    check(
        &broker,
        &expect![[r#"
        group app: Empty, no members
    "#]],
    )
    .await;
}

/// What the properties of a file and `--bootstrap` come to: the servers, and whether the connection is secured.
fn check_options(bootstrap: Option<&str>, properties: &str, expected: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("client.properties");
    std::fs::write(&path, properties).unwrap();
    let arguments = Arguments {
        application_id: "app".to_owned(),
        bootstrap: bootstrap.map(str::to_owned),
        command_config: Some(path.clone()),
        format: super::Format::Text,
        timeout_s: 1,
    };
    let told = match options(&arguments) {
        Ok(options) => {
            let plain = KafkaOptions::new(options.bootstrap_servers.clone()).security;
            let is_plain = options.security == plain;
            format!("{}, {}", options.bootstrap_servers, if is_plain { "plain" } else { "secured" })
        }
        Err(error) => error.to_string().replace(&path.display().to_string(), "FILE"),
    };
    assert_eq!(told, expected, "{bootstrap:?} {properties:?}");
}

#[test]
fn settings_come_from_a_file_and_servers_from_the_command() {
    let secured = "bootstrap.servers=one:9092\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n\
                   sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" password=\"b\";\n";
    check_options(None, "bootstrap.servers=one:9092\n", "one:9092, plain");
    check_options(None, secured, "one:9092, secured");
    check_options(Some("two:9093"), secured, "two:9093, secured");
    check_options(Some("two:9093"), "application.id=app\n", "two:9093, plain");
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_the_setting() {
    check_options(
        None,
        "num.stream.threads=two\n",
        "FILE: num.stream.threads cannot be \"two\": it must be a whole number from 0",
    );
    check_options(
        Some("nowhere"),
        "",
        "--bootstrap: `nowhere` is not an address of a Kafka broker: the port is missing",
    );
    check_options(None, "", "FILE does not set bootstrap.servers, and --bootstrap is not given");
}
