//! Topics that a pattern matches, found while the application runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headwater::broker::{Topics as _, simple};
use headwater::prelude::*;
use headwater::runtime::TopicsError;
use headwater::{InstanceError, ProcessingGuarantee, TopicSelection};

use crate::app::App;

const CHANGELOG: &str = "app-counts-changelog";

/// Counts the records of each key over all topics `in-...`.
fn counts() -> Topology {
    let builder = StreamsBuilder::new();
    builder
        .stream(TopicSelection::pattern("in-.*"), Consumed::with(Utf8, Utf8))
        .group_by_key(Grouped::new())
        .count(Materialized::named("counts"))
        .to_stream()
        .to("out", Produced::with(Utf8, Long));
    builder.build().expect("the topology is right")
}

/// Copies them.
fn copies() -> Topology {
    let builder = StreamsBuilder::new();
    builder
        .stream(TopicSelection::pattern("in-.*"), Consumed::with(Utf8, Long))
        .to("out", Produced::with(Utf8, Long));
    builder.build().expect("the topology is right")
}

/// Looks at the topics all the time.
fn attentive(config: StreamsConfig) -> StreamsConfig {
    config.metadata_max_age_ms(20)
}

async fn last_counts(app: &App) -> BTreeMap<String, i64> {
    app.longs("out").await.into_iter().collect()
}

async fn wait_for_counts(app: &App, instance: &Instance, expected: &[(&str, i64)]) {
    let expected: BTreeMap<String, i64> =
        expected.iter().map(|(key, count)| ((*key).to_owned(), *count)).collect();
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    while last_counts(app).await != expected {
        ticks.tick().await;
        assert!(instance.error().is_none(), "{:?}", instance.error());
    }
}

fn tasks(instance: &Instance) -> Vec<String> {
    instance.tasks().keys().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_comes_is_read_and_one_that_goes_is_left() {
    topics_come_and_go(ProcessingGuarantee::AtLeastOnce).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_come_and_go_exactly_once() {
    topics_come_and_go(ProcessingGuarantee::ExactlyOnceV2).await;
}

async fn topics_come_and_go(guarantee: ProcessingGuarantee) {
    let attentive = |config| attentive(config).processing_guarantee(guarantee);
    let app = App::with_partitions(&["in-a", "out"], 2).await;
    let instance = app.start(counts(), attentive).await;
    app.write("in-a", &[(Some("x"), Some("1")), (Some("y"), Some("1"))]).await;
    wait_for_counts(&app, &instance, &[("x", 1), ("y", 1)]).await;

    simple::create_topic(&app.broker, "in-b", 2).await.expect("it is new");
    app.write("in-b", &[(Some("x"), Some("2")), (Some("z"), Some("1"))]).await;
    // What was written before anybody looked counts too, and on top of what is in the store.
    wait_for_counts(&app, &instance, &[("x", 2), ("y", 1), ("z", 1)]).await;
    app.write("in-a", &[(Some("y"), Some("2"))]).await;
    wait_for_counts(&app, &instance, &[("x", 2), ("y", 2), ("z", 1)]).await;
    assert_eq!(tasks(&instance), ["0_0", "0_1"]);

    app.wait_for_the_end(&instance, "in-a").await;
    app.broker.delete_topic(&"in-a".into()).await.expect("it is there");
    app.write("in-b", &[(Some("y"), Some("3"))]).await;
    wait_for_counts(&app, &instance, &[("x", 2), ("y", 3), ("z", 1)]).await;
    app.wait_for_the_end(&instance, "in-b").await;
    app.close(instance).await;

    let instance = app.start(counts(), attentive).await;
    app.write("in-b", &[(Some("x"), Some("4"))]).await;
    wait_for_counts(&app, &instance, &[("x", 3), ("y", 3), ("z", 1)]).await;
    assert_eq!(tasks(&instance), ["0_0", "0_1"]);
    app.close(instance).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_topic_that_comes_back_is_read_from_its_beginning() {
    let app = App::with_partitions(&["in-a", "out"], 1).await;
    // Nobody looks but because a fetch has failed.
    let instance = app.start(counts(), |config| config).await;
    let many: Vec<_> = (0..5).map(|_| (Some("x"), Some("1"))).collect();
    app.write("in-a", &many).await;
    wait_for_counts(&app, &instance, &[("x", 5)]).await;
    app.wait_for_the_end(&instance, "in-a").await;
    app.broker.delete_topic(&"in-a".into()).await.unwrap();
    simple::create_topic(&app.broker, "in-a", 1).await.unwrap();
    app.write("in-a", &[(Some("x"), Some("1"))]).await;
    wait_for_counts(&app, &instance, &[("x", 6)]).await;
    app.close(instance).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_larger_topic_makes_more_tasks_and_its_end_ends_them() {
    let app = App::with_partitions(&["in-a", "out"], 1).await;
    let instance = app.start(copies(), attentive).await;
    assert_eq!(tasks(&instance), ["0_0"]);
    simple::create_topic(&app.broker, "in-b", 3).await.unwrap();
    app.wait_until(|| tasks(&instance) == ["0_0", "0_1", "0_2"]).await;
    app.broker.delete_topic(&"in-b".into()).await.unwrap();
    app.wait_until(|| tasks(&instance) == ["0_0"]).await;
    instance.wait_for(|state| state == InstanceState::Running || state.is_final()).await;
    assert!(instance.error().is_none(), "{:?}", instance.error());
    app.close(instance).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_may_match_nothing_at_first() {
    let app = App::new(&["out"]).await;
    let instance = app.start(counts(), attentive).await;
    assert_eq!(instance.state(), InstanceState::Running);
    assert!(instance.tasks().is_empty());
    let described = app.broker.describe_topics(&[CHANGELOG.into()]).await.unwrap();
    assert!(described[0].is_none(), "nobody knows yet how many partitions it needs");

    simple::create_topic(&app.broker, "in-a", 3).await.unwrap();
    app.write("in-a", &[(Some("x"), Some("1"))]).await;
    wait_for_counts(&app, &instance, &[("x", 1)]).await;
    assert_eq!(simple::partitions(&app.broker, CHANGELOG).await.unwrap().len(), 3);
    app.close(instance).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_do_not_look_are_told_by_the_leader() {
    let app = App::with_partitions(&["in-a", "out"], 2).await;
    let one = app.start(copies(), |config| config).await;
    let other = App { broker: app.broker.clone(), state: tempfile::tempdir().unwrap() };
    let two = other.start(copies(), attentive).await;
    let all = || tasks(&one).into_iter().chain(tasks(&two)).collect::<BTreeSet<_>>();
    app.wait_until(|| tasks(&one).len() == 1 && all().len() == 2).await;

    simple::create_topic(&app.broker, "in-b", 4).await.unwrap();
    app.wait_until(|| tasks(&one).len() == 2 && tasks(&two).len() == 2 && all().len() == 4).await;
    let mut writer = simple::TopicWriter::new(&app.broker, "in-b").await.unwrap();
    for key in 0..40_u8 {
        writer.add(1, Some(&[b'a' + key % 26, key]), Some(&i64::from(key).to_be_bytes())).unwrap();
    }
    writer.flush().await.unwrap();
    app.wait_for_the_end(&one, "in-b").await;
    let mut copied: Vec<i64> = app.longs("out").await.into_iter().map(|(_, value)| value).collect();
    copied.sort_unstable();
    assert_eq!(copied, (0..40).collect::<Vec<i64>>());
    app.close(one).await;
    other.close(two).await;
}

/// As in Kafka Streams, where internal topics do not grow either.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_does_not_fit_stops_the_application() {
    let app = App::with_partitions(&["in-a", "out"], 2).await;
    let instance = app.start(counts(), attentive).await;
    simple::create_topic(&app.broker, "in-b", 3).await.unwrap();
    assert_eq!(instance.wait_for(InstanceState::is_final).await, InstanceState::Error);
    let error = instance.error().expect("it says why");
    let InstanceError::Topics(source) = &*error else { panic!("{error:?}") };
    assert!(matches!(**source, TopicsError::Plan(_)), "{source:?}");
    assert!(source.to_string().contains(CHANGELOG), "{source}");
}
