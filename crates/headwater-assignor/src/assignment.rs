//! What an assignor decides.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{InstanceId, TaskId};
use crate::lag::Lag;

/// The plan of one round: the output of an assignor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assignment {
    /// What each instance of the group holds, also those that hold nothing.
    pub instances: BTreeMap<InstanceId, InstanceAssignment>,
    /// Whether a further round is wanted without any outside event, and when.
    pub followup: FollowUp,
    /// The copies whose progress the follow-up depends on.
    pub waiting_for: Vec<Waiting>,
    /// The plan that the rounds are heading for; to be given back in the next
    /// [`ApplicationState`](crate::ApplicationState). `None` for assignors without one.
    pub standing_plan: Option<StandingPlan>,
}

/// What one instance holds. A task is in at most one of the three.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InstanceAssignment {
    /// The tasks that run here, and why.
    pub active: BTreeMap<TaskId, Reason>,
    /// The tasks whose state is followed here for good, and why.
    pub standby: BTreeMap<TaskId, Reason>,
    /// The tasks whose state is followed here to take over later, and why.
    pub warmup: BTreeMap<TaskId, Reason>,
}

impl InstanceAssignment {
    /// Whether any copy of the task is here.
    pub fn has(&self, task: &TaskId) -> bool {
        self.active.contains_key(task) || self.follows(task)
    }

    /// Whether the task's state is followed here, as standby or as warm-up.
    pub fn follows(&self, task: &TaskId) -> bool {
        self.standby.contains_key(task) || self.warmup.contains_key(task)
    }
}

/// Why a copy of a task is where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// It was here before and nothing speaks against it.
    Stays,
    /// Nobody had the task.
    NoOwner,
    /// The instance that had it is gone.
    OwnerLeft,
    /// Instances would be unevenly loaded otherwise.
    Balance,
    /// The tasks of one sub-topology would be unevenly spread otherwise.
    SubtopologyBalance,
    /// The threads of the instance would be unevenly loaded otherwise.
    ThreadBalance,
    /// Less is read across racks.
    Rack,
    /// The copies of the task are spread over more tag values.
    Tag,
    /// A copy that was warmed up here is ready and takes over.
    CaughtUp,
    /// The copy prepares a later take-over.
    WarmUp,
    /// It is planned elsewhere, but the state is here.
    FollowState,
    /// So many standbys are wanted.
    Replica,
    /// A copy that is not wanted any more ends.
    Surplus,
}

impl Reason {
    /// The reason in small letters, as it is written to machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stays => "stays",
            Self::NoOwner => "no_owner",
            Self::OwnerLeft => "owner_left",
            Self::Balance => "balance",
            Self::SubtopologyBalance => "subtopology_balance",
            Self::ThreadBalance => "thread_balance",
            Self::Rack => "rack",
            Self::Tag => "tag",
            Self::CaughtUp => "caught_up",
            Self::WarmUp => "warm_up",
            Self::FollowState => "follow_state",
            Self::Replica => "replica",
            Self::Surplus => "surplus",
        }
    }
}

/// Whether, and on which event, a further round is wanted although nothing changes from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FollowUp {
    /// The plan is final until something changes.
    #[default]
    None,
    /// At once.
    Immediately,
    /// After the probing interval: the assignor has no better event (Kafka Streams).
    AfterProbingInterval,
    /// When one of the copies in [`Assignment::waiting_for`] has caught up or stopped making
    /// progress; the probing interval is only the fallback.
    OnCaughtUp,
}

impl FollowUp {
    /// Whether a further round is wanted.
    pub fn is_wanted(self) -> bool {
        self != Self::None
    }
}

/// A copy whose progress decides when to look again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// The task.
    pub task: TaskId,
    /// The instance that is getting ready.
    pub instance: InstanceId,
    /// How far it was behind when the plan was made.
    pub lag: Lag,
}

impl Waiting {
    /// Waiting for this copy.
    pub fn new(task: TaskId, instance: InstanceId, lag: Lag) -> Self {
        Self { task, instance, lag }
    }
}

/// What is carried from round to round by an assignor that pursues one plan over several rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StandingPlan {
    /// Fingerprint of the members, capacities, tags, racks, tasks and settings that the target was
    /// made for. The target is kept for as long as they stay the same.
    pub made_for: u64,
    /// The balanced plan before it is bent to where the state is. Stateful tasks only.
    pub target: BTreeMap<InstanceId, Target>,
    /// How the warm-ups under way are getting on.
    pub warmups: BTreeMap<TaskId, BTreeMap<InstanceId, WarmupProgress>>,
}

/// What one instance is to hold in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Target {
    /// Tasks that are to run here.
    pub active: BTreeSet<TaskId>,
    /// Tasks whose state is to be followed here.
    pub standby: BTreeSet<TaskId>,
}

/// How a warm-up is getting on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WarmupProgress {
    /// The smallest lag it has had so far.
    pub best_lag: Lag,
    /// Rounds in a row in which it got no closer than that.
    pub rounds_without_progress: u32,
}

impl WarmupProgress {
    /// A warm-up that starts at this lag.
    pub fn new(lag: Lag) -> Self {
        Self { best_lag: lag, rounds_without_progress: 0 }
    }
}
