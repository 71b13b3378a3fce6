//! The default assignor: a worked example, and what it promises beyond the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use expect_test::expect_file;
use headwater_assignor::{
    ApplicationState, AssignError, Assignment, Event, FollowUp, HighAvailability, InstanceId,
    InstanceInfo, Lag, MinimumMovement, Phase, Played, Reason, Round, Step, TaskAssignor, TaskId,
    TaskInfo, Trajectory,
};
use proptest::prelude::*;

fn stateful(end: u64) -> TaskInfo {
    let mut info = TaskInfo::stateful();
    info.end_offset = Some(end);
    info
}

/// A group of this many instances of capacity 1, with tasks of one sub-topology.
fn group(tasks: u32, instances: u32, standbys: u32) -> Trajectory {
    let mut group = Trajectory::default();
    group.tasks = (0..tasks).map(|n| (TaskId::new(0, n), stateful(1_000_000))).collect();
    group.instances = (1..=instances).map(|n| (id(n), InstanceInfo::new(1))).collect();
    group.settings.num_standby_replicas = standbys;
    group
}

fn id(number: u32) -> InstanceId {
    InstanceId::new(format!("p{number}"))
}

fn join(number: u32) -> Step {
    Step::new(vec![Event::Join {
        instance: id(number),
        info: InstanceInfo::new(1),
        offsets: BTreeMap::new(),
        empty: false,
    }])
}

fn leave(number: u32) -> Step {
    Step::new(vec![Event::Leave { instance: id(number) }])
}

fn play(trajectory: &Trajectory) -> Played {
    trajectory.play(&MinimumMovement::default()).expect("the group has capacity")
}

fn owners(round: &Round) -> BTreeMap<TaskId, InstanceId> {
    let instances = &round.assignment.instances;
    instances
        .iter()
        .flat_map(|(id, holds)| holds.active.keys().map(|task| (*task, id.clone())))
        .collect()
}

fn last(phase: &Phase) -> &Round {
    phase.rounds.last().expect("the phase has rounds")
}

/// The tasks that run elsewhere after the phase than before.
fn changed(before: &Phase, after: &Phase) -> BTreeSet<TaskId> {
    let before = owners(last(before));
    owners(last(after))
        .into_iter()
        .filter(|(task, id)| before[task] != *id)
        .map(|(t, _)| t)
        .collect()
}

/// Every copy of a round; what is not simply as before with its reason.
fn draw(round: &Round) -> String {
    let mut text = String::new();
    let list = |tasks: &BTreeMap<TaskId, Reason>| {
        let copies = tasks.iter().map(|(task, reason)| match reason {
            Reason::Stays => task.to_string(),
            reason => format!("{task} {reason:?}"),
        });
        copies.collect::<Vec<_>>().join(", ")
    };
    for (id, holds) in &round.assignment.instances {
        let kinds =
            [("active ", &holds.active), ("standby", &holds.standby), ("warm-up", &holds.warmup)];
        let held: Vec<String> = kinds
            .into_iter()
            .filter(|(_, tasks)| !tasks.is_empty())
            .map(|(kind, tasks)| format!("{kind}  {}", list(tasks)))
            .collect();
        let held = if held.is_empty() { "nothing".to_owned() } else { held.join("\n      ") };
        writeln!(text, "  {id}  {held}").expect("text");
    }
    for waiting in &round.assignment.waiting_for {
        let Lag::Behind(offsets) = waiting.lag else { continue };
        let (task, instance) = (waiting.task, &waiting.instance);
        writeln!(
            text,
            "  waiting until {instance} has caught up on {task}, {offsets} offsets behind"
        )
        .expect("text");
    }
    text
}

fn draw_all(played: &Played, titles: &[&str]) -> String {
    let mut text = String::new();
    for (title, phase) in titles.iter().zip(&played.phases) {
        for (number, round) in phase.rounds.iter().enumerate() {
            writeln!(text, "{title}, round {}", number + 1).expect("text");
            text.push_str(&draw(round));
        }
        let runs = last(phase).assignment.instances.iter();
        let runs: Vec<String> =
            runs.map(|(id, holds)| format!("{id} {}", holds.active.len())).collect();
        writeln!(text, "  = {}\n", runs.join(", ")).expect("text");
    }
    text
}

/// 12 tasks with state on 3 instances, one standby each: one instance joins, leaves in good order,
/// and another crashes.
#[test]
fn worked_example() {
    let mut trajectory = group(12, 3, 1);
    trajectory.steps = vec![
        join(4),
        // p4 is to go: it gives up its capacity, hands over, and leaves.
        Step::new(vec![Event::Capacity { instance: id(4), to: 0 }]),
        leave(4),
        // p2 crashes.
        leave(2),
    ];
    let played = play(&trajectory);
    let titles = ["start", "p4 joins", "p4 is drained", "p4 leaves", "p2 crashes"];
    expect_file!["../data/worked_example.txt"].assert_eq(&draw_all(&played, &titles));
    check_worked_example(&played);
}

/// The same group under Kafka Streams' default, which has no way to drain an instance: whoever leaves
/// in good order is gone like one that crashed.
#[test]
fn worked_example_of_kafka_streams() {
    let mut trajectory = group(12, 3, 1);
    trajectory.steps = vec![join(4), leave(4), leave(2)];
    let played = trajectory.play(&HighAvailability::default()).expect("the group has capacity");
    let titles = ["start", "p4 joins", "p4 leaves", "p2 crashes"];
    let text = draw_all(&played, &titles);
    expect_file!["../data/worked_example_of_kafka_streams.txt"].assert_eq(&text);
}

fn check_worked_example(played: &Played) {
    let [start, joined, drained, left, crashed] = &played.phases[..] else { unreachable!() };
    assert!(played.phases.iter().all(|phase| phase.stable));
    // Three tasks each, three moved, and each of them was warm where it went.
    let moved = changed(start, joined);
    assert_eq!(moved.len(), 3);
    let instances = &last(joined).assignment.instances;
    assert!(instances.values().all(|holds| holds.active.len() == 3));
    for pair in joined.rounds.windows(2) {
        let before = owners(&pair[0]);
        for (task, owner) in owners(&pair[1]) {
            assert!(before[&task] == owner || pair[0].assignment.instances[&owner].follows(&task));
        }
    }
    // Only what ran on p4 and p2 moves when they go.
    let ran = |phase: &Phase, number| {
        owners(last(phase))
            .into_iter()
            .filter(|(_, owner)| *owner == id(number))
            .map(|(t, _)| t)
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(changed(joined, drained), ran(joined, 4));
    assert_eq!(changed(drained, left), BTreeSet::new());
    assert_eq!(changed(left, crashed), ran(left, 2));
    assert!(
        [drained, left, crashed]
            .iter()
            .all(|phase| { phase.rounds.iter().all(|round| round.actives_not_ready == 0) })
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// With one sub-topology and equal instances the fewest moves are a matter of counting.
    #[test]
    fn joins_move_a_share_and_leaves_what_was_lost(
        tasks in 1..40_u32, instances in 2..9_u32, standbys in 0..3_u32, gone in 1..9_u32,
    ) {
        let gone = gone.min(instances);
        let mut trajectory = group(tasks, instances, standbys);
        trajectory.steps = vec![join(instances + 1), leave(gone)];
        let played = play(&trajectory);
        let [start, joined, left] = &played.phases[..] else { unreachable!() };
        let moved = changed(start, joined);
        let new = owners(last(joined)).into_iter().filter(|(_, owner)| *owner == id(instances + 1));
        prop_assert_eq!(&moved, &new.map(|(task, _)| task).collect::<BTreeSet<_>>());
        prop_assert_eq!(moved.len(), (tasks / (instances + 1)) as usize);
        let lost = owners(last(joined)).into_iter().filter(|(_, owner)| *owner == id(gone));
        let lost: BTreeSet<TaskId> = lost.map(|(task, _)| task).collect();
        if standbys == 0 {
            prop_assert_eq!(changed(joined, left), lost);
        } else {
            prop_assert!(changed(joined, left).is_superset(&lost));
        }
    }

    /// [9] and [12] in groups with few copies, where tasks without state fill up some instances.
    #[test]
    fn copies_stay_even_beside_tasks_without_state(
        tasks in 1..7_u32, stateless in 0..8_u32, instances in 2..7_u32, standbys in 0..3_u32,
        gone in 1..7_u32,
    ) {
        let mut trajectory = group(tasks, instances, standbys);
        trajectory.tasks.extend((0..stateless).map(|n| (TaskId::new(1, n), TaskInfo::stateless())));
        let gone = gone.min(instances);
        trajectory.steps = vec![join(instances + 1), join(instances + 2), leave(gone)];
        for phase in &play(&trajectory).phases {
            let round = last(phase);
            let held = || round.assignment.instances.values();
            let copies = held().map(|holds| {
                let active = holds.active.keys().filter(|task| task.subtopology == 0);
                active.count() + holds.standby.len()
            });
            let all = held().map(|holds| holds.active.len() + holds.standby.len());
            let ends = |counts: Vec<usize>| {
                (*counts.iter().min().expect("not empty"), *counts.iter().max().expect("not empty"))
            };
            let (least, most) = ends(copies.collect());
            prop_assert!(most - least <= 1, "{} [9]", draw(round));
            let (least, most) = ends(all.collect());
            prop_assert!(least > 0 || most < 2, "{} [12]", draw(round));
        }
    }

    /// An instance that restarts with its state gets its tasks back, and nobody else notices.
    #[test]
    fn a_bounce_with_state_moves_nothing(
        tasks in 1..40_u32, instances in 1..9_u32, standbys in 0..3_u32, appended in 0..50_000_u64,
    ) {
        let mut trajectory = group(tasks, instances, standbys);
        trajectory.steps = vec![Step::new(vec![
            Event::Bounce { instance: id(1), empty: false },
            Event::Append { offsets: appended, tasks: BTreeSet::new() },
        ])];
        let played = play(&trajectory);
        prop_assert_eq!(changed(&played.phases[0], &played.phases[1]), BTreeSet::new());
    }

    /// The target stays as it is for as long as the group does, whatever the warm-ups are doing.
    #[test]
    fn the_target_is_kept_until_the_group_changes(
        tasks in 1..40_u32, instances in 1..7_u32, standbys in 0..3_u32, per_round in 100_000..600_000_u64,
    ) {
        let mut trajectory = group(tasks, instances, standbys);
        trajectory.model.restore_per_round = Some(per_round);
        trajectory.steps = vec![join(instances + 1)];
        let played = play(&trajectory);
        let target = |round: &Round| {
            round.assignment.standing_plan.clone().expect("there is always a target").target
        };
        for phase in &played.phases {
            prop_assert!(phase.rounds.windows(2).all(|pair| target(&pair[0]) == target(&pair[1])));
        }
    }
}

/// `p1` runs everything; `p2` and `p3` have joined. Nobody reads anything unless the test says so.
fn newcomers(tasks: u32) -> ApplicationState {
    let mut state = ApplicationState::default();
    state.tasks = (0..tasks).map(|n| (TaskId::new(0, n), stateful(1_000_000))).collect();
    let mut first = InstanceInfo::new(1);
    first.previous_active = state.tasks.keys().copied().collect();
    first.lags = state.tasks.keys().map(|task| (*task, Lag::Latest)).collect();
    state.instances.insert(id(1), first);
    state.instances.insert(id(2), InstanceInfo::new(1));
    state.instances.insert(id(3), InstanceInfo::new(1));
    state
}

/// Carries out a plan; a new copy is at `lag` and stays there.
fn next(state: &ApplicationState, plan: &Assignment, lag: u64) -> ApplicationState {
    let mut next = state.clone();
    next.standing_plan.clone_from(&plan.standing_plan);
    for (id, info) in &mut next.instances {
        let holds = &plan.instances[id];
        info.previous_active = holds.active.keys().copied().collect();
        info.previous_standby = holds.standby.keys().chain(holds.warmup.keys()).copied().collect();
        for task in &info.previous_standby {
            info.lags.entry(*task).or_insert(Lag::Behind(lag));
        }
    }
    next
}

#[test]
fn a_warm_up_without_progress_is_given_up_and_the_group_settles() {
    let assignor = MinimumMovement::default();
    let mut state = newcomers(3);
    let mut tried = BTreeSet::new();
    let mut rounds = 0;
    loop {
        let plan = assignor.assign(&state).unwrap();
        let waiting = plan.waiting_for.iter().map(|w| (w.task, w.instance.clone()));
        tried.extend(waiting);
        if plan.followup == FollowUp::None {
            assert_eq!(
                plan.instances[&id(1)].active.len(),
                3,
                "everything runs where its state is"
            );
            break;
        }
        rounds += 1;
        assert!(rounds < 40, "the follow-ups end");
        state = next(&state, &plan, 900_000);
    }
    assert!(tried.len() > 2, "other copies were tried when the first made no progress: {tried:?}");
}

#[test]
fn warm_ups_are_limited_in_the_group_and_on_each_instance() {
    let mut state = newcomers(12);
    let warmups = |assignor: &MinimumMovement, state: &ApplicationState| {
        let plan = assignor.assign(state).unwrap();
        [2, 3].map(|number| plan.instances[&id(number)].warmup.len())
    };
    assert_eq!(warmups(&MinimumMovement::default(), &state), [1, 1], "in turns");
    state.settings.max_warmup_replicas = 100;
    assert_eq!(warmups(&MinimumMovement::default(), &state), [4, 4]);
    let mut careful = MinimumMovement::default();
    careful.warmups_per_thread = 3;
    assert_eq!(warmups(&careful, &state), [3, 3]);
}

#[test]
fn what_is_nearest_to_done_is_warmed_up_first() {
    let mut state = newcomers(6);
    state.settings.max_warmup_replicas = 1;
    let half_done = TaskId::new(0, 4);
    let info = state.instances.get_mut(&id(2)).unwrap();
    info.previous_standby.insert(half_done);
    info.lags.insert(half_done, Lag::Behind(500_000));
    let plan = MinimumMovement::default().assign(&state).unwrap();
    let waiting: Vec<TaskId> = plan.waiting_for.iter().map(|waiting| waiting.task).collect();
    assert_eq!(waiting, [half_done]);
    assert_eq!(plan.instances[&id(2)].warmup[&half_done], Reason::WarmUp);
    assert_eq!(plan.instances[&id(1)].active[&half_done], Reason::FollowState);
}

#[test]
fn heavy_tasks_are_spread_where_nothing_else_decides() {
    let mut state = ApplicationState::default();
    for partition in 0..6 {
        let mut info = TaskInfo::stateless();
        info.weight = if partition < 3 { 10 } else { 1 };
        state.tasks.insert(TaskId::new(0, partition), info);
    }
    state.instances = (1..=3).map(|number| (id(number), InstanceInfo::new(1))).collect();
    let plan = MinimumMovement::default().assign(&state).unwrap();
    for holds in plan.instances.values() {
        let weight: u32 = holds.active.keys().map(|task| state.tasks[task].weight).sum();
        assert_eq!(weight, 11);
    }
}

#[test]
fn tasks_without_state_stay_with_their_owner() {
    let mut state = ApplicationState::default();
    state.tasks = (0..9).map(|n| (TaskId::new(0, n), TaskInfo::stateless())).collect();
    state.instances = (1..=3).map(|number| (id(number), InstanceInfo::new(1))).collect();
    for (task, number) in [(0, 3), (1, 3), (2, 3), (3, 1), (4, 1), (5, 2)] {
        let info = state.instances.get_mut(&id(number)).unwrap();
        info.previous_active.insert(TaskId::new(0, task));
    }
    let plan = MinimumMovement::default().assign(&state).unwrap();
    for (id, info) in &state.instances {
        let holds = &plan.instances[id];
        assert_eq!(holds.active.len(), 3);
        assert!(info.previous_active.iter().all(|task| holds.active[task] == Reason::Stays));
    }
}

#[test]
fn copies_are_in_different_zones_however_uneven_these_are() {
    let mut trajectory = group(10, 4, 1);
    trajectory.settings.rack_aware_assignment_tags.push("zone".to_owned());
    for (instance, info) in &mut trajectory.instances {
        let zone = if *instance == id(1) { "a" } else { "b" };
        info.tags.insert("zone".to_owned(), zone.to_owned());
    }
    let played = play(&trajectory);
    let plan = &last(&played.phases[0]).assignment;
    assert_eq!(plan.instances[&id(1)].active.len() + plan.instances[&id(1)].standby.len(), 10);
}

#[test]
fn no_plan_without_instances_or_capacity() {
    let assignor = MinimumMovement::default();
    let mut state = ApplicationState::default();
    assert!(matches!(assignor.assign(&state), Err(AssignError::NoInstances)));
    state.instances.insert(id(1), InstanceInfo::new(0));
    assert!(matches!(assignor.assign(&state), Err(AssignError::NoCapacity { instances: 1 })));
}
