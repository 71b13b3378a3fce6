//! Telling warm-ups from lasting standbys.

use crate::index::{Index, InstanceIx, Placement, TaskIx};
use crate::lags::Lags;

/// The standbys that are there to take over later, sorted.
///
/// The original hands warm-ups out as plain standbys. A standby is a warm-up if its instance is to
/// hold the task according to the target, is not caught up, and the task has more copies than in
/// the target. The target's active comes first, then the lower id.
pub(super) fn recognise(
    index: &Index<'_>,
    placement: &Placement,
    target: &Placement,
    lags: &Lags,
) -> Vec<(InstanceIx, TaskIx)> {
    let mut warmups = Vec::new();
    for task in index.tasks().filter(|task| index.is_stateful(*task)) {
        let extra = placement.copies(task).saturating_sub(target.copies(task));
        if extra == 0 {
            continue;
        }
        let mut candidates: Vec<InstanceIx> = placement
            .standbys_of(task)
            .iter()
            .copied()
            .filter(|instance| target.has(*instance, task) && !lags.is_caught_up(task, *instance))
            .collect();
        candidates.sort_by_key(|instance| (target.active_of(task) != Some(*instance), *instance));
        warmups.extend(candidates.into_iter().take(extra).map(|instance| (instance, task)));
    }
    warmups.sort_unstable();
    warmups
}
