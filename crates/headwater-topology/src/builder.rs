//! Building the graph node by node.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::TopologyError;
use crate::ids::NodeId;
use crate::node::{OffsetReset, SinkTopic, SourceOptions, Topics};
use crate::pattern::TopicPattern;
use crate::store::StoreSpec;
use crate::topology::{self, Topology};

/// Builds a [`Topology`] with Kafka Streams' low-level words (feature row P1).
///
/// Nodes are added parents first. A call that fails leaves the builder as it was.
#[derive(Clone, Debug, Default)]
pub struct TopologyBuilder {
    pub(crate) nodes: Vec<DraftNode>,
    pub(crate) patterns: Vec<(NodeId, TopicPattern)>,
    pub(crate) stores: Vec<DraftStore>,
    pub(crate) global_stores: Vec<DraftGlobalStore>,
    pub(crate) internal_topics: BTreeMap<String, InternalTopicProperties>,
    pub(crate) copartitioned: Vec<Vec<String>>,
    pub(crate) source_changelogs: BTreeMap<String, String>,
    pub(crate) generated_names: Vec<GeneratedNames>,
    ids: BTreeMap<String, NodeId>,
}

#[derive(Clone, Debug)]
pub(crate) struct DraftNode {
    pub(crate) name: String,
    pub(crate) parents: Vec<NodeId>,
    pub(crate) kind: DraftKind,
}

#[derive(Clone, Debug)]
pub(crate) enum DraftKind {
    Source { topics: Topics, options: SourceOptions },
    Processor { stores: Vec<String> },
    Sink(SinkTopic),
}

#[derive(Clone, Debug)]
pub(crate) struct DraftStore {
    pub(crate) spec: Arc<StoreSpec>,
    pub(crate) users: Vec<NodeId>,
}

#[derive(Clone, Debug)]
pub(crate) struct DraftGlobalStore {
    pub(crate) spec: Arc<StoreSpec>,
    pub(crate) source: NodeId,
    pub(crate) processor: NodeId,
    pub(crate) topic: String,
}

/// What is known of an internal topic when the graph is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InternalTopicProperties {
    /// The number of partitions, where the user fixed it; else it follows from the topics upstream.
    pub partitions: Option<u32>,
}

/// Names of one operator's resources that the user did not give (KIP-1111, feature row T15).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeneratedNames {
    /// Changelog topic, without application id.
    pub changelog_topic: Option<String>,
    /// Store.
    pub store: Option<String>,
    /// Repartition topic, without application id.
    pub repartition_topic: Option<String>,
}

/// Where a global or read-only store gets its contents from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSource {
    /// Name of the source node.
    pub source: String,
    /// The topic, which is the store's changelog at the same time.
    pub topic: String,
    /// Name of the node whose processor writes the store.
    pub processor: String,
    /// Whether the source has a timestamp extractor of its own.
    pub timestamp_extractor: bool,
}

impl TopologyBuilder {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a source.
    ///
    /// # Errors
    /// If the name is taken, there is no topic, a topic is read by another source already (by name
    /// or by pattern), or the pattern cannot be read.
    pub fn add_source(
        &mut self,
        name: impl Into<String>,
        topics: Topics,
        options: SourceOptions,
    ) -> Result<NodeId, TopologyError> {
        let name = name.into();
        self.check_name(&name)?;
        match &topics {
            Topics::Named(names) => {
                if names.is_empty() {
                    return Err(TopologyError::NoTopics { source_name: name });
                }
                for (at, topic) in names.iter().enumerate() {
                    if names.iter().take(at).any(|earlier| earlier == topic) {
                        return Err(TopologyError::DuplicateTopic { topic: topic.clone() });
                    }
                    self.check_topic_is_free(topic)?;
                }
            }
            Topics::Pattern(text) => {
                let pattern = TopicPattern::new(&name, text)?;
                if let Some(topic) = self.task_source_topics().find(|topic| pattern.matches(topic))
                {
                    return Err(TopologyError::PatternMatchesTopic {
                        pattern: pattern.text,
                        topic: topic.to_owned(),
                    });
                }
                self.patterns.push((NodeId(self.nodes.len()), pattern));
            }
        }
        Ok(self.push(name, Vec::new(), DraftKind::Source { topics, options }))
    }

    /// Adds a processor below these nodes. A parent named twice calls it twice for each record.
    ///
    /// # Errors
    /// If the name is taken, or there is no parent, or a parent is unknown or a sink.
    pub fn add_processor(
        &mut self,
        name: impl Into<String>,
        parents: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<NodeId, TopologyError> {
        let name = name.into();
        self.check_name(&name)?;
        let parents = self.find_parents(&name, parents)?;
        Ok(self.push(name, parents, DraftKind::Processor { stores: Vec::new() }))
    }

    /// Adds a sink below these nodes.
    ///
    /// # Errors
    /// If the name is taken, or there is no parent, or a parent is unknown or a sink.
    pub fn add_sink(
        &mut self,
        name: impl Into<String>,
        topic: SinkTopic,
        parents: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<NodeId, TopologyError> {
        let name = name.into();
        self.check_name(&name)?;
        let parents = self.find_parents(&name, parents)?;
        Ok(self.push(name, parents, DraftKind::Sink(topic)))
    }

    /// Adds a store and connects it to these processors, which thereby fall into one sub-topology.
    ///
    /// Adding one and the same `Arc` again only connects further processors; an equal store of
    /// another `Arc` is another store, and an error.
    ///
    /// # Errors
    /// If another store has the name, or a processor is unknown or no processor.
    pub fn add_state_store(
        &mut self,
        store: impl Into<Arc<StoreSpec>>,
        processors: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<(), TopologyError> {
        let store = store.into();
        let known = self.stores.iter().find(|known| known.spec.name == store.name);
        if known.is_some_and(|known| !Arc::ptr_eq(&known.spec, &store)) {
            return Err(TopologyError::DuplicateStore { store: store.name.clone() });
        }
        self.check_no_global_store(&store.name)?;
        let is_new = known.is_none();
        let users = processors
            .into_iter()
            .map(|processor| self.find_store_user(processor.as_ref(), &store.name))
            .collect::<Result<Vec<_>, _>>()?;
        let name = store.name.clone();
        if is_new {
            self.stores.push(DraftStore { spec: store, users: Vec::new() });
        }
        for user in users {
            self.connect(user, &name);
        }
        Ok(())
    }

    /// Lets a processor use these stores.
    ///
    /// # Errors
    /// If no store is named, a store is unknown or global, or the processor is unknown or no
    /// processor.
    pub fn connect_processor_and_state_stores(
        &mut self,
        processor: &str,
        stores: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<(), TopologyError> {
        let names: Vec<String> = stores.into_iter().map(|name| name.as_ref().to_owned()).collect();
        if names.is_empty() {
            return Err(TopologyError::NoStores { processor: processor.to_owned() });
        }
        let kind = self.ids.get(processor).map(|id| &self.nodes[id.0].kind);
        if matches!(kind, Some(DraftKind::Source { .. } | DraftKind::Sink(_))) {
            return Err(TopologyError::ConnectedSourceOrSink { node: processor.to_owned() });
        }
        let users = names.iter().map(|store| self.find_connectable(processor, store));
        for (user, store) in users.collect::<Result<Vec<_>, _>>()?.into_iter().zip(&names) {
            self.connect(user, store);
        }
        Ok(())
    }

    /// Adds a store that every instance holds whole, together with the source and the processor
    /// that feed it (feature row P22). Its changelog is the topic itself, so logging is switched off.
    ///
    /// # Errors
    /// If a name is taken or used twice, or the topic is read by another source already.
    pub fn add_global_store(
        &mut self,
        store: impl Into<Arc<StoreSpec>>,
        from: StoreSource,
    ) -> Result<(), TopologyError> {
        let store = store.into();
        self.check_name(&from.source)?;
        self.check_topic_is_free(&from.topic)?;
        self.check_name(&from.processor)?;
        if from.source == from.processor {
            return Err(TopologyError::SourceAndProcessorNamesEqual { name: from.source });
        }
        if self.stores.iter().any(|known| known.spec.name == store.name) {
            return Err(TopologyError::DuplicateStore { store: store.name.clone() });
        }
        self.check_no_global_store(&store.name)?;

        let options =
            SourceOptions { offset_reset: None, timestamp_extractor: from.timestamp_extractor };
        let topics = Topics::one(&from.topic);
        let source = self.push(from.source, Vec::new(), DraftKind::Source { topics, options });
        let stores = vec![store.name.clone()];
        let processor = self.push(from.processor, vec![source], DraftKind::Processor { stores });
        let spec = without_logging(store);
        self.global_stores.push(DraftGlobalStore { spec, source, processor, topic: from.topic });
        Ok(())
    }

    /// Adds a store of tasks that only its own source and processor write, so that the topic can
    /// serve as changelog (feature rows P1, T14). Its source starts at the oldest record.
    ///
    /// # Errors
    /// As [`add_source`](Self::add_source), [`add_processor`](Self::add_processor) and
    /// [`add_state_store`](Self::add_state_store); or if the store has a source topic already.
    pub fn add_read_only_state_store(
        &mut self,
        store: impl Into<Arc<StoreSpec>>,
        from: StoreSource,
    ) -> Result<(), TopologyError> {
        let store = without_logging(store.into());
        let mut grown = self.clone();
        let options = SourceOptions {
            offset_reset: Some(OffsetReset::Earliest),
            timestamp_extractor: from.timestamp_extractor,
        };
        grown.add_source(&from.source, Topics::one(&from.topic), options)?;
        grown.add_processor(&from.processor, [from.source])?;
        grown.add_state_store(Arc::clone(&store), [from.processor])?;
        grown.connect_source_store_and_topic(&store.name, &from.topic)?;
        *self = grown;
        Ok(())
    }

    /// Makes a source topic the changelog of a store, which then has no changelog topic of its own:
    /// for read-only stores and for `reuse.ktable.source.topics` (feature row T14).
    ///
    /// # Errors
    /// If the store has a source topic already.
    pub fn connect_source_store_and_topic(
        &mut self,
        store: &str,
        topic: &str,
    ) -> Result<(), TopologyError> {
        let is_global = self.global_stores.iter().any(|global| global.spec.name == store);
        if is_global || self.source_changelogs.contains_key(store) {
            return Err(TopologyError::DuplicateSourceStore { store: store.to_owned() });
        }
        self.source_changelogs.insert(store.to_owned(), topic.to_owned());
        Ok(())
    }

    /// Marks a topic as internal: its full name gets the application id in front, and it is created
    /// with the application. Sources and sinks keep naming it without application id. Marking it
    /// again replaces its properties.
    pub fn add_internal_topic(
        &mut self,
        topic: impl Into<String>,
        properties: InternalTopicProperties,
    ) {
        self.internal_topics.insert(topic.into(), properties);
    }

    /// Says that the topics of these sources must have one number of partitions, and that equal keys
    /// must be in equal partitions (feature row T9).
    pub fn copartition_sources(&mut self, sources: impl IntoIterator<Item = impl AsRef<str>>) {
        self.copartitioned.push(sources.into_iter().map(|name| name.as_ref().to_owned()).collect());
    }

    /// Notes names that were generated, for [`check_generated_names`](Self::check_generated_names).
    pub fn add_generated_names(&mut self, names: GeneratedNames) {
        if !self.generated_names.contains(&names) {
            self.generated_names.push(names);
        }
    }

    /// Fails if any name was generated: for `ensure_explicit_internal_resource_naming` (KIP-1111).
    ///
    /// # Errors
    /// Names every generated name, kind by kind, in the order in which they were noted.
    pub fn check_generated_names(&self) -> Result<(), TopologyError> {
        check_generated_names(&self.generated_names)
    }

    /// Whether a node has this name.
    pub fn contains_node(&self, name: &str) -> bool {
        self.ids.contains_key(name)
    }

    /// The finished topology of this application.
    ///
    /// # Errors
    /// If co-partitioned repartition topics have different fixed numbers of partitions, a
    /// co-partitioned source is unknown, tasks' nodes hang on a global store's processor, or a
    /// store's source topic is read by another sub-topology or by none.
    pub fn build(&self, application_id: &str) -> Result<Topology, TopologyError> {
        topology::assemble(self, application_id)
    }

    fn push(&mut self, name: String, parents: Vec<NodeId>, kind: DraftKind) -> NodeId {
        let id = NodeId(self.nodes.len());
        self.ids.insert(name.clone(), id);
        self.nodes.push(DraftNode { name, parents, kind });
        id
    }

    fn connect(&mut self, user: NodeId, store: &str) {
        if let DraftKind::Processor { stores } = &mut self.nodes[user.0].kind
            && !stores.iter().any(|known| known == store)
        {
            stores.push(store.to_owned());
        }
        if let Some(draft) = self.stores.iter_mut().find(|draft| draft.spec.name == store)
            && !draft.users.contains(&user)
        {
            draft.users.push(user);
        }
    }

    /// Lets a processor know its stores in this order.
    pub(crate) fn order_stores_of(&mut self, processor: &str, order: Vec<String>) {
        if let Some(id) = self.ids.get(processor)
            && let DraftKind::Processor { stores } = &mut self.nodes[id.0].kind
        {
            *stores = order;
        }
    }

    fn check_name(&self, name: &str) -> Result<(), TopologyError> {
        if self.ids.contains_key(name) {
            return Err(TopologyError::DuplicateNode { name: name.to_owned() });
        }
        Ok(())
    }

    fn check_no_global_store(&self, name: &str) -> Result<(), TopologyError> {
        if self.global_stores.iter().any(|global| global.spec.name == name) {
            return Err(TopologyError::DuplicateGlobalStore { store: name.to_owned() });
        }
        Ok(())
    }

    fn check_topic_is_free(&self, topic: &str) -> Result<(), TopologyError> {
        if self.task_source_topics().any(|known| known == topic)
            || self.global_stores.iter().any(|global| global.topic == topic)
        {
            return Err(TopologyError::DuplicateTopic { topic: topic.to_owned() });
        }
        match self.patterns.iter().find(|(_, pattern)| pattern.matches(topic)) {
            Some((_, pattern)) => Err(TopologyError::TopicMatchesPattern {
                topic: topic.to_owned(),
                pattern: pattern.text.clone(),
            }),
            None => Ok(()),
        }
    }

    fn task_source_topics(&self) -> impl Iterator<Item = &str> {
        self.nodes
            .iter()
            .enumerate()
            .filter(|(at, _)| self.global_stores.iter().all(|global| global.source.0 != *at))
            .filter_map(|(_, node)| match &node.kind {
                DraftKind::Source { topics: Topics::Named(topics), .. } => Some(topics),
                _ => None,
            })
            .flatten()
            .map(String::as_str)
    }

    fn find_parents(
        &self,
        name: &str,
        parents: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Vec<NodeId>, TopologyError> {
        let mut found = Vec::new();
        for parent in parents {
            let parent = parent.as_ref();
            let Some(&id) = self.ids.get(parent) else {
                let name = name.to_owned();
                return Err(if parent == name {
                    TopologyError::OwnParent { name }
                } else {
                    TopologyError::UnknownParent { name, parent: parent.to_owned() }
                });
            };
            if matches!(self.nodes[id.0].kind, DraftKind::Sink(_)) {
                return Err(TopologyError::SinkAsParent {
                    name: name.to_owned(),
                    sink: parent.to_owned(),
                });
            }
            found.push(id);
        }
        if found.is_empty() {
            return Err(TopologyError::NoParents { name: name.to_owned() });
        }
        Ok(found)
    }

    fn find_connectable(&self, processor: &str, store: &str) -> Result<NodeId, TopologyError> {
        let names = || (store.to_owned(), processor.to_owned());
        if self.global_stores.iter().any(|global| global.spec.name == store) {
            let (store, processor) = names();
            return Err(TopologyError::GlobalStoreConnected { store, processor });
        }
        if self.stores.iter().all(|known| known.spec.name != store) {
            let (store, processor) = names();
            return Err(TopologyError::UnknownStore { store, processor });
        }
        self.find_store_user(processor, store)
    }

    fn find_store_user(&self, processor: &str, store: &str) -> Result<NodeId, TopologyError> {
        let id = *self.ids.get(processor).ok_or_else(|| TopologyError::UnknownProcessor {
            processor: processor.to_owned(),
            store: store.to_owned(),
        })?;
        if matches!(self.nodes[id.0].kind, DraftKind::Processor { .. }) {
            Ok(id)
        } else {
            Err(TopologyError::StoreOfSourceOrSink {
                store: store.to_owned(),
                node: processor.to_owned(),
            })
        }
    }
}

pub(crate) fn check_generated_names(generated: &[GeneratedNames]) -> Result<(), TopologyError> {
    if generated.is_empty() {
        return Ok(());
    }
    let all = |pick: fn(&GeneratedNames) -> &Option<String>| {
        generated.iter().filter_map(|names| pick(names).clone()).collect()
    };
    Err(TopologyError::UnnamedResources {
        changelog_topics: all(|names| &names.changelog_topic),
        stores: all(|names| &names.store),
        repartition_topics: all(|names| &names.repartition_topic),
    })
}

fn without_logging(store: Arc<StoreSpec>) -> Arc<StoreSpec> {
    if store.logging.is_none() {
        return store;
    }
    Arc::new(StoreSpec::clone(&store).with_logging_disabled())
}
