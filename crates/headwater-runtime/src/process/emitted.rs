//! Results that an operator has held back and lets go.

use super::{Cx, NodeIndex};

/// Why an operator has held results back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EmitKind {
    /// It is a suppression.
    Suppression,
    /// It waits for windows to close.
    FinalWindow,
}

impl Cx<'_> {
    /// A node lets a result go that it has held back: counted for the metrics.
    pub fn count_emitted(&mut self, node: NodeIndex, kind: EmitKind) {
        *self.task.counts.emitted.entry((node, kind)).or_default() += 1;
    }
}
