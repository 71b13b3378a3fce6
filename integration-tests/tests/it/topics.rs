//! Sinks that choose a topic for each record.

use headwater::broker::{NewTopic, Topics as _, simple};
use headwater::prelude::*;
use headwater::runtime::BadRecord;
use headwater::{DropReason, InstanceError, RecordContext};

use crate::app::App;

/// Records of `in` to the topic that their value names.
fn topology() -> Topology {
    let builder = StreamsBuilder::new();
    builder.stream("in", Consumed::with(Utf8, Utf8)).to_extracted(
        |record: Record<'_, String, String>, context: RecordContext<'_>| {
            assert_eq!(context.topic, Some("in"));
            record.value.cloned().unwrap_or_default()
        },
        Produced::with(Utf8, Utf8),
    );
    builder.build().expect("the topology is right")
}

async fn keys(app: &App, topic: &str) -> Vec<String> {
    let records = simple::read_topic(&app.broker, topic).await.expect("the topic is there");
    let key = |record: simple::OwnedRecord| {
        String::from_utf8(record.key.expect("it has a key")).expect("keys are text")
    };
    records.into_iter().map(key).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn records_go_to_topics_that_are_chosen_new_ones_too() {
    let app = App::new(&["in", "a", "b"]).await;
    let instance = app.start(topology(), |config| config).await;
    app.write("in", &[(Some("1"), Some("a")), (Some("2"), Some("b")), (Some("3"), Some("a"))])
        .await;
    app.wait_for_the_end(&instance, "in").await;
    simple::create_topic(&app.broker, "new", 4).await.unwrap();
    let many: Vec<String> = (0..20).map(|number| format!("n{number:02}")).collect();
    let many: Vec<_> = many.iter().map(|key| (Some(key.as_str()), Some("new"))).collect();
    app.write("in", &many).await;
    app.wait_for_the_end(&instance, "in").await;
    assert_eq!(keys(&app, "a").await, ["1", "3"]);
    assert_eq!(keys(&app, "b").await, ["2"]);
    let mut new = keys(&app, "new").await;
    new.sort();
    assert_eq!(new, many.iter().map(|(key, _)| key.unwrap()).collect::<Vec<_>>());
    let records = simple::read_topic(&app.broker, "new").await.unwrap();
    let partitions: std::collections::BTreeSet<i32> =
        records.iter().map(|record| record.partition).collect();
    assert!(partitions.len() > 1, "keys are spread over the topic's partitions");
    app.close(instance).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_topic_is_a_failure_of_production() {
    let app = App::new(&["in", "a"]).await;
    app.write("in", &[(Some("1"), Some("nowhere")), (Some("2"), Some("a"))]).await;
    let instance = app.start(topology(), |config| config).await;
    assert_eq!(instance.wait_for(InstanceState::is_final).await, InstanceState::Error);
    let error = instance.error().expect("it says why");
    assert!(matches!(*error, InstanceError::Task(_)), "{error:?}");
    assert!(
        error.to_string().contains("topic nowhere, which was chosen for the record"),
        "{error}"
    );
    drop(instance);

    let app = App::new(&["in", "a"]).await;
    app.write("in", &[(Some("1"), Some("nowhere")), (Some("2"), Some("a"))]).await;
    let skips = |config: StreamsConfig| config.production_exception_handler(BadRecord::Continue);
    let instance = app.start(topology(), skips).await;
    app.wait_for_the_end(&instance, "in").await;
    assert_eq!(keys(&app, "a").await, ["2"]);
    assert_eq!(instance.dropped_records().counts().of(DropReason::Production), 1);
    app.close(instance).await;
}

/// A topic that takes no batches of more than 1000 bytes.
async fn create_narrow_topic(app: &App, name: &str) {
    let topic = NewTopic {
        name: name.into(),
        partitions: 1,
        replication_factor: None,
        configs: [("max.message.bytes".to_owned(), "1000".to_owned())].into(),
    };
    app.broker.create_topic(&topic).await.expect("the topic is new");
}

/// Values of `in`, repeated a hundred times each, to `narrow`.
fn hundredfold() -> Topology {
    let builder = StreamsBuilder::new();
    builder
        .stream("in", Consumed::with(Utf8, Utf8))
        .map_values(|value| value.repeat(100))
        .to("narrow", Produced::with(Utf8, Utf8).named("write"));
    builder.build().expect("the topology is right")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_its_topic_does_not_take_goes_to_the_production_handler() {
    let app = App::new(&["in", "dead"]).await;
    create_narrow_topic(&app, "narrow").await;
    let large = "v".repeat(20);
    let mut records = vec![(Some("small"), Some("v")); 50];
    records.insert(25, (Some("large"), Some(&large)));
    app.write("in", &records).await;

    let instance = app.start(hundredfold(), |config| config).await;
    assert_eq!(instance.wait_for(InstanceState::is_final).await, InstanceState::Error);
    let error = instance.error().expect("it says why").to_string();
    assert!(error.starts_with("production failed in task 0_0, node write, record in-0"), "{error}");
    assert!(error.contains("topic narrow takes 1000; raise max.message.bytes"), "{error}");
    drop(instance);

    let app = App::new(&["in", "dead"]).await;
    create_narrow_topic(&app, "narrow").await;
    app.write("in", &records).await;
    let dead_letters = |config: StreamsConfig| {
        let config = config.errors_dead_letter_queue_topic_name("dead");
        config.production_exception_handler(BadRecord::DeadLetter)
    };
    let instance = app.start(hundredfold(), dead_letters).await;
    app.wait_for_the_end(&instance, "in").await;
    // What is small comes through, however many there are, in batches that the topic takes.
    assert_eq!(keys(&app, "narrow").await, ["small"; 50]);
    assert_eq!(keys(&app, "dead").await, ["large"]);
    assert_eq!(instance.dropped_records().counts().of(DropReason::Production), 1);
    app.close(instance).await;
}
