//! What of a restore waits in memory, and for how long.

use headwater_broker::FetchPartition;

use super::*;
use crate::Stretch;

/// Large enough that the answer to a fetch of several changelogs has one batch of each.
const LARGE_VALUE_BYTES: usize = 600_000;

/// Two stretches of a changelog, as a restore reads them.
async fn stretches() -> [Stretch; 2] {
    let mut logs = Logs::default();
    for (partition, value) in [(0, "1"), (1, "2")] {
        logs.edit(partition, |log| {
            log.skip(i64::from(partition)).append(&[("a", Some(value))]);
        });
    }
    let asked = |partition: i32| FetchPartition {
        topic_partition: topic_partition(partition),
        topic_id: None,
        offset: i64::from(partition),
        max_bytes: 1000,
    };
    let request = FetchRequest {
        partitions: vec![asked(0), asked(1)],
        max_wait: Duration::ZERO,
        max_bytes: 1000,
        isolation: Isolation::ReadUncommitted,
    };
    let answer = logs.fetch(&request).await.unwrap();
    let mut stretches = answer.into_iter().zip(0..).map(|(part, from_offset)| Stretch {
        changelog: 0,
        batches: part.outcome.unwrap().batches,
        aborted: Vec::new(),
        from_offset,
        next_offset: from_offset + 1,
        leader_epoch: Some(0),
        at_end_ms: None,
    });
    [stretches.next().unwrap(), stretches.next().unwrap()]
}

/// The position and the value of `a` that are stored.
fn stored(step: StoreStep) -> (i64, Option<String>) {
    let (storages, stores) = step.into_parts();
    let mut value = Vec::new();
    let found = storages[0].reader().get(stores[0].space, b"a", &mut value).unwrap();
    let value = found.then(|| String::from_utf8(value[8..].to_vec()).unwrap());
    (stores[0].position.next_offset, value)
}

#[tokio::test(start_paused = true)]
async fn records_are_gathered_while_there_is_memory_and_written_at_the_end() {
    let check = async |memory_bytes, end, finish: bool, expected: (i64, Option<&str>), used| {
        let [first, mut second] = stretches().await;
        second.at_end_ms = end;
        let memory = RestoreMemory::new(memory_bytes);
        let mut step = new_step(0, 0, &memory);
        step.apply(&[first]).unwrap();
        step.apply(&[second]).unwrap();
        if finish {
            step.finish(true).unwrap();
        }
        assert_eq!(memory.used(), used, "{memory_bytes} {end:?} {finish}");
        let (position, value) = stored(step);
        assert_eq!((position, value.as_deref()), expected, "{memory_bytes} {end:?} {finish}");
        assert_eq!(memory.used(), 0, "who is gone needs no memory");
    };
    // The space of two bytes, the key, the timestamped value, the entry.
    let entry = 2 + 1 + 8 + 1 + headwater_store::ENTRY_OVERHEAD_BYTES;
    check(entry, None, false, (0, None), entry).await;
    check(entry - 1, None, false, (2, Some("2")), 0).await;
    check(entry, Some(7), false, (2, Some("2")), 0).await;
    check(entry, None, true, (2, Some("2")), 0).await;
}

/// Restores partitions 0 and 1, which have much to read, and 2, which has little, and tells what
/// was heard of their records.
async fn order(last_stable: Option<i64>) -> Vec<String> {
    let logs = Logs::default();
    let value = "v".repeat(LARGE_VALUE_BYTES);
    for (partition, offsets) in [(0, 200_000), (1, 200_000), (2, 10)] {
        logs.edit(partition, |log| {
            log.skip(offsets).append(&[("a", Some(&value))]).append(&[("b", Some(&value))]);
        });
    }
    logs.edit(0, |log| log.last_stable = last_stable);
    let mut restore = Restore::start(logs, Isolation::ReadCommitted);
    restore.memory = RestoreMemory::new(1 << 30);
    restore.add(0, 0, 200_002);
    restore.add(1, 0, 200_002);
    restore.add(2, 0, 12);
    let ends = if last_stable.is_some() { 2 } else { 3 };
    for _ in 0..ends {
        assert!(matches!(restore.end().await.outcome, Ok(true)));
    }
    let heard = restore.heard();
    heard.lines().filter(|line| line.contains("records,")).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn those_with_much_to_read_take_turns() {
    let all = order(None).await;
    let expected = [
        "counts 0: 1 records, 1 to go",
        "counts 2: 1 records, 1 to go",
        "counts 0: 1 records, 0 to go",
        "counts 2: 1 records, 0 to go",
        "counts 1: 1 records, 1 to go",
        "counts 1: 1 records, 0 to go",
    ];
    assert_eq!(all, expected);
    // Nobody waits for one that is stuck behind an open transaction.
    assert_eq!(order(Some(0)).await.iter().filter(|line| line.starts_with("counts 1")).count(), 2);
}
