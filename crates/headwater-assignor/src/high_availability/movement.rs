//! Bending a plan to where the state is.

use crate::heap::ArrayHeap;
use crate::index::{InstanceIx, Placement, TaskIx};
use crate::lags::{Lags, as_number};

/// A planned copy whose instance is behind while another is further ahead.
///
/// Tasks with few caught-up instances come first. Copies of one task tie, so that their order is
/// that of the heap.
#[derive(Clone, Copy, Debug)]
struct Movement {
    caught_up: usize,
    task: TaskIx,
    planned: InstanceIx,
}

impl Ord for Movement {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.caught_up, self.task).cmp(&(other.caught_up, other.task))
    }
}

impl PartialOrd for Movement {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Movement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Movement {}

/// Moves actives and standbys to instances that have the state, and leaves up to `warmups` copies
/// where they were planned. Returns how many movements that took.
pub(super) fn follow_state(
    stateful: &[TaskIx],
    lags: &Lags,
    warmups: u32,
    placement: &mut Placement,
) -> usize {
    let mut bend = Bend { lags, placement, budget: i64::from(warmups), warming_up: Vec::new() };
    let actives = bend.actives(stateful);
    let standbys = bend.standbys();
    actives + standbys
}

struct Bend<'a> {
    lags: &'a Lags,
    placement: &'a mut Placement,
    /// Extra copies that may still be made. Falls below zero when more were asked for.
    budget: i64,
    /// The copies that were left behind for a later take-over.
    warming_up: Vec<(InstanceIx, TaskIx)>,
}

impl Bend<'_> {
    /// The movements that the copies planned on instances need.
    fn needed(&self, planned: impl Iterator<Item = (InstanceIx, TaskIx)>) -> ArrayHeap<Movement> {
        let mut movements = ArrayHeap::of_sorted(Vec::new());
        for (planned, task) in planned {
            let lag = as_number(self.lags.get(task, planned));
            if !self.lags.is_caught_up(task, planned)
                && self.lags.furthest_ahead(task).is_some_and(|(least, _)| least < lag)
            {
                let caught_up = self.lags.caught_up(task).len();
                movements.add(Movement { caught_up, task, planned });
            }
        }
        movements
    }

    fn actives(&mut self, stateful: &[TaskIx]) -> usize {
        let planned =
            stateful.iter().filter_map(|task| Some((self.placement.active_of(*task)?, *task)));
        let mut movements = self.needed(planned);
        let mut moved = 0;
        while let Some(Movement { task, planned, .. }) = movements.poll() {
            let caught_up = self.lags.caught_up(task);
            let source = self
                .least_loaded(&caught_up, |instance| self.placement.has_standby(instance, task))
                .or_else(|| self.least_loaded(&caught_up, |_| true))
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
        let mut moved = 0;
        while let Some(Movement { task, planned, .. }) = movements.poll() {
            let without = |instance| !self.placement.has(instance, task);
            let source = self
                .least_loaded(&self.lags.caught_up(task), without)
                .or_else(|| self.furthest_ahead_of(planned, task, without));
            let Some(source) = source else { continue };
            self.placement.add_standby(source, task);
            if !self.take_from_budget() {
                self.placement.remove_standby(planned, task);
            }
            moved += 1;
        }
        moved
    }

    fn take_from_budget(&mut self) -> bool {
        self.budget -= 1;
        self.budget >= 0
    }

    fn least_loaded(
        &self,
        candidates: &[InstanceIx],
        will_do: impl Fn(InstanceIx) -> bool,
    ) -> Option<InstanceIx> {
        candidates
            .iter()
            .copied()
            .filter(|instance| will_do(*instance))
            .min_by_key(|instance| (self.placement.load(*instance), *instance))
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
