//! Standbys, warm-ups, and what becomes of tasks when instances come and go.

use std::time::Duration;

use headwater_broker::{Broker as _, BrokerError, GroupId};
use headwater_embedded::{CallKind, Fault, FaultPlan};
use headwater_runtime::{CloseOptions, GroupMembership, InstanceState, TaskRole};
use headwater_topology::TaskId;

use super::fleet::{Group, seconds};
use super::harness::{APPLICATION, CHANGELOG};
use super::restores::records_read;

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_with_the_tail_only() {
    let mut group = Group::new(2, |config| config.num_standby_replicas(1)).await;
    group.start("a").await;
    group.start("b").await;
    group.settles(&[1, 1], &[1, 1]).await;
    let (active, standby) = (group.stateful(TaskRole::Active), group.stateful(TaskRole::Standby));
    assert_eq!((&active["a"], &active["b"]), (&standby["b"], &standby["a"]));
    group.write_words(0, 500).await;
    group.all_counted(500).await;
    group.world.restores.take();

    group.crash("a");
    group.settles(&[2], &[0]).await;
    let heard = group.world.restores.take();
    assert_eq!(records_read(&heard), 0, "nothing but the tail is read: {heard:?}");
    group.write_words(0, 500).await;
    let counts = group.world.wait_until(|counts| counts.values().all(|it| *it == 2)).await;
    assert!(counts.values().all(|count| *count == 2), "{counts:?}");
    group.close_all().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_standby_has_not_read_yet_is_restored_when_it_takes_over() {
    let mut group = Group::new(2, |config| config.num_standby_replicas(1)).await;
    group.start("a").await;
    group.start("b").await;
    group.settles(&[1, 1], &[1, 1]).await;
    // From now on the follow loops hear nothing.
    let gone = || Fault::Fail(BrokerError::TimedOut { call: "fetch", limit: seconds(1) });
    let plan = (0..2).fold(FaultPlan::new(), |plan, partition| {
        plan.fault(CallKind::Fetch, format!("{CHANGELOG}-{partition}"), 0..10_000, gone())
    });
    group.world.broker.set_faults(Some(plan));
    tokio::time::sleep(seconds(1)).await;
    group.write_words(0, 100).await;
    let counts = group.world.wait_until(|counts| counts.len() == 100).await;
    assert_eq!(counts.len(), 100);
    tokio::time::sleep(seconds(1)).await;
    group.crash("a");
    while group.counts_of(TaskRole::Active) != [2] {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    group.world.broker.set_faults(None);
    group.settles(&[2], &[0]).await;
    let heard = group.world.restores.take();
    assert!(records_read(&heard) > 0, "{heard:?}");
    group.write_words(0, 100).await;
    let counts = group.world.wait_until(|counts| counts.values().all(|it| *it == 2)).await;
    assert!(counts.values().all(|count| *count == 2), "{counts:?}");
    group.close_all().await;
}

/// Three instances with twelve tasks that have a standby each; a fourth one joins.
#[tokio::test(start_paused = true)]
async fn tasks_move_to_a_new_instance_when_they_are_warm() {
    let mut group = Group::new(12, |config| {
        config.num_standby_replicas(1).max_warmup_replicas(3).acceptable_recovery_lag(10)
    })
    .await;
    for name in ["a", "b", "c"] {
        group.start(name).await;
    }
    group.settles(&[4, 4, 4], &[4, 4, 4]).await;
    group.write_words(0, 6000).await;
    group.all_counted(6000).await;
    group.world.restores.take();
    let before = group.recording.made().len();

    group.start("d").await;
    group.settles(&[3, 3, 3, 3], &[3, 3, 3, 3]).await;
    let settled = tokio::time::Instant::now();
    let made = group.recording.made().split_off(before);
    let warm = made.iter().position(|plan| plan.waiting.is_empty()).expect("it ends");
    assert!(made.len() - warm <= 2, "rounds after it is warm: {made:#?}");
    let handed_over: Vec<_> = made.iter().flat_map(|plan| &plan.handed_over).collect();
    assert!(handed_over.iter().all(|(_, lag)| lag.is_caught_up(10)), "{handed_over:?}");
    assert!(made.iter().all(|plan| plan.waiting.len() <= 3));
    let heard = group.world.restores.take();
    assert!(records_read(&heard) <= 30, "only tails are restored: {heard:?}");

    tokio::time::sleep(seconds(60)).await;
    let after = group.recording.made();
    let late = after.iter().filter(|plan| plan.at > settled);
    assert_eq!(late.count(), 0, "no round without a reason");
    group.write_words(0, 6000).await;
    let counts = group.world.wait_until(|counts| counts.values().all(|it| *it == 2)).await;
    assert!(counts.values().all(|count| *count == 2));

    for instance in group.instances.values() {
        let threads = instance.local_threads();
        assert_eq!(threads.len(), 1);
        let of_thread: Vec<TaskId> = threads[0].active_tasks.keys().copied().collect();
        assert_eq!(of_thread, instance.tasks_with_role(TaskRole::Active));
        let followed: Vec<TaskId> = instance.store_lags().into_keys().collect();
        assert_eq!(followed, instance.tasks_with_role(TaskRole::Standby));
    }

    // It leaves, comes back, and is lost.
    group.close("d").await;
    group.settles(&[4, 4, 4], &[4, 4, 4]).await;
    group.start("d").await;
    group.settles(&[3, 3, 3, 3], &[3, 3, 3, 3]).await;
    group.world.restores.take();
    group.crash("d");
    group.settles(&[4, 4, 4], &[4, 4, 4]).await;
    group.write_words(0, 6000).await;
    let counts = group.world.wait_until(|counts| counts.values().all(|it| *it == 3)).await;
    assert!(counts.values().all(|count| *count == 3));
    group.close_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_moves_keeps_its_stores_open() {
    let mut group =
        Group::new(2, |config| config.num_standby_replicas(1).acceptable_recovery_lag(0)).await;
    group.start("a").await;
    group.until("a runs", |group| group.counts_of(TaskRole::Active) == [2]).await;
    group.write_words(0, 400).await;
    group.all_counted(400).await;
    group.start("b").await;
    group.settles(&[1, 1], &[1, 1]).await;
    let mut heard = std::mem::take(&mut *group.standbys.0.lock().unwrap());
    heard.retain(|line| line.contains("MIGRATED"));
    assert_eq!(heard, [] as [String; 0], "promoted and followed, but never closed");
    group.close_all().await;
}

#[tokio::test(start_paused = true)]
async fn standbys_are_apart_in_every_tag() {
    let mut group =
        Group::new(4, |config| config.num_standby_replicas(1).rack_aware_assignment_tags("zone"))
            .await;
    for name in ["a1", "a2", "b1", "b2"] {
        group.start(name).await;
    }
    group.settles(&[1, 1, 1, 1], &[1, 1, 1, 1]).await;
    let zone = |role, task: TaskId| {
        let holders = group.stateful(role).into_iter();
        let mut holders = holders.filter(|(_, tasks)| tasks.contains(&task));
        holders.next().map(|(name, _)| name.chars().next().unwrap())
    };
    for partition in 0..4 {
        let task = TaskId::new(1, partition);
        let zones = (zone(TaskRole::Active, task), zone(TaskRole::Standby, task));
        assert!(zones.0.is_some() && zones.1.is_some() && zones.0 != zones.1, "{task}: {zones:?}");
    }
    group.close_all().await;
}

/// The leader does not wait for ever to learn where changelogs end; without that tasks stay where
/// they are.
async fn the_leader_plans_without_ends(fault: Fault) {
    let mut group = Group::new(2, |config| config.acceptable_recovery_lag(0)).await;
    group.start("a").await;
    group.until("a runs", |group| group.counts_of(TaskRole::Active) == [2]).await;
    group.write_words(0, 100).await;
    group.all_counted(100).await;
    let plan = FaultPlan::new().fault(CallKind::ListOffsets, format!("{CHANGELOG}-0"), 0..1, fault);
    group.world.broker.set_faults(Some(plan));
    let began = tokio::time::Instant::now();
    group.start("b").await;
    let planned = || group.recording.made().iter().filter(|plan| plan.at >= began).count();
    for _ in 0..100 {
        if planned() > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(began.elapsed() < seconds(4), "{:?}", began.elapsed());
    group.settles(&[1, 1], &[0, 0]).await;
    group.write_words(0, 100).await;
    let counts = group.world.wait_until(|counts| counts.values().all(|it| *it == 2)).await;
    assert!(counts.values().all(|count| *count == 2));
    group.close_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_gets_no_answer_plans_all_the_same() {
    the_leader_plans_without_ends(Fault::Delay(seconds(3600))).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_refused_plans_all_the_same() {
    let error = BrokerError::TimedOut { call: "list-offsets", limit: seconds(1) };
    the_leader_plans_without_ends(Fault::Fail(error)).await;
}

/// A warm-up that gets nowhere is given up, and nobody asks for rounds for ever.
#[tokio::test(start_paused = true)]
async fn a_warm_up_that_gets_nowhere_is_given_up() {
    let mut group = Group::new(2, |config| config.acceptable_recovery_lag(0)).await;
    group.start("a").await;
    group.until("a runs", |group| group.counts_of(TaskRole::Active) == [2]).await;
    group.write_words(0, 100).await;
    group.all_counted(100).await;
    let gone = || Fault::Fail(BrokerError::TimedOut { call: "fetch", limit: seconds(1) });
    let plan = (0..2).fold(FaultPlan::new(), |plan, partition| {
        plan.fault(CallKind::Fetch, format!("{CHANGELOG}-{partition}"), 0..1_000_000, gone())
    });
    group.world.broker.set_faults(Some(plan));
    group.start("b").await;
    tokio::time::sleep(seconds(600)).await;
    let made = group.recording.made();
    assert!(made.iter().any(|plan| !plan.waiting.is_empty()), "it was waited for");
    assert!(made.last().unwrap().waiting.is_empty(), "it is given up: {made:#?}");
    let rounds = made.len();
    tokio::time::sleep(seconds(1800)).await;
    assert_eq!(group.recording.made().len(), rounds, "no endless probing");
    assert_eq!(group.counts_of(TaskRole::Active), [2, 0]);
    group.close_all().await;
}

/// Whoever pauses an instance does so on purpose, and for as long as that takes.
#[tokio::test(start_paused = true)]
async fn a_warm_up_of_a_paused_instance_goes_on_when_that_is_resumed() {
    let mut group = Group::new(4, |config| config.acceptable_recovery_lag(0)).await;
    group.start("a").await;
    group.until("a runs", |group| group.counts_of(TaskRole::Active) == [4]).await;
    group.write_words(0, 300).await;
    group.all_counted(300).await;
    group.start("b").await;
    group.instances["b"].pause();
    group.until("b warms up", |group| group.counts_of(TaskRole::WarmUp) == [0, 2]).await;
    let rounds = group.recording.made().len();
    tokio::time::sleep(seconds(590)).await;
    assert_eq!(group.recording.made().len(), rounds, "nobody is asked to look at it");
    group.instances["b"].resume();
    group.settles(&[2, 2], &[0, 0]).await;
    group.close_all().await;
}

/// Fifty instances share a thousand tasks; one more joins, one leaves, one crashes.
#[tokio::test(start_paused = true)]
async fn fifty_instances_share_a_thousand_tasks() {
    const NAMES: [&str; 50] = [
        "i00", "i01", "i02", "i03", "i04", "i05", "i06", "i07", "i08", "i09", "i10", "i11", "i12",
        "i13", "i14", "i15", "i16", "i17", "i18", "i19", "i20", "i21", "i22", "i23", "i24", "i25",
        "i26", "i27", "i28", "i29", "i30", "i31", "i32", "i33", "i34", "i35", "i36", "i37", "i38",
        "i39", "i40", "i41", "i42", "i43", "i44", "i45", "i46", "i47", "i48", "i49",
    ];
    let mut group = Group::new(500, |config| config).await;
    for name in NAMES {
        group.start(name).await;
    }
    group
        .until("ten each", |group| group.counts_of(TaskRole::Active).iter().all(|n| *n == 10))
        .await;
    let before = group.stateful(TaskRole::Active);
    let rounds = group.recording.made().len();
    group.start("j").await;
    let even = |group: &Group| {
        let counts = group.counts_of(TaskRole::Active);
        counts.iter().sum::<usize>() == 500 && counts.iter().all(|n| (9..=11).contains(n))
    };
    group.until("even with one more", even).await;
    let after = group.stateful(TaskRole::Active);
    let moved: usize =
        before.iter().map(|(name, tasks)| tasks.difference(&after[name]).count()).sum();
    assert!(moved <= 10, "an added instance takes its share: {moved}");
    assert!(group.recording.made().len() - rounds <= 4);
    group.close("i07").await;
    group.until("even with one less", even).await;
    group.crash("i08");
    group.until("even after a crash", even).await;
    assert_eq!(group.partitions, 500);
    group.close_all().await;
}

/// How long nobody has the task after an instance was closed so.
async fn handed_over_after(membership: GroupMembership, instance_id: bool) -> Duration {
    let mut group = Group::new(1, |config| config.num_standby_replicas(1)).await;
    for name in ["a", "b"] {
        if instance_id {
            group.config = group.config.clone().group_instance_id(name);
        }
        group.start(name).await;
    }
    group
        .until("one each", |group| {
            group.counts_of(TaskRole::Standby).iter().sum::<usize>() == 1 && group.lag() == Some(0)
        })
        .await;
    let active = group.stateful(TaskRole::Active);
    let (&name, _) = active.iter().find(|(_, tasks)| !tasks.is_empty()).expect("somebody runs it");
    let instance = group.instances.remove(name).expect("it is there");
    let began = tokio::time::Instant::now();
    let options = CloseOptions::timeout(seconds(30)).group_membership(membership);
    instance.close_with(options).await.unwrap();
    group.until("the other runs it", |group| group.counts_of(TaskRole::Active) == [1]).await;
    let took = began.elapsed();
    group.close_all().await;
    took
}

/// Whoever closes says whether the others go on at once or wait for it (feature row R27).
#[tokio::test(start_paused = true)]
async fn the_group_is_left_as_whoever_closes_wishes() {
    let session = seconds(3);
    for (membership, instance_id, at_once) in [
        (GroupMembership::Default, false, true),
        (GroupMembership::Default, true, false),
        (GroupMembership::LeaveGroup, false, true),
        (GroupMembership::LeaveGroup, true, true),
        (GroupMembership::RemainInGroup, false, false),
    ] {
        let took = handed_over_after(membership, instance_id).await;
        let as_wished =
            if at_once { took < Duration::from_millis(300) } else { took >= session / 2 };
        assert!(as_wished, "{membership:?}, static {instance_id}: {took:?}");
    }
}

/// Closed while it comes in, it has no place that could be kept, and none that it could come back to.
#[tokio::test(start_paused = true)]
async fn whoever_has_no_place_yet_does_not_remain_in_the_group() {
    let mut group = Group::new(1, |config| config).await;
    group.start("a").await;
    group.until("it runs alone", |group| group.counts_of(TaskRole::Active) == [1]).await;
    group.start("b").await;
    let (app, broker) = (GroupId::from(APPLICATION), group.world.broker.clone());
    let members = async || broker.describe_group(&app).await.unwrap().members.len();
    while members().await < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(group.instances["b"].state(), InstanceState::Rebalancing);
    group.remain("b").await;
    assert_eq!(members().await, 1);
    group.close_all().await;
}

#[tokio::test(start_paused = true)]
async fn queries_of_the_present_state_pass_over_standbys() {
    use headwater_runtime::{QueryError, QueryableStoreTypes, StoreQueryParameters};
    use headwater_store::serde::{Long, Utf8};
    let mut group = Group::new(1, |config| config.num_standby_replicas(1)).await;
    group.start("a").await;
    group.start("b").await;
    group
        .until("one active, one standby", |group| {
            group.counts_of(TaskRole::Active).iter().sum::<usize>() == 1
                && group.counts_of(TaskRole::Standby).iter().sum::<usize>() == 1
        })
        .await;
    group.write_words(0, 3).await;
    group.all_counted(3).await;
    let counts = || QueryableStoreTypes::key_value::<String, i64, _, _>(Utf8, Long);
    for (name, instance) in &group.instances {
        let present = instance.store(StoreQueryParameters::new("counts", counts()));
        let stale = StoreQueryParameters::new("counts", counts()).enable_stale_stores();
        let stale = instance.store(stale).unwrap();
        assert_eq!(stale.all().unwrap().count(), 3, "{name}");
        let follows = !group.stateful(TaskRole::Standby)[name].is_empty();
        assert_eq!(matches!(present, Err(QueryError::NotHere { .. })), follows, "{name}");
    }
    group.close_all().await;
}
