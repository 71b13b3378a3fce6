//! How much a plan reads across racks.

use crate::assignment::Assignment;
use crate::ids::{RackId, TaskId};
use crate::state::{ApplicationState, PartitionRole};

/// Partitions whose replicas are all in other racks than their reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrossRackReads {
    /// Sources that actives read.
    pub active: u64,
    /// Changelogs that standbys and warm-ups read.
    pub standby: u64,
}

/// Counts what the plan reads across racks; `None` unless every instance has one rack.
pub fn cross_rack_reads(
    state: &ApplicationState,
    assignment: &Assignment,
) -> Option<CrossRackReads> {
    let mut reads = CrossRackReads::default();
    for (id, holds) in &assignment.instances {
        let rack = state.instances.get(id)?.rack()?;
        let count = |task: &TaskId, counts: fn(PartitionRole) -> bool| {
            crossings(state, *task, rack, counts)
        };
        for task in holds.active.keys() {
            reads.active += count(task, PartitionRole::is_source);
        }
        for task in holds.standby.keys().chain(holds.warmup.keys()) {
            reads.standby += count(task, PartitionRole::is_changelog);
        }
    }
    Some(reads)
}

fn crossings(
    state: &ApplicationState,
    task: TaskId,
    rack: &RackId,
    counts: impl Fn(PartitionRole) -> bool,
) -> u64 {
    let partitions = state.tasks.get(&task).into_iter().flat_map(|info| &info.partitions);
    partitions.filter(|partition| counts(partition.role) && !partition.racks.contains(rack)).count()
        as u64
}
