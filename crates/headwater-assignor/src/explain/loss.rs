//! What it would cost if something were lost right after the plan is in place.

use std::collections::BTreeSet;

use crate::assignment::Assignment;
use crate::ids::{InstanceId, TaskId};
use crate::lag::{Lag, add_offsets};
use crate::state::ApplicationState;

/// What the loss of some instances would cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// Tasks that they run.
    pub actives: usize,
    /// Stateful ones of these that no other instance follows closely enough to take over at once:
    /// these stand still until their state is restored.
    pub standing_still: BTreeSet<TaskId>,
    /// Records that must be read before those run again, as far as known: by the copy that is the
    /// furthest ahead, or from the start.
    pub records_to_restore: u64,
}

/// What the loss of one instance would cost.
pub fn instance_loss(
    state: &ApplicationState,
    assignment: &Assignment,
    instance: &InstanceId,
) -> Loss {
    loss(state, assignment, |id| id == instance)
}

/// What the loss of all instances with this tag value (or, for the key `rack`, in this rack) would
/// cost.
pub fn tag_loss(state: &ApplicationState, assignment: &Assignment, key: &str, value: &str) -> Loss {
    loss(state, assignment, |id| {
        state.instances.get(id).is_some_and(|info| {
            info.tags.get(key).is_some_and(|tag| tag == value)
                || key == "rack" && info.rack().is_some_and(|rack| rack.as_str() == value)
        })
    })
}

fn loss(
    state: &ApplicationState,
    assignment: &Assignment,
    is_lost: impl Fn(&InstanceId) -> bool,
) -> Loss {
    let acceptable = state.settings.acceptable_recovery_lag;
    let mut loss = Loss::default();
    let lost = assignment.instances.iter().filter(|(id, _)| is_lost(id));
    for task in lost.flat_map(|(_, holds)| holds.active.keys()) {
        loss.actives += 1;
        let Some(info) = state.tasks.get(task).filter(|info| info.stateful) else { continue };
        let followers =
            assignment.instances.iter().filter(|(id, holds)| !is_lost(id) && holds.follows(task));
        let full = info.end_offset.map_or(Lag::Unknown, |end| Lag::of(None, end));
        let lags: Vec<Lag> = followers
            .map(|(id, _)| {
                let reported = state.instances.get(id).and_then(|info| info.lags.get(task));
                reported.copied().unwrap_or(full)
            })
            .collect();
        if lags.iter().any(|lag| lag.is_caught_up(acceptable)) {
            continue;
        }
        loss.standing_still.insert(*task);
        let nearest = lags.iter().filter_map(|lag| lag.to_restore()).min();
        let records = nearest.or_else(|| full.to_restore()).unwrap_or(0);
        loss.records_to_restore = add_offsets(loss.records_to_restore, records);
    }
    loss
}
