//! Exactly once: the output, as read by who reads what is committed, holds for each word the counts
//! 1, 2, 3 and so on, each once, whatever fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use headwater_broker::{
    Broker, BrokerError, Isolation, OffsetQuery, OffsetSpec, Offsets, TopicPartition,
    TransactionalOptions,
};
use headwater_embedded::{CallKind, Fault, FaultPlan, Target};
use headwater_runtime::{
    Instance, InstanceBuilder, InstanceState, ProcessingGuarantee, StartError, StateDirError,
    StreamsConfig, UncaughtReaction,
};

use super::harness::{
    APPLICATION, CHANGELOG, OnWord, PARTITIONS, REPARTITION, WordCount, World, close, number,
    running, stopped,
};

const ALWAYS: std::ops::Range<u64> = 0..u64::MAX;

fn config(world: &World) -> StreamsConfig {
    world.config().processing_guarantee(ProcessingGuarantee::ExactlyOnceV2)
}

fn builder(world: &World, application: WordCount) -> InstanceBuilder {
    world.builder(application).config(config(world))
}

/// Starts, also after a crash: what was dropped lets go of the state directory a moment later.
async fn start(world: &World) -> Instance {
    loop {
        match builder(world, WordCount::default()).start().await {
            Ok(instance) => return instance,
            Err(StartError::StateDir(StateDirError::Locked { .. })) => {
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// The committed counts of each word, in the order of the log.
pub(super) async fn committed_counts(world: &World) -> BTreeMap<String, Vec<i64>> {
    let mut counts: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (word, count) in world.read_as("counts", Isolation::ReadCommitted).await {
        counts.entry(word).or_default().push(number(&count.unwrap()));
    }
    counts
}

/// Waits until so many of each word are counted, and checks that each was once.
pub(super) async fn check_counts(world: &World, expected: &[(&str, i64)]) {
    let expected: BTreeMap<String, Vec<i64>> =
        expected.iter().map(|(word, count)| ((*word).to_owned(), (1..=*count).collect())).collect();
    let mut found = BTreeMap::new();
    for _ in 0..1200 {
        found = committed_counts(world).await;
        let length = |counts: &BTreeMap<String, Vec<i64>>| counts.values().map(Vec::len).sum();
        let (found, expected): (usize, usize) = (length(&found), length(&expected));
        if found >= expected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(found, expected);
}

/// Whether no transaction is open in any topic.
async fn is_quiet(world: &World) -> bool {
    for topic in [REPARTITION, CHANGELOG, "counts"] {
        for partition in 0..PARTITIONS {
            let topic_partition = TopicPartition::new(topic, partition);
            let query = [OffsetQuery { topic_partition, spec: OffsetSpec::Latest }];
            let end = async |isolation| {
                world.broker.list_offsets(&query, isolation).await.unwrap().remove(0)
            };
            if end(Isolation::ReadCommitted).await != end(Isolation::ReadUncommitted).await {
                return false;
            }
        }
    }
    true
}

#[tokio::test(start_paused = true)]
async fn words_are_counted_once_and_seen_when_they_are_committed() {
    let world = World::new().await;
    let instance = start(&world).await;
    running(&instance).await;
    for _ in 0..5 {
        world.write("a b a").await;
    }
    check_counts(&world, &[("a", 10), ("b", 5)]).await;
    close(instance).await;
    assert!(is_quiet(&world).await, "nothing is left open");
}

#[tokio::test(start_paused = true)]
async fn an_idle_instance_has_no_transaction_open() {
    let world = World::new().await;
    let config = config(&world).num_stream_threads(2).transaction_timeout_ms(3_600_000);
    let instance = world.builder(WordCount::default()).config(config).start().await.unwrap();
    running(&instance).await;
    assert!(is_quiet(&world).await, "nothing was done yet");
    world.write("a b a").await;
    check_counts(&world, &[("a", 2), ("b", 1)]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(is_quiet(&world).await, "all is done");
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn crashes_at_any_time_count_once() {
    let world = World::new().await;
    for round in 0..24_u32 {
        let instance = start(&world).await;
        world.write("a b c a").await;
        // From before the group is joined to well after the first commits.
        tokio::time::sleep(Duration::from_millis(u64::from(round) * 23)).await;
        drop(instance);
        if round % 3 == 0 {
            tokio::time::sleep(Duration::from_secs(4)).await;
        }
    }
    let instance = start(&world).await;
    running(&instance).await;
    check_counts(&world, &[("a", 48), ("b", 24), ("c", 24)]).await;
    close(instance).await;
}

/// Counts while calls go wrong, and ends them after a while. The plan is made for a transactional id.
async fn check_faults(delivery_timeout_ms: u64, plan: impl FnOnce(String) -> FaultPlan) {
    let world = World::new().await;
    let config = config(&world).delivery_timeout_ms(delivery_timeout_ms).task_timeout_ms(60_000);
    let instance = world.builder(WordCount::default()).config(config).start().await.unwrap();
    running(&instance).await;
    world.write("a b a").await;
    check_counts(&world, &[("a", 2), ("b", 1)]).await;
    let id = format!("{APPLICATION}-{}-1", instance.process_id());
    world.broker.set_faults(Some(plan(id)));
    for _ in 0..20 {
        world.write("a c").await;
        tokio::time::sleep(Duration::from_millis(130)).await;
    }
    tokio::time::sleep(Duration::from_secs(8)).await;
    world.broker.set_faults(None);
    check_counts(&world, &[("a", 22), ("b", 1), ("c", 20)]).await;
    assert_eq!(instance.state(), InstanceState::Running, "{:?}", instance.error());
    close(instance).await;
}

fn timed_out() -> BrokerError {
    BrokerError::TimedOut { call: "a call", limit: Duration::from_secs(1) }
}

#[tokio::test(start_paused = true)]
async fn lost_requests_and_answers_change_nothing() {
    for fault in [
        Fault::LoseAnswer { after: Duration::from_millis(300) },
        Fault::Fail(timed_out()),
        Fault::Delay(Duration::from_millis(700)),
    ] {
        let plan = |id: String| {
            let group = Target::from(APPLICATION);
            FaultPlan::new().fault(CallKind::EndTxn, id, 0..7, fault.clone()).fault(
                CallKind::TxnOffsetCommit,
                group,
                3..9,
                fault.clone(),
            )
        };
        check_faults(10_000, plan).await;
        // A new writer is wanted since a commit is not answered in time.
        let plan = |id: String| {
            FaultPlan::new()
                .fault(CallKind::EndTxn, id.clone(), 0..7, Fault::Fail(timed_out()))
                .fault(CallKind::InitProducerId, id, 0..5, fault.clone())
        };
        check_faults(300, plan).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_settled() {
    // Longer than commits are tried: some are carried out, some are not.
    let lost = Fault::LoseAnswer { after: Duration::from_millis(700) };
    let plan = |id| FaultPlan::new().fault(CallKind::EndTxn, id, ALWAYS, lost);
    check_faults(3_000, plan).await;
    let never = Fault::Fail(timed_out());
    let plan = |id| FaultPlan::new().fault(CallKind::EndTxn, id, ALWAYS, never);
    check_faults(3_000, plan).await;
}

#[tokio::test(start_paused = true)]
async fn late_markers_are_waited_for() {
    for at in ["counts-0", "counts-1", "count-counts-changelog-0", "count-counts-changelog-1"] {
        let late = Fault::Delay(Duration::from_secs(1));
        let plan = |_| FaultPlan::new().fault(CallKind::WriteTxnMarkers, at, 0..6, late);
        check_faults(10_000, plan).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_restore_sees_what_is_committed_behind_a_late_marker() {
    let world = World::new().await;
    for round in 1..=5 {
        let config = config(&world).task_timeout_ms(60_000);
        let instance = world.builder(WordCount::default()).config(config).start().await.unwrap();
        running(&instance).await;
        // The answer to a commit comes before the marker in the changelog.
        let late = Fault::Delay(Duration::from_secs(7));
        let plan = (0..PARTITIONS).fold(FaultPlan::new(), |plan, partition| {
            let at = format!("{CHANGELOG}-{partition}");
            plan.fault(CallKind::WriteTxnMarkers, at, 0..1, late.clone())
        });
        world.broker.set_faults(Some(plan));
        world.write("a b").await;
        check_counts(&world, &[("a", round), ("b", round)]).await;
        drop(instance);
        // The session ends, and the directory is let go of.
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_takes_its_output_back() {
    let world = World::new().await;
    let failures = Arc::new(AtomicU32::new(0));
    let on_word = {
        let failures = Arc::clone(&failures);
        OnWord(Arc::new(move |word| {
            // In the middle of what is not committed yet, three times.
            if word == "bad" && failures.fetch_add(1, Ordering::Relaxed) < 3 {
                return Err("not yet".into());
            }
            Ok(())
        }))
    };
    let config = config(&world).num_stream_threads(2);
    let instance = world
        .builder(WordCount { on_word: Some(on_word) })
        .config(config)
        .uncaught_exception_handler(|_| UncaughtReaction::ReplaceThread)
        .start()
        .await
        .unwrap();
    running(&instance).await;
    world.write("a b c a bad d a").await;
    world.write("a b c a d a").await;
    let expected = [("a", 6), ("b", 2), ("bad", 1), ("c", 2), ("d", 2)];
    check_counts(&world, &expected).await;
    assert!(failures.load(Ordering::Relaxed) > 3);
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn a_fenced_instance_gives_its_tasks_up_and_comes_back_with_its_state() {
    let world = World::new().await;
    let instance = start(&world).await;
    running(&instance).await;
    world.write("a b a").await;
    check_counts(&world, &[("a", 2), ("b", 1)]).await;
    world.restores.take();
    let options = TransactionalOptions {
        transactional_id: format!("{APPLICATION}-{}-1", instance.process_id()),
        transaction_timeout: Duration::from_secs(10),
        delivery_timeout: Duration::from_secs(10),
    };
    drop(world.broker.transactional_writer(options).await.unwrap());
    world.write("a c").await;
    check_counts(&world, &[("a", 3), ("b", 1), ("c", 1)]).await;
    running(&instance).await;
    let heard = world.restores.take();
    assert!(!heard.is_empty(), "its tasks have been given up");
    let mut reads = heard.iter().filter(|line| line.contains("read"));
    assert!(reads.all(|line| line.ends_with("read 0")), "its state was kept: {heard:?}");
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn who_takes_over_does_not_wait_for_a_time_out() {
    let world = World::new().await;
    let long = || config(&world).transaction_timeout_ms(3_600_000).commit_interval_ms(2_000);
    let other = tempfile::tempdir().unwrap();
    let first = world.builder(WordCount::default()).config(long()).start().await.unwrap();
    running(&first).await;
    let second = world
        .builder(WordCount::default())
        .config(long().state_dir(other.path()))
        .start()
        .await
        .unwrap();
    running(&second).await;
    running(&first).await;
    for _ in 0..10 {
        world.write("a b c d e f").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // With a transaction open.
    assert!(!is_quiet(&world).await);
    drop(first);
    world.write("a b c d e f").await;
    let began = tokio::time::Instant::now();
    let expected: Vec<(&str, i64)> =
        ["a", "b", "c", "d", "e", "f"].iter().map(|word| (*word, 11)).collect();
    check_counts(&world, &expected).await;
    assert!(began.elapsed() < Duration::from_secs(15), "it took {:?}", began.elapsed());
    close(second).await;
}

#[tokio::test(start_paused = true)]
async fn instances_that_come_and_go_count_once() {
    let world = World::new().await;
    let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut instances: Vec<Option<Instance>> = vec![None, None, None];
    let mut lines = 0;
    for round in 0..18_usize {
        let place = round % 3;
        match instances[place].take() {
            Some(instance) if round % 2 == 0 => drop(instance),
            Some(instance) => close(instance).await,
            None => {}
        }
        if round % 4 != 3 {
            let config = config(&world).state_dir(directories[place].path());
            instances[place] = loop {
                let builder = world.builder(WordCount::default()).config(config.clone());
                match builder.start().await {
                    Ok(instance) => break Some(instance),
                    Err(StartError::StateDir(StateDirError::Locked { .. })) => {
                        tokio::task::yield_now().await;
                    }
                    Err(error) => panic!("{error}"),
                }
            };
        }
        for _ in 0..5 {
            world.write("a b c a").await;
            lines += 1;
            tokio::time::sleep(Duration::from_millis(211)).await;
        }
    }
    instances[0].take();
    let last = start(&world).await;
    check_counts(&world, &[("a", 2 * lines), ("b", lines), ("c", lines)]).await;
    for instance in instances.into_iter().flatten() {
        close(instance).await;
    }
    close(last).await;
}

#[tokio::test(start_paused = true)]
async fn a_thread_that_cannot_write_ends_the_instance_with_nothing_half_done() {
    let world = World::new().await;
    let instance = start(&world).await;
    running(&instance).await;
    world.write("a b a").await;
    check_counts(&world, &[("a", 2), ("b", 1)]).await;
    let error = BrokerError::NotAuthorised { operation: "write".into(), resource: "topic".into() };
    let plan = FaultPlan::new()
        .fault(CallKind::Produce, "counts-0", ALWAYS, Fault::Fail(error.clone()))
        .fault(CallKind::Produce, "counts-1", ALWAYS, Fault::Fail(error));
    world.broker.set_faults(Some(plan));
    world.write("a c").await;
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    world.broker.set_faults(None);
    assert!(is_quiet(&world).await, "nothing is left open");
    let instance = start(&world).await;
    check_counts(&world, &[("a", 3), ("b", 1), ("c", 1)]).await;
    close(instance).await;
}
