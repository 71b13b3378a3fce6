//! The same facts under small numbers, for the assignors' inner loops.
//!
//! Tasks and instances are numbered in the order of their ids, so "the lower id" is "the lower
//! number" everywhere.

use std::collections::{BTreeMap, BTreeSet};

use crate::assignment::Target;
use crate::error::AssignError;
use crate::ids::{InstanceId, TaskId};
use crate::state::{ApplicationState, InstanceInfo, TaskInfo};

/// Number of a task in the order of ids.
pub(crate) type TaskIx = u32;
/// Number of an instance in the order of ids.
pub(crate) type InstanceIx = u32;

/// The tasks and instances of an application state, numbered.
#[derive(Debug)]
pub(crate) struct Index<'a> {
    pub(crate) task_ids: Vec<TaskId>,
    pub(crate) tasks: Vec<&'a TaskInfo>,
    pub(crate) instance_ids: Vec<&'a InstanceId>,
    pub(crate) instances: Vec<&'a InstanceInfo>,
}

impl<'a> Index<'a> {
    pub(crate) fn new(state: &'a ApplicationState) -> Self {
        Self {
            task_ids: state.tasks.keys().copied().collect(),
            tasks: state.tasks.values().collect(),
            instance_ids: state.instances.keys().collect(),
            instances: state.instances.values().collect(),
        }
    }

    /// # Errors
    /// If there is nobody to assign to.
    pub(crate) fn check_capacity(&self) -> Result<(), AssignError> {
        let instances = self.instances.len();
        if instances == 0 {
            Err(AssignError::NoInstances)
        } else if self.total_capacity() == 0 {
            Err(AssignError::NoCapacity { instances })
        } else {
            Ok(())
        }
    }

    pub(crate) fn task(&self, id: TaskId) -> Option<TaskIx> {
        self.task_ids.binary_search(&id).ok().map(number)
    }

    pub(crate) fn tasks(&self) -> std::ops::Range<TaskIx> {
        0..number(self.task_ids.len())
    }

    pub(crate) fn instances(&self) -> std::ops::Range<InstanceIx> {
        0..number(self.instance_ids.len())
    }

    pub(crate) fn is_stateful(&self, task: TaskIx) -> bool {
        self.tasks[task as usize].stateful
    }

    pub(crate) fn stateful(&self) -> Vec<TaskIx> {
        self.tasks().filter(|task| self.is_stateful(*task)).collect()
    }

    pub(crate) fn stateless(&self) -> Vec<TaskIx> {
        self.tasks().filter(|task| !self.is_stateful(*task)).collect()
    }

    pub(crate) fn capacity(&self, instance: InstanceIx) -> u32 {
        self.instances[instance as usize].capacity
    }

    pub(crate) fn total_capacity(&self) -> u64 {
        self.instances.iter().map(|instance| u64::from(instance.capacity)).sum()
    }

    /// For every task the instance that ran it as active; of several the one with the highest id.
    pub(crate) fn previous_active(&self) -> Vec<Option<InstanceIx>> {
        let mut owner = vec![None; self.tasks.len()];
        for (instance, info) in self.instances.iter().enumerate() {
            for task in info.previous_active.iter().filter_map(|task| self.task(*task)) {
                owner[task as usize] = Some(number(instance));
            }
        }
        owner
    }

    /// For every task the instances that have state of it without running it, in order.
    pub(crate) fn previous_standby(&self) -> Vec<Vec<InstanceIx>> {
        let mut holders = vec![Vec::new(); self.tasks.len()];
        for (instance, info) in self.instances.iter().enumerate() {
            for task in info.previous_standby.iter().filter_map(|task| self.task(*task)) {
                holders[task as usize].push(number(instance));
            }
        }
        holders
    }

    /// The stateful part of a placement, as the target of later rounds.
    pub(crate) fn target(&self, placement: &Placement) -> BTreeMap<InstanceId, Target> {
        let ids = |tasks: &BTreeSet<TaskIx>| {
            tasks
                .iter()
                .filter(|task| self.is_stateful(**task))
                .map(|task| self.task_ids[*task as usize])
                .collect()
        };
        self.instances()
            .map(|instance| {
                let target = Target {
                    active: ids(placement.actives(instance)),
                    standby: ids(placement.standbys(instance)),
                };
                (self.instance_ids[instance as usize].clone(), target)
            })
            .collect()
    }
}

/// A position as the small number that stands for it.
pub(crate) fn number(position: usize) -> u32 {
    u32::try_from(position).expect("there are fewer than 2^32 tasks and instances")
}

/// Who runs and who follows what, in the making.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    capacity: Vec<u32>,
    active_of: Vec<Option<InstanceIx>>,
    standbys_of: Vec<Vec<InstanceIx>>,
    actives: Vec<BTreeSet<TaskIx>>,
    standbys: Vec<BTreeSet<TaskIx>>,
}

impl Placement {
    /// Nothing placed yet.
    pub(crate) fn empty(index: &Index<'_>) -> Self {
        let instances = index.instances.len();
        Self {
            capacity: index.instances.iter().map(|instance| instance.capacity).collect(),
            active_of: vec![None; index.tasks.len()],
            standbys_of: vec![Vec::new(); index.tasks.len()],
            actives: vec![BTreeSet::new(); instances],
            standbys: vec![BTreeSet::new(); instances],
        }
    }

    /// How many instances there are.
    pub(crate) fn instances(&self) -> InstanceIx {
        number(self.capacity.len())
    }

    pub(crate) fn active_of(&self, task: TaskIx) -> Option<InstanceIx> {
        self.active_of[task as usize]
    }

    /// The followers of a task, in order.
    pub(crate) fn standbys_of(&self, task: TaskIx) -> &[InstanceIx] {
        &self.standbys_of[task as usize]
    }

    pub(crate) fn actives(&self, instance: InstanceIx) -> &BTreeSet<TaskIx> {
        &self.actives[instance as usize]
    }

    pub(crate) fn standbys(&self, instance: InstanceIx) -> &BTreeSet<TaskIx> {
        &self.standbys[instance as usize]
    }

    pub(crate) fn has_standby(&self, instance: InstanceIx, task: TaskIx) -> bool {
        self.standbys_of(task).binary_search(&instance).is_ok()
    }

    /// Whether the instance has any copy of the task.
    pub(crate) fn has(&self, instance: InstanceIx, task: TaskIx) -> bool {
        self.active_of(task) == Some(instance) || self.has_standby(instance, task)
    }

    /// How many instances have a copy of the task.
    pub(crate) fn copies(&self, task: TaskIx) -> usize {
        self.standbys_of(task).len() + usize::from(self.active_of(task).is_some())
    }

    /// Makes the instance run the task; whoever ran it before no longer does.
    pub(crate) fn set_active(&mut self, instance: InstanceIx, task: TaskIx) {
        if let Some(before) = self.active_of[task as usize].replace(instance) {
            self.actives[before as usize].remove(&task);
        }
        self.actives[instance as usize].insert(task);
    }

    pub(crate) fn add_standby(&mut self, instance: InstanceIx, task: TaskIx) {
        if let Err(at) = self.standbys_of[task as usize].binary_search(&instance) {
            self.standbys_of[task as usize].insert(at, instance);
            self.standbys[instance as usize].insert(task);
        }
    }

    pub(crate) fn remove_standby(&mut self, instance: InstanceIx, task: TaskIx) {
        if let Ok(at) = self.standbys_of[task as usize].binary_search(&instance) {
            self.standbys_of[task as usize].remove(at);
            self.standbys[instance as usize].remove(&task);
        }
    }

    /// Number of copies on an instance, active or not.
    pub(crate) fn count(&self, instance: InstanceIx) -> usize {
        self.actives(instance).len() + self.standbys(instance).len()
    }

    /// Copies per unit of capacity.
    pub(crate) fn load(&self, instance: InstanceIx) -> Load {
        Load::of(self.count(instance), self.capacity[instance as usize])
    }

    /// Active tasks per unit of capacity.
    pub(crate) fn active_load(&self, instance: InstanceIx) -> Load {
        Load::of(self.actives(instance).len(), self.capacity[instance as usize])
    }

    pub(crate) fn capacity(&self, instance: InstanceIx) -> u32 {
        self.capacity[instance as usize]
    }
}

/// Tasks per unit of capacity.
///
/// Without capacity every task is infinitely heavy, and no task at all is heavier still: such an
/// instance comes last. As long as there are fewer than 2^26 tasks and threads, loads are equal
/// exactly if the fractions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Load(
    /// The bits of a floating-point number that is not negative: they sort as it does.
    u64,
);

impl Load {
    const ZERO: Self = Self(0);

    pub(crate) fn of(tasks: usize, capacity: u32) -> Self {
        match (tasks, capacity) {
            (0, 0) => Self(u64::MAX),
            _ => Self((f64::from(number(tasks)) / f64::from(capacity)).to_bits()),
        }
    }

    pub(crate) fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

/// Instances by load, then by number: the least loaded first.
#[derive(Debug)]
pub(crate) struct ByLoad {
    order: BTreeSet<(Load, InstanceIx)>,
    keys: Vec<Load>,
}

impl ByLoad {
    pub(crate) fn new(loads: impl Iterator<Item = Load>) -> Self {
        let keys: Vec<Load> = loads.collect();
        let order =
            keys.iter().enumerate().map(|(instance, load)| (*load, number(instance))).collect();
        Self { order, keys }
    }

    /// Notes that an instance has another load now.
    pub(crate) fn update(&mut self, instance: InstanceIx, load: Load) {
        let before = std::mem::replace(&mut self.keys[instance as usize], load);
        self.order.remove(&(before, instance));
        self.order.insert((load, instance));
    }

    /// The least loaded instance that will do.
    pub(crate) fn first(&self, will_do: impl Fn(InstanceIx) -> bool) -> Option<InstanceIx> {
        self.order.iter().map(|(_, instance)| *instance).find(|instance| will_do(*instance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_compare_as_fractions_and_without_capacity_last() {
        let loads = [(0, 3), (1, 3), (1, 2), (2, 3), (5, 1), (1, 0), (0, 0)]
            .map(|(tasks, capacity)| Load::of(tasks, capacity));
        for (i, a) in loads.iter().enumerate() {
            for (j, b) in loads.iter().enumerate() {
                assert_eq!(a.cmp(b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
        assert_eq!(Load::of(2, 4), Load::of(1, 2));
        assert!(loads[0].is_zero() && !loads[6].is_zero());
    }
}
