//! Retention, compaction, and when a broker does them by itself.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use expect_test::{Expect, expect};
use headwater_broker::TopicPartition;
use headwater_embedded::{Embedded, EmbeddedOptions, Maintained};
use headwater_records::Compression;

use crate::tools::{batch, clocked, create, delete_before, fetch, log_text, write};

/// Each step in words: `12 a=1 b=` writes one batch of these records at time 12 of their own (no
/// value: a tombstone), `roll` begins a segment, `at N` sets the wall clock to N and lets the
/// broker maintain its logs, `delete N` deletes records before N.
async fn run(
    broker: &Embedded,
    configs: &[(&str, &str)],
    script: &str,
    compression: Compression,
) -> String {
    create(broker, "t", 1, configs).await;
    steps(broker, script, compression).await
}

async fn steps(broker: &Embedded, script: &str, compression: Compression) -> String {
    let at = TopicPartition::new("t", 0);
    let mut text = String::new();
    for step in script.lines().map(str::trim).filter(|step| !step.is_empty()) {
        let (word, rest) = step.split_once(' ').unwrap_or((step, ""));
        match word {
            "at" => {
                let done = broker
                    .maintain(rest.parse().expect("the script has numbers"))
                    .expect("the test has what it needs");
                let Maintained { segments_deleted, segments_compacted, records_removed, .. } = done;
                let log = log_text(broker, &at).await;
                let done = format!("{segments_deleted} deleted, {segments_compacted} compacted");
                writeln!(text, "{step}: {done}, {records_removed} records out: {log}")
                    .expect("text grows");
            }
            "delete" => {
                let before = rest.parse().expect("the script has numbers");
                delete_before(broker, &at, before).await;
            }
            timestamp => {
                let timestamp = timestamp.parse().expect("the script has numbers");
                let records: Vec<_> = rest
                    .split(' ')
                    .map(|record| record.split_once('=').expect("a record has a key"))
                    .map(|(key, value)| (timestamp, key, value))
                    .collect();
                for result in write(broker, &at, [batch(compression, &records)]).await {
                    result.expect("the batch is acknowledged");
                }
            }
        }
    }
    text
}

/// Runs the script in memory and in a directory, which must agree, also after a restart.
async fn check(configs: &[(&str, &str)], script: &str, expected: &Expect) {
    // One batch a segment, so that the script decides what is sealed.
    let segments = [("segment.bytes", "14"), ("min.cleanable.dirty.ratio", "0.01")];
    let configs: Vec<_> = segments.iter().chain(configs).copied().collect();
    let (options, _clock) = clocked();
    let in_memory = Embedded::in_memory_with(options.clone());
    let text = run(&in_memory, &configs, script, Compression::None).await;
    expected.assert_eq(&text);
    for compression in [Compression::None, Compression::Zstd] {
        let directory = tempfile::tempdir().expect("a temporary directory is to be had");
        let broker =
            Embedded::open(directory.path(), options.clone()).expect("the directory can be opened");
        assert_eq!(run(&broker, &configs, script, compression).await, text, "{compression}");
        let at = TopicPartition::new("t", 0);
        let before = log_text(&broker, &at).await;
        drop(broker);
        let broker =
            Embedded::open(directory.path(), options.clone()).expect("the directory can be opened");
        assert_eq!(log_text(&broker, &at).await, before, "after a restart, {compression}");
    }
}

#[tokio::test(start_paused = true)]
async fn retention_by_time_and_size() {
    check(
        &[("retention.ms", "100")],
        "10 a=1
         20 b=2
         500 c=3
         at 110
         at 111
         at 600
         at 601",
        &expect![[r"
            at 110: 0 deleted, 0 compacted, 0 records out: 0..3 0:a=1 1:b=2 2:c=3
            at 111: 1 deleted, 0 compacted, 0 records out: 1..3 1:b=2 2:c=3
            at 600: 1 deleted, 0 compacted, 0 records out: 2..3 2:c=3
            at 601: 1 deleted, 0 compacted, 0 records out: 3..3
        "]],
    )
    .await;
    check(
        &[("retention.ms", "-1"), ("retention.bytes", "1")],
        "10 a=1
         20 b=2
         30 c=3
         at 1000000000000",
        &expect![[r"
            at 1000000000000: 2 deleted, 0 compacted, 0 records out: 2..3 2:c=3
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_last_value_of_each_key_stays() {
    check(
        &[("cleanup.policy", "compact")],
        "1 a=1 b=1 c=1
         2 a=2
         3 b=2 d=1
         4 a=3
         at 10
         5 c=2
         6 e=1
         at 20
         at 30",
        &expect![[r"
            at 10: 0 deleted, 3 compacted, 2 records out: 0..7 2:c=1 3:a=2 4:b=2 5:d=1 6:a=3
            at 20: 0 deleted, 4 compacted, 2 records out: 0..9 4:b=2 5:d=1 6:a=3 7:c=2 8:e=1
            at 30: 0 deleted, 0 compacted, 0 records out: 0..9 4:b=2 5:d=1 6:a=3 7:c=2 8:e=1
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn tombstones_stay_for_their_time() {
    check(
        &[("cleanup.policy", "compact"), ("delete.retention.ms", "100")],
        "1 a=1 b=1
         2 a=
         3 x=1
         at 1000
         at 1099
         at 1100",
        &expect![[r"
            at 1000: 0 deleted, 2 compacted, 1 records out: 0..4 1:b=1 2:a=- 3:x=1
            at 1099: 0 deleted, 0 compacted, 0 records out: 0..4 1:b=1 2:a=- 3:x=1
            at 1100: 0 deleted, 1 compacted, 1 records out: 0..4 1:b=1 3:x=1
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn young_records_are_not_compacted() {
    check(
        &[("cleanup.policy", "compact"), ("min.compaction.lag.ms", "100")],
        "1 a=1
         50 a=2
         60 a=3
         at 120
         at 150",
        &expect![[r"
            at 120: 0 deleted, 1 compacted, 0 records out: 0..3 0:a=1 1:a=2 2:a=3
            at 150: 0 deleted, 2 compacted, 1 records out: 0..3 1:a=2 2:a=3
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn both_policies_and_deleted_records_go_together() {
    check(
        &[("cleanup.policy", "compact,delete"), ("retention.ms", "100")],
        "1 a=1 b=1
         2 c=1
         90 a=2
         91 d=1
         delete 2
         at 50
         at 150",
        &expect![[r"
            at 50: 0 deleted, 2 compacted, 0 records out: 2..5 2:c=1 3:a=2 4:d=1
            at 150: 1 deleted, 0 compacted, 0 records out: 3..5 3:a=2 4:d=1
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_log_never_ends_in_a_hole() {
    check(
        &[("cleanup.policy", "compact"), ("segment.ms", "5"), ("delete.retention.ms", "10")],
        "1 a=1
         1 a=
         at 100
         at 1000
         2 b=1
         at 2000
         at 2010",
        &expect![[r"
            at 100: 0 deleted, 1 compacted, 0 records out: 0..2 0:a=1 1:a=-
            at 1000: 0 deleted, 0 compacted, 0 records out: 0..2 0:a=1 1:a=-
            at 2000: 0 deleted, 2 compacted, 1 records out: 0..3 1:a=- 2:b=1
            at 2010: 0 deleted, 1 compacted, 1 records out: 0..3 2:b=1
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn records_without_time_are_as_old_as_their_segment() {
    check(
        &[("retention.ms", "100")],
        "-1 a=1
         at 100
         at 101",
        &expect![[r"
            at 100: 0 deleted, 0 compacted, 0 records out: 0..1 0:a=1
            at 101: 1 deleted, 0 compacted, 0 records out: 1..1
        "]],
    )
    .await;
}

/// Two batches fit into a segment, and compaction leaves one of them in most.
const MERGING: &str = "1 a=1
    1 b=1
    2 c=1
    2 a=2
    3 d=1
    3 c=2
    4 x=1
    at 10
    5 y=1
    6 z=1
    at 20";

#[tokio::test(start_paused = true)]
async fn shrunken_segments_are_put_together() {
    check(
        &[("cleanup.policy", "compact"), ("segment.bytes", "200")],
        MERGING,
        &expect![[r"
            at 10: 0 deleted, 3 compacted, 2 records out: 0..7 1:b=1 3:a=2 4:d=1 5:c=2 6:x=1
            at 20: 0 deleted, 3 compacted, 0 records out: 0..9 1:b=1 3:a=2 4:d=1 5:c=2 6:x=1 7:y=1 8:z=1
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_putting_segments_together_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (options, _clock) = clocked();
    let at = TopicPartition::new("t", 0);
    let broker = Embedded::open(directory.path(), options.clone()).unwrap();
    let configs = [
        ("cleanup.policy", "compact"),
        ("segment.bytes", "200"),
        ("min.cleanable.dirty.ratio", "0.01"),
    ];
    let (before, after) = MERGING.split_once("    5 y=1").unwrap();
    run(&broker, &configs, before, Compression::None).await;
    let part = find(directory.path(), "00000000000000000002.clean.log").unwrap();
    let bytes = fs::read(&part).unwrap();
    steps(&broker, &format!("5 y=1{after}"), Compression::None).await;
    let merged = log_text(&broker, &at).await;
    assert!(!part.exists(), "it was put together with the one before it");
    drop(broker);
    fs::write(&part, bytes).unwrap();
    let broker = Embedded::open(directory.path(), options).unwrap();
    assert_eq!(log_text(&broker, &at).await, merged);
    assert!(!part.exists());
}

/// The file of that name somewhere below.
fn find(directory: &Path, name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory can be read");
    entries.map(|entry| entry.expect("the directory can be read").path()).find_map(|path| {
        if path.is_dir() { find(&path, name) } else { path.ends_with(name).then_some(path) }
    })
}

#[tokio::test(start_paused = true)]
async fn a_crash_in_the_middle_of_compaction_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (options, _clock) = clocked();
    let options = options.segment_bytes(14);
    let at = TopicPartition::new("t", 0);
    let broker = Embedded::open(directory.path(), options.clone()).unwrap();
    let topic = create(&broker, "t", 1, &[("cleanup.policy", "compact")]).await;
    for number in 0..4 {
        let value = number.to_string();
        let batch = batch(Compression::None, &[(0, "k", &value), (0, &value, "once")]);
        write(&broker, &at, [batch]).await[0].as_ref().unwrap();
    }
    drop(broker);
    let logs = directory.path().join("topics/t").join(topic.id.to_string()).join("0");
    let names = || {
        let mut names: Vec<_> = fs::read_dir(&logs).unwrap().map(|e| e.unwrap().path()).collect();
        names.sort();
        names
    };
    let before: Vec<_> = names().into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
    let broker = Embedded::open(directory.path(), options.clone()).unwrap();
    broker.maintain(0).unwrap();
    let compacted = log_text(&broker, &at).await;
    drop(broker);
    let after = names();
    assert!(after[0].to_str().unwrap().ends_with("00000.clean.log"), "{after:?}");
    // Some old segments are still there, and a new one is half written.
    for (bytes, path) in &before[..2] {
        fs::write(path, bytes).unwrap();
    }
    fs::write(logs.join("00000000000000000004.new"), "half").unwrap();
    let broker = Embedded::open(directory.path(), options).unwrap();
    assert_eq!(log_text(&broker, &at).await, compacted);
    assert_eq!(names(), after, "what was left over is gone");
}

#[tokio::test(start_paused = true)]
async fn an_old_segment_is_rolled_and_the_broker_maintains_itself() {
    let (options, clock) = clocked();
    let interval = Duration::from_secs(15);
    let broker = Embedded::in_memory_with(options.maintenance_interval(Some(interval)));
    let configs = [("retention.ms", "1000"), ("segment.ms", "500")];
    create(&broker, "t", 1, &configs).await;
    let at = TopicPartition::new("t", 0);
    write(&broker, &at, [batch(Compression::None, &[(0, "a", "old")])]).await;
    clock.set(600);
    tokio::time::sleep(interval + Duration::from_millis(1)).await;
    write(&broker, &at, [batch(Compression::None, &[(600, "a", "young")])]).await;
    assert_eq!(log_text(&broker, &at).await, "0..2 0:a=old 1:a=young");
    clock.set(1001);
    tokio::time::sleep(interval).await;
    assert_eq!(log_text(&broker, &at).await, "1..2 1:a=young");
}

#[tokio::test(start_paused = true)]
async fn a_reader_may_ask_for_an_offset_that_was_compacted_away() {
    let (options, _clock) = clocked();
    let broker = Embedded::in_memory_with(options.segment_bytes(14));
    create(&broker, "t", 1, &[("cleanup.policy", "compact")]).await;
    let at = TopicPartition::new("t", 0);
    let batches = (0..5).map(|_| batch(Compression::None, &[(0, "k", "v")]));
    write(&broker, &at, batches).await;
    broker.maintain(0).unwrap();
    assert_eq!(log_text(&broker, &at).await, "0..5 3:k=v 4:k=v");
    let data = fetch(&broker, &at, 1).await.unwrap();
    assert!(!data.batches.is_empty());
}

#[test]
fn a_broker_without_a_runtime_can_be_maintained() {
    let broker = Embedded::in_memory_with(EmbeddedOptions::new());
    assert_eq!(broker.maintain(0).unwrap(), Maintained::default());
}
