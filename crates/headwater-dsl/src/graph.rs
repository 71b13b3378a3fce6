//! The logical graph: the operators as they were called.
//!
//! A node of this graph becomes one or more nodes of the topology when the graph is
//! [written](LogicalGraph::write). The two steps are apart because one operator can stand for several
//! nodes (a repartition is a filter, a sink and a source), because sources of equal topics become one,
//! and because rewriting (feature row D21) has to see whole operators. Rules: Kafka Streams'
//! `InternalStreamsBuilder` and its graph nodes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use headwater_topology::{
    GeneratedNames, NameCounter, SinkTopic, SourceOptions, StoreKind, Topics, validate_name,
};

use crate::error::DslError;
use crate::nodes::AnyView;
use crate::serdes::DefaultSerdes;
use crate::store::{GivenDslStores, StoreDeclaration};
use crate::wiring::{DefaultExtractors, WireInner, WireSource};
use crate::wrapper::AnyWrapper;

mod joins;
mod optimize;
mod sources;
mod stream_joins;
mod write;

pub(crate) use joins::{JoinInput, JoinSide, TableJoin, is_generated};
pub(crate) use optimize::{Mergeable, MergedRepartition};
pub(crate) use sources::StreamSource;
pub(crate) use stream_joins::{StreamJoins, StreamSide};
pub(crate) use write::Draft;

/// The graph that all streams and tables of one builder share.
pub(crate) type SharedGraph = Rc<RefCell<LogicalGraph>>;

/// Position of a node in its logical graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeKey(usize);

/// The operators of one builder.
#[derive(Debug)]
pub(crate) struct LogicalGraph {
    pub(crate) names: NameCounter,
    pub(crate) default_serdes: DefaultSerdes,
    pub(crate) default_extractors: DefaultExtractors,
    pub(crate) wrapper: Option<AnyWrapper>,
    /// Names of stores and topics that the user did not give (feature row T15).
    generated: Vec<GeneratedNames>,
    /// Whether they are refused.
    pub(crate) refuses_generated: bool,
    pub(crate) stores: GivenDslStores,
    nodes: Vec<LogicalNode>,
    next_priority: usize,
    /// Groups of sources whose topics need equal numbers of partitions.
    copartitioned: Vec<Vec<NodeKey>>,
    /// The last repartition that was made for a join of a stream.
    join_repartitions: BTreeMap<NodeKey, NodeKey>,
    problem: Option<DslError>,
}

#[derive(Clone, Debug)]
struct LogicalNode {
    name: String,
    /// Whether the user may still name it.
    nameable: bool,
    /// Nodes are written in this order, as far as parents allow.
    priority: usize,
    parents: Vec<NodeKey>,
    children: Vec<NodeKey>,
    kind: LogicalKind,
    /// Whether a node below needs the value before each update (feature row D46).
    old_values: bool,
    /// Another node whose records are partitioned in the same way, beside those above.
    partitioned_as: Option<NodeKey>,
    /// Nodes above whose topics are none of this one's, see [`JoinInput`].
    forgotten: Vec<NodeKey>,
    effect: Effect,
}

/// What an operator does to the records, as far as optimizations care (feature row D21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It leaves keys and values alone, or is no operator of a stream.
    None,
    ChangesKeys,
    ChangesValues,
    /// It merges streams.
    Merges,
}

/// What an operator is.
#[derive(Clone, Debug)]
pub(crate) enum LogicalKind {
    /// Above all sources; there is one.
    Root,
    /// Reads topics as a stream.
    Source(StreamSource),
    /// Reads a topic as a table.
    TableSource(TableSource),
    /// Takes the records of a stream as updates of a table.
    StreamToTable(StreamToTable),
    /// Any node between sources and sinks.
    Processor(Processor),
    /// Joins two tables.
    TableJoin(TableJoin),
    /// Joins two streams.
    StreamJoins(StreamJoins),
    /// Writes to topics.
    Sink { topic: SinkTopic, wire: Wire<WireInner> },
    /// Writes to an internal topic and reads it again.
    Repartition(Repartition),
    /// A store that processors name.
    Store(Arc<StoreDeclaration>),
    /// Reads a topic into a store that every instance holds whole.
    GlobalStore(GlobalSource),
}

/// The making of a run-time node, with nothing to show for debugging.
#[derive(Clone)]
pub(crate) struct Wire<F>(pub(crate) F);

impl<F> std::fmt::Debug for Wire<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

/// The parts of a table's source.
#[derive(Clone, Debug)]
pub(crate) struct TableSource {
    pub(crate) topic: String,
    pub(crate) options: SourceOptions,
    pub(crate) source_name: String,
    pub(crate) source: Wire<WireSource>,
    pub(crate) table: Wire<WireInner>,
    pub(crate) store: Arc<StoreDeclaration>,
    /// Whether the store exists: it is queryable, or a node below reads it (feature row D45).
    pub(crate) materialized: bool,
    /// Whether the topic is the store's changelog (feature row T14).
    pub(crate) reuses_topic: bool,
}

/// The parts of a global store: the source of its topic, and the processor that writes it. The node
/// itself is the latter.
#[derive(Clone, Debug)]
pub(crate) struct GlobalSource {
    pub(crate) topic: String,
    pub(crate) options: SourceOptions,
    pub(crate) source_name: String,
    pub(crate) source: Wire<WireSource>,
    pub(crate) processor: Wire<WireInner>,
    pub(crate) store: Arc<StoreDeclaration>,
}

/// The parts of a node that makes a table of a stream.
#[derive(Clone, Debug)]
pub(crate) struct StreamToTable {
    pub(crate) wire: Wire<WireInner>,
    pub(crate) store: Arc<StoreDeclaration>,
    /// Whether the store exists: it is queryable, or a node below reads it.
    pub(crate) materialized: bool,
    /// The repartition before it, which is called after the node when that is given a name.
    pub(crate) repartition: Option<NodeKey>,
}

/// The parts of a node between sources and sinks.
#[derive(Clone, Debug)]
pub(crate) struct Processor {
    pub(crate) wire: Wire<WireInner>,
    /// Stores that the operator brings along.
    pub(crate) stores: Vec<Arc<StoreDeclaration>>,
    /// Names of stores that were added elsewhere.
    pub(crate) connected: Vec<String>,
    /// Whether it takes records without key, so that repartitions above it must not drop them.
    pub(crate) takes_null_keys: bool,
    /// How much history connected stores need.
    pub(crate) needed_history_ms: Option<i64>,
    /// How long after the end of a window its aggregation takes records.
    pub(crate) grace_period_ms: Option<i64>,
    /// Whether old values are its parent's to send, because it has no store of its own.
    pub(crate) old_values_from_parent: bool,
    /// Whether a table is versioned if its parent is: nothing was said of how to keep it, not even without a
    /// name (feature row D52).
    pub(crate) is_versioned_as_parent: bool,
    /// How values of the table are computed that it makes and does not keep.
    pub(crate) view: Option<AnyView>,
    /// What else is called after the node when that is given a name.
    pub(crate) on_rename: OnRename,
}

/// What else is called after a node that is given a name.
#[derive(Clone, Debug)]
pub(crate) enum OnRename {
    Nothing,
    /// Sink and source of the repartition of a grouped table.
    TableRepartition(NodeKey),
    /// The aggregations above the node of a cogroup.
    Cogroup(Vec<NodeKey>),
}

impl Processor {
    /// A node without stores.
    pub(crate) fn new(wire: WireInner) -> Self {
        Self {
            wire: Wire(wire),
            stores: Vec::new(),
            connected: Vec::new(),
            takes_null_keys: false,
            needed_history_ms: None,
            grace_period_ms: None,
            old_values_from_parent: false,
            is_versioned_as_parent: false,
            view: None,
            on_rename: OnRename::Nothing,
        }
    }

    /// A node with these stores.
    pub(crate) fn with_stores(self, stores: Vec<Arc<StoreDeclaration>>) -> Self {
        Self { stores, ..self }
    }
}

/// The parts of a repartition (feature rows D14 to D17).
#[derive(Clone, Debug)]
pub(crate) struct Repartition {
    /// The topic, without application id.
    pub(crate) topic: String,
    pub(crate) partitions: Option<u32>,
    pub(crate) sink_name: String,
    pub(crate) source_name: String,
    /// The node before the sink. The updates of a table need none.
    pub(crate) filter: Option<RepartitionFilter>,
    pub(crate) sink: Wire<WireInner>,
    pub(crate) source: Wire<WireSource>,
    /// Set where several such repartitions can become one (feature row D21).
    pub(crate) serdes: Option<Arc<dyn Mergeable>>,
}

/// The node before the sink of a repartition.
#[derive(Clone, Debug)]
pub(crate) struct RepartitionFilter {
    pub(crate) name: String,
    /// Drops records without key, which belong to no partition.
    pub(crate) dropping: Wire<WireInner>,
    /// Drops nothing: a join below takes such records (KIP-962).
    pub(crate) passing: Wire<WireInner>,
}

impl Repartition {
    /// The topic of a repartition with this prefix.
    pub(crate) fn topic(prefix: &str) -> String {
        const SUFFIX: &str = "-repartition";
        if prefix.ends_with(SUFFIX) { prefix.to_owned() } else { format!("{prefix}{SUFFIX}") }
    }

    /// Calls topic and nodes after a prefix that the user gave (feature row D15).
    pub(crate) fn call_after(&mut self, prefix: &str) {
        self.topic = Self::topic(prefix);
        self.sink_name = format!("{}-sink", self.topic);
        self.source_name = format!("{}-source", self.topic);
        if let Some(filter) = &mut self.filter {
            filter.name = format!("{}-filter", self.topic);
        }
    }
}

impl LogicalGraph {
    pub(crate) const ROOT: NodeKey = NodeKey(0);

    /// A graph without operators.
    pub(crate) fn shared() -> SharedGraph {
        let root = LogicalNode {
            name: "root".to_owned(),
            nameable: false,
            priority: 0,
            parents: Vec::new(),
            children: Vec::new(),
            kind: LogicalKind::Root,
            old_values: false,
            effect: Effect::None,
            partitioned_as: None,
            forgotten: Vec::new(),
        };
        Rc::new(RefCell::new(Self {
            names: NameCounter::new(),
            default_serdes: DefaultSerdes::built_in(),
            default_extractors: DefaultExtractors::new(),
            wrapper: None,
            generated: Vec::new(),
            refuses_generated: false,
            stores: GivenDslStores::default(),
            nodes: vec![root],
            next_priority: 1,
            copartitioned: Vec::new(),
            join_repartitions: BTreeMap::new(),
            problem: None,
        }))
    }

    /// Adds an operator below these nodes.
    pub(crate) fn add(&mut self, parents: &[NodeKey], name: String, kind: LogicalKind) -> NodeKey {
        let key = NodeKey(self.nodes.len());
        let nameable = matches!(
            kind,
            LogicalKind::Processor(_)
                | LogicalKind::StreamToTable(_)
                | LogicalKind::TableJoin(_)
                | LogicalKind::Sink { .. }
        );
        let priority = self.next_priority;
        self.next_priority += 1;
        self.nodes.push(LogicalNode {
            name,
            nameable,
            priority,
            parents: Vec::new(),
            children: Vec::new(),
            kind,
            old_values: false,
            effect: Effect::None,
            partitioned_as: None,
            forgotten: Vec::new(),
        });
        for &parent in parents {
            self.link(parent, key);
        }
        key
    }

    /// Says what an operator does to the records.
    pub(crate) fn mark(&mut self, node: NodeKey, effect: Effect) {
        self.nodes[node.0].effect = effect;
    }

    /// Adds an operator that was added before below one more node, or below the same again, which
    /// only makes it later.
    pub(crate) fn add_again(&mut self, parent: NodeKey, child: NodeKey) {
        self.link(parent, child);
        self.nodes[child.0].priority = self.next_priority;
        self.next_priority += 1;
    }

    fn link(&mut self, parent: NodeKey, child: NodeKey) {
        let children = &mut self.nodes[parent.0].children;
        if !children.contains(&child) {
            children.push(child);
        }
        let parents = &mut self.nodes[child.0].parents;
        if !parents.contains(&parent) {
            parents.push(parent);
        }
    }

    /// The name for a node: the given one if it is valid, else the next generated one. A number is
    /// taken either way (feature row D12).
    pub(crate) fn name_or_next(&mut self, given: Option<&str>, prefix: &str) -> String {
        let generated = self.names.processor_name(prefix);
        self.valid_name(given).unwrap_or(generated)
    }

    /// The given name, if there is one and it is valid. Another is noted as a mistake.
    pub(crate) fn valid_name(&mut self, given: Option<&str>) -> Option<String> {
        let name = given?;
        match validate_name(name) {
            Ok(()) => Some(name.to_owned()),
            Err(error) => {
                self.note(error.into());
                None
            }
        }
    }

    /// The name of a node.
    pub(crate) fn name(&self, node: NodeKey) -> &str {
        &self.nodes[node.0].name
    }

    /// Gives a node another name.
    pub(crate) fn rename(&mut self, node: NodeKey, name: &str) {
        if !self.nodes[node.0].nameable {
            let problem =
                DslError::NotNameable { node: self.name(node).to_owned(), name: name.to_owned() };
            self.note(problem);
        } else if let Some(name) = self.valid_name(Some(name)) {
            let name = self.rename_along(node, name);
            self.nodes[node.0].name = name;
        }
    }

    /// Renames what is called after a node, and says what the node itself is to be called.
    fn rename_along(&mut self, node: NodeKey, name: String) -> String {
        let on_rename = match &mut self.nodes[node.0].kind {
            LogicalKind::TableJoin(join) => {
                join.left.name = format!("{name}-join-this");
                join.right.name = format!("{name}-join-other");
                OnRename::Nothing
            }
            LogicalKind::Processor(processor) => processor.on_rename.clone(),
            LogicalKind::StreamToTable(StreamToTable { repartition: Some(key), .. }) => {
                let key = *key;
                self.edit_repartition(key, |it| it.call_after(&name));
                OnRename::Nothing
            }
            _ => OnRename::Nothing,
        };
        match on_rename {
            OnRename::Nothing => name,
            OnRename::TableRepartition(key) => {
                self.edit_repartition(key, |it| {
                    it.sink_name = format!("{name}-sink");
                    it.source_name = format!("{name}-source");
                });
                name
            }
            OnRename::Cogroup(aggregates) => {
                for (number, key) in aggregates.into_iter().enumerate() {
                    self.nodes[key.0].name = format!("{name}-cogroup-agg-{number}");
                }
                format!("{name}-cogroup-merge")
            }
        }
    }

    fn edit_repartition(&mut self, node: NodeKey, edit: impl FnOnce(&mut Repartition)) {
        if let LogicalKind::Repartition(repartition) = &mut self.nodes[node.0].kind {
            edit(repartition);
        }
    }

    /// Says that the topics that these nodes get their records from need equal numbers of partitions
    /// (feature row T9).
    pub(crate) fn copartition(&mut self, nodes: &[NodeKey]) {
        let mut sources = Vec::new();
        for &node in nodes {
            self.collect_sources(node, &mut sources);
        }
        self.copartitioned.push(sources);
    }

    /// The nearest sources above a node, or the node itself.
    fn collect_sources(&self, node: NodeKey, sources: &mut Vec<NodeKey>) {
        let is_source = matches!(
            self.nodes[node.0].kind,
            LogicalKind::Source(_) | LogicalKind::TableSource(_) | LogicalKind::Repartition(_)
        );
        if self.nodes[node.0].is_suppression() || self.nodes[node.0].is_cogroup() {
            // The original forgets the sources of such a table, and so checks nothing of them.
        } else if !is_source {
            let LogicalNode { parents, partitioned_as, forgotten, .. } = &self.nodes[node.0];
            let known = parents.iter().filter(|parent| !forgotten.contains(parent));
            for &above in known.chain(partitioned_as) {
                self.collect_sources(above, sources);
            }
        } else if !sources.contains(&node) {
            sources.push(node);
        }
    }

    /// Makes the run-time node of a node in another way, as an operator that grows does.
    pub(crate) fn set_wire(&mut self, node: NodeKey, wire: WireInner) {
        if let LogicalKind::Processor(processor) = &mut self.nodes[node.0].kind {
            processor.wire = Wire(wire);
        }
    }

    /// Notes the names of one operator's resources that the user did not give.
    pub(crate) fn note_generated(&mut self, names: GeneratedNames) {
        if names != GeneratedNames::default() {
            self.generated.push(names);
        }
    }

    /// Keeps a mistake for later, unless there was one before.
    pub(crate) fn note(&mut self, problem: DslError) {
        self.problem.get_or_insert(problem);
    }

    /// The first mistake.
    pub(crate) const fn problem(&self) -> Option<&DslError> {
        self.problem.as_ref()
    }

    /// Makes a table send old values with its updates (feature row D46): out of its own store where
    /// it has one, else computed from the old values of the table above it. Answers whether it does.
    ///
    /// A source without store gets one if `force` is set, and else sends none.
    pub(crate) fn send_old_values(&mut self, table: NodeKey, force: bool) -> bool {
        let node = &mut self.nodes[table.0];
        let sends = match &mut node.kind {
            LogicalKind::TableSource(source) => {
                source.materialized |= force;
                source.materialized
            }
            LogicalKind::StreamToTable(table) => {
                table.materialized |= force;
                table.materialized
            }
            LogicalKind::Processor(processor) if processor.old_values_from_parent => {
                let mut sends = false;
                for parent in node.parents.clone() {
                    sends |= self.send_old_values(parent, force);
                }
                sends
            }
            // Kept or not, its old values are joined of those of its tables.
            LogicalKind::TableJoin(_) => {
                for parent in node.parents.clone() {
                    self.send_old_values(parent, true);
                }
                true
            }
            _ => true,
        };
        self.nodes[table.0].old_values |= sends;
        sends
    }

    /// Makes a table that was just made swallow updates that change nothing, if the table above it
    /// can tell them: filters do so. No store is made for it.
    pub(crate) fn use_old_values_of_parent(&mut self, table: NodeKey) {
        let parent = self.nodes[table.0].parents.first().copied();
        let sends = parent.is_some_and(|parent| self.send_old_values(parent, false));
        self.nodes[table.0].old_values |= sends;
    }

    /// Whether a table is versioned: it is kept in a versioned store, or it is made of a versioned table and
    /// nothing was said of how to keep it (feature row D52). One that names serdes only is not kept, but the
    /// original takes it for a table of its own.
    pub(crate) fn is_versioned(&self, table: NodeKey) -> bool {
        let node = &self.nodes[table.0];
        let is_versioned =
            |store: &Arc<StoreDeclaration>| matches!(store.spec.kind, StoreKind::Versioned { .. });
        match &node.kind {
            LogicalKind::TableSource(source) => is_versioned(&source.store),
            LogicalKind::StreamToTable(table) => is_versioned(&table.store),
            LogicalKind::Processor(processor) if processor.old_values_from_parent => {
                let parent = node.parents.first().filter(|_| processor.is_versioned_as_parent);
                parent.is_some_and(|&parent| self.is_versioned(parent))
            }
            LogicalKind::Processor(processor) => processor.stores.first().is_some_and(is_versioned),
            LogicalKind::TableJoin(join) => join.store.as_ref().is_some_and(is_versioned),
            _ => false,
        }
    }

    fn topics(&self, key: NodeKey) -> Option<&Topics> {
        match &self.nodes[key.0].kind {
            LogicalKind::Source(source) => Some(&source.topics),
            _ => None,
        }
    }
}
