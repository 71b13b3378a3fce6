//! Bending a plan to where the state is.

use crate::heap::ArrayHeap;
use crate::index::{InstanceIx, Load, Placement, TaskIx};
use crate::lags::{Lags, as_number};

/// A planned copy whose instance is behind while another is further ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Movement {
    caught_up: usize,
    task: TaskIx,
    planned: InstanceIx,
}

impl Movement {
    /// Tasks with few caught-up instances come first. Copies of one task tie, so that their order
    /// is that of the heap.
    fn less(&self, other: &Self) -> bool {
        (self.caught_up, self.task) < (other.caught_up, other.task)
    }
}

/// Moves actives and standbys to instances that have the state, and leaves up to `warmups` copies
/// where they were planned. Returns how many movements that took.
pub(super) fn follow_state(
    stateful: &[TaskIx],
    lags: &Lags,
    warmups: u32,
    placement: &mut Placement,
) -> usize {
    let mut bend = Bend::new(lags, warmups, placement);
    let actives = bend.actives(stateful);
    let standbys = bend.standbys();
    actives + standbys
}

/// The first half alone, which the original's tests look at.
#[cfg(test)]
pub(crate) fn actives_follow_state(
    stateful: &[TaskIx],
    lags: &Lags,
    warmups: u32,
    placement: &mut Placement,
) -> usize {
    Bend::new(lags, warmups, placement).actives(stateful)
}

struct Bend<'a> {
    lags: &'a Lags,
    placement: &'a mut Placement,
    /// Extra copies that may still be made. Falls below zero when more were asked for.
    budget: i64,
    /// The copies that were left behind for a later take-over.
    warming_up: Vec<(InstanceIx, TaskIx)>,
}

impl<'a> Bend<'a> {
    fn new(lags: &'a Lags, warmups: u32, placement: &'a mut Placement) -> Self {
        Self { lags, placement, budget: i64::from(warmups), warming_up: Vec::new() }
    }

    /// The movements that the copies planned on instances need.
    fn needed(&self, planned: impl Iterator<Item = (InstanceIx, TaskIx)>) -> ArrayHeap<Movement> {
        let mut movements = ArrayHeap::of_sorted(Vec::new());
        for (planned, task) in planned {
            let lag = as_number(self.lags.get(task, planned));
            if !self.lags.is_caught_up(task, planned)
                && self.lags.furthest_ahead(task).is_some_and(|(least, _)| least < lag)
            {
                let caught_up = self.lags.caught_up(task).len();
                movements.add(Movement { caught_up, task, planned }, Movement::less);
            }
        }
        movements
    }

    fn actives(&mut self, stateful: &[TaskIx]) -> usize {
        let mut planned: Vec<(InstanceIx, TaskIx)> = stateful
            .iter()
            .filter_map(|task| Some((self.placement.active_of(*task)?, *task)))
            .collect();
        planned.sort_unstable();
        let mut movements = self.needed(planned.into_iter());
        let mut by_load = ByShiftingLoad::new(self.placement);
        let mut moved = 0;
        while let Some(Movement { task, planned, .. }) = movements.poll(Movement::less) {
            let caught_up = self.lags.caught_up(task);
            let source = by_load
                .poll(&caught_up, |instance| self.placement.has_standby(instance, task))
                .or_else(|| by_load.poll(&caught_up, |_| true))
                .or_else(|| self.lags.furthest_ahead(task).map(|(_, instance)| instance))
                .expect("a movement is needed only if somebody is further ahead");
            let swap = self.placement.has_standby(source, task);
            self.placement.remove_standby(source, task);
            self.placement.set_active(source, task);
            if swap {
                self.placement.add_standby(planned, task);
            } else if self.take_from_budget() {
                self.placement.add_standby(planned, task);
                self.warming_up.push((planned, task));
            }
            by_load.shift(self.placement, [source, planned]);
            moved += 1;
        }
        self.warming_up.sort_unstable();
        moved
    }

    fn standbys(&mut self) -> usize {
        let planned = (0..self.placement.instances()).flat_map(|instance| {
            self.placement.standbys(instance).iter().map(move |task| (instance, *task))
        });
        let planned = planned.filter(|copy| self.warming_up.binary_search(copy).is_err());
        let mut movements = self.needed(planned);
        let mut by_load = ByShiftingLoad::new(self.placement);
        let mut moved = 0;
        while let Some(Movement { task, planned, .. }) = movements.poll(Movement::less) {
            let without = |instance| !self.placement.has(instance, task);
            let source = by_load
                .poll(&self.lags.caught_up(task), without)
                .or_else(|| self.furthest_ahead_of(planned, task, without));
            let Some(source) = source else { continue };
            self.placement.add_standby(source, task);
            if !self.take_from_budget() {
                self.placement.remove_standby(planned, task);
            }
            by_load.shift(self.placement, [source, planned]);
            moved += 1;
        }
        moved
    }

    fn take_from_budget(&mut self) -> bool {
        self.budget -= 1;
        self.budget >= 0
    }

    /// Of the instances that are further ahead than the planned one, the first that will do.
    fn furthest_ahead_of(
        &self,
        planned: InstanceIx,
        task: TaskIx,
        will_do: impl Fn(InstanceIx) -> bool,
    ) -> Option<InstanceIx> {
        let bound = (as_number(self.lags.get(task, planned)), planned);
        self.lags
            .all(task)
            .map(|(instance, lag)| (as_number(lag), instance))
            .filter(|candidate| *candidate < bound && will_do(candidate.1))
            .min()
            .map(|(_, instance)| instance)
    }
}

/// Instances by load, then by number, as the original keeps them: in a heap in which an instance's
/// load may change before its place does. Where loads tie, that can let an instance come out before
/// another of equal load and lower number.
struct ByShiftingLoad {
    heap: ArrayHeap<InstanceIx>,
    is_in: Vec<bool>,
    loads: Vec<Load>,
}

impl ByShiftingLoad {
    fn new(placement: &Placement) -> Self {
        let instances = 0..placement.instances();
        let mut by_load = Self {
            heap: ArrayHeap::of_sorted(Vec::new()),
            is_in: vec![false; instances.len()],
            loads: instances.clone().map(|instance| placement.load(instance)).collect(),
        };
        for instance in instances {
            by_load.offer(instance);
        }
        by_load
    }

    fn offer(&mut self, instance: InstanceIx) {
        let loads = &self.loads;
        let key = |instance: &InstanceIx| (loads[*instance as usize], *instance);
        let less = |a: &InstanceIx, b: &InstanceIx| key(a) < key(b);
        if std::mem::replace(&mut self.is_in[instance as usize], true) {
            self.heap.remove(&instance, less);
        }
        self.heap.add(instance, less);
    }

    /// Takes out the first of these candidates (in order of numbers) that will do.
    fn poll(
        &mut self,
        candidates: &[InstanceIx],
        will_do: impl Fn(InstanceIx) -> bool,
    ) -> Option<InstanceIx> {
        let loads = &self.loads;
        let key = |instance: &InstanceIx| (loads[*instance as usize], *instance);
        if !candidates.iter().any(|instance| will_do(*instance)) {
            self.heap.rearrange(key);
            return None;
        }
        let will_do = |instance| candidates.binary_search(&instance).is_ok() && will_do(instance);
        let mut passed_over = Vec::new();
        let found = loop {
            let Some(instance) = self.heap.poll(|a, b| key(a) < key(b)) else { break None };
            self.is_in[instance as usize] = false;
            if will_do(instance) {
                break Some(instance);
            }
            passed_over.push(instance);
        };
        passed_over.sort_unstable();
        for instance in passed_over {
            self.offer(instance);
        }
        found
    }

    /// Notes the new loads of two instances, then puts them back one after the other.
    fn shift(&mut self, placement: &Placement, instances: [InstanceIx; 2]) {
        for instance in instances {
            self.loads[instance as usize] = placement.load(instance);
        }
        for instance in instances {
            self.offer(instance);
        }
    }
}
