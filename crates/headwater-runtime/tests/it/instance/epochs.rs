//! Changelogs whose leader changes, with and without loss.

use std::time::Duration;

use headwater_broker::{OffsetSpec, TopicPartition};

use super::harness::{CHANGELOG, PARTITIONS, World, close, running};
use super::restores::{counted, goes_on, records_read};

fn changelogs() -> impl Iterator<Item = TopicPartition> {
    (0..PARTITIONS).map(|partition| TopicPartition::new(CHANGELOG, partition))
}

/// Every changelog loses its records, and has others in their place.
async fn other_records(world: &World) {
    for at in changelogs() {
        let end = world.offset(&at, OffsetSpec::Latest).await;
        world.broker.change_leader(&at, 0).unwrap();
        while world.offset(&at, OffsetSpec::Latest).await <= end {
            let nothing = 0_i64.to_be_bytes();
            world.write_to(CHANGELOG, at.partition, &[(Some(b"other"), Some(&nothing))]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_changelog_that_was_truncated_and_has_grown_rebuilds_the_state() {
    let world = counted().await;
    other_records(&world).await;
    // What was counted is gone with the log: every copy of the state is what the log says.
    let heard = goes_on(&world, &[("a", 1), ("b", 1), ("c", 1)]).await;
    assert!(heard.iter().any(|line| line.contains(" from 0 ")), "{heard:?}");
    assert!(records_read(&heard) > 0, "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_a_truncation_rebuilds_the_state_too() {
    let world = World::new().await;
    let instance = world.start().await;
    running(&instance).await;
    world.write("a b a c c c").await;
    world.wait_for_counts(&[("a", 2), ("b", 1), ("c", 3)]).await;
    world.wait_for_the_end().await;
    drop(instance);
    tokio::time::sleep(Duration::from_secs(4)).await;
    other_records(&world).await;
    world.restores.take();
    let heard = goes_on(&world, &[("a", 1), ("b", 1), ("c", 1)]).await;
    assert!(records_read(&heard) > 0, "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_has_everything_costs_nothing() {
    let world = counted().await;
    for at in changelogs() {
        world.broker.change_leader(&at, i64::MAX).unwrap();
    }
    let instance = world.start().await;
    running(&instance).await;
    assert_eq!(records_read(&world.restores.take()), 0);
    world.write("a b c").await;
    world.wait_for_counts(&[("a", 3), ("b", 2), ("c", 4)]).await;
    for at in changelogs() {
        world.broker.change_leader(&at, i64::MAX).unwrap();
    }
    // The instance hears of the new epoch with a commit after a while.
    for total in 5..9 {
        tokio::time::sleep(Duration::from_secs(6)).await;
        world.write("c").await;
        world.wait_for_counts(&[("a", 3), ("b", 2), ("c", total)]).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(instance);
    tokio::time::sleep(Duration::from_secs(4)).await;
    world.restores.take();
    let heard = goes_on(&world, &[("a", 4), ("b", 3), ("c", 9)]).await;
    assert_eq!(records_read(&heard), 0, "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_loss_while_the_task_runs_restores_it_from_what_is_left() {
    let world = World::new().await;
    let instance = world.start().await;
    running(&instance).await;
    world.write("a b a c c c").await;
    world.wait_for_counts(&[("a", 2), ("b", 1), ("c", 3)]).await;
    world.wait_for_the_end().await;
    for at in changelogs() {
        world.broker.change_leader(&at, 0).unwrap();
    }
    // The broker knows nothing of what came before, so it does not take what follows on it.
    world.write("a b c").await;
    let fallen = world.wait_until(|counts| counts["a"] < 3 && counts["c"] < 3).await;
    assert!(fallen["a"] < 3 && fallen["c"] < 3, "{fallen:?}");
    world.wait_for_the_end().await;
    running(&instance).await;
    // The line may have been split twice, under at-least-once.
    let counts = world.counts().await;
    assert!(counts["a"] == counts["c"] && counts["b"] == counts["a"], "{counts:?}");
    close(instance).await;
}
