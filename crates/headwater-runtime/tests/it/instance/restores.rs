use std::time::Duration;

use headwater_broker::{DeleteRecords, NewTopic, OffsetSpec, TopicPartition, Topics};
use headwater_store::MemoryBackend;

use super::harness::{CHANGELOG, REPARTITION, WordCount, World, close, running};

/// A world in which `a`, `b` and `c` were counted and the instance was closed.
pub(super) async fn counted() -> World {
    let world = World::new().await;
    let instance = world.start().await;
    running(&instance).await;
    world.write("a b a c c c").await;
    world.wait_for_counts(&[("a", 2), ("b", 1), ("c", 3)]).await;
    close(instance).await;
    world.restores.take();
    world
}

/// Counts on and says what the restores read.
pub(super) async fn goes_on(world: &World, expected: &[(&str, i64)]) -> Vec<String> {
    let instance = world.start().await;
    running(&instance).await;
    world.write("a b c").await;
    world.wait_for_counts(expected).await;
    close(instance).await;
    world.restores.take()
}

pub(super) fn records_read(heard: &[String]) -> u64 {
    heard
        .iter()
        .filter_map(|line| line.split_once("read "))
        .map(|(_, n)| n.parse::<u64>().unwrap())
        .sum()
}

#[tokio::test(start_paused = true)]
async fn lost_state_comes_back_from_the_changelog() {
    let mut world = counted().await;
    world.backend = MemoryBackend::durable();
    let heard = goes_on(&world, &[("a", 3), ("b", 2), ("c", 4)]).await;
    assert_eq!(records_read(&heard), 6, "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn kept_state_reads_nothing() {
    let world = counted().await;
    let heard = goes_on(&world, &[("a", 3), ("b", 2), ("c", 4)]).await;
    assert_eq!(records_read(&heard), 0, "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_changelog_that_was_made_anew_rebuilds_the_state() {
    let world = counted().await;
    let name = CHANGELOG.into();
    let configs = world.broker.topic_configs(&name).await.unwrap();
    world.broker.delete_topic(&name).await.unwrap();
    let topic = NewTopic { name, partitions: 2, replication_factor: None, configs };
    world.broker.create_topic(&topic).await.unwrap();
    // What was counted is gone with the log: every copy of the state is what the log says.
    let heard = goes_on(&world, &[("a", 1), ("b", 1), ("c", 1)]).await;
    assert_eq!(records_read(&heard), 0, "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_prefix_rebuilds_only_what_lies_behind_it() {
    let world = counted().await;
    // The position of each store is the end of its log: nothing is behind.
    for partition in 0..2 {
        let topic_partition = TopicPartition::new(CHANGELOG, partition);
        let end = world.offset(&topic_partition, OffsetSpec::Latest).await;
        let request = DeleteRecords { topic_partition, before_offset: end };
        world.broker.delete_records(&[request]).await.unwrap();
    }
    let heard = goes_on(&world, &[("a", 3), ("b", 2), ("c", 4)]).await;
    assert_eq!(records_read(&heard), 0, "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn state_older_than_the_tombstones_does_not_resurrect_deleted_keys() {
    let world = counted().await;
    // The key goes, and after a day its tombstone too.
    for partition in 0..2 {
        world.write_to(CHANGELOG, partition, &[(Some(b"a"), None)]).await;
    }
    tokio::time::sleep(Duration::from_hours(25)).await;
    for partition in 0..2 {
        let topic_partition = TopicPartition::new(CHANGELOG, partition);
        let end = world.offset(&topic_partition, OffsetSpec::Latest).await;
        // As compaction would: only the newest records of other keys are left.
        assert!(end > 0);
    }
    let heard = goes_on(&world, &[("a", 1), ("b", 2), ("c", 4)]).await;
    assert_eq!(records_read(&heard), 8, "rebuilt from the beginning: {heard:?}");
}

#[tokio::test(start_paused = true)]
async fn state_that_was_idle_for_long_is_complete_when_it_is_closed() {
    let world = World::new().await;
    let config = world.config().topic("delete.retention.ms", "60000");
    let instance = world.builder(WordCount::default()).config(config).start().await.unwrap();
    running(&instance).await;
    world.write("a b a c c c").await;
    world.wait_for_counts(&[("a", 2), ("b", 1), ("c", 3)]).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    close(instance).await;
    world.restores.take();
    let heard = goes_on(&world, &[("a", 3), ("b", 2), ("c", 4)]).await;
    assert_eq!(records_read(&heard), 0, "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn state_that_was_idle_for_long_is_complete_after_a_crash() {
    let world = World::new().await;
    let config = world.config().topic("delete.retention.ms", "60000");
    let instance = world.builder(WordCount::default()).config(config).start().await.unwrap();
    running(&instance).await;
    world.write("a b a c c c").await;
    world.wait_for_counts(&[("a", 2), ("b", 1), ("c", 3)]).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    drop(instance);
    tokio::time::sleep(Duration::from_secs(4)).await;
    world.restores.take();
    let heard = goes_on(&world, &[("a", 3), ("b", 2), ("c", 4)]).await;
    assert_eq!(records_read(&heard), 0, "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn an_input_that_lost_its_committed_offset_begins_where_the_policy_says() {
    let world = counted().await;
    // Somebody deletes input that was never processed.
    world.write("lost lost").await;
    world.write("found").await;
    let topic_partition = TopicPartition::new("lines", 0);
    let end = world.offset(&topic_partition, OffsetSpec::Latest).await;
    let request = DeleteRecords { topic_partition, before_offset: end - 1 };
    world.broker.delete_records(&[request]).await.unwrap();
    let heard = goes_on(&world, &[("a", 3), ("b", 2), ("c", 4), ("found", 1)]).await;
    assert_eq!(records_read(&heard), 0, "{heard:?}");
    assert_eq!(world.committed("lines").await[0], Some(end + 1));
    assert!(world.committed(REPARTITION).await[0].is_some());
}
