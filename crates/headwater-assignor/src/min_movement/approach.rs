//! One round on the way to the target: run tasks where their state is, bring the state where it is
//! to be.

use std::collections::BTreeMap;

use super::facts::Facts;
use super::reasons::Reasons;
use super::target::Plan;
use crate::assignment::{Assignment, FollowUp, InstanceAssignment, Reason, Waiting};
use crate::index::{InstanceIx, TaskIx};

/// The plan of this round.
pub(super) struct Approach<'f, 'a> {
    facts: &'f Facts<'a>,
    plan: &'f Plan,
    /// Who runs each task in this round.
    active: Vec<InstanceIx>,
    /// Copies that are there for good.
    standby: Vec<Vec<InstanceIx>>,
    /// Copies beyond those wanted in the end.
    extra: Vec<Vec<InstanceIx>>,
    /// Copies that are to take over when they have caught up.
    waiting: Vec<(TaskIx, InstanceIx)>,
}

impl<'f, 'a> Approach<'f, 'a> {
    pub(super) fn new(facts: &'f Facts<'a>, plan: &'f Plan, warmups_per_thread: u32) -> Self {
        let active = run_where_state_is(facts, plan);
        let mut approach = Self {
            facts,
            plan,
            active,
            standby: plan.standby.clone(),
            extra: vec![Vec::new(); plan.standby.len()],
            waiting: Vec::new(),
        };
        let mut in_want_of_a_slot = Vec::new();
        for task in facts.index.tasks() {
            let (now, then) = (approach.active[task as usize], plan.active[task as usize]);
            if now == then {
                continue;
            }
            let standby = &mut approach.standby[task as usize];
            if let Some(at) = standby.iter().position(|standby| *standby == now) {
                // It runs on one of its future followers: the two change roles later.
                standby[at] = then;
                if !plan.is_given_up(task, then) {
                    approach.waiting.push((task, then));
                }
            } else if !plan.is_given_up(task, then) {
                in_want_of_a_slot.push(task);
            }
        }
        let slots = facts.state.settings.max_warmup_replicas as usize;
        let chosen = approach.choose_warmups(&in_want_of_a_slot, slots, warmups_per_thread);
        let slots_left = slots - chosen.len();
        for task in chosen {
            let then = plan.active[task as usize];
            approach.extra[task as usize].push(then);
            approach.waiting.push((task, then));
        }
        approach.waiting.sort_unstable();
        if !approach.waiting.is_empty() {
            approach.keep_ready_standbys(slots_left);
        }
        approach
    }

    /// The tasks that get a warm-up: of each receiving instance the nearest to done first, the
    /// instances in turns, those with the least work first.
    fn choose_warmups(
        &self,
        candidates: &[TaskIx],
        slots: usize,
        warmups_per_thread: u32,
    ) -> Vec<TaskIx> {
        let mut of_instance: BTreeMap<InstanceIx, Vec<(u64, TaskIx)>> = BTreeMap::new();
        for &task in candidates {
            let then = self.plan.active[task as usize];
            let missing = self.facts.missing(task, then);
            of_instance.entry(then).or_default().push((missing, task));
        }
        let mut runs = vec![0_u64; self.facts.capacity.len()];
        for instance in &self.active {
            runs[*instance as usize] += 1;
        }
        let mut in_turns = Vec::new();
        for (instance, mut tasks) in of_instance {
            tasks.sort_unstable();
            let capacity = self.facts.capacity[instance as usize];
            let most = capacity.saturating_mul(warmups_per_thread) as usize;
            let load = (u128::from(runs[instance as usize]) << 32) / u128::from(capacity.max(1));
            let of_instance = tasks.into_iter().take(most).enumerate();
            in_turns.extend(of_instance.map(|(turn, (missing, task))| (turn, load, missing, task)));
        }
        in_turns.sort_unstable();
        in_turns.into_iter().take(slots).map(|(_, _, _, task)| task).collect()
    }

    /// While the group waits anyway, spare slots go to caught-up copies that the target drops
    /// although what replaces them is still on its way.
    fn keep_ready_standbys(&mut self, slots: usize) {
        let wanted = self.facts.state.settings.num_standby_replicas as usize;
        let mut left = slots;
        for task in self.facts.index.tasks() {
            if left == 0 || wanted == 0 {
                return;
            }
            let following = &self.standby[task as usize];
            let behind = following.iter().filter(|c| !self.facts.is_caught_up(task, **c)).count();
            if behind == 0 || !self.facts.index.is_stateful(task) {
                continue;
            }
            let spare: Vec<InstanceIx> = self
                .facts
                .holders(task)
                .iter()
                .map(|holder| holder.instance)
                .filter(|holder| self.facts.is_caught_up(task, *holder))
                .filter(|holder| !self.has(task, *holder))
                .take(behind.min(left))
                .collect();
            left -= spare.len();
            self.extra[task as usize].extend(spare);
        }
    }

    fn has(&self, task: TaskIx, instance: InstanceIx) -> bool {
        self.active[task as usize] == instance
            || self.standby[task as usize].contains(&instance)
            || self.extra[task as usize].contains(&instance)
    }

    pub(super) fn assignment(self) -> Assignment {
        let index = &self.facts.index;
        let reasons = Reasons::new(self.facts, self.plan);
        let mut instances = vec![InstanceAssignment::default(); index.instance_ids.len()];
        for task in index.tasks() {
            let at = task as usize;
            let id = index.task_ids[at];
            let active = self.active[at];
            instances[active as usize].active.insert(id, reasons.active(task, active));
            let warmups = self.warmups(task);
            for &instance in self.standby[at].iter().chain(&self.extra[at]) {
                let holds = &mut instances[instance as usize];
                let is_warmup = warmups.contains(&instance);
                let reason = if is_warmup || self.is_waited_for(task, instance) {
                    Reason::WarmUp
                } else if self.extra[at].contains(&instance) {
                    Reason::FollowState
                } else {
                    reasons.standby(task, instance)
                };
                let followed = if is_warmup { &mut holds.warmup } else { &mut holds.standby };
                followed.insert(id, reason);
            }
        }
        let waiting_for = self.waiting.iter().map(|&(task, instance)| {
            let id = index.instance_ids[instance as usize].clone();
            Waiting::new(index.task_ids[task as usize], id, self.facts.lag(task, instance))
        });
        let followup = if self.waiting.is_empty() { FollowUp::None } else { FollowUp::OnCaughtUp };
        Assignment {
            followup,
            waiting_for: waiting_for.collect(),
            standing_plan: Some(self.plan.standing(self.facts, &self.waiting)),
            instances: index.instance_ids.iter().map(|id| (*id).clone()).zip(instances).collect(),
        }
    }

    /// As many copies of the task as it has beyond those wanted in the end: of the copies that the
    /// target has and that are not caught up the future active first, then by id. What they are to
    /// replace is a standby like any other until it goes.
    fn warmups(&self, task: TaskIx) -> Vec<InstanceIx> {
        let extra = &self.extra[task as usize];
        if extra.is_empty() {
            return Vec::new();
        }
        let then = self.plan.active[task as usize];
        let in_target = |instance: &InstanceIx| {
            *instance == then || self.plan.standby[task as usize].contains(instance)
        };
        let copies = self.standby[task as usize].iter().chain(extra).copied();
        let mut warmups: Vec<InstanceIx> = copies
            .filter(in_target)
            .filter(|instance| !self.facts.is_caught_up(task, *instance))
            .collect();
        warmups.sort_unstable_by_key(|instance| (*instance != then, *instance));
        warmups.truncate(extra.len());
        warmups
    }

    fn is_waited_for(&self, task: TaskIx, instance: InstanceIx) -> bool {
        self.waiting.binary_search(&(task, instance)).is_ok()
    }
}

/// The instance that runs each task now: the one of the target if it is ready, else the owner if it
/// is, else whoever is ready; of these a future follower, else the one with the least to do.
fn run_where_state_is(facts: &Facts<'_>, plan: &Plan) -> Vec<InstanceIx> {
    let mut active = plan.active.clone();
    let mut open = Vec::new();
    for task in facts.index.tasks() {
        let then = plan.active[task as usize];
        if facts.is_ready(task, then) {
            continue;
        }
        match facts.owner(task).filter(|owner| facts.is_ready(task, *owner)) {
            Some(owner) => active[task as usize] = owner,
            None => open.push(task),
        }
    }
    let mut runs = vec![0_u64; facts.capacity.len()];
    for instance in &active {
        runs[*instance as usize] += 1;
    }
    for task in open {
        runs[active[task as usize] as usize] -= 1;
        let ready = facts.holders(task).iter().filter(|holder| holder.ready);
        let best = ready.min_by_key(|holder| {
            let capacity = u128::from(facts.capacity[holder.instance as usize]);
            let load = u128::from(runs[holder.instance as usize] << 32);
            let follows = plan.standby[task as usize].contains(&holder.instance);
            let load = load.checked_div(capacity).unwrap_or(u128::MAX);
            (!follows, load, holder.missing, holder.instance)
        });
        let best = best.expect("if the planned instance is not ready, another one is ahead of it");
        active[task as usize] = best.instance;
        runs[best.instance as usize] += 1;
    }
    active
}
