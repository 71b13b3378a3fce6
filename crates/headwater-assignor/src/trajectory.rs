//! A group over time: events, and after each event rounds until the assignor is content.
//!
//! The model is simple and the same for every assignor: a plan is applied at once and completely,
//! and between two rounds every copy reads on in its changelog.

mod group;

use std::collections::{BTreeMap, BTreeSet};

use group::Group;

use crate::assignment::Assignment;
use crate::assignor::TaskAssignor;
use crate::error::{AssignError, Problem};
use crate::ids::{InstanceId, TaskId};
use crate::lag::add_offsets;
use crate::settings::Settings;
use crate::state::{InstanceInfo, TaskInfo};
use crate::traffic::CrossRackReads;

/// A group at its start and what happens to it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Trajectory {
    /// Every task; stateful ones end where [`TaskInfo::end_offset`] says (0 if it does not).
    pub tasks: BTreeMap<TaskId, TaskInfo>,
    /// The instances at the start. What they held before is not looked at.
    pub instances: BTreeMap<InstanceId, InstanceInfo>,
    /// The settings of the group.
    pub settings: Settings,
    /// How copies get on between two rounds.
    pub model: Model,
    /// What happens, one step after the other.
    pub steps: Vec<Step>,
}

/// How copies get on between two rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Model {
    /// Offsets that one copy reads; `None`: everything.
    pub restore_per_round: Option<u64>,
    /// Whether an instance keeps the state of a task that it has no copy of any more.
    pub keep_unassigned_state: bool,
    /// Rounds after which a phase ends though the assignor wants more.
    pub max_rounds: u32,
}

impl Default for Model {
    fn default() -> Self {
        Self { restore_per_round: None, keep_unassigned_state: false, max_rounds: 60 }
    }
}

/// Events that happen at once, and how many rounds follow at most.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Step {
    /// The events.
    pub events: Vec<Event>,
    /// At most so many rounds before the next step, even if the group has not settled.
    pub rounds: Option<u32>,
}

impl Step {
    /// A step after which the group settles.
    pub fn new(events: Vec<Event>) -> Self {
        Self { events, rounds: None }
    }
}

/// Something that happens to a group.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A new instance, or an old one that comes back with the offsets it had.
    Join {
        /// Its id.
        instance: InstanceId,
        /// Its capacity, tags and racks.
        info: InstanceInfo,
        /// Offsets that it has, beside or instead of those it had.
        offsets: BTreeMap<TaskId, u64>,
        /// Whether it has lost what it had.
        empty: bool,
    },
    /// An instance goes. Its offsets are remembered for a return.
    Leave {
        /// Its id.
        instance: InstanceId,
    },
    /// An instance restarts between two rounds: it runs nothing, but keeps its offsets.
    Bounce {
        /// Its id.
        instance: InstanceId,
        /// Whether it has lost what it had.
        empty: bool,
    },
    /// An instance gets another number of threads.
    Capacity {
        /// Its id.
        instance: InstanceId,
        /// The new number.
        to: u32,
    },
    /// Changelogs grow. A task that runs and was at the end stays at the end.
    Append {
        /// By so many offsets.
        offsets: u64,
        /// These tasks only; all stateful ones if empty.
        tasks: BTreeSet<TaskId>,
    },
}

/// One round: a plan and what it meant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Round {
    /// The plan.
    pub assignment: Assignment,
    /// Stateful tasks that run on another instance than in the last round.
    pub stateful_active_moves: u64,
    /// The same for stateless tasks.
    pub stateless_active_moves: u64,
    /// Standbys on instances that had no copy in the last round.
    pub new_standby_copies: u64,
    /// Stateful actives on an instance that is not caught up: these stand still.
    pub actives_not_ready: u64,
    /// Offsets that all copies together read after this round.
    pub restored_offsets: u64,
    /// Partitions read across racks, if every instance has one rack.
    pub cross_rack: Option<CrossRackReads>,
    /// Why the plan cannot be carried out, if it cannot; no built-in assignor makes such a plan.
    pub problem: Option<Problem>,
}

/// What followed one step. The first phase is the start, without any event.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Phase {
    /// The rounds; none if nobody is left.
    pub rounds: Vec<Round>,
    /// Whether the last round asked for no further one.
    pub stable: bool,
}

/// A trajectory, played.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Played {
    /// The start and then one phase for each step.
    pub phases: Vec<Phase>,
}

/// A played trajectory in five numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Rounds of all phases.
    pub rounds: u64,
    /// Moves of stateful actives.
    pub stateful_active_moves: u64,
    /// Offsets read.
    pub restored_offsets: u64,
    /// Rounds times actives that stood still.
    pub actives_not_ready: u64,
    /// Whether every phase settled.
    pub all_stable: bool,
}

impl Played {
    /// The sums over all phases.
    pub fn totals(&self) -> Totals {
        let rounds = || self.phases.iter().flat_map(|phase| &phase.rounds);
        Totals {
            rounds: rounds().count() as u64,
            stateful_active_moves: rounds().map(|round| round.stateful_active_moves).sum(),
            restored_offsets: rounds().map(|round| round.restored_offsets).fold(0, add_offsets),
            actives_not_ready: rounds().map(|round| round.actives_not_ready).sum(),
            all_stable: self.phases.iter().all(|phase| phase.stable),
        }
    }
}

impl Trajectory {
    /// Plays it with an assignor.
    ///
    /// # Errors
    /// What the assignor fails with, and [`AssignError::UnknownInstance`] if an event names an
    /// instance that has never been there.
    pub fn play(&self, assignor: &dyn TaskAssignor) -> Result<Played, AssignError> {
        let mut group = Group::new(self);
        let mut phases = vec![self.phase(&mut group, assignor, None)?];
        for step in &self.steps {
            for event in &step.events {
                group.apply(event)?;
            }
            phases.push(self.phase(&mut group, assignor, step.rounds)?);
        }
        Ok(Played { phases })
    }

    fn phase(
        &self,
        group: &mut Group,
        assignor: &dyn TaskAssignor,
        rounds: Option<u32>,
    ) -> Result<Phase, AssignError> {
        let at_most = rounds.unwrap_or(u32::MAX).min(self.model.max_rounds);
        let mut phase = Phase { rounds: Vec::new(), stable: group.is_empty() };
        while !phase.stable && phase.rounds.len() < at_most as usize {
            let round = group.round(assignor, self.model)?;
            phase.stable = !round.assignment.followup.is_wanted();
            phase.rounds.push(round);
        }
        Ok(phase)
    }
}
