//! Kafka Streams' optimiser of reading across racks (KIP-925).

mod graph;
mod network;
mod optimise;

use std::collections::BTreeMap;

pub(crate) use optimise::{ActiveOptimiser, optimise_standbys};

use crate::ids::RackId;
use crate::index::{Index, InstanceIx, TaskIx, number};
use crate::settings::{RackAwareStrategy, Settings};
use crate::state::{PartitionRole, TaskPartition};

/// What a placement costs the optimiser.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RackCosts {
    /// A partition read from another rack.
    pub(crate) traffic: u32,
    /// A copy that is not where the plan had it.
    pub(crate) non_overlap: u32,
}

impl RackCosts {
    /// The original's costs for tasks without state, which no setting changes.
    pub(crate) const STATELESS: Self = Self { traffic: 1, non_overlap: 0 };

    /// The settings, with an assignor's own costs where they say nothing.
    pub(crate) fn or(settings: &Settings, default: Self) -> Self {
        Self {
            traffic: settings.rack_aware_assignment_traffic_cost.unwrap_or(default.traffic),
            non_overlap: settings
                .rack_aware_assignment_non_overlap_cost
                .unwrap_or(default.non_overlap),
        }
    }
}

/// Which of a task's partitions count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Sources,
    Changelogs,
    /// Both: the public interface counts changelogs for actives too.
    All,
}

impl Counted {
    fn counts(self, role: PartitionRole) -> bool {
        match self {
            Self::Sources => role.is_source(),
            Self::Changelogs => role.is_changelog(),
            Self::All => true,
        }
    }
}

/// Whether the original's built-in assignors optimise at all: a strategy is set, every instance
/// has one rack, and the racks of all partitions that will be looked at are known.
pub(crate) fn is_eligible(index: &Index<'_>, settings: &Settings) -> bool {
    let known = |counted: Counted, task: TaskIx| {
        partitions(index, task, counted).all(|partition| !partition.racks.is_empty())
    };
    settings.rack_aware_assignment_strategy != RackAwareStrategy::None
        && index.instances.iter().all(|instance| instance.rack().is_some())
        && index.tasks().all(|task| known(Counted::Sources, task))
        && (settings.num_standby_replicas == 0
            || index
                .tasks()
                .filter(|task| index.is_stateful(*task))
                .all(|task| known(Counted::Changelogs, task)))
}

/// The same for the optimisers of the public interface: both costs must be set as well, and
/// either all partitions or all changelogs must have known racks.
pub(crate) fn is_eligible_publicly(
    index: &Index<'_>,
    settings: &Settings,
    counted: Counted,
) -> bool {
    settings.rack_aware_assignment_traffic_cost.is_some()
        && settings.rack_aware_assignment_non_overlap_cost.is_some()
        && racks_are_known(index, settings, counted)
}

/// Whether a strategy is set and the racks of all instances and partitions in question are known.
pub(crate) fn racks_are_known(index: &Index<'_>, settings: &Settings, counted: Counted) -> bool {
    settings.rack_aware_assignment_strategy != RackAwareStrategy::None
        && index
            .instances
            .iter()
            .all(|instance| instance.racks.first().is_some_and(Option::is_some))
        && index.tasks().all(|task| {
            partitions(index, task, counted).all(|partition| !partition.racks.is_empty())
        })
}

fn partitions<'a>(
    index: &Index<'a>,
    task: TaskIx,
    counted: Counted,
) -> impl Iterator<Item = &'a TaskPartition> + use<'a> {
    let info = index.tasks[task as usize];
    info.partitions.iter().filter(move |partition| counted.counts(partition.role))
}

/// How many partitions of each task have no replica in each instance's rack.
#[derive(Debug)]
pub(crate) struct CrossRack {
    rack_of: Vec<usize>,
    racks: usize,
    /// Row for each task, column for each rack.
    crossings: Vec<u32>,
}

impl CrossRack {
    /// Instances without a rack count as one rack that has no replicas.
    pub(crate) fn new(index: &Index<'_>, counted: Counted) -> Self {
        let mut numbers: BTreeMap<Option<&RackId>, usize> = BTreeMap::new();
        let rack = |instance: usize| index.instances[instance].racks.first()?.as_ref();
        for instance in 0..index.instances.len() {
            numbers.insert(rack(instance), 0);
        }
        for (position, number) in numbers.values_mut().enumerate() {
            *number = position;
        }
        let mut crossings = Vec::with_capacity(index.tasks.len() * numbers.len());
        for task in index.tasks() {
            for rack in numbers.keys() {
                let crossing = partitions(index, task, counted)
                    .filter(|partition| rack.is_none_or(|rack| !partition.racks.contains(rack)));
                crossings.push(number(crossing.count()));
            }
        }
        Self {
            rack_of: (0..index.instances.len()).map(|i| numbers[&rack(i)]).collect(),
            racks: numbers.len(),
            crossings,
        }
    }

    pub(crate) fn share_rack(&self, a: InstanceIx, b: InstanceIx) -> bool {
        self.rack_of[a as usize] == self.rack_of[b as usize]
    }

    /// Partitions that the instance would read from other racks for the task.
    pub(crate) fn crossings(&self, task: TaskIx, instance: InstanceIx) -> u32 {
        self.crossings[task as usize * self.racks + self.rack_of[instance as usize]]
    }

    /// What it costs to have a copy of the task on the instance.
    fn cost(&self, task: TaskIx, instance: InstanceIx, planned: bool, costs: RackCosts) -> i64 {
        let traffic = i64::from(costs.traffic) * i64::from(self.crossings(task, instance));
        traffic + if planned { 0 } else { i64::from(costs.non_overlap) }
    }
}
