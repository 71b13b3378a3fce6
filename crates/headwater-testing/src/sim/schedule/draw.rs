//! What goes wrong: how often, when, where and for how long.

use std::ops::Range;
use std::time::Duration;

use headwater_embedded::CallKind;
use headwater_runtime::ProcessingGuarantee;

use super::Shape;
use crate::sim::chance::Chance;
use crate::sim::fault::FaultKind;
use crate::sim::machine::CrashPoint;
use crate::sim::stops::{Stop, StopPoint};

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
    /// None are written.
    NoMarkers {
        lasts: Duration,
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
    /// An instance stands still or dies at one of its requests.
    Stop {
        instance: usize,
        stop: Stop,
        back_after: Duration,
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
    /// A static member stands still, and is started on another machine meanwhile.
    Elsewhere {
        instance: usize,
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

/// What a commit consists of: a process that stands still, or dies, between two of them leaves the most to be
/// settled.
const AT_LEAST_ONCE_COMMIT: [CallKind; 2] = [CallKind::Produce, CallKind::CommitOffsets];
const EXACTLY_ONCE_COMMIT: [CallKind; 3] =
    [CallKind::Produce, CallKind::TxnOffsetCommit, CallKind::EndTxn];

/// How long an instance stands still at a request, or its request is on its way without it, in milliseconds: mostly
/// longer than a session lasts, and mostly not as long as a transaction may.
const STOP_MS: Range<u64> = 2_500..11_000;

impl Fault {
    pub(super) fn draw(
        kind: FaultKind,
        chance: &mut Chance,
        shape: &Shape,
        instances: usize,
    ) -> Self {
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
            FaultKind::LateMarkers if is_exactly_once => Self::draw_markers(chance),
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
            FaultKind::PauseAtRequest | FaultKind::LeftBehindRequest => Self::Stop {
                instance,
                stop: draw_stop(kind, chance, is_exactly_once),
                back_after: time(chance, 0..6_000),
            },
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
            FaultKind::Elsewhere => {
                let lasts = if chance.one_in(3) { 0..1 } else { 300..9_000 };
                Self::Elsewhere { instance, lasts: time(chance, lasts) }
            }
        }
    }

    /// The instance that it strikes, if it strikes one.
    pub(crate) fn instance_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Requests { instance, .. }
            | Self::FencedWriter { instance, .. }
            | Self::Crash { instance, .. }
            | Self::PowerLoss { instance, .. }
            | Self::Pause { instance, .. }
            | Self::Stop { instance, .. }
            | Self::ClockJump { instance, .. }
            | Self::FullDisk { instance, .. }
            | Self::SlowDisk { instance, .. }
            | Self::Close { instance, .. }
            | Self::OtherVersion { instance, .. }
            | Self::Elsewhere { instance, .. } => Some(instance),
            Self::CoordinatorMove { .. }
            | Self::BrokerRestart { .. }
            | Self::LeaderChange { .. }
            | Self::LateMarkers { .. }
            | Self::NoMarkers { .. }
            | Self::LeaderCrash { .. }
            | Self::Stranger { .. } => None,
        }
    }

    fn draw_markers(chance: &mut Chance) -> Self {
        // Numbers of its own, as with deaths of the broker: this came later, and what is drawn after it stays what it
        // was.
        let mut of_all = chance.fork(6);
        let time = |chance: &mut Chance, ms: Range<u64>| Duration::from_millis(chance.in_range(ms));
        let of_one = Self::LateMarkers {
            number: chance.number(),
            lasts: time(chance, 200..6_000),
            skip: chance.in_range(0..6),
        };
        if of_all.one_in(2) {
            Self::NoMarkers { lasts: time(&mut of_all, 500..6_000) }
        } else {
            of_one
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

/// At which request an instance stands still, or dies.
fn draw_stop(kind: FaultKind, chance: &mut Chance, is_exactly_once: bool) -> Stop {
    let (commit, all): (&[CallKind], &[CallKind]) = if is_exactly_once {
        (&EXACTLY_ONCE_COMMIT, &EXACTLY_ONCE)
    } else {
        (&AT_LEAST_ONCE_COMMIT, &AT_LEAST_ONCE)
    };
    let leaves_behind = kind == FaultKind::LeftBehindRequest;
    let is_of_commit = leaves_behind || chance.one_in(2);
    let at = match (leaves_behind, chance.one_in(2)) {
        (true, _) => StopPoint::LeavesBehind,
        (false, true) => StopPoint::Request,
        (false, false) => StopPoint::Answer,
    };
    Stop {
        kind: *chance.of(if is_of_commit { commit } else { all }),
        at,
        passes: chance.in_range(if is_of_commit { 0..12 } else { 0..3 }),
        lasts: Duration::from_millis(chance.in_range(STOP_MS)),
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
