//! What every built-in assignor promises, over arbitrary groups and whatever happens to them.
//!
//! The numbers in brackets are those of the invariants in the crate's guide.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use headwater_assignor::{
    ApplicationState, AssignError, Assignment, Event, FallbackPrior, HighAvailability, InstanceId,
    InstanceInfo, Lag, LegacySticky, MAX_OFFSET, MemberId, MemberInfo, MinimumMovement,
    PartitionRole, Played, RackAwareStrategy, RackId, Settings, Step, Sticky, TaskAssignor, TaskId,
    TaskInfo, TaskPartition, ThreadRule, TopicName, TopicPartition, Trajectory, assign_threads,
    hand_over, moves, validate,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;

fn built_in() -> Vec<Box<dyn TaskAssignor>> {
    vec![
        Box::new(MinimumMovement::default()),
        Box::new(HighAvailability::default()),
        Box::new(Sticky::default()),
        Box::new(Sticky::preserving()),
        Box::new(LegacySticky::default()),
        Box::new(LegacySticky::preserving()),
        Box::new(FallbackPrior::default()),
    ]
}

/// Whether the assignor looks at lags.
fn follows_state(assignor: &dyn TaskAssignor) -> bool {
    ["minimum_movement", "high_availability"].contains(&assignor.name())
}

fn tasks() -> impl Strategy<Value = BTreeMap<TaskId, TaskInfo>> {
    let racks = || btree_set(select(vec!["a", "b", "c"]), 1..3);
    let subtopology = (any::<bool>(), vec((racks(), racks(), 0_u64..200_000), 1..6));
    vec(subtopology, 1..4).prop_map(|subtopologies| {
        let mut tasks = BTreeMap::new();
        for (number, (stateful, partitions)) in (0..).zip(subtopologies) {
            for (partition, (source, changelog, end)) in (0..).zip(partitions) {
                let mut info = if stateful { TaskInfo::stateful() } else { TaskInfo::stateless() };
                info.end_offset = stateful.then_some(end);
                let mut add = |topic: &str, role, racks: &BTreeSet<&str>| {
                    let topic = TopicName::new(format!("{topic}-{number}"));
                    let mut info_of = TaskPartition::new(TopicPartition { topic, partition }, role);
                    info_of.racks = racks.iter().map(|rack| RackId::from(*rack)).collect();
                    info.partitions.push(info_of);
                };
                add("in", PartitionRole::Source, &source);
                if stateful {
                    add("store", PartitionRole::Changelog, &changelog);
                }
                tasks.insert(TaskId::new(number, partition), info);
            }
        }
        tasks
    })
}

fn instance() -> impl Strategy<Value = InstanceInfo> {
    (1_u32..4, select(vec!["a", "b", "c"]), any::<bool>()).prop_map(|(capacity, zone, racked)| {
        let mut info = InstanceInfo::new(capacity);
        info.tags.insert("zone".to_owned(), zone.to_owned());
        if racked {
            info.racks.push(Some(RackId::from(zone)));
        }
        info
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let strategies = vec![
        RackAwareStrategy::None,
        RackAwareStrategy::MinTraffic,
        RackAwareStrategy::BalanceSubtopology,
    ];
    let lags = vec![0, 100, 10_000, MAX_OFFSET];
    (select(lags), 1_u32..4, 0_u32..3, select(strategies), any::<[bool; 2]>()).prop_map(
        |(lag, warmups, standbys, strategy, [tagged, costly])| {
            let mut settings = Settings::default();
            settings.acceptable_recovery_lag = lag;
            settings.max_warmup_replicas = warmups;
            settings.num_standby_replicas = standbys;
            settings.rack_aware_assignment_strategy = strategy;
            settings.rack_aware_assignment_traffic_cost = costly.then_some(3);
            settings.rack_aware_assignment_non_overlap_cost = costly.then_some(2);
            if tagged {
                settings.rack_aware_assignment_tags.push("zone".to_owned());
            }
            settings
        },
    )
}

fn id(number: usize) -> InstanceId {
    InstanceId::new(format!("p{number}"))
}

fn instances(least: usize) -> impl Strategy<Value = BTreeMap<InstanceId, InstanceInfo>> {
    vec(instance(), least..6).prop_map(|infos| {
        infos.into_iter().enumerate().map(|(number, info)| (id(number + 1), info)).collect()
    })
}

/// A snapshot in which anything may have run anywhere and anybody may be behind.
fn snapshot() -> impl Strategy<Value = ApplicationState> {
    (tasks(), instances(1), settings(), any::<u64>()).prop_map(
        |(tasks, instances, settings, seed)| {
            let mut state = ApplicationState::default();
            (state.tasks, state.instances, state.settings) = (tasks, instances, settings);
            scatter(&mut state, seed);
            state
        },
    )
}

/// Gives each task an owner, followers and lags, or none, as the bits of a seed will have it.
fn scatter(state: &mut ApplicationState, mut seed: u64) {
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let count = state.instances.len() as u64;
    for (task, info) in &state.tasks {
        let owner = draw(count + 1);
        for (number, instance) in (0..).zip(state.instances.values_mut()) {
            let end = info.end_offset.unwrap_or(0);
            if number == owner {
                instance.previous_active.insert(*task);
                if info.stateful {
                    let behind = Lag::Behind(draw(end + 1));
                    instance.lags.insert(*task, if draw(3) > 0 { Lag::Latest } else { behind });
                }
            } else if info.stateful && draw(3) == 0 {
                instance.previous_standby.insert(*task);
                instance.lags.insert(*task, Lag::Behind(draw(end + 1)));
            } else if info.stateful {
                instance.lags.insert(*task, Lag::of(None, end));
            }
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    let one = || (1_usize..8).prop_map(id);
    prop_oneof![
        (one(), instance(), any::<bool>()).prop_map(|(instance, info, empty)| Event::Join {
            instance,
            info,
            offsets: BTreeMap::new(),
            empty
        }),
        one().prop_map(|instance| Event::Leave { instance }),
        (one(), any::<bool>()).prop_map(|(instance, empty)| Event::Bounce { instance, empty }),
        (one(), 1_u32..4).prop_map(|(instance, to)| Event::Capacity { instance, to }),
        (1_u64..50_000).prop_map(|offsets| Event::Append { offsets, tasks: BTreeSet::new() }),
    ]
}

fn story() -> impl Strategy<Value = Trajectory> {
    let restore = select(vec![None, Some(1_000), Some(100_000)]);
    (tasks(), instances(1), settings(), restore, any::<bool>(), vec(event(), 0..5)).prop_map(
        |(tasks, instances, settings, restore, keep, events)| {
            let mut story = Trajectory::default();
            (story.tasks, story.instances, story.settings) = (tasks, instances, settings);
            story.model.restore_per_round = restore;
            story.model.keep_unassigned_state = keep;
            story.model.max_rounds = 12;
            // An event that names somebody who has never been there is no event.
            let mut known: BTreeSet<InstanceId> = story.instances.keys().cloned().collect();
            for event in events {
                let possible = match &event {
                    Event::Join { instance, .. } => {
                        known.insert(instance.clone());
                        true
                    }
                    Event::Leave { instance }
                    | Event::Bounce { instance, .. }
                    | Event::Capacity { instance, .. } => known.contains(instance),
                    _ => true,
                };
                if possible {
                    story.steps.push(Step::new(vec![event]));
                }
            }
            story
        },
    )
}

/// Notes what an assignor was asked and what it answered.
struct Recorder<'a> {
    inner: &'a dyn TaskAssignor,
    rounds: RefCell<Vec<(ApplicationState, Assignment)>>,
}

impl TaskAssignor for Recorder<'_> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn assign(&self, state: &ApplicationState) -> Result<Assignment, AssignError> {
        let assignment = self.inner.assign(state)?;
        self.rounds.borrow_mut().push((state.clone(), assignment.clone()));
        Ok(assignment)
    }
}

fn play(
    story: &Trajectory,
    assignor: &dyn TaskAssignor,
) -> (Played, Vec<(ApplicationState, Assignment)>) {
    let recorder = Recorder { inner: assignor, rounds: RefCell::new(Vec::new()) };
    let played = story.play(&recorder).unwrap_or_else(|error| panic!("{story:#?}: {error}"));
    (played, recorder.rounds.into_inner())
}

/// [1] to [5]: what holds in every round, settled or not.
fn check_safe(state: &ApplicationState, plan: &Assignment, assignor: &dyn TaskAssignor) {
    let name = assignor.name();
    assert_eq!(validate(state, plan), Ok(()), "{name}");
    let lag = |instance: &InstanceId, task: &TaskId| {
        let full = Lag::of(None, state.tasks[task].end_offset.unwrap_or(0));
        state.instances[instance].lags.get(task).copied().unwrap_or(full)
    };
    let is_ready =
        |id: &InstanceId, task| lag(id, task).is_caught_up(state.settings.acceptable_recovery_lag);
    let mut extra = 0;
    for (task, _) in state.tasks.iter().filter(|(_, info)| info.stateful) {
        let copies = plan.instances.values().filter(|holds| holds.has(task)).count();
        let wanted = (1 + state.settings.num_standby_replicas as usize).min(plan.instances.len());
        assert!(copies >= wanted, "{name}: {task} has {copies} copies, {wanted} are wanted [4]");
        extra += copies - wanted;
        if follows_state(assignor) {
            let (runs, _) =
                plan.instances.iter().find(|(_, holds)| holds.active.contains_key(task)).unwrap();
            let ready = plan.instances.keys().any(|id| is_ready(id, task));
            assert!(!ready || is_ready(runs, task), "{name}: {task} runs behind on {runs} [5]");
        }
    }
    let allowed = if follows_state(assignor) { state.settings.max_warmup_replicas } else { 0 };
    assert!(extra <= allowed as usize, "{name}: {extra} copies too many [4]");
}

/// The plan with every instance renamed.
fn renamed(
    plan: &Assignment,
    rename: impl Fn(&InstanceId) -> InstanceId,
) -> Vec<(InstanceId, Vec<TaskId>, Vec<TaskId>)> {
    plan.instances
        .iter()
        .map(|(id, holds)| {
            let follows = holds.standby.keys().chain(holds.warmup.keys()).copied();
            (rename(id), holds.active.keys().copied().collect(), follows.collect())
        })
        .collect()
}

fn load_spread(state: &ApplicationState, plan: &Assignment) -> f64 {
    let loads = plan
        .instances
        .iter()
        .map(|(id, holds)| holds.active.len() as f64 / f64::from(state.instances[id].capacity));
    let loads: Vec<f64> = loads.collect();
    loads.iter().copied().fold(0.0, f64::max) - loads.iter().copied().fold(f64::INFINITY, f64::min)
}

fn with_members(mut state: ApplicationState) -> ApplicationState {
    let tasks = state.tasks.clone();
    for (id, info) in &mut state.instances {
        let threads = info.capacity as usize;
        for thread in 0..threads {
            let mut member = MemberInfo::default();
            let share = |tasks: &BTreeSet<TaskId>| {
                tasks.iter().copied().skip(thread).step_by(threads).collect()
            };
            member.previous_active = share(&info.previous_active);
            member.previous_standby = share(&info.previous_standby);
            let sources = member.previous_active.iter().flat_map(|task| sources(&tasks, *task));
            member.owned_partitions = sources.collect();
            info.members.insert(MemberId::new(format!("{id}-t{thread}")), member);
        }
    }
    state
}

fn sources(tasks: &BTreeMap<TaskId, TaskInfo>, task: TaskId) -> Vec<TopicPartition> {
    let partitions = tasks[&task].partitions.iter().filter(|p| p.role.is_source());
    partitions.map(|partition| partition.id.clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_is_safe(state in snapshot()) {
        for assignor in built_in() {
            let plan = assignor.assign(&state).unwrap();
            check_safe(&state, &plan, &*assignor);
        }
    }

    #[test]
    fn every_round_of_every_story_is_safe(story in story()) {
        for assignor in built_in() {
            for (state, plan) in play(&story, &*assignor).1 {
                check_safe(&state, &plan, &*assignor);
            }
        }
    }

    #[test]
    fn names_do_not_matter_but_for_their_order(state in snapshot()) {
        let rename = |id: &InstanceId| InstanceId::new(format!("q{}00", id.as_str().trim_start_matches('p')));
        let mut other = state.clone();
        other.instances = state.instances.iter().map(|(id, info)| (rename(id), info.clone())).collect();
        for assignor in built_in() {
            let (plan, same) = (assignor.assign(&state).unwrap(), assignor.assign(&state).unwrap());
            prop_assert_eq!(&plan, &same);
            let renaming = renamed(&plan, rename);
            let plan = assignor.assign(&other).unwrap();
            prop_assert_eq!(renaming, renamed(&plan, InstanceId::clone), "{}", assignor.name());
        }
    }

    #[test]
    fn moves_turn_what_was_into_the_plan(state in snapshot()) {
        for assignor in built_in() {
            let plan = assignor.assign(&state).unwrap();
            let mut runs: BTreeMap<InstanceId, BTreeSet<TaskId>> = BTreeMap::new();
            let mut follows = runs.clone();
            for (id, info) in &state.instances {
                runs.insert(id.clone(), info.previous_active.clone());
                let only = info.previous_standby.difference(&info.previous_active);
                follows.insert(id.clone(), only.copied().collect());
            }
            for moved in moves(&state, &plan) {
                for before in [&moved.from, &moved.to].into_iter().flatten() {
                    runs.get_mut(before).unwrap().remove(&moved.task);
                    if moved.to.is_none() || Some(before) == moved.to.as_ref() {
                        follows.get_mut(before).unwrap().remove(&moved.task);
                    }
                }
                if let Some(to) = &moved.to {
                    let now = if moved.kind.as_str() == "active" { &mut runs } else { &mut follows };
                    now.get_mut(to).unwrap().insert(moved.task);
                }
            }
            for (id, holds) in &plan.instances {
                let active: BTreeSet<TaskId> = holds.active.keys().copied().collect();
                let standby: BTreeSet<TaskId> =
                    holds.standby.keys().chain(holds.warmup.keys()).copied().collect();
                prop_assert_eq!((&runs[id], &follows[id]), (&active, &standby), "{} {}", assignor.name(), id);
            }
        }
    }

    /// [10], and a task that stays on its instance leaves its thread only if balance asks for it.
    #[test]
    fn threads_differ_by_at_most_one_task(state in snapshot()) {
        let state = with_members(state);
        for assignor in built_in() {
            let plan = assignor.assign(&state).unwrap();
            for rule in [ThreadRule::AsKafkaStreams, ThreadRule::Apart] {
                for (id, threads) in assign_threads(&state, &plan, rule) {
                    let holds = &plan.instances[&id];
                    let spread = |sizes: Vec<usize>| {
                        sizes.iter().max().unwrap() - sizes.iter().min().unwrap()
                    };
                    let sizes = |size: fn(&headwater_assignor::ThreadTasks) -> usize| {
                        threads.values().map(size).collect::<Vec<_>>()
                    };
                    prop_assert!(spread(sizes(|t| t.active.len() + t.standby.len())) <= 1, "{} {:?}", id, rule);
                    if rule == ThreadRule::Apart {
                        prop_assert!(spread(sizes(|t| t.active.len())) <= 1);
                        prop_assert!(spread(sizes(|t| t.standby.len())) <= 1);
                    }
                    let given: Vec<TaskId> = threads.values().flat_map(|t| t.active.iter().copied()).collect();
                    prop_assert_eq!(given.len(), holds.active.len());
                    prop_assert_eq!(given.into_iter().collect::<BTreeSet<_>>(), holds.active.keys().copied().collect());
                }
            }
        }
    }

    /// [7] and [21].
    #[test]
    fn two_cooperative_rounds_suffice(state in snapshot()) {
        let state = with_members(state);
        for assignor in built_in() {
            let plan = assignor.assign(&state).unwrap();
            let threads = assign_threads(&state, &plan, assignor.thread_rule());
            let told = hand_over(&state, &threads);
            let mut owners: BTreeMap<TopicPartition, BTreeSet<MemberId>> = BTreeMap::new();
            for (member, info) in state.instances.values().flat_map(|info| &info.members) {
                for partition in &info.owned_partitions {
                    owners.entry(partition.clone()).or_default().insert(member.clone());
                }
            }
            let mut next = state.clone();
            for (id, members) in &told {
                for (member, told) in members {
                    for task in told.active.iter().chain(&told.withheld) {
                        let elsewhere = sources(&state.tasks, *task).iter().any(|partition| {
                            owners.get(partition).is_some_and(|owners| !owners.contains(member))
                        });
                        prop_assert_eq!(elsewhere, told.withheld.contains(task), "{} {}", member, task);
                    }
                    let owned = told.active.iter().flat_map(|task| sources(&state.tasks, *task));
                    let info = next.instances.get_mut(id).unwrap().members.get_mut(member).unwrap();
                    info.owned_partitions = owned.collect();
                }
            }
            let second = hand_over(&next, &threads);
            prop_assert!(second.values().flatten().all(|(_, told)| told.withheld.is_empty()));
        }
    }

    /// [9], [13] and [14], with everything read between two rounds.
    #[test]
    fn a_group_settles_evenly_and_stays_so(mut story in story()) {
        story.model.restore_per_round = None;
        story.model.max_rounds = 60;
        for assignor in [&MinimumMovement::default() as &dyn TaskAssignor, &HighAvailability::default()] {
            let (played, rounds) = play(&story, assignor);
            prop_assert!(played.totals().all_stable, "{} [14]", assignor.name());
            let Some((state, plan)) = rounds.last() else { continue };
            let mut next = state.clone();
            next.standing_plan.clone_from(&plan.standing_plan);
            for (id, holds) in &plan.instances {
                let info = next.instances.get_mut(id).unwrap();
                info.previous_active = holds.active.keys().copied().collect();
                info.previous_standby = holds.standby.keys().copied().collect();
                for task in holds.active.keys().chain(holds.standby.keys()).filter(|t| state.tasks[t].stateful) {
                    let lag = if holds.active.contains_key(task) { Lag::Latest } else { Lag::Behind(0) };
                    info.lags.insert(*task, lag);
                }
            }
            let again = assignor.assign(&next).unwrap();
            prop_assert!(!again.followup.is_wanted(), "{} [13]", assignor.name());
            prop_assert_eq!(renamed(&again, InstanceId::clone), renamed(plan, InstanceId::clone), "{} [13]", assignor.name());
            if assignor.name() == "minimum_movement" {
                prop_assert!(load_spread(state, plan) <= 1.0, "[9]");
            }
        }
    }
}

/// One stateful task that ran on `p1`, which is not caught up; nobody knows how far `p2` is.
fn unknown_lag() -> ApplicationState {
    let mut state = ApplicationState::default();
    let task = TaskId::new(0, 0);
    state.tasks.insert(task, TaskInfo::stateful());
    for (id, lag) in [("p1", Lag::Behind(0)), ("p2", Lag::Unknown), ("p3", Lag::Behind(90_000))] {
        let mut info = InstanceInfo::new(1);
        info.lags.insert(task, lag);
        state.instances.insert(id.into(), info);
    }
    state.instances.get_mut(&InstanceId::from("p2")).unwrap().previous_standby.insert(task);
    state
}

/// [22]: the original takes an unknown lag for the best. Ours does not.
#[test]
fn high_availability_prefers_an_unknown_lag_and_minimum_movement_does_not() {
    let mut state = unknown_lag();
    // Nobody is known to be caught up: the original goes to the unknown, ours to the least behind.
    let task = TaskId::new(0, 0);
    state
        .instances
        .get_mut(&InstanceId::from("p1"))
        .unwrap()
        .lags
        .insert(task, Lag::Behind(50_000));
    let runs = |assignor: &dyn TaskAssignor| {
        let plan = assignor.assign(&state).unwrap();
        let (id, _) =
            plan.instances.into_iter().find(|(_, h)| h.active.contains_key(&task)).unwrap();
        id
    };
    assert_eq!(runs(&HighAvailability::default()), "p2".into());
    assert_eq!(runs(&MinimumMovement::default()), "p1".into());
}

/// [9]: tags keep the original from evening out standbys; [12]: it leaves a big instance idle.
#[test]
fn high_availability_leaves_a_big_instance_idle_and_minimum_movement_does_not() {
    let mut state = ApplicationState::default();
    for partition in 0..2 {
        state.tasks.insert(TaskId::new(0, partition), TaskInfo::stateless());
    }
    state.instances.insert("p1".into(), InstanceInfo::new(1));
    state.instances.insert("p2".into(), InstanceInfo::new(1));
    state.instances.insert("p3".into(), InstanceInfo::new(6));
    let idle = |assignor: &dyn TaskAssignor| {
        let plan = assignor.assign(&state).unwrap();
        plan.instances[&InstanceId::from("p3")].active.is_empty()
    };
    assert!(idle(&HighAvailability::default()));
    assert!(!idle(&MinimumMovement::default()));
}
