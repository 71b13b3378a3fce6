//! Transactions where things go wrong: late markers, lost answers, a broker that ends in between,
//! compaction.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use expect_test::{Expect, expect};
use headwater_broker::{
    BrokerError, Isolation, NextStep, ProduceBatch, TopicPartition, TransactionalWriter,
};
use headwater_embedded::{CallKind, Embedded, Fault, FaultPlan, Target};
use headwater_records::Compression;

use crate::tools::{batch, clocked, create, fetch_isolated, log_text, quiet, send, transactional};

const ALWAYS: std::ops::Range<u64> = 0..u64::MAX;
const LIMIT: Duration = Duration::from_secs(5);

async fn open(broker: &Embedded, id: &str) -> Box<dyn TransactionalWriter> {
    transactional(broker, id, LIMIT).await.expect("a writer is to be had")
}

async fn put(writer: &mut dyn TransactionalWriter, at: &TopicPartition, value: &str) {
    send(&mut *writer, at, value).await.expect("the batch is acknowledged");
}

/// Last stable offset and end.
async fn ends(broker: &Embedded, at: &TopicPartition) -> (i64, i64) {
    let data = fetch_isolated(broker, at, 0, Isolation::ReadCommitted).await;
    let data = data.expect("the log can be read");
    (data.last_stable_offset, data.high_watermark)
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_answered_before_its_markers() {
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "t", 2, &[]).await;
    let [first, second] = [0, 1].map(|number| TopicPartition::new("t", number));
    let late = Fault::Delay(Duration::from_secs(3));
    let plan = FaultPlan::new().fault(CallKind::WriteTxnMarkers, "t-1", 0..1, late);
    broker.set_faults(Some(plan));
    let mut writer = open(&broker, "id").await;
    put(&mut *writer, &first, "a").await;
    put(&mut *writer, &second, "b").await;
    let began = tokio::time::Instant::now();
    writer.commit().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(ends(&broker, &first).await, (2, 2));
    assert_eq!(ends(&broker, &second).await, (0, 1));
    // The next transaction begins when this one is complete.
    put(&mut *writer, &first, "c").await;
    assert!(began.elapsed() >= Duration::from_secs(3));
    assert_eq!(ends(&broker, &second).await, (2, 2));
    writer.abort().await.unwrap();
    assert_eq!(log_text(&broker, &first).await, "0..4 0:key=a 1:(Commit) 2:key=c 3:(Abort)");
}

#[tokio::test(start_paused = true)]
async fn a_newer_writer_waits_for_what_is_decided() {
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "t", 1, &[]).await;
    let at = TopicPartition::new("t", 0);
    let late = Fault::Delay(Duration::from_secs(3));
    broker.set_faults(Some(FaultPlan::new().fault(
        CallKind::WriteTxnMarkers,
        Target::Any,
        0..1,
        late,
    )));
    let mut writer = open(&broker, "id").await;
    put(&mut *writer, &at, "a").await;
    writer.commit().await.unwrap();
    assert_eq!(ends(&broker, &at).await, (0, 1));
    open(&broker, "id").await;
    assert_eq!(ends(&broker, &at).await, (2, 2));
    assert_eq!(log_text(&broker, &at).await, "0..2 0:key=a 1:(Commit)");
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_is_lost_is_asked_for_again() {
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "t", 1, &[]).await;
    let at = TopicPartition::new("t", 0);
    let lost = Fault::LoseAnswer { after: Duration::from_secs(1) };
    broker.set_faults(Some(FaultPlan::new().fault(CallKind::EndTxn, "id", 0..2, lost)));
    let mut writer = open(&broker, "id").await;
    put(&mut *writer, &at, "a").await;
    writer.commit().await.unwrap();
    put(&mut *writer, &at, "b").await;
    writer.commit().await.unwrap();
    let expected = "0..4 0:key=a 1:(Commit) 2:key=b 3:(Commit)";
    assert_eq!(log_text(&broker, &at).await, expected);
}

/// The outcome of a commit is not known: a new writer settles it, and the log says how.
async fn check_unknown(fault: Fault, expected: &str) {
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "t", 1, &[]).await;
    let at = TopicPartition::new("t", 0);
    let mut writer = open(&broker, "id").await;
    put(&mut *writer, &at, "a").await;
    broker.set_faults(Some(FaultPlan::new().fault(CallKind::EndTxn, "id", ALWAYS, fault)));
    let error = writer.commit().await.unwrap_err();
    assert!(matches!(error, BrokerError::TimedOut { .. }), "{error}");
    let error = writer.commit().await.unwrap_err();
    assert_eq!(error.next_step(), NextStep::Abort, "nothing more can be said of it: {error}");
    broker.set_faults(None);
    let mut newer = open(&broker, "id").await;
    let error = writer.abort().await.unwrap_err();
    assert_eq!(error.next_step(), NextStep::Fenced, "{error}");
    put(&mut *newer, &at, "b").await;
    newer.commit().await.unwrap();
    assert_eq!(log_text(&broker, &at).await, expected);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_settled_by_a_new_writer() {
    let lost = || BrokerError::TimedOut { call: "end-txn", limit: Duration::from_secs(1) };
    check_unknown(Fault::Fail(lost()), "0..4 0:key=a 1:(Abort) 2:key=b 3:(Commit)").await;
    let answer = Fault::LoseAnswer { after: Duration::from_secs(1) };
    check_unknown(answer, "0..4 0:key=a 1:(Commit) 2:key=b 3:(Commit)").await;
}

#[tokio::test(start_paused = true)]
async fn a_marker_that_does_not_fit_on_the_disk_is_written_later() {
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "t", 1, &[]).await;
    let at = TopicPartition::new("t", 0);
    let mut writer = open(&broker, "id").await;
    put(&mut *writer, &at, "a").await;
    broker.set_faults(Some(FaultPlan::new().disk_full("t-0", 0..3, 5)));
    writer.commit().await.unwrap();
    assert_eq!(ends(&broker, &at).await, (0, 1));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(log_text(&broker, &at).await, "0..2 0:key=a 1:(Commit)");
}

#[tokio::test(start_paused = true)]
async fn a_transaction_is_gone_with_its_topic() {
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "t", 1, &[]).await;
    create(&broker, "u", 1, &[]).await;
    let [gone, stays] = ["t", "u"].map(|topic| TopicPartition::new(topic, 0));
    let mut writer = open(&broker, "id").await;
    put(&mut *writer, &gone, "a").await;
    put(&mut *writer, &stays, "b").await;
    headwater_broker::Topics::delete_topic(&broker, &"t".into()).await.unwrap();
    writer.commit().await.unwrap();
    put(&mut *writer, &stays, "c").await;
    writer.commit().await.unwrap();
    assert_eq!(ends(&broker, &stays).await, (4, 4));
}

#[tokio::test(start_paused = true)]
async fn producer_ids_are_changed_before_their_epochs_end() {
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "t", 1, &[]).await;
    let at = TopicPartition::new("t", 0);
    let mut writer = open(&broker, "id").await;
    for _ in 0..=i16::MAX {
        drop(send(&mut *writer, &at, "a"));
        writer.commit().await.unwrap();
    }
    let transactions = i64::from(i16::MAX) + 1;
    assert_eq!(ends(&broker, &at).await, (2 * transactions, 2 * transactions));
}

/// What a broker that is closed in the middle of `during` has in its log when it is opened again.
async fn check_reopened(
    directory: &Path,
    during: impl AsyncFnOnce(&Embedded, &mut dyn TransactionalWriter, &TopicPartition),
    expected: &Expect,
) {
    let at = TopicPartition::new("t", 0);
    {
        let broker = Embedded::open(directory, quiet().segment_bytes(300)).unwrap();
        create(&broker, "t", 1, &[]).await;
        let mut writer = open(&broker, "id").await;
        put(&mut *writer, &at, "before").await;
        writer.commit().await.unwrap();
        during(&broker, &mut *writer, &at).await;
    }
    for _ in 0..2 {
        let broker = Embedded::open(directory, quiet().segment_bytes(300)).unwrap();
        let (stable, end) = ends(&broker, &at).await;
        assert_eq!(stable, end, "nothing is open any more");
        expected.assert_eq(&log_text(&broker, &at).await);
    }
    let broker = Embedded::open(directory, quiet().segment_bytes(300)).unwrap();
    let mut writer = open(&broker, "id").await;
    put(&mut *writer, &at, "after").await;
    writer.commit().await.unwrap();
    let (stable, end) = ends(&broker, &at).await;
    assert_eq!(stable, end);
}

#[tokio::test(start_paused = true)]
async fn what_was_open_is_aborted_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    check_reopened(
        directory.path(),
        async |_, writer, at| {
            for value in ["a", "b", "c"] {
                put(&mut *writer, at, value).await;
            }
        },
        &expect!["0..6 0:key=before 1:(Commit) 2:key=a 3:key=b 4:key=c 5:(Abort)"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_was_decided_is_completed_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    check_reopened(
        directory.path(),
        async |broker, writer, at| {
            for value in ["a", "b", "c"] {
                put(&mut *writer, at, value).await;
            }
            let never = Fault::Delay(Duration::from_hours(1));
            let plan =
                FaultPlan::new().fault(CallKind::WriteTxnMarkers, Target::Any, ALWAYS, never);
            broker.set_faults(Some(plan));
            writer.commit().await.unwrap();
        },
        &expect!["0..6 0:key=before 1:(Commit) 2:key=a 3:key=b 4:key=c 5:(Commit)"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_is_not_written_is_none() {
    let directory = tempfile::tempdir().unwrap();
    check_reopened(
        directory.path(),
        async |broker, writer, at| {
            put(&mut *writer, at, "a").await;
            broker.set_faults(Some(FaultPlan::new().disk_full("journal", 0..1, 20)));
            let error = writer.commit().await.unwrap_err();
            assert!(matches!(error, BrokerError::Storage { .. }), "{error}");
        },
        &expect!["0..4 0:key=before 1:(Commit) 2:key=a 3:(Abort)"],
    )
    .await;
}

/// Compaction of `script`: `w key=value` is a record of a transaction, `commit` and `abort` end it,
/// `at N` compacts as of then.
async fn check_compaction(script: &str, expected: &Expect) {
    let (options, _clock) = clocked();
    let broker = Embedded::in_memory_with(options);
    let configs = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0"),
        ("delete.retention.ms", "100"),
        ("segment.bytes", "14"),
    ];
    create(&broker, "t", 1, &configs).await;
    let at = TopicPartition::new("t", 0);
    let mut writer = open(&broker, "id").await;
    let mut text = String::new();
    for step in script.split(", ") {
        match step.split_once(' ').unwrap_or((step, "")) {
            ("commit", _) => writer.commit().await.expect("it can be committed"),
            ("abort", _) => writer.abort().await.expect("it can be aborted"),
            ("at", now_ms) => {
                broker.maintain(now_ms.parse().expect("a number")).expect("it can be maintained");
                writeln!(text, "{step}: {}", log_text(&broker, &at).await).unwrap();
            }
            (_, record) => {
                let (key, value) = record.split_once('=').expect("a record has a key");
                let batch = batch(Compression::None, &[(0, key, value)]);
                let sent = writer.send(ProduceBatch { topic_partition: at.clone(), batch });
                sent.await.expect("the batch is acknowledged");
            }
        }
    }
    expected.assert_eq(&text);
}

#[tokio::test(start_paused = true)]
async fn compaction_takes_aborted_records_out_and_then_their_markers() {
    check_compaction(
        "w a=1, commit, w a=2, w b=1, abort, w c=1, commit, at 0, at 100, w a=3, commit, w d=1, \
         commit, at 200, at 300",
        &expect![[r"
            at 0: 0..7 0:a=1 1:(Commit) 4:(Abort) 5:c=1 6:(Commit)
            at 100: 0..7 0:a=1 1:(Commit) 5:c=1 6:(Commit)
            at 200: 0..11 1:(Commit) 5:c=1 6:(Commit) 7:a=3 8:(Commit) 9:d=1 10:(Commit)
            at 300: 0..11 5:c=1 6:(Commit) 7:a=3 8:(Commit) 9:d=1 10:(Commit)
        "]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn compaction_stops_at_an_open_transaction() {
    check_compaction(
        "w a=1, commit, w a=2, commit, w b=1, w b=2, w b=3, at 0, commit, at 1",
        &expect![[r"
            at 0: 0..7 1:(Commit) 2:a=2 3:(Commit) 4:b=1 5:b=2 6:b=3
            at 1: 0..8 1:(Commit) 2:a=2 3:(Commit) 6:b=3 7:(Commit)
        "]],
    )
    .await;
}
