//! The trajectories of the corpora, which the original assignors have been through.

use headwater_assignor::{
    Event, HighAvailability, InstanceId, InstanceInfo, Model, Played, Step, Sticky, TaskId,
    TaskInfo, Trajectory,
};
use serde_json::Value;

use crate::expect::Plan;
use crate::scenario::{corpus, entries, id, instance, list, state, strategies, task_ids};

/// The trajectory that a scenario describes.
pub(crate) fn trajectory(scenario: &Value) -> Trajectory {
    let start = state(scenario, strategies(scenario)[0]);
    let model = &scenario["model"];
    let mut trajectory = Trajectory::default();
    trajectory.tasks = start.tasks;
    trajectory.instances = start.instances;
    trajectory.settings = start.settings;
    trajectory.model = Model::default();
    trajectory.model.restore_per_round = model["restore_per_round"].as_u64();
    trajectory.model.keep_unassigned_state = model["keep_unassigned_state"] == true;
    if let Some(rounds) = model["max_rounds"].as_u64() {
        trajectory.model.max_rounds = rounds.try_into().expect("a small number");
    }
    trajectory.steps = list(&scenario["events"]).map(step).collect();
    trajectory
}

fn step(value: &Value) -> Step {
    let events: Vec<&Value> = match value["together"].as_array() {
        Some(together) => together.iter().collect(),
        None => vec![value],
    };
    let mut step = Step::new(events.iter().map(|value| event(value)).collect());
    let rounds = events.iter().filter_map(|value| value["rounds"].as_u64()).min();
    step.rounds = rounds.map(|rounds| rounds.try_into().expect("a small number"));
    step
}

fn event(value: &Value) -> Event {
    let empty = value["empty"] == true;
    if let Some(join) = value.get("join") {
        let offsets = entries(&join["offsets"]).map(|(task, offset)| {
            (task.parse().expect("a task id"), offset.as_u64().expect("an offset"))
        });
        let info = instance(join, &std::collections::BTreeMap::new());
        Event::Join { instance: id(&join["id"]), info, offsets: offsets.collect(), empty }
    } else if let Some(leave) = value.get("leave") {
        Event::Leave { instance: id(leave) }
    } else if let Some(bounce) = value.get("bounce") {
        Event::Bounce { instance: id(bounce), empty }
    } else if let Some(capacity) = value.get("capacity") {
        let to = value["to"].as_u64().and_then(|to| to.try_into().ok()).expect("a small number");
        Event::Capacity { instance: id(capacity), to }
    } else {
        let offsets = value["append"].as_u64().expect("an event is one of five");
        Event::Append { offsets, tasks: task_ids(&value["tasks"]) }
    }
}

fn compare(scenario: &Value, played: &Played) {
    let name = &scenario["name"];
    let expect = &scenario["expect"];
    let totals = played.totals();
    let numbers = serde_json::json!({
        "rounds": totals.rounds,
        "stateful_active_moves": totals.stateful_active_moves,
        "restored_offsets": totals.restored_offsets,
        "actives_not_ready": totals.actives_not_ready,
        "all_stable": totals.all_stable,
    });
    assert_eq!(played.phases.len(), list(&expect["phases"]).count(), "{name}");
    for (phase, want) in played.phases.iter().zip(list(&expect["phases"])) {
        let event = &want["event"];
        assert_eq!(Some(phase.stable), want["stable"].as_bool(), "{name}, after {event}");
        assert_eq!(phase.rounds.len(), list(&want["rounds"]).count(), "{name}, after {event}");
        for (at, (round, want)) in phase.rounds.iter().zip(list(&want["rounds"])).enumerate() {
            let place = format!("{name}, after {event}, round {at}");
            let plan = Plan::of(&round.assignment);
            for (client, want) in entries(&want["clients"]) {
                let client = client.as_str().into();
                assert_eq!(plan.active[&client], task_ids(&want["active"]), "{place} {client}");
                assert_eq!(plan.standby[&client], task_ids(&want["standby"]), "{place} {client}");
            }
            let reads = round.cross_rack.map(|reads| (reads.active, reads.standby));
            let want_reads = want.get("cross_rack").map(|want| {
                let number = |kind: &str| want[kind].as_u64().expect("a number");
                (number("active"), number("standby"))
            });
            assert_eq!(reads, want_reads, "{place} cross_rack");
            let numbers = [
                ("stateful_active_moves", round.stateful_active_moves),
                ("stateless_active_moves", round.stateless_active_moves),
                ("new_standby_copies", round.new_standby_copies),
                ("actives_not_ready", round.actives_not_ready),
                ("restored_offsets", round.restored_offsets),
                ("followup", u64::from(round.assignment.followup.is_wanted())),
            ];
            for (key, have) in numbers {
                let want = want[key].as_u64().or_else(|| want[key].as_bool().map(u64::from));
                assert_eq!(Some(have), want, "{place} {key}");
            }
        }
    }
    assert_eq!(numbers, expect["totals"], "{name}");
}

pub(crate) fn all(name: &str, assignor: &str) -> Vec<Value> {
    corpus(name)
        .into_iter()
        .filter(|scenario| scenario["kind"] == "trajectory" && scenario["assignor"] == assignor)
        .collect()
}

#[test]
fn high_availability_goes_the_originals_way() {
    let mut scenarios = all("generated.json.gz", "high_availability");
    scenarios.extend(all("generated-second.json.gz", "high_availability"));
    assert_eq!(scenarios.len(), 62 + 36);
    for scenario in scenarios {
        let played = trajectory(&scenario).play(&HighAvailability::default()).unwrap();
        compare(&scenario, &played);
    }
}

#[test]
fn sticky_takes_as_many_rounds_as_the_original() {
    let scenarios = all("generated.json.gz", "sticky");
    assert_eq!(scenarios.len(), 10);
    for scenario in scenarios {
        let played = trajectory(&scenario).play(&Sticky::default()).unwrap();
        let rounds: Vec<usize> = played.phases.iter().map(|phase| phase.rounds.len()).collect();
        let want: Vec<usize> = list(&scenario["expect"]["rounds_per_phase"])
            .filter_map(|rounds| rounds.as_u64()?.try_into().ok())
            .collect();
        assert_eq!(rounds, want, "{}", scenario["name"]);
    }
}

/// The original's way through the movement trajectories after the first phase: rounds, moves of
/// stateful actives, offsets restored in units of 100 000, rounds times actives standing still.
pub(crate) const MOVEMENT: [(&str, [u64; 4]); 26] = [
    ("add-12x3-standby0", [6, 9, 90, 0]),
    ("lose-first-12x3-standby0", [3, 8, 80, 4]),
    ("lose-last-12x3-standby0", [3, 8, 80, 4]),
    ("bounce-short-12x3-standby0", [3, 0, 1, 0]),
    ("bounce-long-12x3-standby0", [3, 0, 6, 12]),
    ("leave-return-12x3-standby0", [6, 24, 180, 12]),
    ("add-12x3-standby1", [7, 10, 120, 0]),
    ("lose-first-12x3-standby1", [2, 8, 80, 0]),
    ("lose-last-12x3-standby1", [2, 8, 80, 0]),
    ("bounce-short-12x3-standby1", [3, 0, 2, 0]),
    ("bounce-long-12x3-standby1", [3, 0, 24, 12]),
    ("leave-return-12x3-standby1", [6, 32, 240, 0]),
    ("add-100x10-standby0", [46, 90, 900, 0]),
    ("lose-first-100x10-standby0", [42, 91, 910, 10]),
    ("lose-last-100x10-standby0", [37, 82, 820, 10]),
    ("bounce-short-100x10-standby0", [4, 0, 2, 0]),
    ("bounce-long-100x10-standby0", [4, 0, 20, 40]),
    ("leave-return-100x10-standby0", [8, 80, 480, 40]),
    ("add-100x10-standby1", [84, 714, 1650, 0]),
    ("lose-first-100x10-standby1", [78, 580, 1730, 0]),
    ("lose-last-100x10-standby1", [74, 557, 1650, 0]),
    ("bounce-short-100x10-standby1", [4, 0, 22, 0]),
    ("bounce-long-100x10-standby1", [4, 0, 220, 40]),
    ("leave-return-100x10-standby1", [8, 376, 880, 0]),
    ("add-12x3-standby0-warmups-all", [2, 9, 90, 0]),
    ("add-100x10-standby0-warmups-all", [2, 90, 900, 0]),
];

#[test]
fn high_availability_moves_as_much_as_the_original() {
    let scenarios = all("movement.json.gz", "high_availability");
    for (name, want) in MOVEMENT {
        let scenario = scenarios.iter().find(|scenario| scenario["name"] == name).unwrap();
        let played = trajectory(scenario).play(&HighAvailability::default()).unwrap();
        let rounds = || played.phases[1..].iter().flat_map(|phase| &phase.rounds);
        let have = [
            rounds().count() as u64,
            rounds().map(|round| round.stateful_active_moves).sum(),
            (rounds().map(|round| round.restored_offsets).sum::<u64>() + 50_000) / 100_000,
            rounds().map(|round| round.actives_not_ready).sum(),
        ];
        assert_eq!(have, want, "{name}");
    }
}

/// The convergence scenarios of the original's tests: stateless sub-topologies first, then stateful
/// ones, of up to so many partitions each; instances of one thread.
fn convergence(stateless: u32, stateful: u32, partitions: u32, instances: usize) -> Trajectory {
    let mut trajectory = Trajectory::default();
    let mut subtopology = 0;
    for (mut left, with_state) in [(stateless, false), (stateful, true)] {
        while left > 0 {
            let size = left.min(partitions);
            for partition in 0..size {
                let mut task =
                    if with_state { TaskInfo::stateful() } else { TaskInfo::stateless() };
                task.end_offset = with_state.then_some(150_000);
                trajectory.tasks.insert(TaskId::new(subtopology, partition), task);
            }
            (left, subtopology) = (left - size, subtopology + 1);
        }
    }
    for number in 1..=instances {
        let id = InstanceId::new(format!("p{number}"));
        trajectory.instances.insert(id, InstanceInfo::new(1));
    }
    trajectory.settings.acceptable_recovery_lag = 100;
    trajectory
}

#[test]
fn high_availability_takes_as_many_rounds_as_measured_on_the_original() {
    let check = |mut trajectory: Trajectory, event: Option<Event>, rounds: [usize; 2]| {
        trajectory.steps.extend(event.map(|event| Step::new(vec![event])));
        let played = trajectory.play(&HighAvailability::default()).unwrap();
        assert!(played.totals().all_stable);
        let after = played.phases.get(1).map_or(0, |phase| phase.rounds.len());
        assert_eq!([played.phases[0].rounds.len(), after], rounds);
    };
    check(convergence(1, 1, 1, 1), None, [1, 0]);
    let joins = Event::Join {
        instance: "p2".into(),
        info: InstanceInfo::new(1),
        offsets: std::collections::BTreeMap::new(),
        empty: false,
    };
    check(convergence(7, 11, 5, 1), Some(joins), [1, 4]);
    check(convergence(11, 13, 5, 7), Some(Event::Leave { instance: "p1".into() }), [1, 7]);
}
