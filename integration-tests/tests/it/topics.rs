//! Sinks that choose a topic for each record.

use headwater::broker::simple;
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
