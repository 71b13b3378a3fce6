//! Why a copy is where it is.

use std::collections::BTreeMap;

use super::facts::Facts;
use super::spread::Spread;
use super::target::Plan;
use crate::assignment::Reason;
use crate::index::{InstanceIx, TaskIx};

/// Finds the reason for each copy of a round.
pub(super) struct Reasons<'f, 'a> {
    facts: &'f Facts<'a>,
    plan: &'f Plan,
    tags: Spread,
    /// Tasks that each instance ran, in total and of each sub-topology.
    ran: Vec<u32>,
    ran_of: BTreeMap<(InstanceIx, u32), u32>,
}

impl<'f, 'a> Reasons<'f, 'a> {
    pub(super) fn new(facts: &'f Facts<'a>, plan: &'f Plan) -> Self {
        let mut ran = vec![0; facts.capacity.len()];
        let mut ran_of = BTreeMap::new();
        for task in facts.index.tasks() {
            if let Some(owner) = facts.owner(task) {
                ran[owner as usize] += 1;
                *ran_of.entry((owner, facts.subtopology[task as usize])).or_insert(0) += 1;
            }
        }
        Self { facts, plan, tags: Spread::by_tags(facts), ran, ran_of }
    }

    /// Why `instance` runs the task in this round.
    pub(super) fn active(&self, task: TaskIx, instance: InstanceIx) -> Reason {
        let planned = self.plan.active[task as usize] == instance;
        match self.facts.owner(task) {
            Some(owner) if owner == instance => {
                if planned {
                    Reason::Stays
                } else {
                    Reason::FollowState
                }
            }
            None if self.had_owner(task) => Reason::OwnerLeft,
            None => Reason::NoOwner,
            Some(_) if !planned => Reason::FollowState,
            Some(_) if self.plan.was_waited_for(task, instance) => Reason::CaughtUp,
            Some(owner) if !self.facts.is_ready(task, owner) => Reason::FollowState,
            Some(owner) => self.balance(task, owner, instance),
        }
    }

    /// Whether an earlier plan had an instance for the task.
    fn had_owner(&self, task: TaskIx) -> bool {
        let id = self.facts.index.task_ids[task as usize];
        let standing = self.facts.state.standing_plan.as_ref();
        standing.is_some_and(|plan| plan.target.values().any(|target| target.active.contains(&id)))
    }

    /// Which share asked for the move.
    fn balance(&self, task: TaskIx, from: InstanceIx, to: InstanceIx) -> Reason {
        let all = self.facts.index.task_ids.len();
        let ran = |instance: InstanceIx| self.ran[instance as usize];
        if ran(from) > self.facts.share(all, from).1 || ran(to) < self.facts.share(all, to).0 {
            return Reason::Balance;
        }
        let subtopology = self.facts.subtopology[task as usize];
        let size = self.facts.subtopology_size(task);
        let ran_of = |instance| self.ran_of.get(&(instance, subtopology)).copied().unwrap_or(0);
        let share = |instance| self.facts.share(size, instance);
        if ran_of(from) > share(from).1 || ran_of(to) < share(to).0 {
            return Reason::SubtopologyBalance;
        }
        Reason::Balance
    }

    /// Why `instance` follows the task for good.
    pub(super) fn standby(&self, task: TaskIx, instance: InstanceIx) -> Reason {
        if self.facts.holder(task, instance).is_some() {
            return Reason::Stays;
        }
        let planned = &self.plan.standby[task as usize];
        let active = self.plan.active[task as usize];
        let unused = |holder: &InstanceIx| {
            *holder != active
                && !planned.contains(holder)
                && self.facts.capacity[*holder as usize] > 0
        };
        let holders = self.facts.holders(task).iter().map(|holder| holder.instance);
        let Some(instead) = holders.filter(unused).min() else { return Reason::Replica };
        let mut others: Vec<InstanceIx> = vec![active];
        others.extend(planned.iter().filter(|other| **other != instance));
        let loss = |instance| self.tags.loss(&others, instance, others.len() + 1);
        if loss(instead) > loss(instance) { Reason::Tag } else { Reason::Balance }
    }
}
