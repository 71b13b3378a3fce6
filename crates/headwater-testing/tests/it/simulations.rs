//! The simulator: it keeps quiet about what is right, finds what is wrong, and does so again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use headwater::ProcessingGuarantee;
use headwater::prelude::*;
use headwater_testing::sim::{
    Broken, Chance, FaultKind, Invariant, KeyAndValue, Seen, Simulation, SimulationError, Violation,
};

const NAMES: [&str; 3] = ["ann", "bob", "cem"];

fn payment(chance: &mut Chance, _: u64) -> KeyAndValue {
    let name = chance.of(&NAMES).as_bytes().to_vec();
    (Some(name), Some(1_i64.to_be_bytes().to_vec()))
}

/// Each account's balances are 1, 2, 3 and so on.
#[derive(Debug, Default)]
struct Balances {
    read: usize,
    last: BTreeMap<Vec<u8>, i64>,
}

impl Invariant for Balances {
    fn name(&self) -> &'static str {
        "each payment is booked once"
    }

    fn check(&mut self, seen: &Seen<'_>) -> Result<(), Broken> {
        let output = seen.of("balances");
        for record in &output[self.read..] {
            let last = self.last.entry(record.key.clone().unwrap_or_default()).or_default();
            let balance = record.value.as_deref().and_then(|value| value.try_into().ok());
            let balance = balance.map_or(0, i64::from_be_bytes);
            if balance != *last + 1 {
                return Err(Broken::new(format!("{balance} after {last}")));
            }
            *last = balance;
        }
        self.read = output.len();
        let booked = usize::try_from(self.last.values().sum::<i64>()).unwrap_or(0);
        if seen.is_at_rest && booked < seen.written.len() {
            return Err(Broken::new(format!("{booked} of {}", seen.written.len())));
        }
        Ok(())
    }
}

fn simulation(topology: Topology) -> Simulation {
    Simulation::new(topology)
        .guarantee(ProcessingGuarantee::ExactlyOnceV2)
        .input("payments", 2, payment)
        .output("balances", 2)
        .records(60)
        .invariant(Balances::default)
}

fn balances() -> Topology {
    let builder = StreamsBuilder::new();
    builder
        .stream("payments", Consumed::with(Utf8, Long))
        .group_by_key(Grouped::with(Utf8, Long))
        .reduce(|balance, payment| balance + payment, Materialized::named("balances"))
        .to_stream()
        .to("balances", Produced::with(Utf8, Long));
    builder.build().expect("the topology is right")
}

/// Keeps its balances where no changelog sees them.
fn forgetful() -> Topology {
    let builder = StreamsBuilder::new();
    let kept: Arc<[AtomicI64; 3]> = Arc::default();
    builder
        .stream("payments", Consumed::with(Utf8, Long))
        .map_values_with_key(move |name, payment| {
            let place =
                NAMES.iter().position(|it| name.is_some_and(|name| name == it)).unwrap_or(0);
            kept[place].fetch_add(*payment, Ordering::Relaxed) + payment
        })
        .to("balances", Produced::with(Utf8, Long));
    builder.build().expect("the topology is right")
}

#[test]
fn what_is_right_holds_under_every_fault_and_the_same_seed_comes_to_the_same() {
    let simulation = simulation(balances()).standbys(0..=1);
    let summary = simulation.run_all(0..6).unwrap();
    assert_eq!((summary.schedules, summary.records), (6, 360));
    assert!(summary.faults >= 30);
    assert_eq!(simulation.run(3).unwrap(), simulation.run(3).unwrap());
    assert_ne!(simulation.run(3).unwrap().hash, simulation.run(4).unwrap().hash);
}

/// The first seed under these faults with which an application shows that it keeps state in no store.
fn forgets_under(kinds: &[FaultKind]) -> Violation {
    let violation = (0..40).find_map(|seed| {
        // What one seed has left in it would show in the next.
        let simulation = simulation(forgetful()).fault_kinds(kinds.to_vec()).faults(6..=6);
        match simulation.run(seed) {
            Err(SimulationError::Violation(violation)) => Some(*violation),
            other => {
                other.expect("a simulation can be set up");
                None
            }
        }
    });
    let violation = violation.expect("it forgets, or counts again");
    assert_eq!(violation.invariant, "each payment is booked once");
    violation
}

#[test]
fn state_that_is_in_no_store_is_found_and_the_story_told() {
    let violation = forgets_under(&[FaultKind::Crash, FaultKind::PowerLoss]);
    let text = violation.to_string();
    assert!(text.starts_with(&format!("seed {} (ExactlyOnceV2) breaks", violation.seed)), "{text}");
    assert!(text.contains("instance 0 is RUNNING"), "{text}");
}

#[test]
fn an_instance_that_stands_still_at_a_request_loses_its_tasks_to_another() {
    let text = forgets_under(&[FaultKind::PauseAtRequest]).to_string();
    assert!(text.contains("stands still for"), "{text}");
    assert!(text.contains("just before its"), "{text}");
}

#[test]
fn an_instance_that_leaves_a_request_behind_has_crashed() {
    let text = forgets_under(&[FaultKind::LeftBehindRequest]).to_string();
    assert!(text.contains("crashes, and its"), "{text}");
}

#[test]
fn where_two_runs_of_a_seed_part_is_told() {
    let calls = Arc::new(AtomicUsize::new(0));
    let builder = StreamsBuilder::new();
    builder
        .stream("payments", Consumed::with(Utf8, Long))
        // Lets all pass in the first run, and nothing in the second.
        .filter(move |_, _| calls.fetch_add(1, Ordering::Relaxed) < 60)
        .to("balances", Produced::with(Utf8, Long));
    let simulation = Simulation::new(builder.build().unwrap())
        .input("payments", 2, payment)
        .output("balances", 2)
        .records(60)
        .instances(1..=1)
        .fault_kinds([]);
    let violation = match simulation.run_all(0..1) {
        Err(SimulationError::Violation(violation)) => violation,
        other => panic!("{other:?}"),
    };
    assert_eq!(violation.invariant, "the same seed, the same run");
    let (shared, parted) = violation.story.split_once("the first goes on:").unwrap();
    assert!(shared.starts_with("both runs:") && shared.contains("0 fetch done"), "{shared}");
    let (first, second) = parted.split_once("the second goes on:").unwrap();
    assert!(first.contains("0 produce") && !second.contains("0 produce"), "{parted}");
}

#[test]
fn faults_of_ones_own_are_drawn() {
    let struck = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&struck);
    let simulation = simulation(balances())
        .fault_kinds([])
        .own_fault("the members are forgotten", move |_, broker| {
            counted.fetch_add(1, Ordering::Relaxed);
            broker.forget_members();
        })
        .faults(3..=3)
        .instances(2..=2);
    let report = simulation.run(1).unwrap();
    assert_eq!((report.instances, report.faults), (2, 3));
    assert_eq!(struck.load(Ordering::Relaxed), 3);
}

#[test]
fn dynamic_members_remain_in_their_group_as_often_as_wanted() {
    let simulation = simulation(balances())
        .fault_kinds([FaultKind::Close])
        .faults(4..=6)
        .instances(2..=3)
        .remaining_members(1);
    let returned = |simulation: &Simulation| simulation.run_all(0..4).unwrap().returned;
    assert!(returned(&simulation) > 4);
    assert_eq!(returned(&simulation.clone().remaining_members(0)), 0);
    // They have choices of their own.
    let of_static = simulation.static_members(1);
    let report = of_static.run(1).unwrap();
    assert!(report.are_static && report.returned == 0);
    assert_eq!(report, of_static.remaining_members(0).run(1).unwrap());
}
