mod gathering;
mod stopping;

use std::fmt::Write;
use std::path::Path;
use std::sync::Mutex;

use expect_test::{Expect, expect};
use headwater_broker::{AbortedTransaction, SystemClock};
use headwater_records::ControlKind;
use headwater_store::{
    ChangelogPosition, Chunk, Direction, KeyRange, Layout, MemoryBackend, OpenOptions, StoreBackend,
};

use super::*;
use crate::test_logs::{Log, Logs, topic_partition};
use crate::{ChangelogStore, InlineBlocking, RestoreMemory, StoreStep};

const TOPIC_ID: [u8; 16] = [1; 16];
const BEGAN_MS: i64 = 5;
/// How long tombstones are kept in these logs.
const RETENTION_MS: i64 = 300_000;

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl RestoreListener for Heard {
    fn on_restore_start(&self, changelog: &TopicPartition, store: &str, start: i64, end: i64) {
        self.note(format!("{store} {} starts: {start} to {end}", changelog.partition));
    }
    fn on_batch_restored(&self, changelog: &TopicPartition, store: &str, records: u64, left: u64) {
        self.note(format!("{store} {}: {records} records, {left} to go", changelog.partition));
    }
    fn on_restore_end(&self, changelog: &TopicPartition, store: &str, total: u64) {
        self.note(format!("{store} {} ends: {total} records", changelog.partition));
    }
    fn on_restore_suspended(&self, changelog: &TopicPartition, store: &str, total: u64) {
        self.note(format!("{store} {} stops: {total} records", changelog.partition));
    }
}

type Targets = mpsc::UnboundedSender<RestoreCommand<i32, StoreStep>>;
type Ends = mpsc::UnboundedReceiver<RestoreEnd<i32, StoreStep>>;

/// A restore loop over some logs.
struct Restore {
    logs: Logs,
    heard: Arc<Heard>,
    commands: Targets,
    ends: Ends,
    /// What the broker says of the ends of the logs.
    end_epoch: Option<i32>,
    memory: RestoreMemory,
}

impl Restore {
    fn start(logs: Logs, isolation: Isolation) -> Self {
        let (commands, told) = mpsc::unbounded_channel();
        let (ended, ends) = mpsc::unbounded_channel();
        let heard = Arc::new(Heard::default());
        let options = RestoreOptions {
            isolation,
            fetch_bytes: 1 << 20,
            pending_bytes: 1 << 20,
            give_up_after: Duration::from_secs(1),
            clock: Arc::new(TestClock(tokio::time::Instant::now())),
            blocking: Arc::new(InlineBlocking),
            listener: Arc::clone(&heard) as _,
        };
        tokio::spawn(restore(Box::new(logs.clone()), told, ended, options));
        let memory = RestoreMemory::new(1 << 20);
        Self { logs, heard, commands, ends, end_epoch: None, memory }
    }

    fn add(&self, partition: i32, start_offset: i64, end_offset: i64) {
        let changelog = RestorePartition {
            topic_partition: topic_partition(partition),
            store: "counts".into(),
            start_offset,
            leader_epoch: None,
            tombstone_retention_ms: Some(RETENTION_MS),
            at_end_ms: Some(BEGAN_MS),
            end_offset,
            end_epoch: self.end_epoch,
        };
        let step = new_step(partition, start_offset, &self.memory);
        let target = RestoreTarget { id: partition, changelogs: vec![changelog], step };
        self.commands.send(RestoreCommand::Add(target)).unwrap();
    }

    async fn end(&mut self) -> RestoreEnd<i32, StoreStep> {
        self.ends.recv().await.unwrap()
    }

    fn heard(&self) -> String {
        self.heard.0.lock().unwrap().drain(..).map(|line| line + "\n").collect()
    }
}

/// A step for the store of a partition, which is at `start_offset`.
fn new_step(partition: i32, start_offset: i64, memory: &RestoreMemory) -> StoreStep {
    let mut storage = MemoryBackend::new().open(Path::new("0_0"), &OpenOptions::default()).unwrap();
    let space = storage.space("counts").unwrap();
    let position = ChangelogPosition {
        topic_id: TOPIC_ID,
        next_offset: start_offset,
        leader_epoch: None,
        at_end_ms: Some(BEGAN_MS),
    };
    let store = ChangelogStore {
        name: "store".to_owned(),
        topic_partition: topic_partition(partition),
        storage: 0,
        space,
        layout: Layout::TimestampedKeyValue,
        position,
    };
    StoreStep::new(vec![storage], vec![store], memory)
}

/// Tokio's time as a clock: paused in these tests.
#[derive(Debug)]
struct TestClock(tokio::time::Instant);

impl Clock for TestClock {
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
    fn wall_ms(&self) -> i64 {
        1000 + i64::try_from(self.0.elapsed().as_millis()).unwrap()
    }
}

/// The outcome, the position and the entries of a target.
fn describe(end: RestoreEnd<i32, StoreStep>) -> String {
    let RestoreEnd { id, step, outcome } = end;
    let outcome = match outcome {
        Ok(true) => "restored".to_owned(),
        Ok(false) => "stopped".to_owned(),
        Err(error) => error.to_string(),
    };
    let mut text = format!("{id} {outcome}\n");
    if let Some(step) = step {
        let (mut storages, stores) = step.into_parts();
        let storage = storages.remove(0);
        let topic = topic_partition(id).topic;
        let stored =
            ChangelogPosition::load(&*storage, Path::new("0_0"), topic.as_str(), id).unwrap();
        for store in stores {
            if let Some(stored) = stored {
                assert_eq!(stored, store.position, "the store knows its position");
            }
            let ChangelogPosition { next_offset, leader_epoch, at_end_ms, .. } = store.position;
            writeln!(
                text,
                "at {next_offset}, epoch {leader_epoch:?}, complete at {at_end_ms:?}, stored {}",
                stored.is_some()
            )
            .unwrap();
            let mut chunk = Chunk::new(100);
            let all = KeyRange::all();
            storage.reader().scan(store.space, &all, Direction::Forward, &mut chunk).unwrap();
            for (key, value) in chunk.iter() {
                let (timestamp, value) = value.split_first_chunk().unwrap();
                let text_of = String::from_utf8_lossy;
                let timestamp = i64::from_be_bytes(*timestamp);
                writeln!(text, "  {} = {} @{timestamp}", text_of(key), text_of(value)).unwrap();
            }
        }
    }
    text
}

/// Restores partition 0 from its first offset to its end.
async fn check(build: impl FnOnce(&mut Log), expected: &Expect) {
    let logs = Logs::default();
    let (start, end) = logs.edit(0, |log| {
        build(log);
        (log.start, log.end)
    });
    let mut restore = Restore::start(logs, Isolation::ReadCommitted);
    restore.add(0, start, end);
    let end = restore.end().await;
    expected.assert_eq(&(describe(end) + &restore.heard()));
}

#[tokio::test(start_paused = true)]
async fn the_last_record_of_a_key_counts() {
    check(
        |log| {
            log.append(&[("a", Some("1")), ("b", Some("2")), ("a", Some("3"))]);
            log.append(&[("b", None), ("c", Some("")), ("", Some("no key"))]);
        },
        &expect![[r#"
            0 restored
            at 6, epoch Some(0), complete at Some(1000), stored true
              a = 3 @2
              c =  @4
            counts 0 starts: 0 to 6
            counts 0: 5 records, 0 to go
            counts 0 ends: 5 records
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_log_ends_at_once() {
    check(
        |_| {},
        &expect![[r#"
        0 restored
        at 0, epoch None, complete at Some(1000), stored true
        counts 0 starts: 0 to 0
        counts 0 ends: 0 records
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_single_record() {
    check(
        |log| {
            log.append(&[("a", Some("1"))]);
        },
        &expect![[r#"
    0 restored
    at 1, epoch Some(0), complete at Some(1000), stored true
      a = 1 @0
    counts 0 starts: 0 to 1
    counts 0: 1 records, 0 to go
    counts 0 ends: 1 records
"#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_compacted_tail_ends() {
    check(
        |log| {
            log.append(&[("a", Some("1"))]).skip(5);
        },
        &expect![[r#"
            0 restored
            at 6, epoch Some(0), complete at Some(1000), stored true
              a = 1 @0
            counts 0 starts: 0 to 6
            counts 0: 1 records, 5 to go
            counts 0 ends: 1 records
        "#]],
    )
    .await;
    check(
        |log| {
            log.skip(5);
        },
        &expect![[r#"
            0 restored
            at 5, epoch None, complete at Some(1000), stored true
            counts 0 starts: 0 to 5
            counts 0 ends: 0 records
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_prefix() {
    check(
        |log| {
            log.append(&[("a", Some("1"))]).append(&[("b", Some("2")), ("c", Some("3"))]);
            log.delete_before(2);
        },
        &expect![[r#"
            0 restored
            at 3, epoch Some(0), complete at Some(1000), stored true
              c = 3 @2
            counts 0 starts: 2 to 3
            counts 0: 1 records, 0 to go
            counts 0 ends: 1 records
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn at_the_end_the_position_has_the_epoch_that_knows_all_of_it() {
    let logs = Logs::default();
    logs.edit(0, |log| log.append(&[("a", Some("1"))]).skip(5).end);
    logs.edit(1, |log| log.skip(2).end);
    logs.edit(2, |log| {
        log.epoch = 9;
        log.append(&[("b", Some("2"))]).end
    });
    let mut restore = Restore::start(logs, Isolation::ReadUncommitted);
    restore.end_epoch = Some(7);
    let mut text = String::new();
    for (partition, end) in [(0, 6), (1, 2), (2, 1)] {
        restore.add(partition, 0, end);
        text += &describe(restore.end().await);
    }
    restore.add(1, 2, 2);
    text += &describe(restore.end().await);
    expect![[r#"
        0 restored
        at 6, epoch Some(7), complete at Some(1000), stored true
          a = 1 @0
        1 restored
        at 2, epoch Some(7), complete at Some(1000), stored true
        2 restored
        at 1, epoch Some(9), complete at Some(1000), stored true
          b = 2 @0
        1 restored
        at 2, epoch Some(7), complete at Some(1000), stored true
    "#]]
    .assert_eq(&text);
}

#[tokio::test(start_paused = true)]
async fn transactions() {
    check(
        |log| {
            log.append_as(1, true, &[("a", Some("1"))]).append_as(2, true, &[("b", Some("2"))]);
            log.marker(ControlKind::Commit, 1).marker(ControlKind::Abort, 2);
            log.aborted.push(AbortedTransaction { producer_id: 2, first_offset: 1 });
        },
        &expect![[r#"
            0 restored
            at 4, epoch Some(0), complete at Some(1000), stored true
              a = 1 @0
            counts 0 starts: 0 to 4
            counts 0: 1 records, 0 to go
            counts 0 ends: 1 records
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_open_transaction_is_waited_for() {
    let logs = Logs::default();
    logs.edit(0, |log| {
        log.append_as(1, true, &[("a", Some("1"))]);
        log.last_stable = Some(0);
    });
    let mut restore = Restore::start(logs, Isolation::ReadCommitted);
    restore.add(0, 0, 1);
    let waited = tokio::time::timeout(Duration::from_secs(5), restore.end()).await;
    assert!(waited.is_err(), "the end is behind an open transaction");
    restore.logs.edit(0, |log| {
        log.marker(ControlKind::Commit, 1);
        log.last_stable = None;
    });
    let text = describe(restore.end().await);
    expect![[r#"
        0 restored
        at 1, epoch Some(0), complete at Some(6000), stored true
          a = 1 @0
    "#]]
    .assert_eq(&text);
}

#[tokio::test(start_paused = true)]
async fn records_beyond_the_limit_stay_unread() {
    let logs = Logs::default();
    logs.edit(0, |log| {
        log.append(&[("a", Some("1")), ("b", Some("2")), ("c", Some("3"))]);
    });
    let mut restore = Restore::start(logs, Isolation::ReadUncommitted);
    restore.add(0, 1, Limit::Committed(Some(2)).offset(0, 3));
    expect![[r#"
        0 restored
        at 2, epoch Some(0), complete at Some(1000), stored true
          b = 2 @1
    "#]]
    .assert_eq(&describe(restore.end().await));
    restore.add(0, 0, Limit::Committed(None).offset(0, 3));
    expect![[r#"
        0 restored
        at 0, epoch None, complete at Some(1000), stored true
    "#]]
    .assert_eq(&describe(restore.end().await));
}

#[tokio::test(start_paused = true)]
async fn many_side_by_side_even_if_answers_are_full() {
    let logs = Logs::default();
    for partition in 0..3 {
        logs.edit(partition, |log| {
            for number in 0..=partition {
                log.append(&[("a", Some(&number.to_string()))]);
            }
            log.skip(2);
        });
    }
    logs.answer_one_at_a_time();
    let mut restore = Restore::start(logs, Isolation::ReadUncommitted);
    for partition in 0..3 {
        restore.add(partition, 0, i64::from(partition) + 3);
    }
    let mut ends = Vec::new();
    for _ in 0..3 {
        ends.push(restore.end().await);
    }
    ends.sort_by_key(|end| end.id);
    let text: String = ends.into_iter().map(describe).collect();
    expect![[r#"
        0 restored
        at 3, epoch Some(0), complete at Some(1000), stored true
          a = 0 @0
        1 restored
        at 4, epoch Some(0), complete at Some(1000), stored true
          a = 1 @1
        2 restored
        at 5, epoch Some(0), complete at Some(1000), stored true
          a = 2 @2
    "#]]
    .assert_eq(&text);
}

#[tokio::test(start_paused = true)]
async fn errors_that_pass_are_waited_out() {
    let logs = Logs::default();
    logs.edit(0, |log| {
        log.append(&[("a", Some("1"))]);
    });
    let no_answer = || BrokerError::TimedOut { call: "fetch", limit: Duration::from_secs(1) };
    logs.fail_next(no_answer());
    logs.fail_next(no_answer());
    let mut restore = Restore::start(logs, Isolation::ReadUncommitted);
    restore.add(0, 0, 1);
    expect![[r#"
        0 restored
        at 1, epoch Some(0), complete at Some(1200), stored true
          a = 1 @0
    "#]]
    .assert_eq(&describe(restore.end().await));

    for _ in 0..20 {
        restore.logs.fail_next(no_answer());
    }
    restore.add(0, 0, 1);
    let end = restore.end().await;
    assert!(matches!(end.outcome, Err(ChangelogError::Broker { .. })), "{:?}", end.outcome);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_changes_underneath_asks_for_a_rebuild() {
    let logs = Logs::default();
    logs.edit(0, |log| {
        log.append(&[("a", Some("1"))]).append(&[("b", Some("2"))]);
    });
    logs.edit(0, |log| log.delete_before(1));
    let mut restore = Restore::start(logs, Isolation::ReadUncommitted);
    restore.add(0, 0, 2);
    expect![[r#"
        0 the state of changelog counts-changelog-0 is to be rebuilt: the store is at offset 0 but the log begins at 1
        at 0, epoch None, complete at Some(5), stored false
    "#]].assert_eq(&describe(restore.end().await));
    restore.add(0, 3, 4);
    expect![[r#"
        0 the state of changelog counts-changelog-0 is to be rebuilt: the store is at offset 3 but the log ends at 2: it was truncated
        at 3, epoch None, complete at Some(5), stored false
        counts 0 starts: 0 to 2
        counts 0 stops: 0 records
        counts 0 starts: 3 to 4
        counts 0 stops: 0 records
    "#]].assert_eq(&(describe(restore.end().await) + &restore.heard()));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_restore_keeps_what_it_has() {
    let logs = Logs::default();
    logs.edit(0, |log| {
        log.append(&[("a", Some("1"))]);
    });
    logs.edit(0, |log| log.last_stable = Some(1));
    let mut restore = Restore::start(logs, Isolation::ReadCommitted);
    restore.add(0, 0, 9);
    tokio::time::sleep(Duration::from_secs(1)).await;
    restore.commands.send(RestoreCommand::Stop(0)).unwrap();
    restore.commands.send(RestoreCommand::Stop(7)).unwrap();
    expect![[r#"
        0 stopped
        at 1, epoch Some(0), complete at Some(5), stored true
          a = 1 @0
        counts 0 starts: 0 to 9
        counts 0: 1 records, 8 to go
        counts 0 stops: 1 records
    "#]]
    .assert_eq(&(describe(restore.end().await) + &restore.heard()));
}

/// What was deleted meanwhile may be nowhere to be seen.
#[tokio::test(start_paused = true)]
async fn a_log_that_goes_on_after_its_tombstones_are_gone_asks_for_a_rebuild() {
    let logs = Logs::default();
    logs.edit(0, |log| {
        log.append_as(1, true, &[("a", Some("1"))]).append_as(1, true, &[("a", None)]);
        log.last_stable = Some(1);
    });
    let mut restore = Restore::start(logs, Isolation::ReadCommitted);
    restore.add(0, 0, 2);
    tokio::time::sleep(Duration::from_mins(10)).await;
    // It was asked all the time: nothing was missed.
    restore.logs.edit(0, |log| log.last_stable = None);
    assert!(matches!(restore.end().await.outcome, Ok(true)));
    // This one could not be asked before.
    restore.add(0, 0, 2);
    assert!(matches!(
        restore.end().await.outcome,
        Err(ChangelogError::Rebuild { reason: crate::RebuildReason::TooOld { .. }, .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn the_loop_ends_when_nobody_can_tell_it_more() {
    let (commands, told) = mpsc::unbounded_channel::<RestoreCommand<i32, StoreStep>>();
    let (ended, _ends) = mpsc::unbounded_channel();
    let options = RestoreOptions {
        isolation: Isolation::ReadUncommitted,
        fetch_bytes: 1,
        pending_bytes: 1,
        give_up_after: Duration::ZERO,
        clock: Arc::new(SystemClock::new()),
        blocking: Arc::new(crate::TokioBlocking),
        listener: Arc::new(()),
    };
    drop(commands);
    restore(Box::new(Logs::default()), told, ended, options).await;
}
