//! How a plan differs from what was, copy by copy.

use std::collections::{BTreeMap, BTreeSet};

use crate::assignment::{Assignment, Reason};
use crate::ids::{InstanceId, TaskId};
use crate::lag::Lag;
use crate::state::ApplicationState;

/// What a copy of a task is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(
    clippy::exhaustive_enums,
    reason = "running, following, getting ready: there is no fourth"
)]
pub enum CopyKind {
    /// It runs the task.
    Active,
    /// It follows the task's state for good.
    Standby,
    /// It follows the task's state to take over later.
    Warmup,
}

impl CopyKind {
    /// The kind in small letters.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Standby => "standby",
            Self::Warmup => "warmup",
        }
    }
}

/// A copy that appears, ends, or becomes one of another kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Move {
    /// The task.
    pub task: TaskId,
    /// What the copy is for now; what it was for if it ends.
    pub kind: CopyKind,
    /// For an active the instance that ran the task; for a copy that ends where it was.
    pub from: Option<InstanceId>,
    /// Where the copy is; `None` if it ends.
    pub to: Option<InstanceId>,
    /// Why.
    pub reason: Reason,
    /// Offsets that the copy must read; `None` if nobody knows.
    pub cost: Option<u64>,
}

/// Every difference between what instances held and what they are to hold, in order of task, kind
/// and destination. Applied to what was, they give the plan.
pub fn moves(state: &ApplicationState, assignment: &Assignment) -> Vec<Move> {
    let before = Before::new(state);
    let mut moves = Vec::new();
    for (id, holds) in &assignment.instances {
        let kinds = [
            (CopyKind::Active, &holds.active),
            (CopyKind::Standby, &holds.standby),
            (CopyKind::Warmup, &holds.warmup),
        ];
        for (kind, tasks) in kinds {
            for (task, reason) in tasks {
                let known = match kind {
                    CopyKind::Active => before.ran(*task, id),
                    CopyKind::Standby | CopyKind::Warmup => before.followed(*task, id),
                };
                if known {
                    continue;
                }
                let from = before.owner(*task).filter(|_| kind == CopyKind::Active);
                moves.push(Move {
                    task: *task,
                    kind,
                    from: from.cloned(),
                    to: Some(id.clone()),
                    reason: *reason,
                    cost: restore_cost(state, *task, id),
                });
            }
        }
    }
    before.ends(assignment, &mut moves);
    moves.sort_by(|a, b| (a.task, a.kind, &a.to, &a.from).cmp(&(b.task, b.kind, &b.to, &b.from)));
    moves
}

/// Offsets that a copy of the task on this instance has to read; `None` if nobody knows.
pub(crate) fn restore_cost(
    state: &ApplicationState,
    task: TaskId,
    instance: &InstanceId,
) -> Option<u64> {
    let info = state.tasks.get(&task)?;
    if !info.stateful {
        return Some(0);
    }
    match state.instances.get(instance)?.lags.get(&task) {
        Some(lag) => lag.to_restore(),
        None => info.end_offset.and_then(|end| Lag::of(None, end).to_restore()),
    }
}

/// Who held what.
struct Before<'a> {
    active: BTreeMap<TaskId, BTreeSet<&'a InstanceId>>,
    standby: BTreeMap<TaskId, BTreeSet<&'a InstanceId>>,
}

impl<'a> Before<'a> {
    fn new(state: &'a ApplicationState) -> Self {
        let mut before = Self { active: BTreeMap::new(), standby: BTreeMap::new() };
        for (id, info) in &state.instances {
            for task in info.previous_active.iter().filter(|t| state.tasks.contains_key(t)) {
                before.active.entry(*task).or_default().insert(id);
            }
            for task in info.previous_standby.iter().filter(|t| state.tasks.contains_key(t)) {
                before.standby.entry(*task).or_default().insert(id);
            }
        }
        before
    }

    fn ran(&self, task: TaskId, instance: &InstanceId) -> bool {
        self.active.get(&task).is_some_and(|owners| owners.contains(instance))
    }

    fn followed(&self, task: TaskId, instance: &InstanceId) -> bool {
        !self.ran(task, instance)
            && self.standby.get(&task).is_some_and(|holders| holders.contains(instance))
    }

    /// Who ran the task; of several that claim it, the last.
    fn owner(&self, task: TaskId) -> Option<&'a InstanceId> {
        self.active.get(&task)?.last().copied()
    }

    /// Copies that nothing replaces where they were.
    fn ends(&self, assignment: &Assignment, moves: &mut Vec<Move>) {
        let has = |instance: &InstanceId, task: &TaskId| {
            assignment.instances.get(instance).is_some_and(|holds| holds.has(task))
        };
        let mut handed_on: Vec<(TaskId, InstanceId)> =
            moves.iter().filter_map(|m| Some((m.task, m.from.clone()?))).collect();
        handed_on.sort();
        let mut end = |task: TaskId, kind: CopyKind, from: &InstanceId| {
            moves.push(Move {
                task,
                kind,
                from: Some(from.clone()),
                to: None,
                reason: Reason::Surplus,
                cost: Some(0),
            });
        };
        for (task, owners) in &self.active {
            for owner in owners.iter().filter(|owner| !has(owner, task)) {
                let handed_on = handed_on.binary_search_by(|(t, i)| (t, i).cmp(&(task, owner)));
                if handed_on.is_err() {
                    end(*task, CopyKind::Active, owner);
                }
            }
        }
        for (task, holders) in &self.standby {
            for holder in holders.iter().filter(|holder| !has(holder, task)) {
                if !self.ran(*task, holder) {
                    end(*task, CopyKind::Standby, holder);
                }
            }
        }
    }
}
