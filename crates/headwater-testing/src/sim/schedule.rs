//! What is to happen in a run, and when: all of it follows from the seed, before anything has happened.

mod draw;

use std::num::NonZeroU64;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use headwater_runtime::ProcessingGuarantee;

use super::chance::Chance;
use super::fault::FaultKind;
pub(crate) use draw::{BrokerDeath, Fault, Trouble};

/// What a schedule is drawn from.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) guarantee: ProcessingGuarantee,
    pub(crate) instances: RangeInclusive<usize>,
    pub(crate) standbys: RangeInclusive<u32>,
    pub(crate) records: u64,
    pub(crate) faults: RangeInclusive<usize>,
    pub(crate) kinds: Vec<FaultKind>,
    pub(crate) own_faults: usize,
    /// In one of so many schedules all instances are static members.
    pub(crate) static_members: Option<NonZeroU64>,
    /// A dynamic member that is closed remains in the group once in so many times.
    pub(crate) remaining_members: Option<NonZeroU64>,
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) threads: Vec<usize>,
    pub(crate) standbys: u32,
    /// With static members: the threads of an instance on the machine that is spare at first.
    pub(crate) spare_threads: Option<usize>,
    /// The broker syncs what it acknowledges, and its machine loses its power; otherwise only its process
    /// dies.
    pub(crate) broker_syncs: bool,
    /// By time, in milliseconds from the beginning.
    pub(crate) actions: Vec<(u64, Action)>,
    /// When nothing goes wrong any more.
    pub(crate) peace_ms: u64,
    pub(crate) faults: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// So many records are written.
    Write(u64),
    /// An instance is to run, if it does not.
    Start(usize),
    /// Something goes wrong.
    Fault(Fault),
    /// One of the user's faults.
    Own(usize),
}

/// An instance goes and comes back several times, each time before the group has come to rest.
fn flap(chance: &mut Chance, mut when: u64, instances: usize, actions: &mut Vec<(u64, Action)>) {
    let instance = chance.index(0..instances);
    for _ in 0..chance.in_range(3..7) {
        let back_after = Duration::from_millis(chance.in_range(0..700));
        let fault = if chance.one_in(2) {
            Fault::Close { instance, back_after }
        } else {
            Fault::PowerLoss { instance, kept: chance.index(0..17), back_after }
        };
        actions.push((when, Action::Fault(fault)));
        when += chance.in_range(200..1_800);
    }
}

/// All machines go dark, and everybody comes back at the same moment.
fn black_out(chance: &mut Chance, when: u64, instances: usize, actions: &mut Vec<(u64, Action)>) {
    let back_after = Duration::from_millis(chance.in_range(0..4_000));
    for instance in 0..instances {
        let kept = chance.index(0..17);
        actions.push((when, Action::Fault(Fault::PowerLoss { instance, kept, back_after })));
    }
}

impl Action {
    /// How long peace has to wait for it: who stands still is to go on while others have what was its.
    fn lasts(&self) -> Duration {
        match self {
            Self::Fault(Fault::Pause { lasts, .. } | Fault::Elsewhere { lasts, .. }) => *lasts,
            Self::Fault(Fault::Stop { stop, .. }) => stop.lasts,
            _ => Duration::ZERO,
        }
    }

    /// Whether the broker has to be there for it.
    pub(crate) fn needs_broker(&self) -> bool {
        match self {
            Self::Write(_) | Self::Own(_) => true,
            Self::Start(_) => false,
            Self::Fault(fault) => matches!(
                fault,
                Fault::FencedWriter { .. }
                    | Fault::LeaderChange { .. }
                    | Fault::LateMarkers { .. }
                    | Fault::NoMarkers { .. }
                    | Fault::Stranger { .. }
            ),
        }
    }
}

/// Between two writes, in milliseconds.
const WRITE_PAUSE_MS: Range<u64> = 10..250;
const RECORDS_AT_ONCE: Range<u64> = 1..8;
/// Between the last action and peace: what was started has time to go wrong.
const TO_PEACE_MS: u64 = 1_000;

impl Schedule {
    /// The schedule of a seed.
    pub(crate) fn new(seed: u64, shape: &Shape) -> Self {
        let mut chance = Chance::new(seed);
        let drawn = |chance: &mut Chance, range: &RangeInclusive<usize>| {
            chance.index(*range.start()..*range.end() + 1)
        };
        let spare_threads = shape.spare_threads(seed);
        let is_drawn =
            |kind: &&FaultKind| spare_threads.is_some() || !FaultKind::STATIC.contains(kind);
        let kinds: Vec<FaultKind> = shape.kinds.iter().filter(is_drawn).copied().collect();
        let instances = drawn(&mut chance, &shape.instances).max(1);
        let threads = (0..instances).map(|_| chance.index(1..3)).collect();
        let (fewest, most) = (*shape.standbys.start(), *shape.standbys.end());
        let standbys = fewest
            + u32::try_from(chance.in_range(0..u64::from(most - fewest.min(most)) + 1))
                .unwrap_or(0);
        let mut actions = Vec::new();
        for instance in 0..instances {
            let at = if instance == 0 { 0 } else { chance.in_range(0..6_000) };
            actions.push((at, Action::Start(instance)));
        }
        let mut at = 0;
        let mut left = shape.records;
        while left > 0 {
            let count = chance.in_range(RECORDS_AT_ONCE).min(left);
            left -= count;
            at += chance.in_range(WRITE_PAUSE_MS);
            actions.push((at, Action::Write(count)));
        }
        let faults = drawn(&mut chance, &shape.faults);
        for _ in 0..faults {
            let when = chance.in_range(0..at + 1_000);
            let choices = kinds.len() + shape.own_faults;
            if choices == 0 {
                break;
            }
            let choice = chance.index(0..choices);
            match kinds.get(choice) {
                Some(FaultKind::Flapping) => flap(&mut chance, when, instances, &mut actions),
                Some(FaultKind::Blackout) => black_out(&mut chance, when, instances, &mut actions),
                Some(kind) => {
                    let fault = Fault::draw(*kind, &mut chance, shape, instances);
                    actions.push((when, Action::Fault(fault)));
                }
                None => actions.push((when, Action::Own(choice - kinds.len()))),
            }
        }
        actions.sort_by_key(|(at, _)| *at);
        let broker_syncs = Chance::new(seed).fork(3).one_in(2);
        let over = |(at, action): &(u64, Action)| {
            at + u64::try_from(action.lasts().as_millis()).unwrap_or(u64::MAX)
        };
        let peace_ms = actions.iter().map(over).max().unwrap_or(0) + TO_PEACE_MS;
        Self { threads, standbys, spare_threads, broker_syncs, actions, peace_ms, faults }
    }
}

impl Shape {
    /// The threads on a spare machine, if all instances are static members with this seed. Drawn apart: schedules without
    /// static members are what they were before there were any.
    fn spare_threads(&self, seed: u64) -> Option<usize> {
        let mut chance = Chance::new(seed).fork(7);
        let is_static = self.static_members.is_some_and(|one_in| chance.one_in(one_in.get()));
        is_static.then(|| chance.index(1..3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(guarantee: ProcessingGuarantee) -> Shape {
        Shape {
            guarantee,
            instances: 1..=3,
            standbys: 0..=1,
            records: 200,
            faults: 5..=12,
            kinds: FaultKind::ALL.into_iter().chain(FaultKind::GROUP).collect(),
            own_faults: 1,
            static_members: None,
            remaining_members: None,
        }
    }

    #[test]
    fn a_schedule_follows_from_its_seed_and_is_as_large_as_wanted() {
        for seed in 0..200 {
            let shape = shape(ProcessingGuarantee::ExactlyOnceV2);
            let schedule = Schedule::new(seed, &shape);
            assert_eq!(schedule, Schedule::new(seed, &shape));
            let written = schedule.actions.iter().map(|(_, action)| match action {
                Action::Write(count) => *count,
                _ => 0,
            });
            assert_eq!(written.sum::<u64>(), 200);
            let wrong = |action: &Action| matches!(action, Action::Fault(_) | Action::Own(_));
            let faults = schedule.actions.iter().filter(|(_, action)| wrong(action)).count();
            // Some are several at once.
            assert!(faults >= schedule.faults);
            assert!((5..=12).contains(&schedule.faults));
            assert!((1..=3).contains(&schedule.threads.len()));
        }
    }

    #[test]
    fn static_members_leave_the_other_schedules_as_they_were() {
        let before = shape(ProcessingGuarantee::ExactlyOnceV2);
        let mut with = before.clone();
        with.kinds.extend(FaultKind::STATIC);
        with.static_members = NonZeroU64::new(4);
        let (mut are_static, mut elsewhere) = (0, 0);
        for seed in 0..400 {
            let schedule = Schedule::new(seed, &with);
            if schedule.spare_threads.is_none() {
                assert_eq!(schedule, Schedule::new(seed, &before));
            } else {
                are_static += 1;
                let is_elsewhere =
                    |action: &Action| matches!(action, Action::Fault(Fault::Elsewhere { .. }));
                elsewhere += schedule.actions.iter().filter(|(_, it)| is_elsewhere(it)).count();
            }
        }
        assert!((70..130).contains(&are_static), "{are_static}");
        assert!(elsewhere > 0);
    }

    #[test]
    fn every_kind_of_fault_is_drawn() {
        let all: Vec<String> = (0..400)
            .flat_map(|seed| {
                let guarantee = ProcessingGuarantee::ExactlyOnceV2;
                Schedule::new(seed, &shape(guarantee)).actions
            })
            .map(|(_, action)| format!("{action:?}"))
            .collect();
        for wanted in [
            "Lost",
            "AnswerLost",
            "Late",
            "Twice",
            "CoordinatorMove",
            "BrokerRestart",
            "InAWrite",
            "LeaderCrash",
            "OtherVersion",
            "Stranger",
            "FencedWriter",
            "LeaderChange",
            "LateMarkers",
            "NoMarkers",
            "at: Request, passes",
            "at: Answer, passes",
            "at: LeavesBehind, passes",
            "Crash",
            "PowerLoss",
            "Pause",
            "ClockJump",
            "FullDisk",
            "SlowDisk",
            "Close",
            "Own",
        ] {
            assert!(all.iter().any(|action| action.contains(wanted)), "{wanted}");
        }
    }
}
