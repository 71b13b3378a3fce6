//! The applications of the standard simulations, each with a model of what its output must be.

mod counts;
mod join;
mod stateless;

use std::fmt;
use std::str::FromStr;

use headwater_dsl::{Consumed, DslError, StreamsBuilder, Topology};
use headwater_runtime::ProcessingGuarantee;
use headwater_store::serde::RawBytes;
use headwater_testing::sim::{Chance, FaultKind, KeyAndValue, Simulation};

/// A standard application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Records go through, with another value.
    Stateless,
    /// Counts by another key, over a repartition topic.
    Count,
    /// The same with a record cache: a change is forwarded once per commit.
    CachedCount,
    /// Counts by key and window.
    Windowed,
    /// Two tables joined.
    Join,
    /// Counts of many words within very little memory.
    Tight,
}

/// A seed, and what it is run on.
#[derive(Clone, Copy, Debug)]
pub struct Scheduled {
    /// The application.
    pub workload: Workload,
    /// What it promises.
    pub guarantee: ProcessingGuarantee,
    /// Whether it was run with a [group](Workload::group_simulation).
    pub is_group: bool,
    /// Whether all instances are static members whatever the seed says; of groups.
    pub is_static: bool,
    /// Whether dynamic members leave whenever they are closed, as they did when a seed was kept; of groups.
    pub all_leave: bool,
    /// Kinds of faults that there were not yet when a seed was kept: with more of them it means another schedule.
    pub without: &'static [FaultKind],
    /// The seed.
    pub seed: u64,
}

/// What came after the first nine of [`KEPT`].
const STOPS: &[FaultKind] = &[FaultKind::PauseAtRequest, FaultKind::LeftBehindRequest];

/// Seeds that have found something: an instance that waited for nothing while it was out of its group (5); a task
/// that came back to an instance which was still opening it from before, and began at offsets that somebody else had
/// gone beyond (18454); a batch that overtook another on its way and was not sent again when the other had been
/// answered first (8830); a static member that was back before it had released what somebody waited for, and did not know
/// of it (202 and 409, of groups); committers that heard of a grant in an order of chance (7030); the others something in the
/// simulator itself, which had expected too much of at-least-once when older state replaces newer, and of stores that
/// were closed before they had been restored, or had let an instance start while the lock of a process that had died
/// was still held (703), or had not noticed what a process that was gone overwrote with its first batch (731), or judged what a store
/// had held before it had read on what was committed (1760), or what a crash had left in a standby that had not caught up
/// (49929).
pub const KEPT: &[Scheduled] = &[
    Scheduled::at_least_once(Workload::CachedCount, 5).without(STOPS),
    Scheduled::exactly_once(Workload::CachedCount, 18_454).without(STOPS),
    Scheduled::at_least_once(Workload::CachedCount, 185).without(STOPS),
    Scheduled::at_least_once(Workload::Join, 4_179).without(STOPS),
    Scheduled::at_least_once(Workload::Join, 8_719).without(STOPS),
    Scheduled::at_least_once(Workload::Join, 9_509).without(STOPS),
    Scheduled::at_least_once(Workload::Windowed, 703).in_a_group().where_all_leave().without(STOPS),
    Scheduled::exactly_once(Workload::Tight, 7_030).without(STOPS),
    Scheduled::exactly_once(Workload::Tight, 8_830).without(STOPS),
    Scheduled::at_least_once(Workload::Tight, 731).in_a_group().where_all_leave(),
    Scheduled::exactly_once(Workload::Join, 1_760).in_a_group().of_static_members(),
    Scheduled::at_least_once(Workload::Join, 49_929).in_a_group().where_all_leave(),
    Scheduled::exactly_once(Workload::Tight, 202).in_a_group().of_static_members(),
    Scheduled::at_least_once(Workload::Stateless, 409).in_a_group().of_static_members(),
];

impl Scheduled {
    const fn at_least_once(workload: Workload, seed: u64) -> Self {
        let guarantee = ProcessingGuarantee::AtLeastOnce;
        Self::of(workload, guarantee, seed)
    }

    const fn exactly_once(workload: Workload, seed: u64) -> Self {
        let guarantee = ProcessingGuarantee::ExactlyOnceV2;
        Self::of(workload, guarantee, seed)
    }

    const fn of(workload: Workload, guarantee: ProcessingGuarantee, seed: u64) -> Self {
        let (is_group, is_static, all_leave) = (false, false, false);
        Self { workload, guarantee, is_group, is_static, all_leave, without: &[], seed }
    }

    const fn in_a_group(self) -> Self {
        Self { is_group: true, ..self }
    }

    const fn of_static_members(self) -> Self {
        Self { is_static: true, ..self }
    }

    const fn where_all_leave(self) -> Self {
        Self { all_leave: true, ..self }
    }

    const fn without(self, without: &'static [FaultKind]) -> Self {
        Self { without, ..self }
    }

    /// What it is run on.
    ///
    /// # Errors
    /// None: the topologies are right.
    pub fn simulation(self) -> Result<Simulation, DslError> {
        let (simulation, kinds) = if self.is_group {
            (self.workload.group_simulation(self.guarantee)?, group_kinds())
        } else {
            (self.workload.simulation(self.guarantee)?, FaultKind::ALL.to_vec())
        };
        let kinds = kinds.into_iter().filter(|kind| !self.without.contains(kind));
        let simulation = simulation.fault_kinds(kinds);
        let simulation = if self.all_leave { simulation.remaining_members(0) } else { simulation };
        Ok(if self.is_static { simulation.static_members(1) } else { simulation })
    }
}

/// What strikes groups: what is of groups, or of static members, alone twice as often.
fn group_kinds() -> Vec<FaultKind> {
    let of_groups = [FaultKind::GROUP, FaultKind::GROUP].concat();
    let of_static = [FaultKind::STATIC, FaultKind::STATIC].concat();
    [FaultKind::ALL.to_vec(), of_groups, of_static].concat()
}

/// In one of so many schedules of groups all instances are static members.
const STATIC_ONE_IN: u64 = 4;

/// Once in so many times a dynamic member of a group remains in it when it is closed.
const REMAINS_ONE_IN: u64 = 2;

/// Partitions of every topic.
const PARTITIONS: i32 = 2;

/// Keys of records: few, so that each has a long history.
const KEYS: [&str; 6] = ["ann", "bob", "cem", "dee", "eva", "fay"];

impl Workload {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Stateless, Self::Count, Self::CachedCount, Self::Windowed, Self::Join, Self::Tight];

    /// The one whose turn it is, and under which guarantee, so that seeds one after the other try all.
    pub fn of_seed(seed: u64) -> (Self, ProcessingGuarantee) {
        let guarantee = if seed.is_multiple_of(2) {
            ProcessingGuarantee::ExactlyOnceV2
        } else {
            ProcessingGuarantee::AtLeastOnce
        };
        let index = usize::try_from(seed / 2 % 6).unwrap_or(0);
        (Self::ALL[index], guarantee)
    }

    /// Its simulation: up to three instances, tasks with one standby in half of the schedules.
    ///
    /// # Errors
    /// None: the topologies are right.
    pub fn simulation(self, guarantee: ProcessingGuarantee) -> Result<Simulation, DslError> {
        let simulation = match self {
            Self::Stateless => stateless::simulation()?,
            Self::Count => counts::counts(0)?,
            Self::CachedCount => counts::counts(1 << 20)?,
            Self::Windowed => counts::windowed()?,
            Self::Join => join::simulation()?,
            Self::Tight => counts::tight()?,
        };
        Ok(simulation.guarantee(guarantee).standbys(0..=1))
    }

    /// Its simulation with groups of up to five instances, up to two standbys and warm-ups, of which some come and go as
    /// another version, and everything that can befall a group. One group in four is of static members; in the others
    /// half of those that are closed remain in the group.
    ///
    /// # Errors
    /// None: the topologies are right.
    pub fn group_simulation(self, guarantee: ProcessingGuarantee) -> Result<Simulation, DslError> {
        Ok(self
            .simulation(guarantee)?
            .config(|config| {
                // Small enough that tasks are warmed up, and soon.
                config
                    .acceptable_recovery_lag(5)
                    .max_warmup_replicas(2)
                    .probing_rebalance_interval_ms(60_000)
            })
            .other_version(self.other_topology()?, |config| {
                let threads = 3 - config.num_stream_threads.min(2);
                config.num_stream_threads(threads).num_standby_replicas(2).max_warmup_replicas(1)
            })
            .instances(2..=5)
            .standbys(0..=2)
            .static_members(STATIC_ONE_IN)
            .remaining_members(REMAINS_ONE_IN)
            .fault_kinds(group_kinds()))
    }

    /// The application as another version has it: what comes out is read again, by a sub-topology more.
    fn other_topology(self) -> Result<Topology, DslError> {
        let builder = StreamsBuilder::new();
        let output = match self {
            Self::Stateless => stateless::build(&builder),
            Self::Count | Self::CachedCount | Self::Tight => counts::build(&builder),
            Self::Windowed => counts::build_windowed(&builder),
            Self::Join => join::build(&builder),
        };
        builder.stream(output, Consumed::with(RawBytes, RawBytes)).foreach(|_, _| {});
        builder.build()
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stateless => "stateless",
            Self::Count => "count",
            Self::CachedCount => "cached-count",
            Self::Windowed => "windowed",
            Self::Join => "join",
            Self::Tight => "tight",
        })
    }
}

impl FromStr for Workload {
    type Err = UnknownWorkload;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|workload| workload.to_string() == name);
        known.ok_or_else(|| UnknownWorkload { name: name.to_owned() })
    }
}

/// No standard application has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWorkload {
    /// The name.
    pub name: String,
}

impl fmt::Display for UnknownWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Workload::ALL.map(|workload| workload.to_string()).join(", ");
        write!(f, "there is no application {}; there are {known}", self.name)
    }
}

impl std::error::Error for UnknownWorkload {}

/// A record with one of a few keys, and its number as value.
fn numbered(chance: &mut Chance, number: u64) -> KeyAndValue {
    let key = chance.of(&KEYS).as_bytes().to_vec();
    (Some(key), Some(number.to_string().into_bytes()))
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}
