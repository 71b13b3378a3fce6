use std::fmt::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use expect_test::{Expect, expect};
use headwater_store::{
    ChangelogPosition, Chunk, Direction, KeyRange, Layout, MemoryBackend, OpenOptions, StoreBackend,
};

use super::progress::Follower;
use super::*;
use crate::read::Safe;
use crate::test_logs::{Log, Logs, topic_partition};
use crate::{ChangelogStore, Job, RestoreMemory, StoreStep};

/// How long tombstones are kept in these logs.
const RETENTION_MS: i64 = 300_000;

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl StandbyUpdateListener for Heard {
    fn on_update_start(&self, changelog: &TopicPartition, store: &str, starting_offset: i64) {
        self.note(format!("{store} {} from {starting_offset}", changelog.partition));
    }
    fn on_batch_loaded(
        &self,
        changelog: &TopicPartition,
        store: &str,
        records: u64,
        (next, end): (i64, i64),
    ) {
        self.note(format!("{store} {}: {records} records, {next} of {end}", changelog.partition));
    }
    fn on_update_suspended(
        &self,
        changelog: &TopicPartition,
        store: &str,
        (next, end): (i64, i64),
        reason: SuspendReason,
    ) {
        let reason = reason.as_str();
        self.note(format!("{store} {} {reason} at {next} of {end}", changelog.partition));
    }
}

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

/// Works in place, except for jobs that it is told to hold for ever.
#[derive(Debug, Default)]
struct Holding {
    holds_next: AtomicBool,
}

#[async_trait::async_trait]
impl Blocking for Holding {
    async fn run(&self, job: Job) {
        if self.holds_next.swap(false, Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        job();
    }
}

fn options(isolation: Isolation, heard: &Arc<Heard>, holding: &Arc<Holding>) -> FollowOptions {
    FollowOptions {
        isolation,
        fetch_bytes: 1 << 20,
        pending_bytes: 1 << 20,
        applying_max: 1,
        max_wait: Duration::from_millis(500),
        pace: Duration::from_millis(50),
        acceptable_lag: 2,
        clock: Arc::new(TestClock(tokio::time::Instant::now())),
        blocking: Arc::clone(holding) as _,
        listener: Arc::clone(heard) as _,
    }
}

/// A follow loop over some logs.
struct Following {
    heard: Arc<Heard>,
    holding: Arc<Holding>,
    commands: mpsc::UnboundedSender<FollowCommand<i32, StoreStep>>,
    news: mpsc::UnboundedReceiver<FollowNews<i32, StoreStep>>,
}

impl Following {
    fn start(logs: &Logs, isolation: Isolation) -> Self {
        let (commands, told) = mpsc::unbounded_channel();
        let (tell, news) = mpsc::unbounded_channel();
        let (heard, holding) = (Arc::<Heard>::default(), Arc::<Holding>::default());
        let options = options(isolation, &heard, &holding);
        tokio::spawn(follow(Box::new(logs.clone()), told, tell, options));
        Self { heard, holding, commands, news }
    }

    fn add(&self, partition: i32, limit: Option<i64>) -> Arc<FollowProgress> {
        let target = target(partition, limit);
        let progress = Arc::clone(&target.progress);
        self.tell(FollowCommand::Add(target));
        progress
    }

    fn tell(&self, command: FollowCommand<i32, StoreStep>) {
        self.commands.send(command).unwrap();
    }

    /// The next news, as text.
    async fn news(&mut self) -> String {
        match self.news.recv().await.unwrap() {
            FollowNews::CaughtUp(id) => format!("{id} has caught up\n"),
            FollowNews::Ended(end) => describe(end),
        }
    }

    /// Stops a target: what it has then.
    async fn stop(&mut self, id: i32, reason: SuspendReason) -> String {
        self.tell(FollowCommand::Stop { id, reason });
        self.news().await
    }

    fn heard(&self) -> String {
        self.heard.0.lock().unwrap().drain(..).map(|line| line + "\n").collect()
    }
}

/// A target of one changelog, from its beginning.
fn target(partition: i32, limit: Option<i64>) -> FollowTarget<i32, StoreStep> {
    let mut storage = MemoryBackend::new().open(Path::new("0_0"), &OpenOptions::default()).unwrap();
    let space = storage.space("counts").unwrap();
    let position = ChangelogPosition {
        topic_id: [1; 16],
        next_offset: 0,
        leader_epoch: None,
        at_end_ms: Some(5),
    };
    let store = ChangelogStore {
        name: "store".to_owned(),
        topic_partition: topic_partition(partition),
        storage: 0,
        space,
        layout: Layout::KeyValue,
        position,
    };
    let changelogs = vec![FollowPartition {
        topic_partition: topic_partition(partition),
        store: "counts".into(),
        start_offset: 0,
        leader_epoch: None,
        tombstone_retention_ms: Some(RETENTION_MS),
        at_end_ms: Some(5),
        limit,
    }];
    let progress = Arc::new(FollowProgress::new(&changelogs));
    let step = StoreStep::new(vec![storage], vec![store], &RestoreMemory::new(1 << 24));
    FollowTarget { id: partition, changelogs, step, progress }
}

/// The outcome, the position and the entries of a target.
fn describe(end: FollowEnd<i32, StoreStep>) -> String {
    let FollowEnd { id, step, outcome } = end;
    let outcome = outcome.map_or_else(|error| error.to_string(), |()| "ended".to_owned());
    let mut text = format!("{id} {outcome}");
    let (mut storages, stores) = step.expect("no step panics here").into_parts();
    let storage = storages.remove(0);
    let topic = topic_partition(id).topic;
    let stored = ChangelogPosition::load(&*storage, Path::new("0_0"), topic.as_str(), id).unwrap();
    if let Some(ChangelogPosition { next_offset, at_end_ms, .. }) = stored {
        write!(text, " at {next_offset}, complete at {} ms", at_end_ms.unwrap()).unwrap();
    }
    let mut chunk = Chunk::new(100);
    let space = stores[0].space;
    storage.reader().scan(space, &KeyRange::all(), Direction::Forward, &mut chunk).unwrap();
    for (key, value) in chunk.iter() {
        let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
        write!(text, " {key}={value}").unwrap();
    }
    text + "\n"
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[track_caller]
fn check(text: &str, expected: &Expect) {
    expected.assert_eq(text);
}

#[tokio::test(start_paused = true)]
async fn a_standby_keeps_up_until_it_is_told_to_stop() {
    let logs = Logs::default();
    logs.edit(0, |log| {
        log.append(&[("a", Some("1")), ("b", Some("1"))]).append(&[("a", Some("2"))]);
    });
    let mut following = Following::start(&logs, Isolation::ReadUncommitted);
    let progress = following.add(0, None);
    assert_eq!(progress.lag(), None, "where the log ends is not known yet");
    let mut text = following.news().await;
    assert_eq!((progress.offset_sum(), progress.lag()), (3, Some(0)));
    logs.edit(0, |log| {
        log.append(&[("b", None), ("c", Some("1"))]);
    });
    pass(600).await;
    assert_eq!(progress.offset_sum(), 5);
    text += &following.stop(0, SuspendReason::Migrated).await;
    check(
        &(text + &following.heard()),
        &expect![[r#"
            0 has caught up
            0 ended at 5, complete at 1050 ms a=2 c=1
            counts 0 from 0
            counts 0: 3 records, 3 of 3
            counts 0: 2 records, 5 of 5
            counts 0 MIGRATED at 5 of 5
        "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_falls_behind_catches_up_again() {
    let logs = Logs::default();
    logs.edit(0, Log::append_one);
    let mut following = Following::start(&logs, Isolation::ReadCommitted);
    logs.edit(0, |log| log.last_stable = Some(1));
    following.add(0, None);
    let first = following.news().await;
    // Three records at once are more than the acceptable two.
    logs.edit(0, |log| {
        log.append(&[("x", Some("1")), ("y", Some("1")), ("z", Some("1"))]);
        log.last_stable = None;
    });
    let second = following.news().await;
    check(
        &(first + &second + &following.stop(0, SuspendReason::Promoted).await),
        &expect![[r#"
        0 has caught up
        0 has caught up
        0 ended at 4, complete at 1000 ms k=v x=1 y=1 z=1
    "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn many_are_followed_by_one_loop_even_if_answers_are_full() {
    let logs = Logs::default();
    logs.answer_one_at_a_time();
    for partition in 0..20 {
        logs.edit(partition, Log::append_one);
    }
    let mut following = Following::start(&logs, Isolation::ReadUncommitted);
    for partition in 0..20 {
        following.add(partition, None);
    }
    let mut caught_up = Vec::new();
    for _ in 0..20 {
        caught_up.push(following.news().await);
    }
    caught_up.sort();
    caught_up.dedup();
    assert_eq!(caught_up.len(), 20);
    check(
        &following.stop(7, SuspendReason::Promoted).await,
        &expect![[r#"
        7 ended at 1, complete at 1000 ms k=v
    "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn a_trickle_does_not_cost_a_fetch_for_each_record() {
    let logs = Logs::default();
    logs.edit(0, Log::append_one);
    let mut following = Following::start(&logs, Isolation::ReadUncommitted);
    following.add(0, None);
    following.news().await;
    let before = logs.fetches();
    for _ in 0..1000 {
        logs.edit(0, Log::append_one);
        pass(1).await;
    }
    let fetches = logs.fetches() - before;
    assert!((10..=25).contains(&fetches), "{fetches} fetches in a second");
}

#[tokio::test(start_paused = true)]
async fn a_source_topic_is_applied_up_to_what_is_committed() {
    let logs = Logs::default();
    logs.edit(0, |log| {
        log.append(&[("a", Some("1")), ("b", Some("1")), ("c", Some("1")), ("d", Some("1"))]);
    });
    let mut following = Following::start(&logs, Isolation::ReadUncommitted);
    let progress = following.add(0, Some(1));
    following.news().await;
    pass(2000).await;
    assert_eq!((progress.offset_sum(), progress.lag()), (1, Some(0)));
    for offset in [3, 2] {
        following.tell(FollowCommand::Limit { id: 0, topic_partition: topic_partition(0), offset });
    }
    pass(2000).await;
    check(
        &following.stop(0, SuspendReason::Promoted).await,
        &expect![[r#"
        0 ended at 3, complete at 1000 ms a=1 b=1 c=1
    "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn a_paused_loop_reads_nothing() {
    let logs = Logs::default();
    let mut following = Following::start(&logs, Isolation::ReadUncommitted);
    logs.edit(0, |_| ());
    let progress = following.add(0, None);
    following.news().await;
    following.tell(FollowCommand::Pause(true));
    pass(10).await;
    logs.edit(0, Log::append_one);
    pass(5000).await;
    assert_eq!(progress.offset_sum(), 0);
    following.tell(FollowCommand::Pause(false));
    pass(100).await;
    assert_eq!(progress.offset_sum(), 1);
}

#[tokio::test(start_paused = true)]
async fn errors_that_pass_are_outlived_and_a_broken_log_asks_for_a_rebuild() {
    let logs = Logs::default();
    logs.edit(0, Log::append_one);
    let mut following = Following::start(&logs, Isolation::ReadUncommitted);
    for _ in 0..50 {
        logs.fail_next(BrokerError::TimedOut { call: "fetch", limit: Duration::from_secs(1) });
    }
    following.add(0, None);
    let mut text = following.news().await;
    pass(1000).await;
    logs.edit(0, |log| {
        *log = Log::default();
        log.epoch = 4;
    });
    text += &following.news().await;
    following.add(1, None);
    logs.edit(1, |log| {
        log.append(&[("a", Some("1"))]).append(&[("a", Some("1"))]).delete_before(1);
    });
    text += &following.news().await;
    check(
        &text,
        &expect![[r#"
        0 has caught up
        0 the state of changelog counts-changelog-0 is to be rebuilt: the store is at offset 1 but the log ends at 0: it was truncated at 1, complete at 148100 ms k=v
        1 the state of changelog counts-changelog-1 is to be rebuilt: the store is at offset 0 but the log begins at 1
    "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn a_compacted_tail_is_passed_over() {
    let logs = Logs::default();
    logs.edit(0, |log| {
        log.append(&[("a", Some("1"))]).skip(5);
    });
    let mut following = Following::start(&logs, Isolation::ReadUncommitted);
    following.add(0, None);
    let text = following.news().await + &following.stop(0, SuspendReason::Migrated).await;
    check(
        &text,
        &expect![[r#"
        0 has caught up
        0 ended at 6, complete at 1500 ms a=1
    "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_standby_notes_that_it_is_complete() {
    let logs = Logs::default();
    logs.edit(0, Log::append_one);
    let mut following = Following::start(&logs, Isolation::ReadUncommitted);
    following.add(0, None);
    following.news().await;
    pass(60_000).await;
    // A promotion notes nothing of its own, so this is what was there.
    let text = following.stop(0, SuspendReason::Promoted).await;
    check(
        &text,
        &expect![[r#"
        0 ended at 1, complete at 53250 ms k=v
    "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_is_to_end_waits_for_no_other() {
    let logs = Logs::default();
    logs.edit(0, Log::append_one);
    logs.edit(1, |log| {
        log.append(&[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))]);
    });
    let mut following = Following::start(&logs, Isolation::ReadUncommitted);
    following.add(0, None);
    following.news().await;
    pass(600).await;
    // The other one takes the only turn that there is, and does not come to an end with it.
    following.holding.holds_next.store(true, Ordering::Relaxed);
    following.add(1, None);
    pass(600).await;
    let stopped = following.stop(0, SuspendReason::Migrated);
    let text = tokio::time::timeout(Duration::from_mins(1), stopped).await;
    check(
        &text.expect("ends although the other does not"),
        &expect![[r#"
            0 ended at 1, complete at 2150 ms k=v
        "#]],
    );
}

/// Between them there may be all of a store, which who takes it over would wait for.
#[tokio::test(start_paused = true)]
async fn what_was_gathered_is_written_and_safe_before_one_has_caught_up() {
    let logs = Logs::default();
    logs.edit(0, |log| {
        let large = "x".repeat(900 << 10);
        let first = log.append(&[("a", Some(&large))]).append(&[("b", Some(&large))]);
        first.append(&[("c", Some(&large)), ("d", Some("1"))]);
    });
    let (heard, holding) = (Arc::default(), Arc::default());
    let (tell, mut news) = mpsc::unbounded_channel();
    let mut follower = Follower::new(options(Isolation::ReadUncommitted, &heard, &holding), tell);
    let target = target(0, None);
    let progress = Arc::clone(&target.progress);
    follower.told(FollowCommand::Add(target));
    let mut text = String::new();
    while progress.lag() != Some(0) {
        let (request, _) = follower.next_request();
        let answer = logs.clone().fetch(&request).await;
        follower.answered(&request, answer);
        for part in follower.start_applying() {
            let end = match part.finish {
                None => "gathered",
                Some(Safe(false)) => "written",
                Some(Safe(true)) => "written and safe",
            };
            follower.applied(apply(&*holding, part).await);
            write!(text, "{end}, {} left", progress.lag().unwrap()).unwrap();
        }
        if let Ok(FollowNews::CaughtUp(_)) = news.try_recv() {
            text += ", has caught up";
        }
        text += "\n";
    }
    check(
        &text,
        &expect![[r#"
            gathered, 3 left
            written and safe, 2 left, has caught up
            written, 0 left
        "#]],
    );
}

/// What was deleted meanwhile may be nowhere to be seen.
#[tokio::test(start_paused = true)]
async fn one_that_hears_nothing_until_tombstones_are_gone_asks_for_a_rebuild() {
    let logs = Logs::default();
    for partition in 0..2 {
        logs.edit(partition, Log::append_one);
    }
    let mut following = Following::start(&logs, Isolation::ReadUncommitted);
    for partition in 0..2 {
        following.add(partition, None);
        following.news().await;
    }
    // One has no news for long, while the other has: it has missed nothing.
    for _ in 0..400 {
        logs.edit(1, Log::append_one);
        pass(1_000).await;
    }
    logs.edit(0, Log::append_one);
    pass(1_000).await;
    following.tell(FollowCommand::Pause(true));
    pass(400_000).await;
    logs.edit(0, Log::append_one);
    following.tell(FollowCommand::Pause(false));
    let text = following.news().await;
    // The other one had nothing to miss.
    check(
        &(text + &following.stop(1, SuspendReason::Migrated).await),
        &expect![[r#"
        0 the state of changelog counts-changelog-0 is to be rebuilt: the state was last complete 400450 ms ago and tombstones are kept for only 300000 ms at 2, complete at 396550 ms k=v
        1 ended at 401, complete at 401550 ms k=v
    "#]],
    );
}

/// A log that is read up to what is committed is not asked for, and has missed nothing all the same.
#[tokio::test(start_paused = true)]
async fn one_that_is_at_its_limit_for_long_goes_on() {
    let logs = Logs::default();
    logs.edit(0, |log| {
        log.append(&[("a", Some("1"))]).append(&[("a", Some("2"))]);
    });
    let mut following = Following::start(&logs, Isolation::ReadUncommitted);
    let progress = following.add(0, Some(1));
    following.news().await;
    pass(400_000).await;
    following.tell(FollowCommand::Limit { id: 0, topic_partition: topic_partition(0), offset: 2 });
    pass(1_000).await;
    assert_eq!(progress.offset_sum(), 2);
}
