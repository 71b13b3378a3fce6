//! From the topology to the programs that tasks run.
//!
//! Every node of the topology has a behaviour: a function that makes its run-time node over those
//! below it. Children are made first, so an edge is a shared pointer and nothing is looked up while
//! records flow.

use std::any::{Any, TypeId, type_name};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use headwater_runtime::{
    FlushListener, NodeIndex, OffsetReset, OperatorProgram, OperatorSlot, ProcessorProgram,
    ProcessorSlot, ProcessorSupplier, Program, SinkProgram, SinkSlot, SourceNode, SourceProgram,
    StoreBackendChoice, StoreProgram, StoreSlot,
};
use headwater_store::{Layout, SegmentedOptions};
use headwater_topology::{
    Changelog, Node as GraphNode, NodeId, NodeKind, StoreKind, StoreSpec, Subtopology,
    Topology as Graph,
};

use crate::edge::{Below, Edge, NamedBelow, TablesBelow};
use crate::error::{DslError, Part};
use crate::graph::NodeKey;
use crate::nodes::{AnyView, SharedView, StoreView};
use crate::params::Extractor;
use crate::serdes::{Codec, DefaultSerdes};
use crate::store::{StoreDeclaration, StoreKindOf, StoreSerdes};
use crate::wrapper::AnyWrapper;

/// Makes a source.
pub(crate) type WireSource =
    Arc<dyn Fn(&mut Wiring<'_>) -> Result<Arc<dyn SourceNode>, DslError> + Send + Sync>;

/// Makes any other node.
pub(crate) type WireInner = Arc<dyn Fn(&mut Wiring<'_>) -> Result<Edge, DslError> + Send + Sync>;

/// How the run-time node of a node of the topology is made.
#[derive(Clone)]
pub(crate) enum Behaviour {
    Source(WireSource),
    Inner(WireInner),
}

impl fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source(_) => "Source",
            Self::Inner(_) => "Inner",
        })
    }
}

/// Everything that a topology does, beside its structure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Behaviours {
    /// By the name of the node.
    pub(crate) nodes: BTreeMap<String, Behaviour>,
    /// By the name of the store.
    pub(crate) stores: BTreeMap<String, Arc<StoreDeclaration>>,
    /// Names of the nodes that send old values with their updates.
    pub(crate) old_values: BTreeSet<String>,
    /// Names of the nodes below versioned tables.
    pub(crate) versioned_inputs: BTreeSet<String>,
    /// How keys of tables are looked up.
    pub(crate) tables: BTreeMap<NodeKey, TableAccess>,
    pub(crate) default_serdes: DefaultSerdes,
    pub(crate) default_extractors: DefaultExtractors,
    /// What is done around each processor.
    pub(crate) wrapper: Option<AnyWrapper>,
}

/// Timestamp extractors of users, by the types of key and value that they are the default for.
pub(crate) type DefaultExtractors = BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>;

impl Behaviours {
    /// The program of each sub-topology that has tasks, by its number.
    pub(crate) fn programs(&self, graph: &Graph) -> Result<BTreeMap<u32, Arc<Program>>, DslError> {
        with_tasks(graph)
            .map(|subtopology| {
                let Subtopology { id, nodes, stores, .. } = subtopology;
                Ok((id.0, Arc::new(self.task_program(graph, nodes, stores)?)))
            })
            .collect()
    }

    /// One program of all sub-topologies that have tasks.
    pub(crate) fn program_of_all(&self, graph: &Graph) -> Result<Program, DslError> {
        let mut nodes: Vec<NodeId> = with_tasks(graph).flat_map(|it| it.nodes.clone()).collect();
        nodes.sort_unstable();
        let stores: Vec<String> = with_tasks(graph).flat_map(|it| it.stores.clone()).collect();
        self.task_program(graph, &nodes, &stores)
    }

    /// The one program of all sub-topologies that feed global stores; `None` if there are none.
    pub(crate) fn global_program(&self, graph: &Graph) -> Result<Option<Program>, DslError> {
        if graph.global_stores().is_empty() {
            return Ok(None);
        }
        let parts = graph.subtopologies().iter().filter(|subtopology| subtopology.is_global);
        let mut nodes: Vec<NodeId> = parts.flat_map(|it| it.nodes.clone()).collect();
        nodes.sort_unstable();
        let stores = self.global_stores(graph);
        self.program(graph, &nodes, Program { stores, ..Program::default() }).map(Some)
    }

    fn global_stores(&self, graph: &Graph) -> Vec<StoreProgram> {
        let stores = graph.global_stores().iter();
        stores.map(|store| self.store_program(&store.spec, None)).collect()
    }

    /// A program of tasks. All of them can read the global stores.
    fn task_program(
        &self,
        graph: &Graph,
        nodes: &[NodeId],
        stores: &[String],
    ) -> Result<Program, DslError> {
        let stores = stores.iter().filter_map(|name| graph.store(name));
        let stores = stores.map(|it| self.store_program(&it.spec, it.changelog.as_ref())).collect();
        let global_stores = self.global_stores(graph);
        self.program(graph, nodes, Program { stores, global_stores, ..Program::default() })
    }

    /// Fills a program that has its stores with its nodes.
    fn program(
        &self,
        graph: &Graph,
        nodes: &[NodeId],
        mut program: Program,
    ) -> Result<Program, DslError> {
        program.nodes = nodes.iter().map(|&id| graph.node(id).name.as_str().into()).collect();
        let mut wired: BTreeMap<NodeId, WiredNode> = BTreeMap::new();
        // Nodes are numbered parents first, so backwards every child comes before its parents.
        for (index, &id) in nodes.iter().enumerate().rev() {
            let node = graph.node(id);
            let Some(behaviour) = self.nodes.get(&node.name) else { continue };
            let below: Vec<(&str, &WiredNode)> = node
                .children
                .iter()
                .filter_map(|child| {
                    wired.get(child).map(|below| (graph.node(*child).name.as_str(), below))
                })
                .collect();
            let index = u32::try_from(index).expect("a topology has less than 2^32 nodes");
            let mut wiring = Wiring {
                behaviours: self,
                program: &mut program,
                node,
                index: NodeIndex(index),
                below,
                changes_headers: false,
                is_global: is_global(graph, node),
            };
            match behaviour {
                Behaviour::Source(wire) => {
                    let source = wire(&mut wiring)?;
                    program.sources.push(source_program(node, NodeIndex(index), source));
                }
                Behaviour::Inner(wire) => {
                    let edge = wire(&mut wiring)?;
                    let changes_headers = wiring.changes_headers;
                    wired.insert(id, WiredNode { edge: self.wrap(node, edge), changes_headers });
                }
            }
        }
        // In the order in which they were added, as everything else.
        program.sources.reverse();
        Ok(program)
    }

    /// The processor of a node, in its wrapper if there is one.
    fn wrap(&self, node: &GraphNode, edge: Edge) -> Edge {
        match (&self.wrapper, &node.kind) {
            (Some(wrapper), NodeKind::Processor { .. }) => edge.wrapped(wrapper.around(&node.name)),
            _ => edge,
        }
    }

    fn store_program(&self, spec: &StoreSpec, changelog: Option<&Changelog>) -> StoreProgram {
        let backend = if spec.persistent {
            StoreBackendChoice::Persistent
        } else {
            StoreBackendChoice::InMemory
        };
        let name = spec.name.as_str();
        let declaration = self.stores.get(name);
        StoreProgram {
            spec: spec.clone(),
            backend,
            changelog: changelog.map(|changelog| changelog.topic.as_str().into()),
            source_is_changelog: changelog.is_some_and(|changelog| changelog.is_source_topic),
            flush: None,
            by_time: declaration.is_some_and(|declaration| declaration.by_time),
            with_headers: declaration.is_some_and(|declaration| declaration.with_headers),
            own_retention_ms: declaration.and_then(|declaration| declaration.own_retention_ms),
            formats: declaration
                .and_then(|declaration| declaration.serdes.formats(&self.default_serdes, name)),
        }
    }
}

fn with_tasks(graph: &Graph) -> impl Iterator<Item = &Subtopology> {
    graph.subtopologies().iter().filter(|subtopology| !subtopology.is_global)
}

fn is_global(graph: &Graph, node: &GraphNode) -> bool {
    graph.subtopology(node.subtopology).is_some_and(|subtopology| subtopology.is_global)
}

pub(crate) const fn is_windowed(kind: &StoreKind) -> bool {
    matches!(kind, StoreKind::Window { .. } | StoreKind::Session { .. })
}

/// How keys of a table are looked up.
#[derive(Clone, Debug)]
pub(crate) enum TableAccess {
    /// In its store.
    Store(Arc<StoreDeclaration>),
    /// They are computed from the tables it is made of.
    Computed(AnyView),
}

/// A store that is connected to a processor.
pub(crate) struct ConnectedStore {
    pub(crate) name: String,
    pub(crate) slot: StoreSlot,
    pub(crate) kind: StoreKindOf,
    /// How long its windows are, if it has windows.
    pub(crate) window_size_ms: i64,
    pub(crate) serdes: StoreSerdes,
    /// A global store as tasks have it.
    pub(crate) is_read_only: bool,
}

/// A node of the program, to those above it.
struct WiredNode {
    edge: Edge,
    /// Whether a record may have other headers when it has been here: a user's processor changes those of the record it
    /// gets.
    changes_headers: bool,
}

/// A node under construction.
pub(crate) struct Wiring<'a> {
    behaviours: &'a Behaviours,
    program: &'a mut Program,
    node: &'a GraphNode,
    index: NodeIndex,
    below: Vec<(&'a str, &'a WiredNode)>,
    /// See [`WiredNode::changes_headers`].
    changes_headers: bool,
    /// Whether it feeds global stores.
    is_global: bool,
}

impl Wiring<'_> {
    /// The node's place in the program.
    pub(crate) const fn index(&self) -> NodeIndex {
        self.index
    }

    /// The node's name.
    pub(crate) fn name(&self) -> &str {
        &self.node.name
    }

    /// The stream nodes below a node that makes new records.
    pub(crate) fn below<K: 'static, V: 'static>(&self) -> Result<Below<K, V>, DslError> {
        let below = self.stream_nodes_below()?;
        Ok(if self.headers_change_below() { below.with_own_headers() } else { below })
    }

    /// The stream nodes below a node that hands on the records that it gets: what is done to their headers below is
    /// seen above, too.
    pub(crate) fn below_same_record<K: 'static, V: 'static>(
        &mut self,
    ) -> Result<Below<K, V>, DslError> {
        self.changes_headers |= self.headers_change_below();
        self.stream_nodes_below()
    }

    fn stream_nodes_below<K: 'static, V: 'static>(&self) -> Result<Below<K, V>, DslError> {
        let nodes: Result<Vec<_>, _> =
            self.below.iter().map(|(_, below)| below.edge.stream(self.name())).collect();
        Ok(Below::new(nodes?))
    }

    fn headers_change_below(&self) -> bool {
        self.below.iter().any(|(_, below)| below.changes_headers)
    }

    /// The stream nodes below a user's processor, with their names. `headers_are_own` says whether each record that it
    /// hands on is a new one, and nobody else sees what is done to the headers.
    pub(crate) fn below_processor<K: 'static, V: 'static>(
        &mut self,
        headers_are_own: bool,
    ) -> Result<NamedBelow<K, V>, DslError> {
        let names = self.below.iter().map(|(name, _)| Arc::from(*name)).collect();
        let below = NamedBelow::new(names, self.stream_nodes_below()?);
        self.changes_headers |= !headers_are_own;
        let ends_here = headers_are_own && self.headers_change_below();
        Ok(if ends_here { below.with_own_headers() } else { below })
    }

    /// The table nodes below.
    pub(crate) fn tables_below<K: 'static, V: 'static>(
        &self,
    ) -> Result<TablesBelow<K, V>, DslError> {
        let nodes: Result<Vec<_>, _> =
            self.below.iter().map(|(_, below)| below.edge.table(self.name())).collect();
        Ok(TablesBelow::new(nodes?))
    }

    /// The extractor of sources of these types that have none of their own.
    pub(crate) fn default_extractor<K: 'static, V: 'static>(&self) -> Option<Extractor<K, V>> {
        let extractors = &self.behaviours.default_extractors;
        let default = extractors.get(&TypeId::of::<(K, V)>())?;
        default.downcast_ref::<Extractor<K, V>>().cloned()
    }

    /// The nodes below, of another kind.
    pub(crate) fn below_as<T: ?Sized + 'static>(&self) -> Result<Vec<Arc<T>>, DslError> {
        self.below.iter().map(|(_, below)| below.edge.typed(self.name())).collect()
    }

    /// The serde for keys: the given one or the type's default.
    pub(crate) fn key_serde<K: 'static>(
        &self,
        given: Option<&Codec<K>>,
    ) -> Result<Codec<K>, DslError> {
        self.behaviours.default_serdes.resolve(given, Part::Key, self.name())
    }

    /// The serde for values: the given one or the type's default.
    pub(crate) fn value_serde<V: 'static>(
        &self,
        given: Option<&Codec<V>>,
    ) -> Result<Codec<V>, DslError> {
        self.behaviours.default_serdes.resolve(given, Part::Value, self.name())
    }

    /// The default serdes.
    pub(crate) const fn default_serdes(&self) -> &DefaultSerdes {
        &self.behaviours.default_serdes
    }

    /// The view of a table that the node looks keys up in.
    pub(crate) fn view<K: 'static, V: 'static>(
        &mut self,
        table: NodeKey,
    ) -> Result<SharedView<K, V>, DslError> {
        let behaviours = self.behaviours;
        let view = match behaviours.tables.get(&table) {
            Some(TableAccess::Store(store)) => self.store_view(store).map(Ok),
            Some(TableAccess::Computed(view)) => view.wire(self),
            None => None,
        };
        view.unwrap_or_else(|| {
            Err(DslError::OtherRecordType {
                node: self.name().to_owned(),
                forwarded: type_name::<SharedView<K, V>>(),
            })
        })
    }

    fn store_view<K: 'static, V: 'static>(
        &self,
        store: &StoreDeclaration,
    ) -> Option<SharedView<K, V>> {
        let slot = self.store(&store.spec.name)?;
        let (key, value) = store.serdes.typed(self.default_serdes(), self.name())?;
        let is_versioned = self.is_versioned(slot);
        Some(Arc::new(StoreView { slot, key, value, is_versioned }))
    }

    /// Whether the node sends old values with its updates (feature row D46).
    pub(crate) fn sends_old_values(&self) -> bool {
        self.behaviours.old_values.contains(self.name())
    }

    /// Whether the table above the node is versioned (feature row D52).
    pub(crate) fn input_is_versioned(&self) -> bool {
        self.behaviours.versioned_inputs.contains(self.name())
    }

    /// Whether a store has a history.
    pub(crate) fn is_versioned(&self, store: StoreSlot) -> bool {
        let Program { stores, global_stores, .. } = &*self.program;
        let mut all = stores.iter().chain(global_stores);
        let found = all.nth(store.index()).expect("slots are those of the program's stores");
        matches!(found.spec.kind, StoreKind::Versioned { .. })
    }

    /// How a store of windows is kept.
    ///
    /// # Panics
    /// When it is of another kind.
    pub(crate) fn segments_of(&self, store: StoreSlot) -> SegmentedOptions {
        match self.program.stores[store.index()].layout() {
            Layout::Segmented(options) => options,
            other => unreachable!("a store of windows is not laid out as {}", other.name()),
        }
    }

    /// The place of a store; `None` if it does not exist in this topology.
    pub(crate) fn store(&self, name: &str) -> Option<StoreSlot> {
        let Program { stores, global_stores, .. } = &*self.program;
        let at = stores.iter().chain(global_stores).position(|store| store.spec.name == name)?;
        Some(StoreSlot(u32::try_from(at).expect("a topology has less than 2^32 stores")))
    }

    /// Whether values of a store are kept or logged with headers.
    pub(crate) fn is_with_headers(&self, store: &str) -> bool {
        self.behaviours.stores.get(store).is_some_and(|declaration| declaration.with_headers)
    }

    /// The place and serdes of every store that is connected to the node, and of the global stores,
    /// which need not be: tasks read them, and what feeds one of them may write all.
    pub(crate) fn connected_stores(&self) -> Vec<ConnectedStore> {
        let NodeKind::Processor { stores: connected } = &self.node.kind else { return Vec::new() };
        self.stores_of(connected)
    }

    /// The place and serdes of stores that are connected to some node, and of the global stores.
    pub(crate) fn stores_of(&self, connected: &[String]) -> Vec<ConnectedStore> {
        let Program { stores, global_stores, .. } = &*self.program;
        let global_stores = global_stores.iter().map(|store| &store.spec.name);
        let own = stores.iter().map(|store| &store.spec.name);
        let own = own.filter(|name| self.is_global || connected.contains(name));
        let own = own.filter_map(|name| self.connected_store(name, false));
        own.chain(global_stores.filter_map(|name| self.connected_store(name, true))).collect()
    }

    fn connected_store(&self, name: &str, is_read_only: bool) -> Option<ConnectedStore> {
        let declaration = self.behaviours.stores.get(name)?;
        Some(ConnectedStore {
            name: name.to_owned(),
            slot: self.store(name)?,
            kind: StoreKindOf::of(declaration)?,
            window_size_ms: match declaration.spec.kind {
                StoreKind::Window { window_size_ms, .. } => window_size_ms,
                _ => 0,
            },
            serdes: declaration.serdes.clone(),
            is_read_only,
        })
    }

    /// Says who gets the updates of a cached store.
    pub(crate) fn listen(&mut self, store: StoreSlot, listener: Arc<dyn FlushListener>) {
        self.program.stores[store.index()].flush = Some(listener);
    }

    /// Adds the node's user processor.
    pub(crate) fn add_processor(&mut self, supplier: Arc<dyn ProcessorSupplier>) -> ProcessorSlot {
        let slot = u32::try_from(self.program.processors.len())
            .expect("a topology has less than 2^32 processors");
        self.program.processors.push(ProcessorProgram { node: self.index, supplier });
        ProcessorSlot(slot)
    }

    /// Gives the node times of its own in every task; see [`OperatorProgram`].
    pub(crate) fn add_operator(&mut self, metadata_key: Option<String>) -> OperatorSlot {
        let slot = u32::try_from(self.program.operators.len())
            .expect("a topology has less than 2^32 operators");
        let node = self.index;
        self.program.operators.push(OperatorProgram { node, metadata_key, writes: Vec::new() });
        OperatorSlot(slot)
    }

    /// The node is a sink that chooses topics.
    pub(crate) fn choose_topics(&mut self) {
        self.program.chooses_topics = true;
    }

    /// The times that the node shares with all others that write the same stores of windows: those of the two
    /// sides of a join.
    pub(crate) fn shared_operator(&mut self, writes: &[StoreSlot]) -> OperatorSlot {
        let operators = &self.program.operators;
        if let Some(known) = operators.iter().position(|operator| operator.writes == writes) {
            return OperatorSlot(u32::try_from(known).expect("it was added with a number"));
        }
        let slot = self.add_operator(None);
        self.program.operators[slot.index()].writes = writes.to_vec();
        slot
    }

    /// Adds the node's sink.
    pub(crate) fn add_sink(&mut self) -> SinkSlot {
        let slot =
            u32::try_from(self.program.sinks.len()).expect("a topology has less than 2^32 sinks");
        let topic = match &self.node.kind {
            NodeKind::Sink(sink) => sink.topic.clone(),
            _ => None,
        };
        let topic = topic.expect("only sinks of one topic have this behaviour");
        self.program.sinks.push(SinkProgram { node: self.index, topic: topic.into() });
        SinkSlot(slot)
    }
}

fn source_program(
    node: &GraphNode,
    index: NodeIndex,
    source: Arc<dyn SourceNode>,
) -> SourceProgram {
    let (topics, reset) = match &node.kind {
        NodeKind::Source(source) => (source.topics.as_slice(), source.options.offset_reset),
        _ => (&[][..], None),
    };
    SourceProgram {
        node: index,
        topics: topics.iter().map(|topic| topic.as_str().into()).collect(),
        source,
        reset: reset.map(|reset| match reset {
            headwater_topology::OffsetReset::Earliest => OffsetReset::Earliest,
            headwater_topology::OffsetReset::Latest => OffsetReset::Latest,
            headwater_topology::OffsetReset::None => OffsetReset::None,
            headwater_topology::OffsetReset::ByDuration { duration_ms } => {
                OffsetReset::ByDuration { ms: duration_ms }
            }
        }),
    }
}
