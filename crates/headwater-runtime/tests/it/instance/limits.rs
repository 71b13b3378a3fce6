//! Offsets that have fallen off their log, and errors that last longer than they may.

use std::time::Duration;

use headwater_broker::{BrokerError, DeleteRecords, OffsetSpec, TopicPartition, Topics};
use headwater_embedded::{CallKind, Fault, FaultPlan, Target};
use headwater_runtime::{Instance, InstanceError, InstanceState, OffsetReset, StreamsConfig};

use super::errors::chain;
use super::harness::{PARTITIONS, REPARTITION, WordCount, World, close, running, stopped};

fn lines() -> TopicPartition {
    TopicPartition::new("lines", 0)
}

async fn start(world: &World, settings: impl FnOnce(StreamsConfig) -> StreamsConfig) -> Instance {
    let config = settings(world.config());
    world.builder(WordCount::default()).config(config).start().await.unwrap()
}

/// A world in which `a` was counted; then came `old` and, an hour later, `new`, and the instance
/// was not there. The records up to `old` are deleted, so the committed offset is off the log.
async fn behind() -> World {
    let world = World::new().await;
    let instance = world.start().await;
    running(&instance).await;
    world.write("a").await;
    // No words, but an offset to commit.
    world.write_to("lines", 1, &[(None, Some(b""))]).await;
    world.wait_for_counts(&[("a", 1)]).await;
    world.wait_for_the_end().await;
    close(instance).await;
    for word in ["lost", "old", "new"] {
        world.write(word).await;
        tokio::time::sleep(Duration::from_hours(1)).await;
    }
    let before_offset = world.offset(&lines(), OffsetSpec::Earliest).await + 2;
    let request = DeleteRecords { topic_partition: lines(), before_offset };
    world.broker.delete_records(&[request]).await.unwrap();
    world
}

#[tokio::test(start_paused = true)]
async fn an_offset_off_the_log_is_reset_by_age() {
    let world = behind().await;
    let policy = OffsetReset::ByDuration { ms: 90 * 60 * 1000 };
    let instance = start(&world, |config| config.auto_offset_reset(policy)).await;
    world.wait_for_counts(&[("a", 1), ("new", 1)]).await;
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn an_offset_off_the_log_is_reset_to_the_earliest() {
    let world = behind().await;
    let instance = start(&world, |config| config.auto_offset_reset(OffsetReset::Earliest)).await;
    world.wait_for_counts(&[("a", 1), ("old", 1), ("new", 1)]).await;
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn an_offset_off_the_log_is_reset_to_the_latest() {
    let world = behind().await;
    let instance = start(&world, |config| config.auto_offset_reset(OffsetReset::Latest)).await;
    running(&instance).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.write("newest").await;
    world.wait_for_counts(&[("a", 1), ("newest", 1)]).await;
    close(instance).await;
}

/// An instance under which `lines` is made anew, with fewer records than it has processed.
async fn made_anew(policy: OffsetReset) -> (World, Instance) {
    let world = World::new().await;
    let instance = start(&world, |config| config.auto_offset_reset(policy)).await;
    running(&instance).await;
    for word in ["a", "a", "a"] {
        world.write(word).await;
    }
    world.wait_for_counts(&[("a", 3)]).await;
    world.wait_for_the_end().await;
    // Nothing is read until it is all there.
    let error = BrokerError::TimedOut { call: "it", limit: Duration::ZERO };
    let plan = FaultPlan::new();
    let plan = plan.fault(CallKind::Fetch, "lines-0", 0..u64::MAX, Fault::Fail(error));
    world.broker.set_faults(Some(plan));
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.broker.delete_topic(&"lines".into()).await.unwrap();
    world.create("lines", PARTITIONS, &[]).await;
    for word in ["b", "c"] {
        world.write(word).await;
    }
    world.broker.set_faults(None);
    (world, instance)
}

#[tokio::test(start_paused = true)]
async fn an_offset_beyond_the_log_is_reset_to_the_earliest() {
    let (world, instance) = made_anew(OffsetReset::Earliest).await;
    world.wait_for_counts(&[("a", 3), ("b", 1), ("c", 1)]).await;
    world.wait_for_the_end().await;
    assert_eq!(world.committed("lines").await[0], Some(2));
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn an_offset_beyond_the_log_is_reset_to_the_latest() {
    let (world, instance) = made_anew(OffsetReset::Latest).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.write("d").await;
    world.wait_for_counts(&[("a", 3), ("d", 1)]).await;
    world.wait_for_the_end().await;
    assert_eq!(world.committed("lines").await[0], Some(3));
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn an_offset_off_the_log_without_a_policy_is_an_error() {
    let world = behind().await;
    let instance = start(&world, |config| config.auto_offset_reset(OffsetReset::None)).await;
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    let error = instance.error().unwrap();
    let InstanceError::NoOffset { topic_partition } = &*error else { panic!("{error}") };
    assert_eq!(*topic_partition, lines());
    assert_eq!(world.counts().await.len(), 1, "nothing was processed");
}

#[tokio::test(start_paused = true)]
async fn repartition_topics_begin_with_their_first_record_whatever_the_policy() {
    for policy in [OffsetReset::Latest, OffsetReset::ByDuration { ms: 1 }] {
        let world = World::new().await;
        let latest = |config: StreamsConfig| config.auto_offset_reset(policy);
        let instance = start(&world, latest).await;
        close(instance).await;
        // The line was committed by the task before, and then everything stopped.
        world.write_to(REPARTITION, 0, &[(Some(b"a"), Some(b""))]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let instance = start(&world, latest).await;
        world.wait_for_counts(&[("a", 1)]).await;
        close(instance).await;
    }
}

/// How long it takes until the instance stops when calls of this kind fail from now on, and why.
async fn stops_after(world: &World, instance: &Instance, kind: CallKind) -> (Duration, String) {
    let error = BrokerError::TimedOut { call: "it", limit: Duration::from_millis(7) };
    let plan = FaultPlan::new().fault(kind, Target::Any, 0..u64::MAX, Fault::Fail(error));
    world.broker.set_faults(Some(plan));
    world.write("b").await;
    let began = tokio::time::Instant::now();
    assert_eq!(stopped(instance).await, InstanceState::Error);
    (began.elapsed(), chain(&*instance.error().unwrap()))
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_given_up_after_the_time_limit() {
    let world = World::new().await;
    let instance = start(&world, |config| config.task_timeout_ms(7000)).await;
    running(&instance).await;
    let (after, why) = stops_after(&world, &instance, CallKind::CommitOffsets).await;
    assert!(after >= Duration::from_secs(7) && after < Duration::from_secs(9), "{after:?}");
    assert_eq!(why, "stream thread 1 cannot commit offsets: no answer to it within 7 ms");
}

#[tokio::test(start_paused = true)]
async fn without_a_time_limit_the_first_failure_counts() {
    let world = World::new().await;
    let instance = start(&world, |config| config.task_timeout_ms(0)).await;
    running(&instance).await;
    let (after, why) = stops_after(&world, &instance, CallKind::CommitOffsets).await;
    assert!(after < Duration::from_secs(1), "{after:?}");
    assert_eq!(why, "stream thread 1 cannot commit offsets: no answer to it within 7 ms");
}

#[tokio::test(start_paused = true)]
async fn opening_a_task_is_given_up_after_the_time_limit() {
    let world = World::new().await;
    for (kind, what) in [
        (CallKind::CommittedOffsets, "read its committed offsets"),
        (CallKind::ListOffsets, "find where its input begins"),
    ] {
        let error = BrokerError::TimedOut { call: "it", limit: Duration::from_millis(7) };
        let plan = FaultPlan::new().fault(kind, Target::Any, 0..u64::MAX, Fault::Fail(error));
        world.broker.set_faults(Some(plan));
        let began = tokio::time::Instant::now();
        let instance = start(&world, |config| config.task_timeout_ms(7000)).await;
        assert_eq!(stopped(&instance).await, InstanceState::Error);
        let after = began.elapsed();
        assert!(after >= Duration::from_secs(7) && after < Duration::from_secs(9), "{after:?}");
        let why = chain(&*instance.error().unwrap());
        assert!(why.ends_with(&format!("cannot {what}: no answer to it within 7 ms")), "{why}");
        world.broker.set_faults(None);
        drop(instance);
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_restore_is_given_up_after_the_time_limit() {
    let mut world = World::new().await;
    let instance = world.start().await;
    running(&instance).await;
    world.write("a").await;
    world.wait_for_counts(&[("a", 1)]).await;
    close(instance).await;
    world.backend = headwater_store::MemoryBackend::durable();
    let error = BrokerError::TimedOut { call: "fetch", limit: Duration::from_millis(7) };
    let plan =
        FaultPlan::new().fault(CallKind::Fetch, Target::Any, 0..u64::MAX, Fault::Fail(error));
    world.broker.set_faults(Some(plan));
    let began = tokio::time::Instant::now();
    let instance = start(&world, |config| config.task_timeout_ms(7000)).await;
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    let after = began.elapsed();
    assert!(after >= Duration::from_secs(7) && after < Duration::from_secs(9), "{after:?}");
    let why = chain(&*instance.error().unwrap());
    assert!(why.starts_with("the state of task 1_0 cannot be restored"), "{why}");
}
