//! Who gets a task: its previous owner, a previous follower, or the least loaded.

use crate::error::AssignError;
use crate::index::{Index, InstanceIx, Load, Placement, TaskIx};

/// The two sticky assignors differ in quota and in what counts as having more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    Legacy,
    Public,
}

/// A placement in the making, with what was before.
pub(super) struct Finder<'a> {
    index: &'a Index<'a>,
    flavour: Flavour,
    owner: Vec<Option<InstanceIx>>,
    followers: Vec<Vec<InstanceIx>>,
    /// To be changed by [`run`](Self::run) and [`follow`](Self::follow), or so that no instance
    /// has more or fewer copies afterwards.
    pub(super) placement: Placement,
    loads: Vec<Load>,
    total_capacity: u64,
    /// Who was given each active at first, before racks were looked at.
    first_owner: Vec<Option<InstanceIx>>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(index: &'a Index<'a>, flavour: Flavour) -> Result<Self, AssignError> {
        index.check_capacity()?;
        let placement = Placement::empty(index);
        Ok(Self {
            index,
            flavour,
            owner: index.previous_active(),
            followers: index.previous_standby(),
            loads: index.instances().map(|instance| placement.load(instance)).collect(),
            total_capacity: index.total_capacity(),
            placement,
            first_owner: Vec::new(),
        })
    }

    fn run(&mut self, instance: InstanceIx, task: TaskIx) {
        debug_assert_eq!(self.placement.active_of(task), None, "each task is placed once");
        self.placement.set_active(instance, task);
        self.loads[instance as usize] = self.placement.load(instance);
    }

    fn follow(&mut self, instance: InstanceIx, task: TaskIx) {
        self.placement.add_standby(instance, task);
        self.loads[instance as usize] = self.placement.load(instance);
    }

    pub(super) fn place_actives(&mut self, preserving: bool) {
        for task in self.index.tasks() {
            if let Some(owner) = self.owner[task as usize]
                && (preserving || self.is_below_quota(owner))
            {
                self.run(owner, task);
            }
        }
        for task in self.unplaced() {
            let follower = self.followers[task as usize]
                .iter()
                .copied()
                .find(|follower| self.is_below_quota(*follower));
            if let Some(follower) = follower {
                self.run(follower, task);
            }
        }
        let everybody: Vec<InstanceIx> = self.index.instances().collect();
        for task in self.unplaced() {
            if let Some(instance) = self.find(task, &everybody) {
                self.run(instance, task);
            }
        }
        self.first_owner = self.index.tasks().map(|task| self.placement.active_of(task)).collect();
    }

    pub(super) fn place_standbys(&mut self, tasks: impl Iterator<Item = TaskIx>, replicas: u32) {
        for task in tasks {
            for _ in 0..replicas {
                let without: Vec<InstanceIx> = self
                    .index
                    .instances()
                    .filter(|instance| !self.placement.has(*instance, task))
                    .collect();
                match self.find(task, &without) {
                    Some(instance) => self.follow(instance, task),
                    None => break,
                }
            }
        }
    }

    fn unplaced(&self) -> Vec<TaskIx> {
        self.index.tasks().filter(|task| self.placement.active_of(*task).is_none()).collect()
    }

    fn is_below_quota(&self, instance: InstanceIx) -> bool {
        let tasks = self.index.tasks.len() as u64;
        let (capacity, total) = (u64::from(self.index.capacity(instance)), self.total_capacity);
        let quota = match self.flavour {
            Flavour::Legacy => capacity * (tasks / total),
            Flavour::Public => (tasks * capacity).div_ceil(total),
        };
        (self.placement.actives(instance).len() as u64) < quota
    }

    fn find(&self, task: TaskIx, within: &[InstanceIx]) -> Option<InstanceIx> {
        if let [only] = within {
            return Some(*only);
        }
        let is_within = |instance: &InstanceIx| within.binary_search(instance).is_ok();
        let follower = || {
            let followers = self.followers[task as usize].iter().copied().filter(is_within);
            self.least_loaded(task, &followers)
        };
        let previous = self.owner[task as usize].filter(is_within).or_else(follower);
        previous
            .filter(|instance| !self.should_give_way(*instance))
            .or_else(|| {
                previous.and_then(|_| follower().filter(|other| !self.should_give_way(*other)))
            })
            .or_else(|| self.least_loaded(task, &within.iter().copied()))
    }

    /// Whether an instance is full while another has more room.
    fn should_give_way(&self, instance: InstanceIx) -> bool {
        self.placement.count(instance) >= self.index.capacity(instance) as usize
            && self.index.instances().any(|other| self.has_more_room(other, instance))
    }

    fn has_more_room(&self, one: InstanceIx, other: InstanceIx) -> bool {
        let by_load = self.load(one).cmp(&self.load(other));
        by_load.is_lt()
            || self.flavour == Flavour::Legacy
                && by_load.is_eq()
                && self.index.capacity(one) > self.index.capacity(other)
    }

    fn load(&self, instance: InstanceIx) -> Load {
        self.loads[instance as usize]
    }

    /// The least loaded, an idle one at once, and preferably one where the task meets a task it
    /// has not been together with, so that no two instances get the same mix.
    fn least_loaded(
        &self,
        task: TaskIx,
        candidates: &(impl Iterator<Item = InstanceIx> + Clone),
    ) -> Option<InstanceIx> {
        let pass = |new_pairs: bool| {
            let mut best: Option<InstanceIx> = None;
            for instance in candidates.clone() {
                if self.load(instance).is_zero() {
                    return Some(instance);
                }
                if best.is_none_or(|best| self.has_more_room(instance, best))
                    && (!new_pairs || self.meets_a_new_task(task, instance))
                {
                    best = Some(instance);
                }
            }
            best
        };
        pass(true).or_else(|| pass(false))
    }

    /// Whether the instance holds a task that this one has not been together with.
    ///
    /// The original remembers every pair that was ever put together. What it remembers follows from
    /// the placement: two tasks met if they had the same first owner, or if one of them was placed
    /// as a standby where the other is.
    fn meets_a_new_task(&self, task: TaskIx, instance: InstanceIx) -> bool {
        let placement = &self.placement;
        let owner = self.first_owner.get(task as usize).copied().flatten();
        let have_met = |other: TaskIx| {
            owner.is_some_and(|owner| self.first_owner[other as usize] == Some(owner))
                || placement.standbys_of(task).iter().any(|holder| placement.has(*holder, other))
                || placement
                    .active_of(task)
                    .is_some_and(|holder| placement.has_standby(holder, other))
        };
        let mut held =
            placement.actives(instance).iter().chain(placement.standbys(instance)).copied();
        held.any(|other| !have_met(other))
    }
}
