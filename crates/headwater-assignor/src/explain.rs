//! What a plan means, for people: each task's why and cost, the group's balance and what a loss
//! would cost.

mod loss;

use std::collections::{BTreeMap, BTreeSet};

pub use loss::{Loss, instance_loss, tag_loss};

use crate::assignment::{Assignment, Reason, Waiting};
use crate::ids::{InstanceId, TaskId};
use crate::lag::add_offsets;
use crate::moves::{CopyKind, moves, restore_cost};
use crate::state::ApplicationState;
use crate::traffic::{CrossRackReads, cross_rack_reads};

/// How fast state is restored and how big it is; what a plan knows only in offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rates {
    /// Bytes of one changelog record. Default 100.
    pub bytes_per_record: u64,
    /// Records that one instance restores in a second, over all its tasks. Default 100 000.
    pub records_per_second: u64,
}

impl Default for Rates {
    fn default() -> Self {
        Self { bytes_per_record: 100, records_per_second: 100_000 }
    }
}

impl Rates {
    /// Bytes of so many records; the product stops at the largest number there is.
    pub fn bytes(self, records: u64) -> u64 {
        records.saturating_mul(self.bytes_per_record)
    }

    /// Seconds in which one instance restores so many records, rounded up.
    pub fn seconds(self, records: u64) -> u64 {
        records.div_ceil(self.records_per_second.max(1))
    }
}

/// A plan explained.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// Every copy of every task, in order of task, kind and instance.
    pub copies: Vec<CopyExplained>,
    /// What the follow-up depends on.
    pub waiting_for: Vec<Waiting>,
    /// The group as a whole.
    pub group: GroupExplained,
}

/// One copy of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyExplained {
    /// The task.
    pub task: TaskId,
    /// What the copy is for.
    pub kind: CopyKind,
    /// Where it is.
    pub instance: InstanceId,
    /// Why it is there.
    pub reason: Reason,
    /// Who ran the task before, if the copy runs it now and did not before.
    pub moved_from: Option<InstanceId>,
    /// Whether the copy was not there before, or was of another kind.
    pub is_new: bool,
    /// Records that it has to read before it is at the end; `None` if nobody knows.
    pub records_to_restore: Option<u64>,
}

/// The group as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupExplained {
    /// Fewest and most actives on one instance.
    pub actives: (usize, usize),
    /// Fewest and most copies (actives, standbys, warm-ups) on one instance.
    pub copies: (usize, usize),
    /// Largest difference in actives of one sub-topology between two instances.
    pub subtopology_spread: usize,
    /// Owned actives that run elsewhere now.
    pub moves: usize,
    /// The fewest moves of owned actives with which every instance has its share of tasks, rounded
    /// down or up.
    pub least_moves: usize,
    /// Records that all copies have to read, as far as known.
    pub records_to_restore: u64,
    /// The most records that one instance has to read; it sets the time.
    pub most_records_on_one_instance: u64,
    /// Actives on an instance that is not caught up: these stand still.
    pub standing_still: usize,
    /// Partitions read across racks, if every instance has one rack.
    pub cross_rack: Option<CrossRackReads>,
}

/// Explains a plan.
pub fn explain(state: &ApplicationState, assignment: &Assignment) -> Explanation {
    let copies = copies(state, assignment);
    let group = group(state, assignment, &copies);
    Explanation { copies, waiting_for: assignment.waiting_for.clone(), group }
}

fn copies(state: &ApplicationState, assignment: &Assignment) -> Vec<CopyExplained> {
    let new: BTreeMap<(TaskId, InstanceId), Option<InstanceId>> = moves(state, assignment)
        .into_iter()
        .filter_map(|moved| Some(((moved.task, moved.to?), moved.from)))
        .collect();
    let mut copies = Vec::new();
    for (instance, holds) in &assignment.instances {
        let kinds = [
            (CopyKind::Active, &holds.active),
            (CopyKind::Standby, &holds.standby),
            (CopyKind::Warmup, &holds.warmup),
        ];
        for (kind, tasks) in kinds {
            copies.extend(tasks.iter().map(|(task, reason)| {
                let moved = new.get(&(*task, instance.clone()));
                CopyExplained {
                    task: *task,
                    kind,
                    instance: instance.clone(),
                    reason: *reason,
                    moved_from: moved.cloned().flatten(),
                    is_new: moved.is_some(),
                    records_to_restore: restore_cost(state, *task, instance),
                }
            }));
        }
    }
    copies.sort_by(|a, b| (a.task, a.kind, &a.instance).cmp(&(b.task, b.kind, &b.instance)));
    copies
}

fn group(
    state: &ApplicationState,
    assignment: &Assignment,
    copies: &[CopyExplained],
) -> GroupExplained {
    let mut to_read: BTreeMap<&InstanceId, u64> = BTreeMap::new();
    for copy in copies {
        let sum = to_read.entry(&copy.instance).or_default();
        *sum = add_offsets(*sum, copy.records_to_restore.unwrap_or(0));
    }
    let acceptable = state.settings.acceptable_recovery_lag;
    let actives = || copies.iter().filter(|copy| copy.kind == CopyKind::Active);
    let stands_still = |copy: &&CopyExplained| {
        let is_behind = copy.records_to_restore.is_none_or(|records| records > acceptable);
        is_behind && !state.settings.everybody_is_caught_up()
    };
    let range = |count: &dyn Fn(&crate::assignment::InstanceAssignment) -> usize| {
        let counts = || assignment.instances.values().map(count);
        (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
    };
    GroupExplained {
        actives: range(&|holds| holds.active.len()),
        copies: range(&|holds| holds.active.len() + holds.standby.len() + holds.warmup.len()),
        subtopology_spread: subtopology_spread(state, assignment),
        moves: actives().filter(|copy| copy.moved_from.is_some()).count(),
        least_moves: least_moves(state),
        records_to_restore: to_read.values().copied().fold(0, add_offsets),
        most_records_on_one_instance: to_read.values().copied().max().unwrap_or(0),
        standing_still: actives().filter(stands_still).count(),
        cross_rack: cross_rack_reads(state, assignment),
    }
}

fn subtopology_spread(state: &ApplicationState, assignment: &Assignment) -> usize {
    let subtopologies: BTreeSet<u32> = state.tasks.keys().map(|task| task.subtopology).collect();
    let mut least: BTreeMap<u32, usize> = BTreeMap::new();
    let mut most: BTreeMap<u32, usize> = BTreeMap::new();
    for holds in assignment.instances.values() {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for task in holds.active.keys() {
            *counts.entry(task.subtopology).or_default() += 1;
        }
        for subtopology in &subtopologies {
            let count = counts.get(subtopology).copied().unwrap_or(0);
            let least = least.entry(*subtopology).or_insert(count);
            *least = count.min(*least);
            let most = most.entry(*subtopology).or_default();
            *most = count.max(*most);
        }
    }
    most.iter().map(|(subtopology, most)| most - least[subtopology]).max().unwrap_or(0)
}

/// The fewest moves of owned tasks after which every instance has its share of all tasks, rounded
/// down or up: all but those that can stay.
fn least_moves(state: &ApplicationState) -> usize {
    let total: u64 = state.instances.values().map(|info| u64::from(info.capacity)).sum();
    if total == 0 {
        return 0;
    }
    let mut owner: BTreeMap<TaskId, &InstanceId> = BTreeMap::new();
    for (id, info) in &state.instances {
        for task in info.previous_active.iter().filter(|task| state.tasks.contains_key(task)) {
            owner.insert(*task, id);
        }
    }
    let mut owned: BTreeMap<&InstanceId, u64> = BTreeMap::new();
    for id in owner.values() {
        *owned.entry(id).or_default() += 1;
    }
    let tasks = state.tasks.len() as u64;
    // Who has more than the rounded-down share may keep one more, but only as many instances as
    // there are tasks beyond all rounded-down shares.
    let (mut stay, mut one_more, mut beyond) = (0, 0, tasks);
    for (id, info) in &state.instances {
        let has = owned.get(id).copied().unwrap_or(0);
        let share = tasks * u64::from(info.capacity);
        let (low, high) = (share / total, share.div_ceil(total));
        stay += has.min(low);
        one_more += u64::from(high > low && has >= high);
        beyond -= low;
    }
    owner.len() - usize::try_from(stay + one_more.min(beyond)).unwrap_or(owner.len())
}
