//! The pieces for assignors of one's own, and what such an assignor hears of its plans.

use std::cell::RefCell;
use std::collections::BTreeSet;

use headwater_assignor::{
    ApplicationState, AssignError, Assignment, InstanceAssignment, InstanceId, InstanceInfo,
    MinimumMovement, PartitionRole, Problem, RackAwareStrategy, RackId, RackOptimisation, Reason,
    TaskAssignor, TaskId, TaskInfo, TaskPartition, TopicName, TopicPartition, Trajectory,
    assign_checked, cross_rack_reads, default_standbys, identity_assignment,
    optimise_racks_of_actives, optimise_racks_of_standbys, validate,
};
use serde_json::Value;

use crate::scenario::{corpus, entries, id, list, state, strategies, task_ids};

/// A plan given as lists of `active` and `standby`, each entry with this reason.
fn given(clients: &Value, active: &str, standby: &str) -> Assignment {
    let mut plan = Assignment::default();
    for client in list(clients) {
        let mut holds = InstanceAssignment::default();
        let stays = |value: &Value| task_ids(value).into_iter().map(|t| (t, Reason::Stays));
        holds.active = stays(&client[active]).collect();
        holds.standby = stays(&client[standby]).collect();
        plan.instances.insert(id(&client["id"]), holds);
    }
    plan
}

fn check_plan(name: &str, plan: &Assignment, expect: &Value) {
    for (kind, of_clients) in entries(expect) {
        for (client, want) in entries(of_clients) {
            let holds = &plan.instances[&InstanceId::new(&**client)];
            let active: BTreeSet<TaskId> = holds.active.keys().copied().collect();
            let standby: BTreeSet<TaskId> = holds.standby.keys().copied().collect();
            let have = match &**kind {
                "active" => active,
                "standby" => standby,
                "assigned" => active.union(&standby).copied().collect(),
                other => panic!("{name}: unknown expectation {other}"),
            };
            assert_eq!(have, task_ids(want), "{name} {client}");
        }
    }
}

#[test]
fn the_pieces_do_what_the_originals_do() {
    let mut judged = 0;
    for scenario in corpus("scenarios.json.gz") {
        if scenario["assignor"] != "assignment_utils" {
            continue;
        }
        let (name, kind) = (scenario["name"].as_str().unwrap(), scenario["kind"].as_str().unwrap());
        for strategy in strategies(&scenario) {
            let state = state(&scenario, strategy);
            let mut plan = given(&scenario["clients"], "initial_active", "initial_standby");
            let how = RackOptimisation::new();
            match kind {
                "standby_only" => default_standbys(&state, &mut plan),
                "rack_optimize_active" => {
                    assert!(optimise_racks_of_actives(&state, &how, &mut plan), "{name}");
                }
                "rack_optimize_standby" => {
                    assert!(optimise_racks_of_standbys(&state, &how, &mut plan), "{name}");
                }
                "validate" => {
                    let proposed = &scenario["given"]["proposed"];
                    let mut plan = Assignment::default();
                    for (client, lists) in entries(proposed) {
                        let mut holds = InstanceAssignment::default();
                        let tasks = task_ids(&lists["active"]).into_iter();
                        holds.active = tasks.map(|task| (task, Reason::Stays)).collect();
                        plan.instances.insert(InstanceId::new(&**client), holds);
                    }
                    let problem = validate(&state, &plan).err();
                    let verdict = problem.and_then(|p| p.kafka_name()).unwrap_or("NONE");
                    assert_eq!(verdict, scenario["expect"]["validation"], "{name}");
                    judged += 1;
                    continue;
                }
                other => panic!("{name}: unknown kind {other}"),
            }
            check_plan(name, &plan, &scenario["expect"]);
            judged += 1;
        }
    }
    assert_eq!(judged, 8);
}

fn partition(topic: &str, number: u32, role: PartitionRole, racks: &[&str]) -> TaskPartition {
    let id = TopicPartition { topic: TopicName::from(topic), partition: number };
    let mut partition = TaskPartition::new(id, role);
    partition.racks = racks.iter().map(|rack| RackId::from(*rack)).collect();
    partition
}

/// Four tasks with state, read in rack `a` (even) or `b` (odd); `p1` is in `a`, `p2` in `b`,
/// and each runs what the other could read in its own rack.
fn crossed() -> ApplicationState {
    let mut state = ApplicationState::default();
    for number in 0..4 {
        let racks = if number % 2 == 0 { ["a"] } else { ["b"] };
        let mut info = TaskInfo::stateful();
        info.partitions.push(partition("in", number, PartitionRole::Source, &racks));
        info.partitions.push(partition("log", number, PartitionRole::Changelog, &racks));
        state.tasks.insert(TaskId::new(0, number), info);
    }
    for (id, rack, ran) in [("p1", "a", [1, 3]), ("p2", "b", [0, 2])] {
        let mut info = InstanceInfo::new(1);
        info.racks.push(Some(RackId::from(rack)));
        info.previous_active = ran.map(|number| TaskId::new(0, number)).into();
        state.instances.insert(id.into(), info);
    }
    state.settings.rack_aware_assignment_strategy = RackAwareStrategy::MinTraffic;
    state
}

fn crossing(state: &ApplicationState, plan: &Assignment) -> u64 {
    cross_rack_reads(state, plan).expect("every instance has a rack").active
}

#[test]
fn only_what_may_be_moved_is_moved_and_only_if_it_pays() {
    let state = crossed();
    let start = identity_assignment(&state);
    assert_eq!(crossing(&state, &start), 4);
    let optimised = |change: &dyn Fn(&mut RackOptimisation)| {
        let (mut how, mut plan) = (RackOptimisation::new(), start.clone());
        change(&mut how);
        assert!(optimise_racks_of_actives(&state, &how, &mut plan));
        assert!(plan.instances.values().all(|holds| holds.active.len() == 2));
        crossing(&state, &plan)
    };
    assert_eq!(optimised(&|_| ()), 4, "with the default costs staying is worth more");
    assert_eq!(optimised(&|how| how.non_overlap_cost = Some(1)), 0);
    assert_eq!(optimised(&|how| how.traffic_cost = Some(20)), 0);
    let two = BTreeSet::from([TaskId::new(0, 0), TaskId::new(0, 1)]);
    let some = |how: &mut RackOptimisation| {
        (how.tasks, how.non_overlap_cost) = (Some(two.clone()), Some(1));
    };
    assert_eq!(optimised(&some), 2);
    let stateless = |how: &mut RackOptimisation| {
        *how = RackOptimisation::of_stateless(&state);
        how.non_overlap_cost = Some(0);
    };
    assert_eq!(optimised(&stateless), 4, "there is none without state");
    let stateful = |how: &mut RackOptimisation| {
        *how = RackOptimisation::of_stateful(&state);
        how.non_overlap_cost = Some(0);
    };
    assert_eq!(optimised(&stateful), 0);
}

#[test]
fn copies_change_roles_where_an_active_goes_to_its_standby() {
    let mut state = crossed();
    state.settings.num_standby_replicas = 1;
    let mut plan = identity_assignment(&state);
    default_standbys(&state, &mut plan);
    assert!(plan.instances.values().all(|holds| holds.standby.len() == 2));
    let mut how = RackOptimisation::new();
    how.non_overlap_cost = Some(1);
    assert!(optimise_racks_of_actives(&state, &how, &mut plan));
    assert_eq!(validate(&state, &plan), Ok(()));
    assert_eq!(crossing(&state, &plan), 0);
    for holds in plan.instances.values() {
        assert_eq!((holds.active.len(), holds.standby.len()), (2, 2));
        assert!(holds.active.values().all(|reason| *reason == Reason::Rack));
    }
}

#[test]
fn nothing_is_looked_at_without_racks_or_strategy() {
    let check = |change: &dyn Fn(&mut ApplicationState)| {
        let mut state = crossed();
        change(&mut state);
        let start = identity_assignment(&state);
        let mut plan = start.clone();
        let mut how = RackOptimisation::new();
        how.non_overlap_cost = Some(0);
        assert!(!optimise_racks_of_actives(&state, &how, &mut plan));
        assert!(!optimise_racks_of_standbys(&state, &how, &mut plan));
        assert_eq!(plan, start);
    };
    check(&|state| state.settings.rack_aware_assignment_strategy = RackAwareStrategy::None);
    check(&|state| state.instances.get_mut(&"p1".into()).unwrap().racks.clear());
    check(&|state| {
        let task = state.tasks.get_mut(&TaskId::new(0, 0)).unwrap();
        task.partitions[1].racks.clear();
    });
}

/// Standbys with two tag keys: exchanging them must not put two copies of a task into one zone.
#[test]
fn an_exchange_of_standbys_keeps_zones_apart() {
    let mut state = crossed();
    for (id, rack, zone) in [("p3", "a", "x"), ("p4", "b", "y")] {
        let mut info = InstanceInfo::new(1);
        info.racks.push(Some(RackId::from(rack)));
        info.tags.insert("zone".to_owned(), zone.to_owned());
        state.instances.insert(id.into(), info);
    }
    for (id, zone) in [("p1", "x"), ("p2", "y")] {
        let info = state.instances.get_mut(&id.into()).unwrap();
        info.tags.insert("zone".to_owned(), zone.to_owned());
    }
    state.settings.rack_aware_assignment_tags = vec!["zone".to_owned()];
    // p1 (zone x) runs 0_1 and 0_3, read in rack b: the standbys belong into zone y.
    let mut plan = identity_assignment(&state);
    let mut follow = |id: &str, tasks: [u32; 2]| {
        let holds = plan.instances.get_mut(&id.into()).unwrap();
        holds.standby = tasks.map(|number| (TaskId::new(0, number), Reason::Replica)).into();
    };
    follow("p3", [0, 2]);
    follow("p4", [1, 3]);
    let (start, mut how) = (plan.clone(), RackOptimisation::new());
    how.non_overlap_cost = Some(0);
    assert!(optimise_racks_of_standbys(&state, &how, &mut plan));
    assert_eq!(plan, start, "each standby is in the rack and the zone where it should be");
    // The other way round zones are already shared, so an exchange is a gain for racks and zones.
    let mut follow = |id: &str, tasks: [u32; 2]| {
        let holds = plan.instances.get_mut(&id.into()).unwrap();
        holds.standby = tasks.map(|number| (TaskId::new(0, number), Reason::Replica)).into();
    };
    follow("p3", [1, 3]);
    follow("p4", [0, 2]);
    assert!(optimise_racks_of_standbys(&state, &how, &mut plan));
    let follows = |plan: &Assignment, id: &str| {
        plan.instances[&id.into()].standby.keys().copied().collect::<Vec<_>>()
    };
    assert_eq!(follows(&plan, "p3"), follows(&start, "p3"));
    assert_eq!(follows(&plan, "p4"), follows(&start, "p4"));
}

#[test]
fn identity_keeps_what_is_known_and_no_standby_without_state() {
    let mut state = crossed();
    state.tasks.insert(TaskId::new(1, 0), TaskInfo::stateless());
    let info = state.instances.get_mut(&"p1".into()).unwrap();
    info.previous_active.insert(TaskId::new(9, 9));
    info.previous_standby = [TaskId::new(0, 0), TaskId::new(0, 1), TaskId::new(1, 0)].into();
    let plan = identity_assignment(&state);
    let holds = &plan.instances[&"p1".into()];
    assert_eq!(holds.active.keys().copied().collect::<Vec<_>>(), [1, 3].map(|n| TaskId::new(0, n)));
    assert_eq!(holds.standby.keys().copied().collect::<Vec<_>>(), [TaskId::new(0, 0)]);
}

/// Gives the plan it was made with, and writes down what it hears.
struct Scripted {
    plan: Assignment,
    heard: RefCell<Vec<(usize, Option<Problem>)>>,
}

impl TaskAssignor for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn assign(&self, _: &ApplicationState) -> Result<Assignment, AssignError> {
        Ok(self.plan.clone())
    }

    fn on_assignment_computed(&self, plan: &Assignment, problem: Option<&Problem>) {
        self.heard.borrow_mut().push((plan.instances.len(), problem.cloned()));
    }
}

#[test]
fn a_trajectory_names_what_is_wrong_with_a_plan() {
    let mut story = Trajectory::default();
    story.tasks.clone_from(&crossed().tasks);
    story.instances.insert("p1".into(), InstanceInfo::new(1));
    let problems = |assignor: &dyn TaskAssignor| -> Vec<Option<Problem>> {
        let played = story.play(assignor).unwrap();
        played.phases[0].rounds.iter().map(|round| round.problem.clone()).collect()
    };
    let idle = Scripted { plan: Assignment::default(), heard: RefCell::default() };
    let forgotten = Problem::InstanceForgotten { instance: "p1".into() };
    assert_eq!(problems(&idle), [Some(forgotten)]);
    assert_eq!(problems(&MinimumMovement::default()), [None]);
}

#[test]
fn an_assignor_hears_what_became_of_its_plan() {
    let state = crossed();
    let check = |change: &dyn Fn(&mut Assignment), instances: usize, name: Option<&str>| {
        let mut plan = identity_assignment(&state);
        change(&mut plan);
        let scripted = Box::new(Scripted { plan, heard: RefCell::default() });
        let checked = assign_checked(&state, &scripted, Some(&MinimumMovement::default()));
        assert_eq!(checked.unwrap().rejected.is_some(), name.is_some());
        let heard = scripted.heard.borrow();
        let [(heard_of, problem)] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!(*heard_of, instances);
        assert_eq!(problem.as_ref().and_then(Problem::kafka_name), name);
    };
    check(&|_| (), 2, None);
    let on_p1 = |plan: &mut Assignment, task: TaskId| {
        plan.instances.get_mut(&"p1".into()).unwrap().active.insert(task, Reason::Balance);
    };
    let twice = Some("ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES");
    check(&|plan| on_p1(plan, TaskId::new(0, 0)), 2, twice);
    // Of a plan about strangers nothing is passed on.
    check(&|plan| on_p1(plan, TaskId::new(7, 0)), 0, Some("UNKNOWN_TASK_ID"));
    let stranger = |plan: &mut Assignment| {
        plan.instances.insert("p9".into(), InstanceAssignment::default());
    };
    check(&stranger, 0, Some("UNKNOWN_PROCESS_ID"));
    let forgotten = |plan: &mut Assignment| {
        plan.instances.remove(&"p1".into());
    };
    check(&forgotten, 1, Some("MISSING_PROCESS_ID"));
}
