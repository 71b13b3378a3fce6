//! How many rebalances it takes that instances come and go, and how long tasks are run by nobody
//! meanwhile.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use headwater_broker::{BrokerError, GroupId};
use headwater_embedded::{CallKind, Embedded, Fault, FaultPlan, Target};
use headwater_runtime::{ProcessingGuarantee, StreamsConfig, TaskRole};

use super::fleet::{Group, seconds};
use super::harness::{APPLICATION, TestClock, write_to};

/// What happens to a group of some members.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It starts, or starts again.
    Start(&'static str),
    /// It is closed in good order.
    Close(&'static str),
    /// It is closed in good order, and its place kept.
    Remain(&'static str),
    /// It does not come back so soon: its session ends.
    Wait,
    /// Another one starts with a copy of its directory.
    CopyOf(&'static str, &'static str),
    /// It dies.
    Crash(&'static str),
}

use Step::{Close, CopyOf, Crash, Remain, Start, Wait};

/// A line of some words, over and over: each task has something to do all the time.
async fn flow(broker: Embedded, clock: Arc<TestClock>) {
    let words: Vec<String> = (0..24).map(|number| format!("w{number}")).collect();
    let line = words.join(" ");
    // Until it is told to stop, long before.
    for _ in 0..1_000_000 {
        write_to((&broker, &clock), "lines", 0, &[(None, Some(line.as_bytes()))]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Plays the steps with six tasks while records flow; each step is followed by the time that an
/// operator takes, or in which everything settles. Answers the rebalances and the longest pause of a
/// task for each step.
async fn play(
    members: &[&'static str],
    set: impl FnOnce(StreamsConfig) -> StreamsConfig,
    is_static: bool,
    steps: &[Step],
) -> String {
    let mut group =
        Group::new(6, |config| set(config.heartbeat_interval_ms(3_000).session_timeout_ms(10_000)))
            .await;
    let config = group.config.clone();
    let (broker, clock) = (group.world.broker.clone(), Arc::clone(&group.world.clock));
    let flows = tokio::spawn(flow(broker, clock));
    let mut all = 0;
    let mut text = String::new();
    let configured = |name| {
        if is_static { config.clone().group_instance_id(name) } else { config.clone() }
    };
    for &name in members {
        group.config = configured(name);
        group.start(name).await;
    }
    tokio::time::sleep(seconds(10)).await;
    group.settles_evenly().await;
    // Who had what when one went that keeps its place.
    let mut kept = None;
    for step in steps {
        let before = group.recording.made().len();
        group.pauses.take_longest();
        match *step {
            Start(name) => {
                group.config = configured(name);
                group.start(name).await;
                tokio::time::sleep(seconds(10)).await;
                group.settles_evenly().await;
                if let Some(kept) = kept.take() {
                    assert_eq!(
                        group.stateful(TaskRole::Active),
                        kept,
                        "{name} has its tasks again"
                    );
                }
            }
            Close(name) => {
                group.has_directories_of_tasks(name);
                group.close(name).await;
                tokio::time::sleep(seconds(2)).await;
            }
            Remain(name) => {
                group.has_directories_of_tasks(name);
                kept = Some(group.stateful(TaskRole::Active));
                group.remain(name).await;
                tokio::time::sleep(seconds(2)).await;
            }
            Wait => {
                kept = None;
                tokio::time::sleep(seconds(20)).await;
                group.settles_evenly().await;
            }
            CopyOf(name, copy) => group.copy_directory(name, copy),
            Crash(name) => {
                group.crash(name);
                tokio::time::sleep(seconds(10)).await;
                group.settles_evenly().await;
            }
        }
        let rounds = group.recording.made().len() - before;
        all += rounds;
        let pause = group.pauses.take_longest().as_millis();
        writeln!(text, "{step:?}: {rounds}, {pause} ms").unwrap();
    }
    writeln!(text, "{all} rebalances").unwrap();
    flows.abort();
    group.close_all().await;
    text
}

const THREE: [&str; 3] = ["a", "b", "c"];
const RESTARTS: [Step; 6] =
    [Close("a"), Start("a"), Close("b"), Start("b"), Close("c"), Start("c")];

async fn check(
    members: &[&'static str],
    set: impl FnOnce(StreamsConfig) -> StreamsConfig,
    steps: &[Step],
    expected: &Expect,
) {
    expected.assert_eq(&play(members, set, false, steps).await);
}

#[tokio::test(start_paused = true)]
async fn a_rolling_restart() {
    let expected = expect![[r#"
        Close("a"): 1, 100 ms
        Start("a"): 2, 20 ms
        Close("b"): 1, 40 ms
        Start("b"): 2, 20 ms
        Close("c"): 1, 80 ms
        Start("c"): 2, 20 ms
        9 rebalances
    "#]];
    for standbys in [0, 1] {
        let set = |config: StreamsConfig| config.num_standby_replicas(standbys);
        check(&THREE, set, &RESTARTS, &expected).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_rolling_restart_exactly_once() {
    let set =
        |config: StreamsConfig| config.processing_guarantee(ProcessingGuarantee::ExactlyOnceV2);
    let expected = expect![[r#"
        Close("a"): 1, 105 ms
        Start("a"): 2, 20 ms
        Close("b"): 1, 45 ms
        Start("b"): 2, 20 ms
        Close("c"): 1, 85 ms
        Start("c"): 2, 20 ms
        9 rebalances
    "#]];
    check(&THREE, set, &RESTARTS, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn a_rolling_restart_of_static_members() {
    let told = play(&THREE, |config| config, true, &RESTARTS).await;
    expect![[r#"
        Close("a"): 0, 0 ms
        Start("a"): 0, 2000 ms
        Close("b"): 0, 0 ms
        Start("b"): 0, 2000 ms
        Close("c"): 0, 0 ms
        Start("c"): 0, 2000 ms
        0 rebalances
    "#]]
    .assert_eq(&told);
}

const RESTARTS_IN_PLACE: [Step; 6] =
    [Remain("a"), Start("a"), Remain("b"), Start("b"), Remain("c"), Start("c")];

/// Whoever keeps its place comes back into it with one round, and nobody else has a pause.
#[tokio::test(start_paused = true)]
async fn a_rolling_restart_in_place() {
    let expected = expect![[r#"
        Remain("a"): 0, 0 ms
        Start("a"): 1, 2100 ms
        Remain("b"): 0, 0 ms
        Start("b"): 1, 2100 ms
        Remain("c"): 0, 0 ms
        Start("c"): 1, 2100 ms
        3 rebalances
    "#]];
    for standbys in [0, 1] {
        let set = |config: StreamsConfig| config.num_standby_replicas(standbys);
        check(&THREE, set, &RESTARTS_IN_PLACE, &expected).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_rolling_restart_in_place_exactly_once() {
    let set =
        |config: StreamsConfig| config.processing_guarantee(ProcessingGuarantee::ExactlyOnceV2);
    check(
        &THREE,
        set,
        &RESTARTS_IN_PLACE,
        &expect![[r#"
        Remain("a"): 0, 0 ms
        Start("a"): 1, 2100 ms
        Remain("b"): 0, 0 ms
        Start("b"): 1, 2100 ms
        Remain("c"): 0, 0 ms
        Start("c"): 1, 2100 ms
        3 rebalances
    "#]],
    )
    .await;
}

/// The place is kept for as long as the session, and then given away.
#[tokio::test(start_paused = true)]
async fn who_comes_back_too_late_comes_as_any_other() {
    let steps = [Remain("a"), Wait, Start("a")];
    check(
        &THREE,
        |config| config,
        &steps,
        &expect![[r#"
        Remain("a"): 0, 0 ms
        Wait: 1, 10000 ms
        Start("a"): 2, 20 ms
        3 rebalances
    "#]],
    )
    .await;
}

/// The place is taken once: a copy of the directory makes a member of its own.
#[tokio::test(start_paused = true)]
async fn a_copied_directory_makes_two_members() {
    let steps = [Remain("a"), CopyOf("a", "d"), Start("a"), Start("d")];
    check(
        &THREE,
        |config| config,
        &steps,
        &expect![[r#"
        Remain("a"): 0, 0 ms
        CopyOf("a", "d"): 0, 0 ms
        Start("a"): 1, 2100 ms
        Start("d"): 2, 20 ms
        3 rebalances
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn from_one_to_three_and_back() {
    let steps = [Start("b"), Start("c"), Close("c"), Close("b")];
    check(
        &["a"],
        |config| config.acceptable_recovery_lag(100),
        &steps,
        &expect![[r#"
            Start("b"): 4, 20 ms
            Start("c"): 3, 20 ms
            Close("c"): 1, 40 ms
            Close("b"): 1, 40 ms
            9 rebalances
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_of_three_dies_and_comes_back() {
    let set = |config: StreamsConfig| config.num_standby_replicas(1);
    check(
        &THREE,
        set,
        &[Crash("a"), Start("a")],
        &expect![[r#"
            Crash("a"): 1, 0 ms
            Start("a"): 2, 20 ms
            3 rebalances
        "#]],
    )
    .await;
}

/// So many that whoever closes hands its tasks over.
const TWELVE: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// Its members beat less often, so whoever leaves has them listen first.
#[tokio::test(start_paused = true)]
async fn a_large_group_is_told_before_one_leaves() {
    check(
        &TWELVE,
        |config| config,
        &[Close("a"), Close("b")],
        &expect![[r#"
        Close("a"): 2, 22 ms
        Close("b"): 2, 20 ms
        4 rebalances
    "#]],
    )
    .await;
}

/// What it followed goes as well: nobody hands it over any more.
#[tokio::test(start_paused = true)]
async fn a_membership_that_is_lost_while_tasks_are_handed_over_does_not_keep_it_open() {
    let mut group = Group::new(12, |config| {
        config.heartbeat_interval_ms(3_000).session_timeout_ms(10_000).num_standby_replicas(1)
    })
    .await;
    for name in TWELVE {
        group.start(name).await;
    }
    group.settles(&[1; 12], &[1; 12]).await;
    let error =
        BrokerError::UnknownMember { group: GroupId::from(APPLICATION), member_id: "?".to_owned() };
    let plan = FaultPlan::new().fault(CallKind::JoinGroup, Target::Any, 0..1, Fault::Fail(error));
    group.world.broker.set_faults(Some(plan));
    let began = tokio::time::Instant::now();
    group.close("a").await;
    assert!(began.elapsed() < seconds(5), "{:?}", began.elapsed());
    group
        .until("the others have it", |group| {
            group.counts_of(TaskRole::Active).iter().sum::<usize>() == 12
        })
        .await;
    group.close_all().await;
}
