//! What is to happen in a run, and when: all of it follows from the seed, before anything has happened.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use headwater_embedded::CallKind;
use headwater_runtime::ProcessingGuarantee;

use super::chance::Chance;
use super::fault::FaultKind;
use super::machine::CrashPoint;

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
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) threads: Vec<usize>,
    pub(crate) standbys: u32,
    /// The broker syncs what it acknowledges, and its machine loses its power; otherwise only its process
    /// dies.
    pub(crate) broker_syncs: bool,
    /// By time, in milliseconds from the beginning.
    pub(crate) actions: Vec<(u64, Action)>,
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
                    | Fault::Stranger { .. }
            ),
        }
    }
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Requests {
        instance: usize,
        kind: CallKind,
        what: Trouble,
        skip: u64,
        count: u64,
    },
    /// The coordinator of groups and transactions is elsewhere, and not there yet.
    CoordinatorMove {
        lasts: Duration,
        forgets: bool,
    },
    BrokerRestart {
        lasts: Duration,
        dies: BrokerDeath,
    },
    /// Somebody else takes the transactional id of a stream thread.
    FencedWriter {
        instance: usize,
        thread: usize,
    },
    LeaderChange {
        number: u64,
    },
    LateMarkers {
        number: u64,
        lasts: Duration,
        skip: u64,
    },
    Crash {
        instance: usize,
        at: CrashPoint,
        passes: u64,
        back_after: Duration,
    },
    /// Of what was not synced only a part is kept, in sixteenths.
    PowerLoss {
        instance: usize,
        kept: usize,
        back_after: Duration,
    },
    Pause {
        instance: usize,
        lasts: Duration,
    },
    ClockJump {
        instance: usize,
        ms: i64,
    },
    FullDisk {
        instance: usize,
        lasts: Duration,
    },
    SlowDisk {
        instance: usize,
        delay: Duration,
        lasts: Duration,
    },
    Close {
        instance: usize,
        back_after: Duration,
    },
    /// Whoever leads crashes with the next plan.
    LeaderCrash {
        is_told: bool,
        back_after: Duration,
    },
    OtherVersion {
        instance: usize,
        lasts: Duration,
    },
    Stranger {
        lasts: Duration,
    },
}

/// When the broker dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokerDeath {
    Now,
    /// After so many writes and syncs, in the middle of one, of which so many sixteenths arrive.
    InAWrite {
        after: u64,
        arrives: usize,
    },
}

/// What happens to requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Lost { after: Duration },
    AnswerLost { after: Duration },
    Late { by: Duration },
    Twice { apart: Duration },
}

/// Between two writes, in milliseconds.
const WRITE_PAUSE_MS: Range<u64> = 10..250;
const RECORDS_AT_ONCE: Range<u64> = 1..8;

impl Schedule {
    /// The schedule of a seed.
    pub(crate) fn new(seed: u64, shape: &Shape) -> Self {
        let mut chance = Chance::new(seed);
        let drawn = |chance: &mut Chance, range: &RangeInclusive<usize>| {
            chance.index(*range.start()..*range.end() + 1)
        };
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
            let choices = shape.kinds.len() + shape.own_faults;
            if choices == 0 {
                break;
            }
            let choice = chance.index(0..choices);
            match shape.kinds.get(choice) {
                Some(FaultKind::Flapping) => flap(&mut chance, when, instances, &mut actions),
                Some(FaultKind::Blackout) => black_out(&mut chance, when, instances, &mut actions),
                Some(kind) => {
                    let fault = Fault::draw(*kind, &mut chance, shape, instances);
                    actions.push((when, Action::Fault(fault)));
                }
                None => actions.push((when, Action::Own(choice - shape.kinds.len()))),
            }
        }
        actions.sort_by_key(|(at, _)| *at);
        let broker_syncs = Chance::new(seed).fork(3).one_in(2);
        Self { threads, standbys, broker_syncs, actions, faults }
    }
}

/// The requests that matter most for what is promised, by guarantee.
const AT_LEAST_ONCE: [CallKind; 8] = [
    CallKind::Produce,
    CallKind::CommitOffsets,
    CallKind::CommittedOffsets,
    CallKind::Fetch,
    CallKind::Heartbeat,
    CallKind::JoinGroup,
    CallKind::SyncGroup,
    CallKind::ListOffsets,
];
const EXACTLY_ONCE: [CallKind; 10] = [
    CallKind::EndTxn,
    CallKind::TxnOffsetCommit,
    CallKind::InitProducerId,
    CallKind::Produce,
    CallKind::CommittedOffsets,
    CallKind::Fetch,
    CallKind::Heartbeat,
    CallKind::JoinGroup,
    CallKind::SyncGroup,
    CallKind::ListOffsets,
];

impl Fault {
    fn draw(kind: FaultKind, chance: &mut Chance, shape: &Shape, instances: usize) -> Self {
        let is_exactly_once = shape.guarantee == ProcessingGuarantee::ExactlyOnceV2;
        let instance = chance.index(0..instances);
        let time = |chance: &mut Chance, ms: Range<u64>| Duration::from_millis(chance.in_range(ms));
        match kind {
            FaultKind::LostRequests
            | FaultKind::LostAnswers
            | FaultKind::LateRequests
            | FaultKind::RepeatedRequests => Self::draw_requests(kind, chance, shape, instance),
            FaultKind::CoordinatorMove => {
                Self::CoordinatorMove { lasts: time(chance, 100..2_000), forgets: chance.one_in(3) }
            }
            FaultKind::BrokerRestart => Self::BrokerRestart {
                lasts: time(chance, 300..2_500),
                dies: BrokerDeath::draw(&mut chance.fork(4)),
            },
            // Without transactions nobody can be fenced.
            FaultKind::FencedWriter if is_exactly_once => {
                Self::FencedWriter { instance, thread: chance.index(0..2) }
            }
            FaultKind::LateMarkers if is_exactly_once => Self::LateMarkers {
                number: chance.number(),
                lasts: time(chance, 200..6_000),
                skip: chance.in_range(0..6),
            },
            FaultKind::FencedWriter | FaultKind::LateMarkers | FaultKind::LeaderChange => {
                Self::LeaderChange { number: chance.number() }
            }
            FaultKind::Crash => Self::Crash {
                instance,
                at: *chance.of(&CrashPoint::ALL),
                passes: chance.in_range(0..40),
                back_after: time(chance, 0..6_000),
            },
            FaultKind::TornWrite => Self::Crash {
                instance,
                at: CrashPoint::Write,
                passes: chance.in_range(0..12),
                back_after: time(chance, 0..6_000),
            },
            FaultKind::PowerLoss => Self::PowerLoss {
                instance,
                kept: chance.index(0..17),
                back_after: time(chance, 0..6_000),
            },
            FaultKind::Pause => Self::Pause { instance, lasts: time(chance, 200..9_000) },
            FaultKind::ClockJump => {
                let ms = i64::try_from(chance.in_range(1_000..7_200_000)).unwrap_or(i64::MAX);
                Self::ClockJump { instance, ms: if chance.one_in(2) { ms } else { -ms } }
            }
            FaultKind::FullDisk => Self::FullDisk { instance, lasts: time(chance, 200..3_000) },
            FaultKind::SlowDisk => Self::SlowDisk {
                instance,
                delay: time(chance, 5..800),
                lasts: time(chance, 500..5_000),
            },
            // These two are several faults each, and drawn as such.
            FaultKind::Close | FaultKind::Flapping | FaultKind::Blackout => {
                Self::Close { instance, back_after: time(chance, 0..4_000) }
            }
            FaultKind::LeaderCrash => {
                Self::LeaderCrash { is_told: chance.one_in(2), back_after: time(chance, 0..6_000) }
            }
            FaultKind::OtherVersion => {
                Self::OtherVersion { instance, lasts: time(chance, 1_000..12_000) }
            }
            FaultKind::Stranger => Self::Stranger { lasts: time(chance, 500..8_000) },
        }
    }

    /// Trouble with requests of an instance.
    fn draw_requests(kind: FaultKind, chance: &mut Chance, shape: &Shape, instance: usize) -> Self {
        let is_exactly_once = shape.guarantee == ProcessingGuarantee::ExactlyOnceV2;
        let time = |chance: &mut Chance, ms: Range<u64>| Duration::from_millis(chance.in_range(ms));
        let what = match kind {
            FaultKind::LostRequests => Trouble::Lost { after: time(chance, 1..900) },
            FaultKind::LostAnswers => Trouble::AnswerLost { after: time(chance, 1..900) },
            FaultKind::RepeatedRequests => Trouble::Twice { apart: time(chance, 0..1_500) },
            _ => Trouble::Late { by: time(chance, 50..2_500) },
        };
        let kinds: &[CallKind] = match (kind, is_exactly_once) {
            (FaultKind::RepeatedRequests, true) => {
                &[CallKind::Produce, CallKind::EndTxn, CallKind::TxnOffsetCommit]
            }
            // A commit that comes again takes a newer one back, as in Kafka: nothing is lost by it, but
            // nobody could tell from outside when all is done.
            (FaultKind::RepeatedRequests, false) => &[CallKind::Produce],
            (_, true) => &EXACTLY_ONCE,
            (_, false) => &AT_LEAST_ONCE,
        };
        let (skip, count) = (chance.in_range(0..12), chance.in_range(1..7));
        Self::Requests { instance, kind: *chance.of(kinds), what, skip, count }
    }
}

impl BrokerDeath {
    fn draw(chance: &mut Chance) -> Self {
        if chance.one_in(3) {
            Self::Now
        } else {
            Self::InAWrite { after: chance.in_range(0..60), arrives: chance.index(0..17) }
        }
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
