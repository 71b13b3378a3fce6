//! Times that operators keep: how far they have seen, and what they have emitted.

use std::collections::BTreeMap;

use crate::process::{Cx, NodeIndex, OperatorSlot};

/// An operator with times of its own.
#[derive(Clone, Debug)]
pub struct OperatorProgram {
    /// Its node.
    pub node: NodeIndex,
    /// Under which key the time up to which it has emitted is committed with the offsets (feature rows
    /// D31, R16); `None` when it emits at once.
    pub metadata_key: Option<String>,
}

/// The times of an operator in a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorTimes {
    /// The highest timestamp it has seen; −1 before the first record (feature row D27).
    pub observed: i64,
    /// The time up to which it has emitted closed windows; −1 before the first time.
    pub emitted: i64,
    /// Wall-clock time before which it does not emit again.
    pub next_emit_ms: i64,
}

impl OperatorTimes {
    /// The times of operators when their task is made; `committed` are the numbers that were committed
    /// with the offsets.
    pub(crate) fn of_program(
        operators: &[OperatorProgram],
        committed: &BTreeMap<String, i64>,
    ) -> Vec<Self> {
        let emitted = |operator: &OperatorProgram| {
            operator.metadata_key.as_ref().and_then(|key| committed.get(key)).copied()
        };
        operators
            .iter()
            .map(|operator| Self {
                observed: -1,
                emitted: emitted(operator).unwrap_or(-1),
                next_emit_ms: i64::MIN,
            })
            .collect()
    }
}

/// # Times of operators
impl Cx<'_> {
    /// The times of an operator.
    #[inline]
    pub fn times(&mut self, slot: OperatorSlot) -> &mut OperatorTimes {
        &mut self.task.operators[slot.index()]
    }

    /// Whether an operator that waits for windows to close may emit now. It then may not again before
    /// the interval has passed (feature row D31).
    pub fn may_emit(&mut self, slot: OperatorSlot) -> bool {
        let now = self.thread.now.wall_ms;
        let interval = self.thread.window_emit_interval_ms;
        let times = self.times(slot);
        let may = now >= times.next_emit_ms;
        if may {
            times.next_emit_ms = now.saturating_add(interval);
        }
        may
    }
}
