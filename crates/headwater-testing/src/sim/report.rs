//! What a run came to.

use std::fmt;
use std::io;

use headwater_broker::BrokerError;
use headwater_dsl::DslError;
use headwater_embedded::OpenError;
use headwater_runtime::ProcessingGuarantee;

/// What a run came to that kept every promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Instances.
    pub instances: usize,
    /// Whether they were static members.
    pub are_static: bool,
    /// Records that were written.
    pub records: usize,
    /// Faults that were drawn.
    pub faults: usize,
    /// How often an instance crashed.
    pub crashes: usize,
    /// How often a dynamic member that was to remain in its group was started again.
    pub returned: usize,
    /// How long it lasted, in milliseconds of its own time.
    pub lasted_ms: u64,
    /// Things that happened: requests, answers, changes of state.
    pub steps: u64,
    /// A number that two runs share if everything happened at the same time and in the same order.
    pub hash: u64,
}

/// What many runs came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Schedules that were run.
    pub schedules: u64,
    /// Of them, those with static members.
    pub of_static: u64,
    /// Records that were written in them.
    pub records: u64,
    /// Faults in them.
    pub faults: u64,
    /// Crashes in them.
    pub crashes: u64,
    /// How often a dynamic member that was to remain in its group was started again.
    pub returned: u64,
    /// Their own time, in milliseconds.
    pub lasted_ms: u64,
}

impl Summary {
    /// Adds what others came to.
    pub fn merge(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.of_static += other.of_static;
        self.records += other.records;
        self.faults += other.faults;
        self.crashes += other.crashes;
        self.returned += other.returned;
        self.lasted_ms += other.lasted_ms;
    }

    pub(crate) fn add(&mut self, report: &Report) {
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        self.schedules += 1;
        self.of_static += u64::from(report.are_static);
        self.records += wide(report.records);
        self.faults += wide(report.faults);
        self.crashes += wide(report.crashes);
        self.returned += wide(report.returned);
        self.lasted_ms += report.lasted_ms;
    }
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// What the application promises.
    pub guarantee: ProcessingGuarantee,
    /// What did not hold.
    pub invariant: String,
    /// What was found.
    pub what: String,
    /// When, in milliseconds of the run's own time.
    pub at_ms: u64,
    /// What had happened, in what order.
    pub story: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, guarantee, invariant, what, at_ms, story } = self;
        writeln!(
            f,
            "seed {seed} ({guarantee:?}) breaks \"{invariant}\" at {}.{:03} s: {what}",
            at_ms / 1_000,
            at_ms % 1_000
        )?;
        f.write_str(story)
    }
}

/// Why a run did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// A promise was not kept.
    #[error("{0}")]
    Violation(Box<Violation>),
    /// The topology does not fit the application.
    #[error("the topology cannot be set up")]
    Topology {
        /// What is wrong with it.
        #[source]
        source: Box<DslError>,
    },
    /// The simulated broker refused something that nothing was to disturb: a topic that cannot be created, for
    /// instance.
    #[error("the broker of the simulation refuses to {what}")]
    Broker {
        /// What was tried.
        what: &'static str,
        /// What it says.
        #[source]
        source: Box<BrokerError>,
    },
    /// The simulated broker does not start.
    #[error("the broker of the simulation cannot be opened")]
    OpenBroker {
        /// What it says.
        #[source]
        source: Box<OpenError>,
    },
    /// There is no room for state directories.
    #[error("no temporary directory for the state of instances")]
    Directory {
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// The async runtime cannot be made.
    #[error("the async runtime of the simulation cannot be made")]
    Runtime {
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
}
