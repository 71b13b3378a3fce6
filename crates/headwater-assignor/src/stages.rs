//! The scenarios that look at one stage of the original assignors by itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::assignment::Assignment;
use crate::high_availability::actives_follow_state;
use crate::ids::{InstanceId, TaskId};
use crate::index::{Index, Load, Placement};
use crate::lag::Lag;
use crate::lags::Lags;
use crate::rack::{ActiveOptimiser, Counted, CrossRack, RackCosts, is_eligible};
use crate::scenario::{corpus, entries, id, list, state, strategies, task_ids};
use crate::standby::{StandbyPlacer, Tags};
use crate::state::ApplicationState;
use crate::threads::{ThreadRule, assign_threads};

fn scenarios(kind: &str, assignors: &[&str]) -> Vec<Value> {
    let mut all = corpus("scenarios.json.gz");
    all.retain(|scenario| {
        let assignor = scenario["assignor"].as_str().unwrap_or_default();
        scenario["kind"] == kind
            && scenario["verified"] == "executed"
            && assignors.contains(&assignor)
    });
    all
}

/// The plan already made when the stage starts.
fn initial(scenario: &Value, index: &Index<'_>) -> Placement {
    let mut placement = Placement::empty(index);
    for client in list(&scenario["clients"]) {
        let instance = index.instance_ids.binary_search(&&id(&client["id"])).unwrap();
        let instance = u32::try_from(instance).unwrap();
        for task in task_ids(&client["initial_active"]) {
            placement.set_active(instance, index.task(task).unwrap());
        }
        for task in task_ids(&client["initial_standby"]) {
            placement.add_standby(instance, index.task(task).unwrap());
        }
    }
    placement
}

type Held = BTreeMap<InstanceId, BTreeSet<TaskId>>;

fn held(index: &Index<'_>, placement: &Placement, active: bool) -> Held {
    let tasks = |instance| {
        let tasks = if active { placement.actives(instance) } else { placement.standbys(instance) };
        tasks.iter().map(|task| index.task_ids[*task as usize]).collect()
    };
    index
        .instances()
        .map(|instance| (index.instance_ids[instance as usize].clone(), tasks(instance)))
        .collect()
}

fn check_held(name: &Value, have: &Held, want: &Value) {
    for (client, want) in entries(want) {
        assert_eq!(have[&InstanceId::new(&**client)], task_ids(want), "{name} {client}");
    }
}

#[test]
fn standbys_are_placed_as_by_the_original() {
    let assignors = ["standby_client_tags", "standby_rack_as_tag", "standby_default"];
    let scenarios = scenarios("standby_only", &assignors);
    assert_eq!(scenarios.len(), 12);
    for scenario in scenarios {
        let (name, expect) = (&scenario["name"], &scenario["expect"]);
        let state = state(&scenario, "none");
        let index = Index::new(&state);
        let mut placement = initial(&scenario, &index);
        let keys = match scenario["assignor"].as_str() {
            Some("standby_rack_as_tag") => vec!["rack".to_owned()],
            _ => state.settings.rack_aware_assignment_tags.clone(),
        };
        let tags = index.instances.iter().map(|info| match info.rack() {
            Some(rack) if keys == ["rack"] => {
                BTreeMap::from([("rack".to_owned(), rack.as_str().to_owned())])
            }
            _ => info.tags.clone(),
        });
        let placer = if keys.is_empty() {
            StandbyPlacer::LeastLoaded
        } else {
            StandbyPlacer::TagAware(Tags::new(tags.collect(), &keys))
        };
        let replicas = state.settings.num_standby_replicas;
        if scenario["stage"] == "tag_pass_only" {
            let missing = placer.place_apart(&index.stateful(), replicas, &mut placement);
            let have: BTreeMap<String, u32> = missing
                .into_iter()
                .filter(|(_, missing)| *missing > 0)
                .map(|(task, missing)| (index.task_ids[task as usize].to_string(), missing))
                .collect();
            let want = entries(&expect["remaining_standbys_after_tag_pass"])
                .map(|(task, count)| (task.clone(), count.as_u64().unwrap().try_into().unwrap()));
            assert_eq!(have, want.collect(), "{name}");
            continue;
        }
        placer.place(&index.stateful(), replicas, &mut placement);
        check_standbys(&scenario, &index, &placement);
    }
}

fn check_standbys(scenario: &Value, index: &Index<'_>, placement: &Placement) {
    let (name, expect) = (&scenario["name"], &scenario["expect"]);
    let standbys = held(index, placement, false);
    let followers = |task: TaskId| -> BTreeSet<InstanceId> {
        let holders = standbys.iter().filter(|(_, tasks)| tasks.contains(&task));
        holders.map(|(id, _)| id.clone()).collect()
    };
    let ids = |value: &Value| list(value).map(id).collect::<BTreeSet<InstanceId>>();
    let mut judged = 0;
    for (key, want) in entries(expect) {
        let each_task = |met: &dyn Fn(BTreeSet<InstanceId>, &Value) -> bool| {
            entries(want).all(|(task, want)| met(followers(task.parse().unwrap()), want))
        };
        let count = |tasks: &BTreeSet<TaskId>| Value::from(tasks.len());
        let met = match &**key {
            "no_standby_for_tasks" => task_ids(want).into_iter().all(|t| followers(t).is_empty()),
            "total_standby_count" => standbys.values().map(BTreeSet::len).sum::<usize>() == *want,
            "standby_count" => {
                entries(want).all(|(id, want)| count(&standbys[&InstanceId::new(&**id)]) == *want)
            }
            "standby_client_sets" => {
                each_task(&|have, sets| list(sets).any(|set| ids(set) == have))
            }
            "standby_clients_within" => each_task(&|have, within| have.is_subset(&ids(within))),
            "standby_replicas_per_task" => each_task(&|have, want| have.len() == *want),
            "all_clients_reached_capacity" => index
                .instances()
                .all(|instance| placement.count(instance) >= placement.capacity(instance) as usize),
            // Said by standby_replicas_per_task; warnings are no part of a plan.
            "remaining_standbys" | "warnings" => continue,
            other => panic!("{name}: unknown expectation {other}"),
        };
        assert!(met, "{name}: {key} should be {want}, have {standbys:?}");
        judged += 1;
    }
    assert!(judged > 0, "{name}");
}

#[test]
fn standbys_may_be_moved_as_by_the_original() {
    let scenarios = scenarios("movement_predicate", &["standby_client_tags"]);
    assert_eq!(scenarios.len(), 3);
    for scenario in scenarios {
        let mut state = state(&scenario, "none");
        let given = &scenario["given"];
        let task: Option<TaskId> = given["task"].as_str().and_then(|task| task.parse().ok());
        if let Some(task) = task {
            state.tasks.entry(task).or_insert_with(crate::TaskInfo::stateful);
        }
        let index = Index::new(&state);
        let placement = initial(&scenario, &index);
        let placer = StandbyPlacer::for_keys(&index, &state.settings.rack_aware_assignment_tags);
        let instance = |which: &str| {
            let at = index.instance_ids.binary_search(&&id(&given[which])).unwrap();
            u32::try_from(at).unwrap()
        };
        let (source, destination) = (instance("source"), instance("destination"));
        let allowed = match task {
            None => placer.allows(source, destination),
            Some(task) => {
                let task = index.task(task).unwrap();
                placer.allows_task(source, destination, task, &placement)
            }
        };
        assert_eq!(scenario["expect"]["allowed"], allowed, "{}", scenario["name"]);
    }
}

#[test]
fn plans_are_bent_as_by_the_original() {
    let scenarios = scenarios("task_movement", &["task_movement"]);
    assert_eq!(scenarios.len(), 5);
    for scenario in scenarios {
        let (name, expect) = (&scenario["name"], &scenario["expect"]);
        let mut state = state(&scenario, "none");
        take_ranks_for_lags(&mut state, &scenario["given"]);
        let index = Index::new(&state);
        let mut placement = initial(&scenario, &index);
        let lags = Lags::new(&index, 0).unwrap();
        let warmups = state.settings.max_warmup_replicas;
        let moved = actives_follow_state(&index.stateful(), &lags, warmups, &mut placement);
        assert_eq!(expect["movements_needed"], moved, "{name}");
        check_held(name, &held(&index, &placement, true), &expect["active"]);
        check_held(name, &held(&index, &placement, false), &expect["standby"]);
    }
}

/// The scenarios say who is how far ahead of whom. Where lags tie they say it by lags alone.
fn take_ranks_for_lags(state: &mut ApplicationState, given: &Value) {
    for (task, order) in entries(&given["clients_by_lag"]) {
        let task: TaskId = task.parse().unwrap();
        let ready: BTreeSet<InstanceId> =
            list(&given["caught_up_clients"][task.to_string()]).map(id).collect();
        for instance in list(order).map(id) {
            let info = state.instances.get_mut(&instance).unwrap();
            let lag = if ready.contains(&instance) { Lag::Behind(0) } else { Lag::Behind(10_000) };
            info.lags.entry(task).or_insert(lag);
        }
    }
}

#[test]
fn actives_are_optimised_as_by_the_original() {
    let scenarios = scenarios("rack_optimize_active", &["rack_aware_active"]);
    let mut judged = 0;
    for scenario in scenarios.iter().filter(|scenario| scenario["expect"].get("error").is_none()) {
        for strategy in strategies(scenario) {
            let (name, expect) = (&scenario["name"], &scenario["expect"]);
            let state = state(scenario, strategy);
            let index = Index::new(&state);
            assert!(is_eligible(&index, &state.settings), "{name}");
            let before = initial(scenario, &index);
            let costs = RackCosts::or(&state.settings, RackCosts { traffic: 10, non_overlap: 1 });
            let optimiser = ActiveOptimiser {
                index: &index,
                cross_rack: CrossRack::new(&index, Counted::Sources),
                strategy: state.settings.rack_aware_assignment_strategy,
                whole_subtopologies: true,
            };
            let mut after = before.clone();
            let tasks: Vec<u32> = index.tasks().collect();
            optimiser.run(&tasks, costs, &mut after);
            let by_strategy = |key: &str| match &expect[key] {
                Value::Object(each) if each.contains_key(strategy) => each[strategy].clone(),
                same => same.clone(),
            };
            let cost = |placement: &Placement| {
                let cost = |task: &u32| {
                    let instance = placement.active_of(*task).unwrap();
                    let moved = before.active_of(*task) != Some(instance);
                    let crossings = optimiser.cross_rack.crossings(*task, instance);
                    costs.traffic * crossings + if moved { costs.non_overlap } else { 0 }
                };
                tasks.iter().map(cost).sum::<u32>()
            };
            assert_eq!(by_strategy("cost_before"), cost(&before), "{name} {strategy}");
            assert_eq!(by_strategy("cost_after"), cost(&after), "{name} {strategy}");
            let tie = scenario["exact_is_tie_break_dependent"] == true;
            if !tie {
                check_held(name, &held(&index, &after, true), &by_strategy("active"));
            }
            judged += 1;
        }
    }
    assert!(judged >= 6, "{judged}");
}

#[test]
fn threads_are_filled_as_by_the_original() {
    let scenarios = scenarios("thread_assign", &["thread_level"]);
    assert_eq!(scenarios.len(), 3);
    for scenario in scenarios {
        let (name, expect) = (&scenario["name"], &scenario["expect"]);
        let state = state(&scenario, "none");
        let mut assignment = Assignment::default();
        for instance in state.instances.keys() {
            let holds = assignment.instances.entry(instance.clone()).or_default();
            holds.active = state.tasks.keys().map(|task| (*task, crate::Reason::Stays)).collect();
        }
        let threads = assign_threads(&state, &assignment, ThreadRule::AsKafkaStreams);
        let threads: BTreeMap<String, BTreeSet<TaskId>> = threads
            .into_values()
            .flatten()
            .map(|(member, tasks)| (member.to_string(), tasks.active))
            .collect();
        for (key, want) in entries(expect) {
            for (member, want) in entries(want) {
                let have = &threads[member];
                let met = match &**key {
                    "threads" | "threads_in_order" => task_ids(want) == *have,
                    "threads_contain" => task_ids(want).is_subset(have),
                    "threads_subset_of" => have.is_subset(&task_ids(want)),
                    "thread_count" => have.len() == *want,
                    other => panic!("{name}: unknown expectation {other}"),
                };
                assert!(met, "{name} {member}: {key} should be {want}, is {have:?}");
            }
        }
    }
}

#[test]
fn loads_and_lags_are_those_of_the_original() {
    let comparisons = scenarios("load", &["load_comparison"]);
    assert_eq!(comparisons.len(), 3);
    for scenario in comparisons {
        let load = |which: &str| {
            let number = |key: &str| scenario["given"][which][key].as_u64().unwrap();
            let tasks = number("tasks").try_into().unwrap();
            Load::of(tasks, number("capacity").try_into().unwrap())
        };
        let more_room = load("first") < load("second");
        assert_eq!(scenario["expect"]["first_has_more_room"], more_room, "{}", scenario["name"]);
    }
    let mut judged = 0;
    for scenario in scenarios("lag", &["lag_computation"]) {
        for (task, want) in entries(&scenario["expect"]["lags"]) {
            let held = &scenario["given"]["reported_offset_sums"][task];
            let end = scenario["given"]["end_offset_sums"][task].as_u64().unwrap();
            let lag = if *held == -2 { Lag::Latest } else { Lag::of(held.as_u64(), end) };
            assert_eq!(crate::lags::as_number(lag), want.as_i64().unwrap(), "{task}");
            judged += 1;
        }
    }
    assert_eq!(judged, 3);
}
