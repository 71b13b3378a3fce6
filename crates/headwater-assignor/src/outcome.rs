//! From a finished placement to an assignment with the reason for each copy.

use crate::assignment::{Assignment, FollowUp, InstanceAssignment, Reason, StandingPlan, Waiting};
use crate::index::{Index, InstanceIx, Placement, TaskIx};
use crate::lag::Lag;
use crate::state::ApplicationState;

/// What an assignor of Kafka Streams decided.
pub(crate) struct Outcome<'a> {
    pub(crate) state: &'a ApplicationState,
    pub(crate) index: &'a Index<'a>,
    pub(crate) placement: &'a Placement,
    /// Standbys that are there to take over later, sorted.
    pub(crate) warmups: &'a [(InstanceIx, TaskIx)],
    /// The plan before it was bent to where the state is, if that was done.
    pub(crate) target: Option<&'a Placement>,
    /// Whether the rack optimiser ran.
    pub(crate) by_rack: bool,
    pub(crate) followup: FollowUp,
    pub(crate) standing_plan: Option<StandingPlan>,
}

/// Writes the decision down under the instances' and tasks' own names.
pub(crate) fn outcome(outcome: &Outcome<'_>) -> Assignment {
    let index = outcome.index;
    let reasons = Reasons { outcome, owner: index.previous_active() };
    let mut assignment = Assignment {
        followup: outcome.followup,
        standing_plan: outcome.standing_plan.clone(),
        ..Assignment::default()
    };
    for instance in index.instances() {
        let mut holds = InstanceAssignment::default();
        for task in outcome.placement.actives(instance) {
            let id = index.task_ids[*task as usize];
            holds.active.insert(id, reasons.active(instance, *task));
        }
        for task in outcome.placement.standbys(instance) {
            let id = index.task_ids[*task as usize];
            if outcome.warmups.binary_search(&(instance, *task)).is_ok() {
                holds.warmup.insert(id, Reason::WarmUp);
            } else {
                holds.standby.insert(id, reasons.standby(instance, *task));
            }
        }
        assignment.instances.insert(index.instance_ids[instance as usize].clone(), holds);
    }
    for (instance, task) in outcome.warmups {
        let (info, id) = (index.instances[*instance as usize], index.task_ids[*task as usize]);
        let end = index.tasks[*task as usize].end_offset;
        let lag = info.lags.get(&id).copied().or_else(|| end.map(|end| Lag::of(None, end)));
        let instance = index.instance_ids[*instance as usize].clone();
        assignment.waiting_for.push(Waiting::new(id, instance, lag.unwrap_or(Lag::Unknown)));
    }
    assignment.waiting_for.sort_by(|a, b| (a.task, &a.instance).cmp(&(b.task, &b.instance)));
    assignment
}

struct Reasons<'a> {
    outcome: &'a Outcome<'a>,
    owner: Vec<Option<InstanceIx>>,
}

impl Reasons<'_> {
    fn active(&self, instance: InstanceIx, task: TaskIx) -> Reason {
        let index = self.outcome.index;
        let id = index.task_ids[task as usize];
        let info = index.instances[instance as usize];
        let planned_elsewhere = self
            .outcome
            .target
            .and_then(|target| target.active_of(task))
            .is_some_and(|planned| planned != instance);
        if planned_elsewhere {
            return Reason::FollowState;
        }
        if info.previous_active.contains(&id) {
            return Reason::Stays;
        }
        match self.owner[task as usize] {
            None if index.instances.iter().any(|info| info.previous_standby.contains(&id)) => {
                Reason::OwnerLeft
            }
            None => Reason::NoOwner,
            Some(owner) if self.reads_less(task, owner, instance) => Reason::Rack,
            Some(_) if self.is_ready(instance, task) => Reason::CaughtUp,
            Some(_) => Reason::Balance,
        }
    }

    fn standby(&self, instance: InstanceIx, task: TaskIx) -> Reason {
        let index = self.outcome.index;
        let id = index.task_ids[task as usize];
        let info = index.instances[instance as usize];
        if self.outcome.target.is_some_and(|target| !target.has(instance, task)) {
            Reason::FollowState
        } else if info.previous_standby.contains(&id) || info.previous_active.contains(&id) {
            Reason::Stays
        } else {
            Reason::Replica
        }
    }

    /// Whether a copy was prepared here and may take over.
    fn is_ready(&self, instance: InstanceIx, task: TaskIx) -> bool {
        let index = self.outcome.index;
        let id = index.task_ids[task as usize];
        let info = index.instances[instance as usize];
        let acceptable = self.outcome.state.settings.acceptable_recovery_lag;
        info.previous_standby.contains(&id)
            && info.lags.get(&id).is_some_and(|lag| lag.is_caught_up(acceptable))
    }

    fn reads_less(&self, task: TaskIx, owner: InstanceIx, instance: InstanceIx) -> bool {
        let index = self.outcome.index;
        let crossings = |instance: InstanceIx| {
            let rack = index.instances[instance as usize].rack();
            let partitions = &index.tasks[task as usize].partitions;
            partitions
                .iter()
                .filter(|partition| partition.role.is_source())
                .filter(|partition| rack.is_none_or(|rack| !partition.racks.contains(rack)))
                .count()
        };
        self.outcome.by_rack && crossings(instance) < crossings(owner)
    }
}
