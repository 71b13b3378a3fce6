//! Topics that are deleted, made anew or changed under a running instance.

use std::time::Duration;

use headwater_broker::Topics;
use headwater_runtime::{Instance, InstanceState};

use super::errors::chain;
use super::harness::{
    CHANGELOG, PARTITIONS, REPARTITION, WordCount, World, close, running, stopped,
};

/// How often the topics are looked at.
const LOOK_MS: u64 = 10_000;
/// How long a topic that is missing is waited for.
const MISSING_MS: u64 = 60_000;

const COMMIT_INTERVAL: Duration = Duration::from_millis(100);

async fn start(world: &World) -> Instance {
    start_with(world, (LOOK_MS, MISSING_MS)).await
}

async fn start_with(world: &World, (look_ms, missing_ms): (u64, u64)) -> Instance {
    let config = world.config().metadata_max_age_ms(look_ms).default_api_timeout_ms(missing_ms);
    let instance = world.builder(WordCount::default()).config(config).start().await.unwrap();
    running(&instance).await;
    world.write("a b").await;
    world.wait_for_counts(&[("a", 1), ("b", 1)]).await;
    // A commit of offsets of a topic that is gone would be refused.
    tokio::time::sleep(10 * COMMIT_INTERVAL).await;
    instance
}

async fn make_anew(world: &World, topic: &str, partitions: i32) {
    let configs = world.broker.topic_configs(&topic.into()).await.unwrap();
    let policy = ("cleanup.policy", configs["cleanup.policy"].as_str());
    world.broker.delete_topic(&topic.into()).await.unwrap();
    world.create(topic, partitions, &[policy]).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_was_made_anew_is_read_from_its_beginning() {
    let world = World::new().await;
    let instance = start(&world).await;
    make_anew(&world, "lines", PARTITIONS).await;
    // As many as would be passed over if the old offset counted, and more.
    for line in ["a", "c", "d"] {
        world.write(line).await;
    }
    world.wait_for_counts(&[("a", 2), ("b", 1), ("c", 1), ("d", 1)]).await;
    close(instance).await;
}

/// What is said last of a source that is gone, when topics are looked at so often, and one that is missing is
/// waited for for so long.
async fn check_gone(times: (u64, u64), expected: &str) {
    let world = World::new().await;
    let instance = start_with(&world, times).await;
    world.broker.delete_topic(&"lines".into()).await.unwrap();
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    let error = chain(&*instance.error().expect("it says why"));
    assert!(error.ends_with(expected), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_does_not_come_back_ends_the_instance() {
    // By a look at the topics, or when it has been waited for for long enough.
    check_gone(
        (LOOK_MS, MISSING_MS),
        "source topics do not exist any more: lines; create them and start the application again",
    )
    .await;
    check_gone(
        (MISSING_MS, LOOK_MS),
        "cannot read its input: topic lines does not exist on this broker",
    )
    .await;
}

/// What ends an instance when topics have become so.
async fn check(change: impl AsyncFnOnce(&World), expected: &str) {
    let world = World::new().await;
    let instance = start(&world).await;
    change(&world).await;
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    let error = instance.error().expect("it says why");
    assert_eq!(chain(&*error), format!("the topics do not fit the topology any more: {expected}"));
}

#[tokio::test(start_paused = true)]
async fn topics_that_do_not_fit_any_more_end_the_instance() {
    check(
        async |world| world.broker.delete_topic(&CHANGELOG.into()).await.unwrap(),
        "count-counts-changelog was deleted while the application runs, and what it held is lost: reset the application to process its sources again, or start it again to go on without",
    )
    .await;
    check(
        async |world| make_anew(world, CHANGELOG, PARTITIONS).await,
        "count-counts-changelog was deleted and created again while the application runs, and what it held is lost: reset the application to process its sources again, or start it again to go on without",
    )
    .await;
    check(
        async |world| make_anew(world, REPARTITION, PARTITIONS).await,
        "count-words-repartition was deleted and created again while the application runs, and what it held is lost: reset the application to process its sources again, or start it again to go on without",
    )
    .await;
    check(
        async |world| make_anew(world, "lines", 3).await,
        "internal topic count-words-repartition exists with 2 partitions but needs 3; reset the application, or restore the number of partitions of its source topics",
    )
    .await;
}
