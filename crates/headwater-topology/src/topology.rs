//! The built graph.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::builder::{GeneratedNames, InternalTopicProperties, check_generated_names};
use crate::error::TopologyError;
use crate::ids::{NodeId, SubtopologyId};
use crate::node::{Node, NodeKind, OffsetReset, SourceNode, Topics};
use crate::pattern::TopicPattern;
use crate::store::StoreSpec;
use crate::union::DisjointSets;

mod assemble;

pub(crate) use assemble::assemble;

/// A finished graph of one application: immutable, cheap to clone, shared by all threads.
#[derive(Clone, Debug)]
pub struct Topology {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Clone, Debug)]
pub(crate) struct Inner {
    pub(crate) application_id: String,
    pub(crate) nodes: Vec<Node>,
    pub(crate) subtopologies: Vec<Subtopology>,
    pub(crate) stores: Vec<Store>,
    pub(crate) global_stores: Vec<GlobalStore>,
    /// By full name.
    pub(crate) repartition_topics: BTreeMap<String, InternalTopicProperties>,
    pub(crate) copartitioned: Vec<Vec<NodeId>>,
    pub(crate) copartition_groups: Vec<BTreeSet<String>>,
    generated_names: Vec<GeneratedNames>,
    patterns: Vec<(NodeId, TopicPattern)>,
    ids: BTreeMap<String, NodeId>,
}

/// A connected part of the graph. Its tasks are independent of those of other parts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subtopology {
    /// Its number.
    pub id: SubtopologyId,
    /// Its nodes, parents first.
    pub nodes: Vec<NodeId>,
    /// Whether it feeds a global store. It then runs once per instance and has no tasks.
    pub is_global: bool,
    /// Full names of the topics its tasks read. Empty for global parts, and where no topic is known
    /// yet that matches a pattern.
    pub source_topics: BTreeSet<String>,
    /// Full names of the topics its sinks write to, as far as no function chooses them.
    pub sink_topics: BTreeSet<String>,
    /// Those of its source topics that are internal.
    pub repartition_source_topics: BTreeSet<String>,
    /// Full names of the changelogs of its stores, source topics that serve as changelog included.
    pub changelog_topics: BTreeSet<String>,
    /// Those of its source topics that serve as changelog.
    pub source_topic_changelogs: BTreeSet<String>,
    /// Names of its stores, in the order in which their first users were added.
    pub stores: Vec<String>,
}

impl Subtopology {
    /// Whether there are tasks of it.
    pub fn has_tasks(&self) -> bool {
        !self.source_topics.is_empty()
    }
}

/// A store of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Store {
    /// What it is.
    pub spec: Arc<StoreSpec>,
    /// Its processors, in the order in which they were connected.
    pub users: Vec<NodeId>,
    /// The sub-topology of its processors; `None` if it has none, and so is never opened.
    pub subtopology: Option<SubtopologyId>,
    /// Where its changes are logged.
    pub changelog: Option<Changelog>,
}

/// The topic that a store is restored from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changelog {
    /// Its full name.
    pub topic: String,
    /// Whether it is one of the sources: the store then writes nothing to it (feature row T14).
    pub is_source_topic: bool,
}

/// A store that every instance holds whole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GlobalStore {
    /// What it is; without logging of its own.
    pub spec: Arc<StoreSpec>,
    /// The node that reads the topic.
    pub source: NodeId,
    /// The node that writes the store.
    pub processor: NodeId,
    /// The topic, which is also its changelog.
    pub topic: String,
    /// The part of the graph that the two nodes make up.
    pub subtopology: SubtopologyId,
}

impl Topology {
    /// Fails if any name of a store or internal topic was generated (KIP-1111), as
    /// [`TopologyBuilder::check_generated_names`](crate::TopologyBuilder::check_generated_names).
    ///
    /// # Errors
    /// Names every generated name.
    pub fn check_generated_names(&self) -> Result<(), TopologyError> {
        check_generated_names(&self.inner.generated_names)
    }

    /// The application.
    pub fn application_id(&self) -> &str {
        &self.inner.application_id
    }

    /// All nodes, parents first.
    pub fn nodes(&self) -> &[Node] {
        &self.inner.nodes
    }

    /// A node.
    ///
    /// # Panics
    /// If the id is of another, larger topology.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.inner.nodes[id.index()]
    }

    /// The node of this name.
    pub fn node_named(&self, name: &str) -> Option<&Node> {
        self.inner.ids.get(name).map(|&id| self.node(id))
    }

    /// All parts of the graph by number, global ones and those without topics included.
    pub fn subtopologies(&self) -> &[Subtopology] {
        &self.inner.subtopologies
    }

    /// The sub-topology of this number.
    pub fn subtopology(&self, id: SubtopologyId) -> Option<&Subtopology> {
        self.inner.subtopologies.get(usize::try_from(id.0).ok()?)
    }

    /// The stores of tasks, in the order in which they were added.
    pub fn stores(&self) -> &[Store] {
        &self.inner.stores
    }

    /// The store of tasks of this name.
    pub fn store(&self, name: &str) -> Option<&Store> {
        self.inner.stores.iter().find(|store| store.spec.name == name)
    }

    /// The global stores, in the order in which they were added.
    pub fn global_stores(&self) -> &[GlobalStore] {
        &self.inner.global_stores
    }

    /// Groups of source topics (full names) that must have one number of partitions each. No topic
    /// is in two groups; the groups are sorted.
    ///
    /// Groups that share a topic are one group. (The original joins a new group with one earlier
    /// group only, so that a group that connects two others leaves them apart there.)
    pub fn copartition_groups(&self) -> &[BTreeSet<String>] {
        &self.inner.copartition_groups
    }

    /// The source that reads this topic (full name), global sources included.
    pub fn source_of(&self, topic: &str) -> Option<&Node> {
        self.inner.nodes.iter().find(|node| match &node.kind {
            NodeKind::Source(source) => source.topics.iter().any(|known| known == topic),
            _ => false,
        })
    }

    /// The offset reset of the source that reads this topic, if it has one of its own.
    pub fn offset_reset(&self, topic: &str) -> Option<OffsetReset> {
        match &self.source_of(topic)?.kind {
            NodeKind::Source(source) => source.options.offset_reset,
            _ => None,
        }
    }

    /// Whether some source reads topics by pattern.
    pub fn uses_patterns(&self) -> bool {
        !self.inner.patterns.is_empty()
    }

    /// The topics that tasks read and others write: those that sources name, and those that patterns
    /// have matched so far. Repartition topics and topics of global stores are not among them.
    pub fn external_source_topics(&self) -> BTreeSet<&str> {
        let topics = self.subtopologies().iter().flat_map(|subtopology| {
            subtopology.source_topics.difference(&subtopology.repartition_source_topics)
        });
        topics.map(String::as_str).collect()
    }

    /// The patterns of sources, each with the topics that its source reads so far.
    pub fn patterns(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.inner.patterns.iter().map(|(node, pattern)| {
            let topics = match &self.inner.nodes[node.index()].kind {
                NodeKind::Source(source) => source.topics.as_slice(),
                _ => &[],
            };
            (pattern.text.as_str(), topics)
        })
    }

    /// Whether a topic is read because a pattern matches it, or would be if it existed.
    pub fn matches_pattern(&self, topic: &str) -> bool {
        !self.inner.topics_beyond_patterns().contains(topic)
            && self.inner.patterns.iter().any(|(_, pattern)| pattern.matches(topic))
    }

    /// The same topology, in which the sources with patterns read those of these topics that match.
    /// To be made again from any earlier one whenever the topics of the cluster have changed.
    ///
    /// Patterns do not match topics that a source names, nor the application's own internal topics.
    /// (The original would read its own changelogs through a pattern such as `.*`.)
    ///
    /// # Errors
    /// If two patterns match one topic.
    pub fn with_matched_topics<'a>(
        &self,
        existing_topics: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, TopologyError> {
        let mut inner = Inner::clone(&self.inner);
        let mut matched: BTreeMap<&str, usize> = BTreeMap::new();
        let taken = inner.topics_beyond_patterns();
        for topic in existing_topics {
            if taken.contains(topic) {
                continue;
            }
            for (at, (_, pattern)) in inner.patterns.iter().enumerate() {
                if !pattern.matches(topic) {
                    continue;
                }
                if let Some(other) = matched.insert(topic, at)
                    && other != at
                {
                    return Err(TopologyError::TopicMatchesTwoPatterns {
                        topic: topic.to_owned(),
                        pattern: inner.patterns[other].1.text.clone(),
                        other_pattern: pattern.text.clone(),
                    });
                }
            }
        }
        for (at, (node, _)) in inner.patterns.iter().enumerate() {
            if let NodeKind::Source(source) = &mut inner.nodes[node.index()].kind {
                let ours = matched.iter().filter(|(_, pattern)| **pattern == at);
                source.topics = ours.map(|(topic, _)| (*topic).to_owned()).collect();
            }
        }
        inner.describe_topics();
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl Inner {
    fn topics_beyond_patterns(&self) -> BTreeSet<String> {
        let named = self.nodes.iter().flat_map(|node| match &node.kind {
            NodeKind::Source(SourceNode { declared: Topics::Named(_), topics, .. }) => &topics[..],
            _ => &[],
        });
        let changelogs = self.stores.iter().filter_map(|store| store.changelog.as_ref());
        let changelogs = changelogs.map(|changelog| &changelog.topic);
        named.chain(changelogs).chain(self.repartition_topics.keys()).cloned().collect()
    }

    /// Derives from the nodes' topics what the sub-topologies and co-partition groups know of them.
    fn describe_topics(&mut self) {
        for subtopology in &mut self.subtopologies {
            let kinds = subtopology.nodes.iter().map(|node| &self.nodes[node.index()].kind);
            subtopology.source_topics = if subtopology.is_global {
                BTreeSet::new()
            } else {
                kinds.clone().flat_map(source_topics).cloned().collect()
            };
            subtopology.sink_topics = kinds
                .filter_map(|kind| match kind {
                    NodeKind::Sink(sink) => sink.topic.clone(),
                    _ => None,
                })
                .collect();
            subtopology.repartition_source_topics = subtopology
                .source_topics
                .iter()
                .filter(|topic| self.repartition_topics.contains_key(*topic))
                .cloned()
                .collect();
            subtopology.changelog_topics = self
                .stores
                .iter()
                .filter(|store| store.subtopology == Some(subtopology.id))
                .filter_map(|store| store.changelog.as_ref())
                .map(|changelog| changelog.topic.clone())
                .collect();
            subtopology.source_topic_changelogs =
                &subtopology.source_topics & &subtopology.changelog_topics;
        }
        self.copartition_groups = self.join_copartition_groups();
    }

    fn join_copartition_groups(&self) -> Vec<BTreeSet<String>> {
        let groups: Vec<BTreeSet<&String>> = self
            .copartitioned
            .iter()
            .map(|nodes| {
                nodes
                    .iter()
                    .flat_map(|node| source_topics(&self.nodes[node.index()].kind))
                    .collect()
            })
            .collect();
        let mut sets = DisjointSets::new(groups.len());
        let mut first_group = BTreeMap::new();
        for (at, topics) in groups.iter().enumerate() {
            for &topic in topics {
                sets.unite(*first_group.entry(topic).or_insert(at), at);
            }
        }
        let mut joined: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
        for (at, topics) in groups.into_iter().enumerate() {
            joined.entry(sets.root(at)).or_default().extend(topics.into_iter().cloned());
        }
        let distinct: BTreeSet<BTreeSet<String>> =
            joined.into_values().filter(|topics| !topics.is_empty()).collect();
        distinct.into_iter().collect()
    }
}

fn source_topics(kind: &NodeKind) -> &[String] {
    match kind {
        NodeKind::Source(source) => &source.topics,
        _ => &[],
    }
}
