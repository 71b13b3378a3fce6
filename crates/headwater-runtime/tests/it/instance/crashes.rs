use std::time::Duration;

use headwater_broker::BrokerError;
use headwater_embedded::{CallKind, Fault, FaultPlan, Target};
use headwater_runtime::{Instance, InstanceState, UncaughtReaction};

use super::harness::{
    CHANGELOG, PARTITIONS, REPARTITION, WordCount, World, close, running, stopped,
};

/// Gives the broker time to notice that a member is gone.
async fn session_ends() {
    tokio::time::sleep(Duration::from_secs(4)).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_costs_the_tail_only() {
    let world = World::new().await;
    let instance = world.start().await;
    running(&instance).await;
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    // Beyond the next commit.
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(instance);
    session_ends().await;
    world.restores.take();

    let instance = world.start().await;
    running(&instance).await;
    let heard = world.restores.take();
    assert!(heard.iter().any(|line| !line.contains(" from 0")), "{heard:?}");
    assert!(heard.iter().filter(|line| line.contains("read")).all(|line| line.ends_with("read 0")));
    world.write("a").await;
    world.wait_for_counts(&[("a", 3), ("b", 1)]).await;
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_not_committed_is_done_again_on_top_of_the_changelog() {
    let world = World::new().await;
    let config = world.config().commit_interval_ms(3_600_000);
    let instance = world.builder(WordCount::default()).config(config).start().await.unwrap();
    running(&instance).await;
    world.write("a b").await;
    world.wait_for_counts(&[("a", 1), ("b", 1)]).await;
    drop(instance);
    session_ends().await;

    let instance = world.start().await;
    running(&instance).await;
    // Under at-least-once the lines are split again, and counted on top of what was logged.
    world.wait_for_counts(&[("a", 3), ("b", 3)]).await;
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn crashes_at_any_time_lose_nothing() {
    let world = World::new().await;
    for round in 0..12 {
        let instance = world.start_again().await;
        world.write("a b c a").await;
        // From before the group is joined to well after the first commits.
        tokio::time::sleep(Duration::from_millis(round * 37)).await;
        drop(instance);
        if round % 3 == 0 {
            session_ends().await;
        }
    }
    let instance = world.start_again().await;
    running(&instance).await;
    world.write("end").await;
    let counts = world.wait_until(|counts| counts.contains_key("end")).await;
    assert!(counts["a"] >= 24 && counts["b"] >= 12 && counts["c"] >= 12, "{counts:?}");
    close(instance).await;
}

/// The first writes to each partition of the repartition topic fail.
fn output_fails(which: std::ops::Range<u64>, error: &BrokerError) -> FaultPlan {
    (0..PARTITIONS).fold(FaultPlan::new(), |plan, partition| {
        let target = format!("{REPARTITION}-{partition}");
        plan.fault(CallKind::Produce, target, which.clone(), Fault::Fail(error.clone()))
    })
}

/// Runs a word count while calls fail, and says what it came to.
async fn count_with_faults(world: &World, plan: FaultPlan) -> Instance {
    let instance = world.start().await;
    running(&instance).await;
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    // Beyond the next commit.
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.broker.set_faults(Some(plan));
    world.write("a c").await;
    world.wait_until(|counts| counts.contains_key("c")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    instance
}

#[tokio::test(start_paused = true)]
async fn failed_calls_that_pass_are_tried_again() {
    let world = World::new().await;
    let lost = || Fault::LoseAnswer { after: Duration::from_millis(100) };
    let plan = FaultPlan::new()
        .fault(CallKind::CommitOffsets, Target::Any, 0..2, lost())
        .fault(CallKind::Produce, "counts-0", 0..2, lost())
        .fault(CallKind::Produce, "counts-1", 0..2, lost())
        .fault(CallKind::Fetch, Target::Any, 0..3, Fault::Delay(Duration::from_millis(200)));
    let instance = count_with_faults(&world, plan).await;
    running(&instance).await;
    world.wait_for_counts(&[("a", 3), ("b", 1), ("c", 1)]).await;
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_out_of_order_is_replaced_and_the_tasks_begin_anew() {
    let world = World::new().await;
    let error = BrokerError::OutOfOrderSequence {
        topic_partition: headwater_broker::TopicPartition::new("x", 0),
        producer_id: 1,
        sequence: 2,
        expected: Some(1),
    };
    let instance = count_with_faults(&world, output_fails(0..1, &error)).await;
    running(&instance).await;
    let counts = world.counts().await;
    assert!(counts["a"] >= 3 && counts["b"] == 1 && counts["c"] >= 1, "{counts:?}");
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn errors_that_do_not_pass_end_the_instance() {
    let world = World::new().await;
    let error = BrokerError::NotAuthorised { operation: "write".into(), resource: "topic".into() };
    let instance = count_with_faults(&world, output_fails(0..99, &error)).await;
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    let error = instance.error().expect("it says why");
    assert_eq!(error.to_string(), "stream thread 1 cannot write output");
}

#[tokio::test(start_paused = true)]
async fn a_replaced_thread_goes_on_after_a_failed_commit() {
    let world = World::new().await;
    let instance = world
        .builder(WordCount::default())
        .uncaught_exception_handler(|_| UncaughtReaction::ReplaceThread)
        .start()
        .await
        .unwrap();
    running(&instance).await;
    let error = BrokerError::NotAuthorised { operation: "write".into(), resource: "topic".into() };
    world.broker.set_faults(Some(output_fails(0..1, &error)));
    world.write("a").await;
    let counts = world.wait_until(|counts| counts.contains_key("a")).await;
    assert!(counts["a"] >= 1, "{counts:?}");
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_zombie_wrote_is_read_and_applied() {
    let world = World::new().await;
    let instance = world.start().await;
    running(&instance).await;
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Whoever it is: the log says 40 now, and every later restore would.
    for partition in 0..2 {
        let forty = 40_i64.to_be_bytes();
        world.write_to(CHANGELOG, partition, &[(Some(b"a"), Some(&forty))]).await;
    }
    world.write("b x y z").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    running(&instance).await;
    world.write("a").await;
    let counts = world.wait_until(|counts| counts["a"] == 41).await;
    assert_eq!(counts["a"], 41);
    close(instance).await;
}
