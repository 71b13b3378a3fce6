//! Joins of two streams in the logical graph.

use std::sync::Arc;

use super::{Draft, LogicalGraph, LogicalKind, NodeKey, Wire};
use crate::error::DslError;
use crate::store::StoreDeclaration;
use crate::wiring::{Behaviour, WireInner};

/// The parts of a join of two streams (feature row D32), below the nodes that keep their records. The node itself
/// is the one below both sides.
#[derive(Clone, Debug)]
pub(crate) struct StreamJoins {
    pub(crate) left: StreamSide,
    pub(crate) right: StreamSide,
    pub(crate) merge: Wire<WireInner>,
    /// Where records wait for partners, in a left or outer join.
    pub(crate) unmatched: Option<Arc<StoreDeclaration>>,
    /// The node in place of both sides and the merge where both streams are one (feature row D36).
    pub(crate) itself: Wire<WireInner>,
    pub(crate) is_self_join: bool,
}

/// One side of a join of streams.
#[derive(Clone, Debug)]
pub(crate) struct StreamSide {
    /// The node that keeps the records and hands them to the join.
    pub(crate) kept: NodeKey,
    /// The store that it keeps them in.
    pub(crate) store: Arc<StoreDeclaration>,
    /// The node that joins them.
    pub(crate) name: String,
    pub(crate) wire: Wire<WireInner>,
}

impl StreamJoins {
    /// Whether records without key take part.
    pub(super) const fn takes_null_keys(&self) -> bool {
        self.unmatched.is_some()
    }

    pub(super) fn write(
        &self,
        graph: &LogicalGraph,
        name: &str,
        draft: &mut Draft,
    ) -> Result<(), DslError> {
        let Self { left, right, merge, unmatched, itself, is_self_join } = self;
        if *is_self_join {
            draft.builder.add_processor(name, [graph.name(left.kept)])?;
            draft.behave(name, Behaviour::Inner(Arc::clone(&itself.0)));
            return draft.declare(&left.store, [name]);
        }
        for (side, other) in [(left, right), (right, left)] {
            draft.builder.add_processor(&side.name, [graph.name(side.kept)])?;
            draft.behave(&side.name, Behaviour::Inner(Arc::clone(&side.wire.0)));
            for store in [Some(&other.store), unmatched.as_ref()].into_iter().flatten() {
                draft.declare(store, [&side.name])?;
            }
        }
        draft.builder.add_processor(name, [&left.name, &right.name])?;
        draft.behave(name, Behaviour::Inner(Arc::clone(&merge.0)));
        Ok(())
    }
}

impl LogicalGraph {
    /// Has joins of a stream with itself do with one store.
    pub(super) fn use_one_store_for_self_joins(&mut self) {
        for key in (0..self.nodes.len()).map(NodeKey) {
            let node = &mut self.nodes[key.0];
            let [parent] = *node.parents.as_slice() else { continue };
            let LogicalKind::StreamJoins(join) = &mut node.kind else { continue };
            join.is_self_join = true;
            let not_kept = join.right.kept;
            self.unlink(parent, not_kept);
        }
    }
}
