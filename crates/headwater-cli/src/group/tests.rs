//! A group on the embedded broker, as it is shown.

use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use headwater::broker::{Broker, simple};
use headwater::embedded::Embedded;
use headwater::prelude::*;
use headwater::runtime::Execution;
use headwater::store::MemoryBackend;
use headwater::{TaskRole, view_group};
use uuid::Uuid;

use super::show;

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

        member client-1-0, process 00000000-0000-0000-0000-000000000001, 1 thread
          TASK  DUTY     WHY       BEHIND
          0_0   active   no_owner  0
          0_1   standby  replica   0
          0 records of 1 inputs are not committed

        member client-2-2, process 00000000-0000-0000-0000-000000000002, 1 thread
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
