//! The default assignor against Kafka Streams' on every given trajectory: the table in the docs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use expect_test::expect_file;
use headwater_assignor::{
    Event, InstanceId, MinimumMovement, Phase, Played, RackAwareStrategy, Reason, Round, TaskId,
    Trajectory,
};
use serde_json::Value;

use crate::scenario::{entries, list, task_ids};
use crate::trajectories::{MOVEMENT, all, trajectory};

/// What the original needs where it needs hundreds of rounds: measured once, too slow to repeat.
const MOVEMENT_LARGE: [(&str, [u64; 4]); 4] = [
    ("add-1000x50-standby0", [476, 950, 9500, 0]),
    ("lose-first-1000x50-standby0", [491, 1000, 10_000, 20]),
    ("bounce-long-1000x50-standby1", [4, 0, 2040, 80]),
    ("leave-return-1000x50-standby1", [8, 1384, 1680, 0]),
];

/// Moves, rounds and offsets that the first prototype needed on the 62 trajectories.
const PROTOTYPE: Numbers =
    Numbers { rounds: 257, moves: 381, restored: 533_000_000, standing_still: 1617 };

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    rounds: u64,
    moves: u64,
    restored: u64,
    standing_still: u64,
}

impl Numbers {
    fn of(phases: &[Phase]) -> Self {
        let rounds = || phases.iter().flat_map(|phase| &phase.rounds);
        Self {
            rounds: rounds().count() as u64,
            moves: rounds().map(|round| round.stateful_active_moves).sum(),
            restored: rounds().map(|round| round.restored_offsets).sum(),
            standing_still: rounds().map(|round| round.actives_not_ready).sum(),
        }
    }

    /// What the original needed, as the corpus says.
    fn expected(scenario: &Value) -> Self {
        let totals = &scenario["expect"]["totals"];
        let number = |key: &str| totals[key].as_u64().expect("a number");
        Self {
            rounds: number("rounds"),
            moves: number("stateful_active_moves"),
            restored: number("restored_offsets"),
            standing_still: number("actives_not_ready"),
        }
    }

    fn add(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.moves += other.moves;
        self.restored += other.restored;
        self.standing_still += other.standing_still;
    }
}

/// How a table shows one of the numbers.
type Cell = fn(Numbers) -> String;

fn millions(offsets: u64) -> String {
    let tenths = (offsets + 50_000) / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn play(trajectory: &Trajectory) -> Played {
    trajectory.play(&MinimumMovement::default()).expect("the group always has capacity")
}

/// Which constraints besides balance hold.
#[derive(Clone, Copy)]
struct Constraints {
    racks: bool,
    tags: bool,
}

fn with(scenario: &Value, constraints: Constraints) -> Trajectory {
    let mut trajectory = trajectory(scenario);
    if !constraints.racks {
        trajectory.settings.rack_aware_assignment_strategy = RackAwareStrategy::None;
    }
    if !constraints.tags {
        trajectory.settings.rack_aware_assignment_tags.clear();
    }
    trajectory
}

const NEITHER: Constraints = Constraints { racks: false, tags: false };
const BOTH: Constraints = Constraints { racks: true, tags: true };

fn owners(round: &Round) -> BTreeMap<TaskId, InstanceId> {
    let instances = &round.assignment.instances;
    instances
        .iter()
        .flat_map(|(id, holds)| holds.active.keys().map(|task| (*task, id.clone())))
        .collect()
}

/// The tasks that run elsewhere after the phase than before.
fn changed(before: &Phase, after: &Phase) -> BTreeSet<TaskId> {
    let (Some(before), Some(after)) = (before.rounds.last(), after.rounds.last()) else {
        return BTreeSet::new();
    };
    let before = owners(before);
    owners(after).into_iter().filter(|(task, id)| before[task] != *id).map(|(t, _)| t).collect()
}

/// The fewest tasks that must change instance so that numbers differ by at most one, all
/// capacities being alike.
fn fewest_changes(before: &Phase, after: &Phase) -> u64 {
    let (Some(before), Some(after)) = (before.rounds.last(), after.rounds.last()) else { return 0 };
    let members: Vec<&InstanceId> = after.assignment.instances.keys().collect();
    let before = owners(before);
    let (low, high) = (before.len() / members.len(), before.len().div_ceil(members.len()));
    let counts: Vec<usize> =
        members.iter().map(|id| before.values().filter(|owner| owner == id).count()).collect();
    let orphans = before.len() - counts.iter().sum::<usize>();
    let over: usize = counts.iter().map(|n| n.saturating_sub(high)).sum();
    let under: usize = counts.iter().map(|n| low.saturating_sub(*n)).sum();
    (orphans + over.max(under.saturating_sub(orphans))) as u64
}

fn bound(played: &Played) -> u64 {
    played.phases.windows(2).map(|pair| fewest_changes(&pair[0], &pair[1])).sum()
}

fn original_on_movement(name: &str) -> Option<Numbers> {
    let (_, [rounds, moves, restored, standing_still]) =
        MOVEMENT.iter().chain(&MOVEMENT_LARGE).find(|(row, _)| *row == name)?;
    Some(Numbers {
        rounds: *rounds,
        moves: *moves,
        restored: restored * 100_000,
        standing_still: *standing_still,
    })
}

/// One row for each trajectory of `movement.json`.
fn movement_table() -> String {
    let mut table = "\
| trajectory | fewest | moves: HA | ours | rounds: HA | ours | restored (M): HA | ours | standing still: HA | ours |
|---|---|---|---|---|---|---|---|---|---|
"
    .to_owned();
    for scenario in all("movement.json.gz", "high_availability") {
        let name = scenario["name"].as_str().expect("a name");
        let played = play(&with(&scenario, NEITHER));
        let ours = Numbers::of(&played.phases[1..]);
        let fewest = bound(&played);
        assert_eq!(ours.moves, fewest, "{name}: no more moves than any even plan needs");
        let original = original_on_movement(name);
        if let Some(original) = original {
            assert!(ours.moves <= original.moves && ours.rounds <= original.rounds, "{name}");
            assert!(ours.restored <= original.restored + 50_000, "{name}");
            assert!(ours.standing_still <= original.standing_still, "{name}");
        }
        let cell =
            |number: &dyn Fn(Numbers) -> String| original.map_or_else(|| "–".to_owned(), number);
        writeln!(
            table,
            "| {name} | {fewest} | {} | {} | {} | {} | {} | {} | {} | {} |",
            cell(&|n| n.moves.to_string()),
            ours.moves,
            cell(&|n| n.rounds.to_string()),
            ours.rounds,
            cell(&|n| millions(n.restored)),
            millions(ours.restored),
            cell(&|n| n.standing_still.to_string()),
            ours.standing_still,
        )
        .expect("a string takes any text");
    }
    table
}

/// One of the 62 trajectories of `generated.json`, played in all ways.
struct Compared {
    name: String,
    scenario: Value,
    original: Numbers,
    /// Without racks and tags.
    plain: Played,
    /// With both, as the scenario says.
    full: Played,
}

impl Compared {
    fn new(scenario: Value) -> Self {
        let name = scenario["name"].as_str().expect("a name").to_owned();
        Self {
            name,
            original: Numbers::expected(&scenario),
            plain: play(&with(&scenario, NEITHER)),
            full: play(&with(&scenario, BOTH)),
            scenario,
        }
    }

    fn events(&self) -> String {
        let kinds = list(&self.scenario["events"]).flat_map(|event| {
            let together: Vec<&Value> = event["together"]
                .as_array()
                .map_or_else(|| vec![event], |all| all.iter().collect());
            together.into_iter().filter_map(|event| {
                let kinds = ["join", "leave", "bounce", "capacity", "append"];
                kinds.into_iter().find(|kind| event.get(kind).is_some())
            })
        });
        kinds.collect::<Vec<_>>().join(", ")
    }

    /// Whether the original had settled after the phase.
    fn original_was_stable(&self, phase: usize) -> bool {
        self.scenario["expect"]["phases"][phase]["stable"] == true
    }

    /// Who runs what in the original's last round of the phase.
    fn original_owners(&self, phase: usize) -> BTreeMap<TaskId, InstanceId> {
        let rounds = &self.scenario["expect"]["phases"][phase]["rounds"];
        let last = list(rounds).last().expect("the phase has rounds");
        entries(&last["clients"])
            .flat_map(|(id, holds)| {
                task_ids(&holds["active"]).into_iter().map(|task| (task, InstanceId::from(&**id)))
            })
            .collect()
    }

    /// The reason why fewer tasks had to move in the original when an instance lost its state.
    fn what_was_lost(&self, phase: usize, before: &Phase) -> String {
        let trajectory = trajectory(&self.scenario);
        let lost = trajectory.steps[phase - 1].events.iter().find_map(|event| match event {
            Event::Bounce { instance, empty: true } => Some(instance.clone()),
            _ => None,
        });
        let lost = lost.expect("the original settled evenly, so something was lost");
        let ran = |owners: BTreeMap<TaskId, InstanceId>| {
            let acceptable = trajectory.settings.acceptable_recovery_lag;
            let has_state = |task: &TaskId| {
                trajectory.tasks[task].end_offset.is_some_and(|end| end > acceptable)
            };
            owners.iter().filter(|(task, id)| **id == lost && has_state(task)).count()
        };
        let ours = ran(owners(before.rounds.last().expect("the phase has rounds")));
        let original = ran(self.original_owners(phase - 1));
        assert!(ours > original, "{}, phase {phase}: why?", self.name);
        format!(
            "{lost} lost its state; of the tasks that have some it ran {ours} in ours and {original} \
             in the original"
        )
    }

    /// The instances that are there in the phase, with their capacities.
    fn capacities(&self, phase: usize) -> BTreeMap<InstanceId, u32> {
        let trajectory = trajectory(&self.scenario);
        let start = trajectory.instances.iter().map(|(id, info)| (id.clone(), info.capacity));
        let mut capacities: BTreeMap<InstanceId, u32> = start.collect();
        for event in trajectory.steps[..phase].iter().flat_map(|step| &step.events) {
            match event {
                Event::Join { instance, info, .. } => {
                    capacities.insert(instance.clone(), info.capacity);
                }
                Event::Capacity { instance, to } => {
                    capacities.insert(instance.clone(), *to);
                }
                Event::Leave { instance } => {
                    capacities.remove(instance);
                }
                _ => {}
            }
        }
        capacities
    }

    fn original_moves(&self, phase: usize) -> u64 {
        list(&self.scenario["expect"]["phases"][phase]["rounds"])
            .filter_map(|round| round["stateful_active_moves"].as_u64())
            .sum()
    }
}

fn compared(corpus: &str) -> Vec<Compared> {
    all(corpus, "high_availability").into_iter().map(Compared::new).collect()
}

fn sums(compared: &[Compared]) -> (Numbers, Numbers, Numbers) {
    let (mut original, mut plain, mut full) = Default::default();
    for each in compared {
        Numbers::add(&mut original, each.original);
        Numbers::add(&mut plain, Numbers::of(&each.plain.phases));
        Numbers::add(&mut full, Numbers::of(&each.full.phases));
    }
    (original, plain, full)
}

fn sums_table(compared: &[Compared]) -> String {
    let (original, plain, full) = sums(compared);
    for ours in [plain, full] {
        assert!(ours.rounds <= PROTOTYPE.rounds, "{ours:?}");
        assert!(ours.moves <= PROTOTYPE.moves, "{ours:?}");
        assert!(ours.restored <= PROTOTYPE.restored, "{ours:?}");
    }
    let mut table = "\
| | HA | the specification's prototype, racks and tags off | ours, racks and tags off | ours, racks and tags on |
|---|---|---|---|---|
"
    .to_owned();
    add_sums(&mut table, &[original, PROTOTYPE, plain, full]);
    table
}

/// One row for each number.
fn add_sums(table: &mut String, columns: &[Numbers]) {
    let rows: [(&str, Cell); 4] = [
        ("moves of stateful tasks", |n| n.moves.to_string()),
        ("rounds", |n| n.rounds.to_string()),
        ("offsets restored (M)", |n| millions(n.restored)),
        ("rounds × stateful tasks standing still", |n| n.standing_still.to_string()),
    ];
    for (what, number) in rows {
        let cells: Vec<String> = columns.iter().copied().map(number).collect();
        writeln!(table, "| {what} | {} |", cells.join(" | ")).expect("a string takes any text");
    }
}

/// The sums over trajectories that had no part in the making of the assignor.
fn second_table() -> String {
    let compared = compared("generated-second.json.gz");
    assert_eq!(compared.len(), 36);
    let (original, plain, full) = sums(&compared);
    let mut table = "\
| | HA | ours, racks and tags off | ours, racks and tags on |
|---|---|---|---|
"
    .to_owned();
    add_sums(&mut table, &[original, plain, full]);
    table
}

fn generated_table(compared: &[Compared]) -> String {
    let mut table = "\
| trajectory | events | moves: HA | ours | + racks, tags | rounds: HA | ours | + racks, tags | restored (M): HA | ours | + racks, tags |
|---|---|---|---|---|---|---|---|---|---|---|
"
    .to_owned();
    for each in compared {
        let (plain, full) = (Numbers::of(&each.plain.phases), Numbers::of(&each.full.phases));
        let all = [each.original, plain, full];
        let cells = |number: Cell| all.map(number).join(" | ");
        writeln!(
            table,
            "| {} | {} | {} | {} | {} |",
            each.name.trim_start_matches("gen-1001-"),
            each.events(),
            cells(|n| n.moves.to_string()),
            cells(|n| n.rounds.to_string()),
            cells(|n| millions(n.restored)),
        )
        .expect("a string takes any text");
    }
    table
}

/// The phases in which the original moves fewer tasks in a trajectory where it does so in sum.
fn where_the_original_moves_less(compared: &[Compared]) -> String {
    let mut text = String::new();
    for each in compared {
        for (what, played) in [("off", &each.plain), ("on", &each.full)] {
            let ours = Numbers::of(&played.phases);
            if ours.moves <= each.original.moves {
                continue;
            }
            for (at, phase) in played.phases.iter().enumerate() {
                let moves: u64 = phase.rounds.iter().map(|round| round.stateful_active_moves).sum();
                if moves <= each.original_moves(at) {
                    continue;
                }
                let capacity = each.capacities(at);
                let reason = if !each.original_was_stable(at) {
                    "the phase is cut short, and the original still ran everything where it was: \
                     its moves were yet to come"
                        .to_owned()
                } else if let Some(uneven) = uneven(&each.original_owners(at), &capacity) {
                    format!("the original stays uneven: {uneven}")
                } else {
                    each.what_was_lost(at, &played.phases[at - 1])
                };
                let moved = reasons(phase);
                writeln!(
                    text,
                    "- {} with racks and tags {what}, after {}: {moves} instead of {} moves \
                     ({moved}); {reason}.",
                    each.name,
                    event_name(&each.scenario, at),
                    each.original_moves(at),
                )
                .expect("a string takes any text");
            }
        }
    }
    text
}

/// Why the stateful tasks moved that moved in the phase.
fn reasons(phase: &Phase) -> String {
    let mut counts: BTreeMap<Reason, usize> = BTreeMap::new();
    for round in &phase.rounds {
        for (task, reason) in round.assignment.instances.values().flat_map(|holds| &holds.active) {
            let is_in_target = round.assignment.standing_plan.as_ref().is_some_and(|plan| {
                plan.target.values().any(|target| target.active.contains(task))
            });
            if is_in_target && !matches!(reason, Reason::Stays | Reason::FollowState) {
                *counts.entry(*reason).or_default() += 1;
            }
        }
    }
    let counts: Vec<String> =
        counts.into_iter().map(|(reason, n)| format!("{n} {}", name_of(reason))).collect();
    counts.join(", ")
}

fn name_of(reason: Reason) -> &'static str {
    match reason {
        Reason::Balance => "for the share of an instance",
        Reason::SubtopologyBalance => "for the share of a sub-topology",
        Reason::CaughtUp => "warmed up",
        Reason::OwnerLeft => "of a lost instance",
        Reason::NoOwner => "without owner",
        _ => "for another reason",
    }
}

fn event_name(scenario: &Value, phase: usize) -> String {
    if phase == 0 { "the start".to_owned() } else { scenario["events"][phase - 1].to_string() }
}

/// The trajectories in which racks or tags cost moves, and which of the two asks for them.
fn further_moves(compared: &[Compared]) -> String {
    let mut text = String::new();
    for each in compared {
        let moves = |played: &Played| Numbers::of(&played.phases).moves;
        let (plain, full) = (moves(&each.plain), moves(&each.full));
        if full <= plain {
            continue;
        }
        let only = |racks, tags| moves(&play(&with(&each.scenario, Constraints { racks, tags })));
        let settings = with(&each.scenario, BOTH).settings;
        let mut asked_for_by = Vec::new();
        if only(true, false) > plain {
            asked_for_by.push("the racks".to_owned());
        }
        if only(false, true) > plain {
            let tags = settings.rack_aware_assignment_tags.join(", ");
            asked_for_by.push(format!("the tags {tags}"));
        }
        if asked_for_by.is_empty() {
            asked_for_by.push("racks and tags together".to_owned());
        }
        let name = &each.name;
        writeln!(
            text,
            "- {name}: {full} instead of {plain} moves. {}:",
            asked_for_by.join(" and ")
        )
        .expect("a string takes any text");
        for (at, (plain, full)) in each.plain.phases.iter().zip(&each.full.phases).enumerate() {
            let moves = |phase: &Phase| -> u64 {
                phase.rounds.iter().map(|round| round.stateful_active_moves).sum()
            };
            if moves(full) > moves(plain) {
                let event = event_name(&each.scenario, at);
                let (plain_moves, full_moves) = (moves(plain), moves(full));
                let why = reasons(full);
                writeln!(text, "  - {event}: {full_moves} instead of {plain_moves} ({why})")
                    .expect("a string takes any text");
            }
        }
    }
    text
}

fn page() -> String {
    let compared = compared("generated.json.gz");
    format!(
        "{HEAD}\n## Trajectories made to measure movement\n\n{MOVEMENT_HEAD}\n{}\n## 62 random trajectories\n\n{}\n{GENERATED_HEAD}\n{}\n### Where Kafka Streams moves less\n\n{}\n### What racks and tags ask for\n\n{FURTHER_HEAD}\n{}\n## 36 more\n\n{SECOND_HEAD}\n{}",
        movement_table(),
        sums_table(&compared),
        generated_table(&compared),
        where_the_original_moves_less(&compared),
        further_moves(&compared),
        second_table(),
    )
}

const HEAD: &str = "\
# The default assignor against Kafka Streams

<!-- Written by a test: UPDATE_EXPECT=1 cargo test -p headwater-assignor --test it comparison -->

HA is the high-availability assignor of Kafka Streams 4.4.0, *ours* is `MinimumMovement`. Both go through the same
trajectories: a group starts, instances join, leave, restart, change capacity, changelogs grow; after each event there are
rounds until the assignor asks for no further one. A plan is applied at once, and between two rounds every copy reads on. A
round that waits for a warm-up takes Kafka Streams ten minutes with default settings; ours waits for the event itself.

- *moves*: stateful tasks whose active is on another instance than a round before;
- *fewest*: the fewest tasks that must change instance so that the numbers of tasks differ by at most one;
- *rounds*: assignments until the group has settled;
- *restored*: offsets that all copies together read;
- *standing still*: rounds times stateful tasks that are active on an instance that is not caught up.

The same test checks what the tables show: on the first table ours moves exactly the fewest tasks in every row and is
nowhere above HA in any column; in every settled plan of the second, each instance has its share of all tasks and of each
sub-topology, rounded down or up.
";

const MOVEMENT_HEAD: &str = "\
Tasks x instances, with or without a standby; one million offsets per task, two warm-ups. Counted from the first event on.
A dash: the original was not run, since it needs hundreds of rounds.
";

const SECOND_HEAD: &str = "\
Random trajectories of another seed, which had no part in the making of the assignor.
";

const GENERATED_HEAD: &str = "\
Racks and tags off and then as each scenario has them, the start included.
";

const FURTHER_HEAD: &str = "\
Racks and tags never move an active by themselves: they say where standbys are. Where standbys are then decides who can
take over, and shares may ask for more moves than they would elsewhere. These are all trajectories with further moves:
";

#[test]
fn the_page_in_the_docs_is_what_is_measured() {
    expect_file!["../../../../docs/assignor.md"].assert_eq(&page());
}

/// A share that is not kept: of all tasks or of a sub-topology, rounded down and up.
fn uneven(
    owners: &BTreeMap<TaskId, InstanceId>,
    capacity: &BTreeMap<InstanceId, u32>,
) -> Option<String> {
    let total: usize = capacity.values().map(|capacity| *capacity as usize).sum();
    let subtopologies: BTreeSet<u32> = owners.keys().map(|task| task.subtopology).collect();
    let levels = std::iter::once(None).chain(subtopologies.into_iter().map(Some));
    for level in levels {
        let counts = |task: &TaskId| level.is_none_or(|level| task.subtopology == level);
        let tasks = owners.keys().filter(|task| counts(task)).count();
        for (instance, capacity) in capacity {
            let n = owners.iter().filter(|(task, id)| *id == instance && counts(task)).count();
            let product = tasks * *capacity as usize;
            if n < product / total || n > product.div_ceil(total) {
                let of =
                    level.map_or_else(String::new, |level| format!(" of sub-topology {level}"));
                let share = format!("{}.{}", product / total, product * 10 / total % 10);
                return Some(format!(
                    "{instance} runs {n} of {tasks} tasks{of}, its share is {share}"
                ));
            }
        }
    }
    None
}

#[test]
fn every_settled_plan_keeps_every_share() {
    let sets = ["generated.json.gz", "generated-second.json.gz"];
    for each in sets.into_iter().flat_map(compared) {
        for played in [&each.plain, &each.full] {
            for (at, phase) in played.phases.iter().enumerate().filter(|(_, phase)| phase.stable) {
                let Some(round) = phase.rounds.last() else { continue };
                let uneven = uneven(&owners(round), &each.capacities(at));
                assert_eq!(uneven, None, "{}, phase {at}", each.name);
            }
        }
    }
}

#[test]
fn a_joining_instance_moves_its_share_and_a_lost_one_its_own() {
    for scenario in all("movement.json.gz", "high_availability") {
        let trajectory = with(&scenario, NEITHER);
        let played = play(&trajectory);
        for (step, pair) in trajectory.steps.iter().zip(played.phases.windows(2)) {
            let [event] = step.events.as_slice() else { continue };
            let name = &scenario["name"];
            let moved = changed(&pair[0], &pair[1]);
            let before = owners(pair[0].rounds.last().unwrap());
            let instances = pair[1].rounds.last().unwrap().assignment.instances.len();
            match event {
                Event::Join { .. } => {
                    assert!(moved.len() <= before.len().div_ceil(instances), "{name}: {moved:?}");
                }
                Event::Leave { instance } => {
                    assert!(
                        moved.iter().all(|task| before[task] == *instance),
                        "{name}: {moved:?}"
                    );
                }
                _ => {}
            }
        }
    }
}
