//! The balanced plan that the rounds are heading for, kept or made anew.

use std::collections::BTreeMap;

use super::actives;
use super::facts::Facts;
use super::fingerprint::fingerprint;
use super::standbys;
use crate::assignment::{StandingPlan, Target, WarmupProgress};
use crate::ids::{InstanceId, TaskId};
use crate::index::{InstanceIx, TaskIx, number};

/// The target, and how the warm-ups on the way to it are getting on.
#[derive(Debug)]
pub(super) struct Plan {
    made_for: u64,
    /// The instance that is to run each task.
    pub(super) active: Vec<InstanceIx>,
    /// The instances that are to follow each task.
    pub(super) standby: Vec<Vec<InstanceIx>>,
    /// Warm-ups under way and those given up.
    progress: BTreeMap<(TaskIx, InstanceIx), WarmupProgress>,
    patience: u32,
}

impl Plan {
    /// Keeps the standing plan if it was made for this group and no warm-up has just been given up.
    pub(super) fn new(facts: &Facts<'_>, patience: u32) -> Self {
        let made_for = fingerprint(facts.state);
        let standing = facts.state.standing_plan.as_ref().filter(|plan| plan.made_for == made_for);
        let (progress, just_given_up) = standing
            .map_or_else(Default::default, |standing| progress_since(facts, standing, patience));
        let kept = standing.filter(|_| !just_given_up).and_then(|plan| Kept::read(facts, plan));
        let given_up = |task, instance| {
            progress.get(&(task, instance)).is_some_and(|progress: &WarmupProgress| {
                progress.rounds_without_progress >= patience
            })
        };
        let kept = kept.and_then(|kept| {
            let pinned = |task: TaskIx| kept.active[task as usize];
            let active = actives::place(facts, pinned, given_up).ok()?;
            Some((active, kept.standby))
        });
        let (active, standby) = kept.unwrap_or_else(|| {
            let active = actives::place(facts, |_| None, given_up)
                .expect("fractional shares keep all bounds, so a plan exists");
            let standby = standbys::place(facts, &active);
            (active, standby)
        });
        Self { made_for, active, standby, progress, patience }
    }

    /// Whether the copy was being warmed up, or waited for, in the last round.
    pub(super) fn was_waited_for(&self, task: TaskIx, instance: InstanceIx) -> bool {
        self.progress.contains_key(&(task, instance))
    }

    /// Whether the copy is no longer waited for, since it made no progress.
    pub(super) fn is_given_up(&self, task: TaskIx, instance: InstanceIx) -> bool {
        self.progress
            .get(&(task, instance))
            .is_some_and(|progress| progress.rounds_without_progress >= self.patience)
    }

    /// What is to be remembered for the next round, where these copies are being waited for.
    pub(super) fn standing(
        &self,
        facts: &Facts<'_>,
        waiting: &[(TaskIx, InstanceIx)],
    ) -> StandingPlan {
        let mut target: BTreeMap<InstanceId, Target> =
            facts.index.instance_ids.iter().map(|id| ((*id).clone(), Target::default())).collect();
        let id = |instance: InstanceIx| facts.index.instance_ids[instance as usize];
        for task in facts.index.stateful() {
            let task_id = facts.index.task_ids[task as usize];
            if let Some(target) = target.get_mut(id(self.active[task as usize])) {
                target.active.insert(task_id);
            }
            for standby in &self.standby[task as usize] {
                if let Some(target) = target.get_mut(id(*standby)) {
                    target.standby.insert(task_id);
                }
            }
        }
        let mut warmups: BTreeMap<TaskId, BTreeMap<InstanceId, WarmupProgress>> = BTreeMap::new();
        let given_up =
            self.progress.iter().filter(|((task, instance), _)| self.is_given_up(*task, *instance));
        let waiting = waiting.iter().map(|&(task, instance)| {
            let progress = self.progress.get(&(task, instance)).copied();
            let start = WarmupProgress::new(facts.lag(task, instance));
            ((task, instance), progress.unwrap_or(start))
        });
        for ((task, instance), progress) in
            given_up.map(|(pair, progress)| (*pair, *progress)).chain(waiting)
        {
            let of_task = warmups.entry(facts.index.task_ids[task as usize]).or_default();
            of_task.insert(id(instance).clone(), progress);
        }
        StandingPlan { made_for: self.made_for, target, warmups }
    }
}

/// How every warm-up got on since the last round, without those that have caught up; and whether one
/// of them has now been waited for in vain for long enough.
fn progress_since(
    facts: &Facts<'_>,
    standing: &StandingPlan,
    patience: u32,
) -> (BTreeMap<(TaskIx, InstanceIx), WarmupProgress>, bool) {
    let mut all = BTreeMap::new();
    let mut just_given_up = false;
    for (task, of_task) in &standing.warmups {
        let Some(task) = facts.index.task(*task) else { continue };
        for (instance, before) in of_task {
            let Some(instance) = position(facts, instance) else { continue };
            let lag = facts.lag(task, instance);
            let offsets = |lag: crate::lag::Lag| lag.to_restore().unwrap_or(u64::MAX);
            let was_given_up = before.rounds_without_progress >= patience;
            let mut now = *before;
            if facts.is_caught_up(task, instance) || offsets(lag) < offsets(before.best_lag) {
                now = WarmupProgress::new(lag);
            } else if !was_given_up {
                now.rounds_without_progress += 1;
                just_given_up |= now.rounds_without_progress >= patience;
            }
            all.insert((task, instance), now);
        }
    }
    (all, just_given_up)
}

fn position(facts: &Facts<'_>, id: &InstanceId) -> Option<InstanceIx> {
    facts.index.instance_ids.binary_search(&id).ok().map(number)
}

/// A target from an earlier round, read back.
struct Kept {
    /// `None` for tasks without state, which are in no target.
    active: Vec<Option<InstanceIx>>,
    standby: Vec<Vec<InstanceIx>>,
}

impl Kept {
    /// `None` if it does not place every stateful task once on the instances there are, or if one of
    /// these has lost what it ran.
    fn read(facts: &Facts<'_>, standing: &StandingPlan) -> Option<Self> {
        let tasks = facts.index.task_ids.len();
        let mut kept = Self { active: vec![None; tasks], standby: vec![Vec::new(); tasks] };
        for (id, target) in &standing.target {
            let instance = position(facts, id)?;
            for task in &target.active {
                let task = facts.index.task(*task)?;
                if kept.active[task as usize].replace(instance).is_some() {
                    return None;
                }
            }
            for task in &target.standby {
                kept.standby[facts.index.task(*task)? as usize].push(instance);
            }
        }
        let whole = facts.index.tasks().all(|task| {
            let active = kept.active[task as usize];
            let standby = &kept.standby[task as usize];
            facts.index.is_stateful(task) == active.is_some()
                && active.is_none_or(|active| !is_lost(facts, task, active))
                && (active.is_some() || standby.is_empty())
                && standby.iter().all(|standby| active != Some(*standby))
        });
        whole.then_some(kept)
    }
}

/// Whether the task was to run on the instance and nobody runs it any more, and the state is gone from
/// there though not from everywhere: the instance came back with an empty disk. To bring back just
/// what it had would be as good as any choice, and worse than the cheapest.
fn is_lost(facts: &Facts<'_>, task: TaskIx, instance: InstanceIx) -> bool {
    facts.owner(task).is_none()
        && facts.holder(task, instance).is_none()
        && !facts.anyone_is_ready(task)
}
