//! From the logical graph to the topology.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use headwater_runtime::{DslStoreFormat, DslStoreSuppliers, TopologyOptimization};
use headwater_topology::{
    InternalTopicProperties, SinkTopic, SourceOptions, StoreKind, StoreSource, StoreSpec, Topics,
    TopologyBuilder,
};

use super::{
    GlobalSource, LogicalGraph, LogicalKind, NodeKey, Processor, Repartition, TableJoin,
    TableSource,
};
use crate::error::DslError;
use crate::store::{DslStores, StoreDeclaration, check};
use crate::wiring::{Behaviour, Behaviours};

/// The topology under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub(crate) builder: TopologyBuilder,
    pub(crate) behaviours: Behaviours,
    /// How and where stores of tables are, unless they say so themselves.
    pub(crate) stores: DslStores,
    /// Stores that were given the format: as they were declared, and as they are.
    formatted: Vec<(Arc<StoreSpec>, Arc<StoreSpec>)>,
}

impl LogicalGraph {
    /// Writes all operators into a topology. The graph itself stays as it is.
    pub(crate) fn write(
        &self,
        optimization: TopologyOptimization,
        stores: DslStores,
    ) -> Result<Draft, DslError> {
        if let Some(problem) = self.problem() {
            return Err(problem.clone());
        }
        let mut merged = Self {
            names: self.names.clone(),
            default_serdes: self.default_serdes.clone(),
            default_extractors: self.default_extractors.clone(),
            wrapper: None,
            generated: Vec::new(),
            refuses_generated: self.refuses_generated,
            stores: self.stores,
            nodes: self.nodes.clone(),
            next_priority: self.next_priority,
            copartitioned: self.copartitioned.clone(),
            join_repartitions: BTreeMap::new(),
            problem: None,
        };
        merged.merge_sources()?;
        merged.optimize(optimization);
        let mut draft = Draft::default();
        draft.behaviours.default_serdes = self.default_serdes.clone();
        draft.behaviours.default_extractors = self.default_extractors.clone();
        draft.behaviours.wrapper.clone_from(&self.wrapper);
        draft.stores = stores;
        for names in &self.generated {
            draft.builder.add_generated_names(names.clone());
        }
        if self.refuses_generated {
            draft.builder.check_generated_names()?;
        }
        for key in merged.write_order() {
            merged.write_node(key, &mut draft)?;
        }
        for sources in &merged.copartitioned {
            let names = sources.iter().map(|&source| merged.source_name(source));
            draft.builder.copartition_sources(names);
        }
        Ok(draft)
    }

    /// Every node once: parents first, and otherwise in the order in which they were added.
    fn write_order(&self) -> Vec<NodeKey> {
        let mut order = Vec::new();
        let mut written = BTreeSet::from([Self::ROOT]);
        let mut queue = BinaryHeap::new();
        let offer = |queue: &mut BinaryHeap<Reverse<(usize, NodeKey)>>, key: NodeKey| {
            for &child in &self.nodes[key.0].children {
                queue.push(Reverse((self.nodes[child.0].priority, child)));
            }
        };
        offer(&mut queue, Self::ROOT);
        while let Some(Reverse((_, key))) = queue.pop() {
            let ready = self.nodes[key.0].parents.iter().all(|parent| written.contains(parent));
            // A node that is not ready comes again with its last parent.
            if ready && written.insert(key) {
                order.push(key);
                offer(&mut queue, key);
            }
        }
        order
    }

    fn write_node(&self, key: NodeKey, draft: &mut Draft) -> Result<(), DslError> {
        let node = &self.nodes[key.0];
        let name = node.name.as_str();
        let parents: Vec<&str> =
            node.parents.iter().map(|&parent| self.output_name(parent)).collect();
        if node.old_values {
            draft.behaviours.old_values.insert(name.to_owned());
        }
        if node.parents.first().is_some_and(|&parent| self.is_versioned(parent)) {
            draft.behaviours.versioned_inputs.insert(name.to_owned());
        }
        if let Some(access) = self.access(key) {
            draft.behaviours.tables.insert(key, access);
        }
        match &node.kind {
            LogicalKind::Root => {}
            LogicalKind::Source(source) => {
                draft.builder.add_source(name, source.topics.clone(), source.options.clone())?;
                draft.behave(name, Behaviour::Source(Arc::clone(&source.wire.0)));
            }
            LogicalKind::TableSource(source) => write_table_source(draft, name, source)?,
            LogicalKind::StreamToTable(table) => {
                draft.builder.add_processor(name, parents)?;
                draft.behave(name, Behaviour::Inner(Arc::clone(&table.wire.0)));
                if table.materialized {
                    draft.declare(&table.store, [name])?;
                }
            }
            LogicalKind::Processor(processor) => {
                write_processor(draft, name, &parents, processor)?;
            }
            LogicalKind::TableJoin(join) => self.write_table_join(draft, key, join)?,
            LogicalKind::StreamJoins(join) => join.write(self, name, draft)?,
            LogicalKind::Sink { topic, wire } => {
                draft.builder.add_sink(name, topic.clone(), parents)?;
                draft.behave(name, Behaviour::Inner(Arc::clone(&wire.0)));
            }
            LogicalKind::Repartition(repartition) => {
                let passes_null_keys = self.null_keys_are_taken_below(key);
                write_repartition(draft, &parents, repartition, passes_null_keys)?;
            }
            LogicalKind::Store(store) => draft.declare(store, [""; 0])?,
            LogicalKind::GlobalStore(source) => draft.declare_global(name, source)?,
        }
        Ok(())
    }

    fn write_table_join(
        &self,
        draft: &mut Draft,
        key: NodeKey,
        join: &TableJoin,
    ) -> Result<(), DslError> {
        let TableJoin { left, right, merge, store, .. } = join;
        let name = self.name(key);
        for side in [left, right] {
            draft.builder.add_processor(&side.name, [self.output_name(side.parent)])?;
            draft.behave(&side.name, Behaviour::Inner(Arc::clone(&side.wire.0)));
            if self.nodes[key.0].old_values {
                draft.behaviours.old_values.insert(side.name.clone());
            }
            if self.is_versioned(side.parent) {
                draft.behaviours.versioned_inputs.insert(side.name.clone());
            }
        }
        draft.builder.add_processor(name, [&left.name, &right.name])?;
        draft.behave(name, Behaviour::Inner(Arc::clone(&merge.0)));
        for side in [left, right] {
            draft.builder.connect_processor_and_state_stores(&side.name, &side.reads)?;
        }
        store.as_ref().map_or(Ok(()), |store| draft.declare(store, [name]))
    }

    /// The name of the node in the topology that reads the topics of an operator.
    fn source_name(&self, key: NodeKey) -> &str {
        match &self.nodes[key.0].kind {
            LogicalKind::TableSource(source) => &source.source_name,
            _ => self.output_name(key),
        }
    }

    /// The name of the node in the topology from which the children of an operator get their records.
    fn output_name(&self, key: NodeKey) -> &str {
        match &self.nodes[key.0].kind {
            LogicalKind::Repartition(repartition) => &repartition.source_name,
            _ => &self.nodes[key.0].name,
        }
    }
}

impl Draft {
    /// Says how the run-time node of a node is made.
    pub(crate) fn behave(&mut self, node: &str, behaviour: Behaviour) {
        self.behaviours.nodes.insert(node.to_owned(), behaviour);
    }

    /// Adds a store and the nodes that use it.
    pub(crate) fn declare(
        &mut self,
        store: &Arc<StoreDeclaration>,
        users: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<(), DslError> {
        check(&store.spec)?;
        let spec = self.format(store);
        self.builder.add_state_store(Arc::clone(&spec), users)?;
        let with_headers = store.with_headers || self.has_headers(store);
        let declaration = StoreDeclaration { spec, with_headers, ..StoreDeclaration::clone(store) };
        self.behaviours.stores.insert(store.spec.name.clone(), Arc::new(declaration));
        Ok(())
    }

    /// Adds a global store with the nodes that feed it.
    pub(crate) fn declare_global(
        &mut self,
        processor: &str,
        source: &GlobalSource,
    ) -> Result<(), DslError> {
        let GlobalSource { topic, options, source_name, store, .. } = source;
        check(&store.spec)?;
        let spec = self.format(store);
        let from = StoreSource {
            source: source_name.clone(),
            topic: topic.clone(),
            processor: processor.to_owned(),
            timestamp_extractor: options.timestamp_extractor,
        };
        self.builder.add_global_store(Arc::clone(&spec), from)?;
        self.behave(source_name, Behaviour::Source(Arc::clone(&source.source.0)));
        self.behave(processor, Behaviour::Inner(Arc::clone(&source.processor.0)));
        let declaration = StoreDeclaration { spec, ..StoreDeclaration::clone(store) };
        self.behaviours.stores.insert(store.spec.name.clone(), Arc::new(declaration));
        Ok(())
    }

    /// Whether values of windows, sessions and suppressions have headers here.
    fn has_headers(&self, store: &StoreDeclaration) -> bool {
        self.stores.format == DslStoreFormat::Headers
            && match store.spec.kind {
                StoreKind::Window { .. } | StoreKind::Session { .. } => {
                    store.takes_format && self.is_persistent(store)
                }
                // In the changelog only.
                StoreKind::SuppressBuffer => true,
                _ => false,
            }
    }

    /// Whether the store is on disk.
    fn is_persistent(&self, store: &StoreDeclaration) -> bool {
        store.spec.persistent
            && !(store.takes_suppliers && self.stores.suppliers == DslStoreSuppliers::InMemory)
    }

    /// The store where and in the format that tables have here; those in memory have only one, as in the original.
    fn format(&mut self, store: &StoreDeclaration) -> Arc<StoreSpec> {
        let spec = &store.spec;
        let persistent = self.is_persistent(store);
        let has_headers = store.takes_format
            && self.stores.format == DslStoreFormat::Headers
            && persistent
            && spec.kind == StoreKind::TimestampedKeyValue;
        if !has_headers && persistent == spec.persistent {
            return Arc::clone(spec);
        }
        let known = self.formatted.iter().find(|(declared, _)| Arc::ptr_eq(declared, spec));
        if let Some((_, formatted)) = known {
            return Arc::clone(formatted);
        }
        let mut formatted = StoreSpec { persistent, ..StoreSpec::clone(spec) };
        if has_headers {
            formatted.kind = StoreKind::TimestampedKeyValueWithHeaders;
        }
        let formatted = Arc::new(formatted);
        self.formatted.push((Arc::clone(spec), Arc::clone(&formatted)));
        formatted
    }
}

fn write_table_source(draft: &mut Draft, name: &str, source: &TableSource) -> Result<(), DslError> {
    let topics = Topics::one(&source.topic);
    draft.builder.add_source(&source.source_name, topics, source.options.clone())?;
    draft.behave(&source.source_name, Behaviour::Source(Arc::clone(&source.source.0)));
    draft.builder.add_processor(name, [&source.source_name])?;
    draft.behave(name, Behaviour::Inner(Arc::clone(&source.table.0)));
    if source.materialized && source.reuses_topic {
        let spec = (*source.store.spec).clone().with_logging_disabled();
        let store = StoreDeclaration { spec: Arc::new(spec), ..(*source.store).clone() };
        draft.declare(&Arc::new(store), [name])?;
        draft.builder.connect_source_store_and_topic(&source.store.spec.name, &source.topic)?;
    } else if source.materialized {
        draft.declare(&source.store, [name])?;
    }
    Ok(())
}

fn write_processor(
    draft: &mut Draft,
    name: &str,
    parents: &[&str],
    processor: &Processor,
) -> Result<(), DslError> {
    draft.builder.add_processor(name, parents)?;
    draft.behave(name, Behaviour::Inner(Arc::clone(&processor.wire.0)));
    for store in &processor.stores {
        draft.declare(store, [name])?;
    }
    if !processor.connected.is_empty() {
        draft.builder.connect_processor_and_state_stores(name, &processor.connected)?;
    }
    check_history(draft, name, processor)
}

/// That the tables a join with grace looks up remember as much as it needs (feature row D38).
fn check_history(draft: &Draft, name: &str, processor: &Processor) -> Result<(), DslError> {
    let Some(grace_ms) = processor.needed_history_ms else { return Ok(()) };
    for store in &processor.connected {
        let kind = draft.behaviours.stores.get(store).map(|store| &store.spec.kind);
        match kind {
            Some(StoreKind::Versioned { history_retention_ms, .. }) => {
                let history_ms = *history_retention_ms;
                if history_ms < grace_ms {
                    let (node, store) = (name.to_owned(), store.clone());
                    return Err(DslError::GraceBeyondHistory { node, store, history_ms, grace_ms });
                }
            }
            _ => return Err(DslError::GraceWithoutHistory { node: name.to_owned() }),
        }
    }
    Ok(())
}

fn write_repartition(
    draft: &mut Draft,
    parents: &[&str],
    repartition: &Repartition,
    passes_null_keys: bool,
) -> Result<(), DslError> {
    let Repartition { topic, sink_name, source_name, .. } = repartition;
    let properties = InternalTopicProperties { partitions: repartition.partitions };
    draft.builder.add_internal_topic(topic, properties);
    if let Some(filter) = &repartition.filter {
        let name = &filter.name;
        let wire = if passes_null_keys { &filter.passing } else { &filter.dropping };
        draft.builder.add_processor(name, parents)?;
        draft.behave(name, Behaviour::Inner(Arc::clone(&wire.0)));
        draft.builder.add_sink(sink_name, SinkTopic::named(topic), [name])?;
    } else {
        draft.builder.add_sink(sink_name, SinkTopic::named(topic), parents)?;
    }
    draft.behave(sink_name, Behaviour::Inner(Arc::clone(&repartition.sink.0)));
    // Whatever an application sets for its inputs, records of its own have valid times (D17).
    let options = SourceOptions { offset_reset: None, timestamp_extractor: true };
    draft.builder.add_source(source_name, Topics::one(topic), options)?;
    draft.behave(source_name, Behaviour::Source(Arc::clone(&repartition.source.0)));
    Ok(())
}
