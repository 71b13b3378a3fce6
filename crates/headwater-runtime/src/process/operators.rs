//! Times that operators keep: how far they have seen, and what they have emitted.

use std::collections::BTreeMap;

use crate::process::{Cx, NodeIndex, OperatorSlot, StoreSlot};

/// An operator with times of its own.
#[derive(Clone, Debug)]
pub struct OperatorProgram {
    /// Its node.
    pub node: NodeIndex,
    /// Under which key the time up to which it has emitted is committed with the offsets (feature rows
    /// D31, R16); `None` when it emits at once.
    pub metadata_key: Option<String>,
    /// Stores of windows that it writes. When a task begins, the operator has seen the newest time in them.
    pub writes: Vec<StoreSlot>,
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
    /// Of a join that keeps records without partner: at most the time of the earliest one, `i64::MAX` when there
    /// is none; `None` when it has not looked yet.
    pub earliest_unmatched: Option<i64>,
}

impl OperatorTimes {
    /// The times of operators when their task is made; `committed` are the numbers that were committed
    /// with the offsets, `newest` the newest time in a store.
    pub(crate) fn of_program(
        operators: &[OperatorProgram],
        committed: &BTreeMap<String, i64>,
        newest: impl Fn(StoreSlot) -> i64,
    ) -> Vec<Self> {
        let emitted = |operator: &OperatorProgram| {
            operator.metadata_key.as_ref().and_then(|key| committed.get(key)).copied()
        };
        operators
            .iter()
            .map(|operator| Self {
                observed: operator.writes.iter().map(|store| newest(*store)).max().unwrap_or(-1),
                emitted: emitted(operator).unwrap_or(-1),
                next_emit_ms: i64::MIN,
                earliest_unmatched: None,
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
        self.may_emit_every(slot, self.thread.window_emit_interval_ms)
    }

    /// Whether a join may look now for records that have stayed without partner. It then may not again before
    /// the interval has passed (feature row D34).
    pub fn may_emit_unmatched(&mut self, slot: OperatorSlot) -> bool {
        self.may_emit_every(slot, self.thread.outer_join_emit_interval_ms)
    }

    fn may_emit_every(&mut self, slot: OperatorSlot, interval: i64) -> bool {
        let now = self.thread.now.wall_ms;
        let times = self.times(slot);
        let may = now >= times.next_emit_ms;
        if may {
            times.next_emit_ms = now.saturating_add(interval);
        }
        may
    }
}
