//! Tables that others look keys up in, and the operators that do so.

use std::sync::Arc;

use headwater_topology::StoreKind;

use super::{LogicalGraph, LogicalKind, LogicalNode, NodeKey, OnRename, Processor, Wire};
use crate::error::DslError;
use crate::nodes::AnyView;
use crate::store::StoreDeclaration;
use crate::wiring::{TableAccess, WireInner, is_windowed};

/// The parts of a join of two tables (feature row D40). The node itself is the one below both sides.
#[derive(Clone, Debug)]
pub(crate) struct TableJoin {
    pub(crate) left: JoinSide,
    pub(crate) right: JoinSide,
    pub(crate) merge: Wire<WireInner>,
    /// The store of the result, if it has one.
    pub(crate) store: Option<Arc<StoreDeclaration>>,
    /// How the result is computed where it has none.
    pub(crate) view: AnyView,
}

/// One side of a join.
#[derive(Clone, Debug)]
pub(crate) struct JoinSide {
    pub(crate) name: String,
    /// Where its records come from.
    pub(crate) parent: NodeKey,
    pub(crate) wire: Wire<WireInner>,
    /// The stores of the other side.
    pub(crate) reads: Vec<String>,
}

/// What a join gets the records of a stream from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinInput {
    pub(crate) node: NodeKey,
    /// Whether the topics above are not asked for equal numbers of partitions. In the original a join that takes the
    /// repartition of an earlier one knows it under a name of its own, which nothing has.
    pub(crate) is_forgotten: bool,
}

impl JoinInput {
    /// The node, with the topics above it.
    pub(crate) const fn of(node: NodeKey) -> Self {
        Self { node, is_forgotten: false }
    }
}

impl LogicalNode {
    /// Whether the node holds updates back.
    pub(super) fn is_suppression(&self) -> bool {
        !self.suppress_buffer().is_empty()
    }

    /// Whether the node hands on what the aggregations of a cogroup make.
    pub(super) const fn is_cogroup(&self) -> bool {
        matches!(
            &self.kind,
            LogicalKind::Processor(Processor { on_rename: OnRename::Cogroup(_), .. })
        )
    }

    /// The name of the buffer, if the node is a suppression.
    fn suppress_buffer(&self) -> Vec<String> {
        let LogicalKind::Processor(processor) = &self.kind else { return Vec::new() };
        let stores = processor.stores.iter().map(|store| &store.spec);
        let buffers = stores.filter(|spec| spec.kind == StoreKind::SuppressBuffer);
        buffers.map(|spec| spec.name.clone()).collect()
    }
}

impl LogicalGraph {
    /// How long after the end of their window the records of a table can change: the longest grace period of
    /// the nearest windowed aggregations above it.
    pub(crate) fn grace_period(&self, table: NodeKey) -> Result<i64, DslError> {
        self.grace_period_above(table, "")
    }

    fn grace_period_above(&self, node: NodeKey, chain: &str) -> Result<i64, DslError> {
        let node = &self.nodes[node.0];
        if let LogicalKind::Processor(Processor { grace_period_ms: Some(grace_ms), .. }) = node.kind
        {
            return Ok(grace_ms);
        }
        let chain = match chain {
            "" => node.name.clone(),
            chain => format!("{}->{chain}", node.name),
        };
        let mut longest = None;
        for &parent in &node.parents {
            longest = longest.max(Some(self.grace_period_above(parent, &chain)?));
        }
        longest.ok_or(DslError::NoWindowsToClose { chain })
    }

    /// Says how values of a table are computed that is not kept.
    pub(crate) fn set_view(&mut self, table: NodeKey, view: AnyView) {
        if let LogicalKind::Processor(processor) = &mut self.nodes[table.0].kind {
            processor.view = Some(view);
        }
    }

    /// Makes it possible to look keys of a table up: sources without store that it is made of get one.
    /// Answers the stores that whoever looks them up has to be connected with.
    pub(crate) fn make_readable(&mut self, table: NodeKey) -> Vec<String> {
        let node = &mut self.nodes[table.0];
        let store = match &mut node.kind {
            LogicalKind::TableSource(source) => {
                source.materialized = true;
                Some(&source.store)
            }
            LogicalKind::StreamToTable(table) => {
                table.materialized = true;
                Some(&table.store)
            }
            LogicalKind::Processor(processor) if processor.old_values_from_parent => None,
            LogicalKind::Processor(processor) => processor.stores.first(),
            LogicalKind::TableJoin(join) => join.store.as_ref(),
            _ => None,
        };
        if let Some(store) = store {
            return vec![store.spec.name.clone()];
        }
        let mut stores = node.suppress_buffer();
        for parent in node.parents.clone() {
            for store in self.make_readable(parent) {
                if !stores.contains(&store) {
                    stores.push(store);
                }
            }
        }
        stores
    }

    /// The repartition that joins of a stream share, if one was made.
    pub(crate) fn join_repartition(&self, stream: NodeKey) -> Option<NodeKey> {
        self.join_repartitions.get(&stream).copied()
    }

    /// Keeps the repartition that was made for a join of a stream.
    pub(crate) fn set_join_repartition(&mut self, stream: NodeKey, repartition: NodeKey) {
        self.join_repartitions.insert(stream, repartition);
    }

    /// Says that the topics of these inputs need equal numbers of partitions, as [`copartition`](Self::copartition).
    pub(crate) fn copartition_inputs(&mut self, inputs: &[JoinInput]) {
        let known = inputs.iter().filter(|input| !input.is_forgotten).map(|input| input.node);
        self.copartition(&known.collect::<Vec<_>>());
    }

    /// Notes which inputs of a join its result does not come from.
    pub(crate) fn forget_inputs(&mut self, join: NodeKey, inputs: &[JoinInput]) {
        let is_known = |node| inputs.iter().any(|input| input.node == node && !input.is_forgotten);
        let nodes = inputs.iter().map(|input| input.node);
        self.nodes[join.0].forgotten = nodes.filter(|&node| !is_known(node)).collect();
    }

    /// Whether somewhere below a node records without key are taken.
    pub(super) fn null_keys_are_taken_below(&self, node: NodeKey) -> bool {
        self.nodes[node.0].children.iter().any(|&child| {
            let takes_them = match &self.nodes[child.0].kind {
                LogicalKind::Processor(processor) => processor.takes_null_keys,
                LogicalKind::StreamJoins(join) => join.takes_null_keys(),
                _ => false,
            };
            takes_them || self.null_keys_are_taken_below(child)
        })
    }

    /// Says that the records of a node are partitioned as those of another one are, too.
    pub(crate) fn partitioned_as(&mut self, node: NodeKey, other: NodeKey) {
        self.nodes[node.0].partitioned_as = Some(other);
    }

    /// How keys of a table are looked up; `None` if the node is no table.
    pub(super) fn access(&self, table: NodeKey) -> Option<TableAccess> {
        let node = &self.nodes[table.0];
        let (store, view) = match &node.kind {
            LogicalKind::TableSource(source) => (Some(&source.store), None),
            LogicalKind::GlobalStore(source) => (Some(&source.store), None),
            LogicalKind::StreamToTable(table) => (Some(&table.store), None),
            LogicalKind::Processor(processor) if processor.old_values_from_parent => {
                match &processor.view {
                    Some(view) => (None, Some(view)),
                    // It hands on the table above.
                    None => return node.parents.first().and_then(|&it| self.access(it)),
                }
            }
            LogicalKind::Processor(processor) => {
                (processor.stores.first(), processor.view.as_ref())
            }
            LogicalKind::TableJoin(join) => (join.store.as_ref(), Some(&join.view)),
            _ => return None,
        };
        match (store, view) {
            // Keys with windows lie in the store in another way.
            (Some(store), Some(view)) if is_windowed(&store.spec.kind) => {
                Some(TableAccess::Computed(view.clone()))
            }
            (Some(store), _) => Some(TableAccess::Store(Arc::clone(store))),
            (None, Some(view)) => Some(TableAccess::Computed(view.clone())),
            (None, None) => None,
        }
    }
}

/// Whether a stream's node has a generated name, after which only the topic of a repartition is called.
pub(crate) fn is_generated(name: &str) -> bool {
    let number = name.rsplit_once('-').filter(|_| name.starts_with("KSTREAM"));
    number.is_some_and(|(_, number)| {
        number.len() == 10 && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}
