//! Instances in processes of their own: they come and go while records flow, and what each pause
//! was is measured from inside and from outside.

use std::collections::BTreeSet;
use std::time::Duration;

use integration_tests::fleet::{Told, What};

use crate::environment::Tier;
use crate::fleet::{Fleet, LIMIT, figure, now_ms};

/// What silence is allowed to a partition that moves: the goal, which holds for a machine that does
/// nothing else, or several times what the same partitions had while nothing happened. The small
/// tier runs beside builds and without optimization.
fn allowed_ms(goal_ms: i64, control: i64) -> i64 {
    Tier::of_this_run().pick(4 * goal_ms, goal_ms).max(3 * control)
}

fn longest(silences: &std::collections::BTreeMap<String, i64>) -> i64 {
    silences.values().copied().max().unwrap_or(0)
}

/// Lets records flow, and answers the longest silence of a partition from when they come out of all,
/// while nothing happens.
async fn control(fleet: &mut Fleet, length: Duration) -> i64 {
    let began = now_ms();
    fleet.flow();
    let all = fleet.all_tasks();
    fleet.out_again(&all, began).await;
    let window = fleet.window(length).await;
    longest(&fleet.silences(&all, window))
}

/// 12 tasks on A, B and C with a standby each; D joins, leaves, joins again, and is killed.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_move_to_d_and_back_without_a_pause() {
    let tier = Tier::of_this_run();
    let configure = |options: &mut integration_tests::fleet::WorkerOptions| {
        options.standbys = 1;
        options.warmups = 3;
    };
    let mut fleet = Fleet::new(12, tier.pick(1_000, 20_000), configure).await;
    for name in ["a", "b", "c"] {
        fleet.start(name);
    }
    fleet.settled(&[4, 4, 4], &[4, 4, 4]).await;
    fleet.all_counted().await;
    fleet.settled(&[4, 4, 4], &[4, 4, 4]).await;
    let all = fleet.all_tasks();
    let length = tier.pick(Duration::from_secs(4), Duration::from_secs(20));
    let control = control(&mut fleet, length).await;
    figure(&format!("longest silence of a partition while nothing happens: {control} ms"));

    // D joins.
    let before = fleet.generation();
    let from = fleet.start("d");
    let settled = fleet.settled(&[3, 3, 3, 3], &[3, 3, 3, 3]).await;
    let (_, to) = fleet.window(Duration::from_secs(1)).await;
    let moved = fleet.runs("d");
    let rounds = fleet.generation() - before;
    figure(&format!("D has its 3 tasks after {} ms and {rounds} rebalances", settled - from));
    let told = fleet.told();
    assert_eq!(told.interrupted_since(from), moved, "nobody else is disturbed");
    let restored: u64 = told.restored_since(from).values().sum();
    assert!(restored <= 3 * fleet.options.acceptable_lag, "it was warm: {restored} records read");
    let silences = fleet.silences(&all, (from, to));
    let (of_moved, of_others): (Vec<_>, Vec<_>) =
        silences.iter().partition(|(task, _)| moved.contains(*task));
    figure(&format!("silences of what moves {of_moved:?}, of the others {of_others:?}"));
    assert!(longest(&silences) <= allowed_ms(250, control), "{silences:?}, control {control}");
    let task = moved.first().unwrap();
    figure(&format!("the story of {task}:\n{}", told.of_task(task, from)));

    fleet.shows_what_is().await;

    // Nothing happens any more.
    let quiet = now_ms();
    fleet.window(tier.pick(Duration::from_secs(4), Duration::from_mins(1))).await;
    assert_eq!(fleet.told().interrupted_since(quiet), BTreeSet::new());
    assert_eq!(fleet.generation() - before, rounds, "no rebalance without a reason");

    // D leaves in good order.
    let (from, ended) = fleet.close("d", "close").await;
    fleet.settled(&[4, 4, 4], &[4, 4, 4]).await;
    let (_, to) = fleet.window(Duration::from_secs(1)).await;
    assert_eq!(fleet.told().interrupted_since(from), moved);
    let silences = fleet.silences(&all, (from, to));
    figure(&format!("D closes in {} ms; silences {silences:?}", ended - from));
    assert!(longest(&silences) <= allowed_ms(250, control), "{silences:?}, control {control}");

    // D comes back, and is killed.
    fleet.start("d");
    fleet.settled(&[3, 3, 3, 3], &[3, 3, 3, 3]).await;
    let moved = fleet.runs("d");
    let killed = fleet.kill("d");
    let dropped = fleet.dropped(4).await;
    let running = fleet.run_again(&moved, killed).await;
    let out = fleet.out_again(&moved, dropped).await;
    fleet.settled(&[4, 4, 4], &[4, 4, 4]).await;
    assert_eq!(fleet.told().interrupted_since(killed), BTreeSet::new());
    figure(&format!(
        "D is killed: dropped after {} ms, its tasks run {} ms later, records come {} ms later",
        dropped - killed,
        running - dropped,
        out - dropped
    ));
    let repeated = fleet.ends().await;
    figure(&format!("records that came twice: {repeated}"));
}

/// `kill -9` of one of two instances. Answers how long after the coordinator had let it go records
/// came out again, and the longest silence of a partition while nothing happened.
async fn failover(standbys: u32, exactly_once: bool) -> (i64, i64) {
    let tier = Tier::of_this_run();
    let keys = tier.pick(5_000, 50_000);
    let mut fleet = Fleet::new(4, keys, |options| {
        options.standbys = standbys;
        options.exactly_once = exactly_once;
    })
    .await;
    fleet.start("a");
    fleet.start("b");
    let follows = usize::try_from(2 * standbys).unwrap();
    fleet.settled(&[2, 2], &[follows, follows]).await;
    fleet.all_counted().await;
    let control = control(&mut fleet, Duration::from_secs(5)).await;
    fleet.settled(&[2, 2], &[follows, follows]).await;
    let moved = fleet.runs("b");
    let killed = fleet.kill("b");
    let dropped = fleet.dropped(2).await;
    let running = fleet.run_again(&moved, killed).await;
    let out = fleet.out_again(&moved, dropped).await;
    let told = fleet.told();
    assert_eq!(told.interrupted_since(killed), BTreeSet::new(), "nobody else is disturbed");
    let restored: u64 = told.restored_since(killed).values().sum();
    let tail = 2 * fleet.options.acceptable_lag;
    if standbys == 0 {
        // All but what "a" had counted before "b" was there.
        assert!(restored > tail, "more than a tail: {restored}");
    } else {
        assert!(restored <= tail, "the tail only: {restored}");
    }
    let assigned = told.events.iter().find_map(|event| match &event.what {
        What::Stage { task, reason, .. }
            if event.at_ms >= killed && moved.contains(task) && reason != "goes well" =>
        {
            Some(event.at_ms)
        }
        _ => None,
    });
    figure(&format!(
        "standbys {standbys}, exactly once {exactly_once}: detected after {} ms; rebalance {} ms, \
         until all run {} ms with {restored} records restored; records come {} ms after detection; \
         longest silence before {control} ms",
        dropped - killed,
        assigned.unwrap() - dropped,
        running - assigned.unwrap(),
        out - dropped,
    ));
    for task in &moved {
        figure(&format!("{task}:\n{}", told.of_task(task, dropped)));
    }
    let repeated = fleet.ends().await;
    figure(&format!("records that came twice: {repeated}"));
    (out - dropped, control)
}

/// With a standby: 100 ms on a machine that does nothing else, or twice what the same partitions had
/// while nothing happened, a quarter of a second at most.
async fn a_standby_takes_over(exactly_once: bool) {
    let (took, control) = failover(1, exactly_once).await;
    let allowed = Tier::of_this_run().pick(1_500, (2 * control).clamp(100, 250));
    assert!(took <= allowed, "{took} ms, control {control}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_from_a_killed_instance() {
    a_standby_takes_over(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_from_a_killed_instance_exactly_once() {
    a_standby_takes_over(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_standby_a_killed_instance_is_restored() {
    failover(0, false).await;
}

/// What becomes of the place of an instance that is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It is left, and taken anew.
    Left,
    /// It stays in the group, and comes back to its place.
    Kept,
    /// It is that of a static member.
    Static,
}

/// Restarts three instances one after the other.
async fn rolling_restart(place: Place) {
    let word = if place == Place::Kept { "remain" } else { "close" };
    let tier = Tier::of_this_run();
    let mut fleet = Fleet::new(6, tier.pick(2_000, 30_000), |options| {
        options.is_static = place == Place::Static;
        options.session_ms = 30_000;
    })
    .await;
    for name in ["a", "b", "c"] {
        fleet.start(name);
    }
    fleet.settled(&[2, 2, 2], &[0, 0, 0]).await;
    fleet.all_counted().await;
    let all = fleet.all_tasks();
    let control = control(&mut fleet, Duration::from_secs(3)).await;
    let generation = fleet.generation();
    for name in ["a", "b", "c"] {
        let had = fleet.runs(name);
        let (from, ended) = fleet.close(name, word).await;
        let started = fleet.start(name);
        let settled = fleet.settled(&[2, 2, 2], &[0, 0, 0]).await;
        let (_, to) = fleet.window(Duration::from_secs(1)).await;
        let silences = fleet.silences(&all, (from, to));
        figure(&format!(
            "{place:?}, {name}: closed in {} ms, settled {} ms after its start; \
             restored {:?}; silences {silences:?}",
            ended - from,
            settled - started,
            fleet.told().restored_since(from),
        ));
        if place != Place::Left {
            assert_eq!(fleet.runs(name), had, "it gets back what it had");
            let restored: u64 = fleet.told().restored_since(from).values().sum();
            assert!(restored <= 2 * fleet.options.acceptable_lag, "the tail only: {restored}");
        }
        assert!(
            longest(&silences) <= allowed_ms(1_000, control),
            "{silences:?}, control {control}"
        );
    }
    let rounds = fleet.generation() - generation;
    figure(&format!("{place:?}: {rounds} rebalances, control silence {control} ms"));
    let allowed = match place {
        // Three for each instance, and one more where its copies were not near when it came back.
        Place::Left => 12,
        Place::Kept => 3,
        // Nobody else notices.
        Place::Static => 0,
    };
    assert!(rounds <= allowed, "{rounds} rebalances");
    fleet.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_of_dynamic_members_pauses_shortly() {
    rolling_restart(Place::Left).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_in_place_takes_one_rebalance_each() {
    rolling_restart(Place::Kept).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_of_static_members_moves_nothing() {
    rolling_restart(Place::Static).await;
}

/// From one instance to two and three, with state that has to be copied first.
#[tokio::test(flavor = "multi_thread")]
async fn new_instances_get_their_share_when_they_are_warm() {
    let tier = Tier::of_this_run();
    let mut fleet = Fleet::new(6, tier.pick(5_000, 100_000), |_| {}).await;
    fleet.start("a");
    fleet.settled(&[6], &[0]).await;
    fleet.all_counted().await;
    let all = fleet.all_tasks();
    let control = control(&mut fleet, Duration::from_secs(3)).await;
    for (name, runs) in [("b", vec![3, 3]), ("c", vec![2, 2, 2])] {
        let generation = fleet.generation();
        let from = fleet.start(name);
        let settled = fleet.settled(&runs, &vec![0; runs.len()]).await;
        let (_, to) = fleet.window(Duration::from_secs(1)).await;
        let rounds = fleet.generation() - generation;
        let silences = fleet.silences(&all, (from, to));
        let took = settled - from;
        figure(&format!("{runs:?} after {took} ms and {rounds} rebalances; silences {silences:?}"));
        let moved = fleet.runs(name);
        assert_eq!(fleet.told().interrupted_since(from), moved, "nobody else is disturbed");
        assert!(longest(&silences) <= allowed_ms(250, control), "{silences:?}, control {control}");
    }
    fleet.ends().await;
}

/// An instance that is stopped for longer than its session comes back as a zombie, and finds out.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_instance_comes_back_and_joins_anew() {
    let mut fleet = Fleet::new(4, 500, |options| {
        options.standbys = 1;
        options.exactly_once = true;
    })
    .await;
    fleet.start("a");
    fleet.start("b");
    fleet.settled(&[2, 2], &[2, 2]).await;
    fleet.all_counted().await;
    fleet.flow();
    fleet.window(Duration::from_secs(1)).await;
    let moved = fleet.runs("b");
    let frozen = now_ms();
    fleet.freeze("b", true);
    let dropped = fleet.dropped(2).await;
    let out = fleet.out_again(&moved, dropped).await;
    figure(&format!(
        "frozen: dropped after {} ms, out again {} ms later",
        dropped - frozen,
        out - dropped
    ));
    fleet.window(Duration::from_secs(1)).await;
    let goes_on = now_ms();
    fleet.freeze("b", false);
    let is_back = |told: &Told| {
        told.is_settled(&[2, 2], &[2, 2]) && told.interrupted_since(goes_on).is_superset(&moved)
    };
    fleet.story.until("b is back", LIMIT, is_back).await.unwrap();
    fleet.window(Duration::from_secs(1)).await;
    fleet.ends().await;
}

/// Many come at once, one comes and goes all the time, others join while state is restored, and the
/// broker, and so the coordinator of the group, is restarted under all of it.
#[tokio::test(flavor = "multi_thread")]
async fn many_join_at_once_flap_and_lose_their_coordinator() {
    let tier = Tier::of_this_run();
    let mut fleet = Fleet::new(12, tier.pick(500, 5_000), |_| {}).await;
    fleet.flow();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let members = tier.pick(4, 10);
    for name in &names[..members] {
        fleet.start(name);
    }
    let first = 12 % members;
    let mut runs: Vec<usize> =
        (0..members).map(|member| 12 / members + usize::from(member < first)).collect();
    runs.sort_unstable();
    let follows = vec![0; members];
    fleet.settled(&runs, &follows).await;
    fleet.window(Duration::from_secs(1)).await;
    for round in 0..tier.pick(3, 10) {
        fleet.start("flaps");
        let joined = |told: &Told| {
            let holds = told.holds().remove("flaps").unwrap_or_default();
            !(holds.runs.is_empty() && holds.others.is_empty() && holds.follows.is_empty())
        };
        fleet.story.until("it has joined", LIMIT, joined).await.unwrap();
        if round % 2 == 0 {
            fleet.close("flaps", "close").await;
        } else {
            fleet.kill("flaps");
        }
    }
    fleet.settled(&runs, &follows).await;
    fleet.cluster.kill(1).unwrap();
    fleet.cluster.restart(1).unwrap();
    fleet.window(Duration::from_secs(1)).await;
    fleet.settled(&runs, &follows).await;
    fleet.ends().await;
}
