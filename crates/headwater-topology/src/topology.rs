//! The built graph.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::builder::{DraftKind, InternalTopicProperties, TopologyBuilder};
use crate::error::TopologyError;
use crate::ids::{NodeId, SubtopologyId};
use crate::node::{Node, NodeKind, OffsetReset, SinkNode, SinkTopic, SourceNode, Topics};
use crate::pattern::TopicPattern;
use crate::store::StoreSpec;
use crate::union::DisjointSets;

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
    copartitioned: Vec<Vec<NodeId>>,
    pub(crate) copartition_groups: Vec<BTreeSet<String>>,
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

    /// The same topology, in which the sources with patterns read those of these topics that match.
    /// To be made again from any earlier one whenever the topics of the cluster have changed.
    ///
    /// # Errors
    /// If two patterns match one topic.
    pub fn with_matched_topics<'a>(
        &self,
        existing_topics: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, TopologyError> {
        let mut inner = Inner::clone(&self.inner);
        let mut matched: BTreeMap<&str, usize> = BTreeMap::new();
        let named: BTreeSet<String> = inner
            .nodes
            .iter()
            .filter_map(|node| match &node.kind {
                NodeKind::Source(SourceNode { declared: Topics::Named(_), topics, .. }) => {
                    Some(topics.iter().cloned())
                }
                _ => None,
            })
            .flatten()
            .collect();
        for topic in existing_topics {
            if named.contains(topic) {
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

pub(crate) fn assemble(
    draft: &TopologyBuilder,
    application_id: &str,
) -> Result<Topology, TopologyError> {
    check_fixed_partitions(draft)?;
    let subtopology_of = number_subtopologies(draft);
    let full_name = |topic: &String| {
        if draft.internal_topics.contains_key(topic) {
            format!("{application_id}-{topic}")
        } else {
            topic.clone()
        }
    };

    let nodes = build_nodes(draft, &subtopology_of, &full_name);
    let stores = build_stores(draft, &nodes, application_id, &full_name);
    let global_stores: Vec<GlobalStore> = draft
        .global_stores
        .iter()
        .map(|global| GlobalStore {
            spec: Arc::clone(&global.spec),
            source: global.source,
            processor: global.processor,
            topic: global.topic.clone(),
            subtopology: nodes[global.source.index()].subtopology,
        })
        .collect();
    check_global_parts(&nodes, &global_stores)?;
    check_source_changelogs(draft, &nodes, &stores)?;

    let ids = nodes.iter().map(|node| (node.name.clone(), node.id)).collect();
    let mut inner = Inner {
        application_id: application_id.to_owned(),
        subtopologies: build_subtopologies(&nodes, &stores, &global_stores),
        copartitioned: find_copartitioned(draft, &ids)?,
        copartition_groups: Vec::new(),
        nodes,
        stores,
        global_stores,
        repartition_topics: draft
            .internal_topics
            .iter()
            .map(|(topic, properties)| (full_name(topic), *properties))
            .collect(),
        patterns: draft.patterns.clone(),
        ids,
    };
    inner.describe_topics();
    Ok(Topology { inner: Arc::new(inner) })
}

fn check_fixed_partitions(draft: &TopologyBuilder) -> Result<(), TopologyError> {
    for group in &draft.copartitioned {
        let topics: BTreeSet<&String> = draft
            .nodes
            .iter()
            .filter(|node| group.contains(&node.name))
            .filter_map(|node| match &node.kind {
                DraftKind::Source { topics: Topics::Named(topics), .. } => Some(topics),
                _ => None,
            })
            .flatten()
            .collect();
        let fixed: Vec<(String, u32)> = topics
            .iter()
            .filter_map(|&topic| {
                Some((topic.clone(), draft.internal_topics.get(topic)?.partitions?))
            })
            .collect();
        let equal = fixed.windows(2).all(|pair| pair[0].1 == pair[1].1);
        if fixed.len() == topics.len() && !equal {
            return Err(TopologyError::UnequalFixedPartitions { partitions: fixed });
        }
    }
    Ok(())
}

/// Nodes belong together if one is the other's parent or both use one store; the parts are numbered
/// in the order of their first nodes.
fn number_subtopologies(draft: &TopologyBuilder) -> Vec<SubtopologyId> {
    let mut sets = DisjointSets::new(draft.nodes.len());
    for (at, node) in draft.nodes.iter().enumerate() {
        for parent in &node.parents {
            sets.unite(parent.index(), at);
        }
    }
    for store in &draft.stores {
        for pair in store.users.windows(2) {
            sets.unite(pair[0].index(), pair[1].index());
        }
    }
    let mut numbers = BTreeMap::new();
    let mut next = 0;
    (0..draft.nodes.len())
        .map(|at| {
            *numbers.entry(sets.root(at)).or_insert_with(|| {
                next += 1;
                SubtopologyId(next - 1)
            })
        })
        .collect()
}

fn build_nodes(
    draft: &TopologyBuilder,
    subtopology_of: &[SubtopologyId],
    full_name: &impl Fn(&String) -> String,
) -> Vec<Node> {
    let mut nodes: Vec<Node> = draft
        .nodes
        .iter()
        .enumerate()
        .map(|(at, node)| Node {
            id: NodeId(at),
            name: node.name.clone(),
            kind: match &node.kind {
                DraftKind::Source { topics, options } => NodeKind::Source(SourceNode {
                    declared: topics.clone(),
                    topics: match topics {
                        Topics::Named(topics) => topics.iter().map(full_name).collect(),
                        Topics::Pattern(_) => Vec::new(),
                    },
                    options: options.clone(),
                }),
                DraftKind::Processor { stores } => NodeKind::Processor { stores: stores.clone() },
                DraftKind::Sink(topic) => NodeKind::Sink(SinkNode {
                    declared: topic.clone(),
                    topic: match topic {
                        SinkTopic::Named(topic) => Some(full_name(topic)),
                        SinkTopic::Dynamic { .. } => None,
                    },
                }),
            },
            parents: node.parents.clone(),
            children: Vec::new(),
            subtopology: subtopology_of[at],
        })
        .collect();
    for (at, node) in draft.nodes.iter().enumerate() {
        for parent in &node.parents {
            nodes[parent.index()].children.push(NodeId(at));
        }
    }
    nodes
}

fn build_stores(
    draft: &TopologyBuilder,
    nodes: &[Node],
    application_id: &str,
    full_name: &impl Fn(&String) -> String,
) -> Vec<Store> {
    draft
        .stores
        .iter()
        .map(|store| {
            let name = &store.spec.name;
            let changelog = match draft.source_changelogs.get(name) {
                Some(topic) => Some(Changelog { topic: full_name(topic), is_source_topic: true }),
                None if store.spec.logging.is_none() => None,
                None => Some(Changelog {
                    topic: format!("{application_id}-{name}-changelog"),
                    is_source_topic: false,
                }),
            };
            Store {
                spec: Arc::clone(&store.spec),
                users: store.users.clone(),
                subtopology: store.users.first().map(|user| nodes[user.index()].subtopology),
                changelog,
            }
        })
        .collect()
}

fn build_subtopologies(
    nodes: &[Node],
    stores: &[Store],
    global_stores: &[GlobalStore],
) -> Vec<Subtopology> {
    let mut subtopologies: Vec<Subtopology> = Vec::new();
    for node in nodes {
        if subtopologies.len() <= node.subtopology.0 as usize {
            subtopologies.push(Subtopology {
                id: node.subtopology,
                nodes: Vec::new(),
                is_global: global_stores
                    .iter()
                    .any(|global| global.subtopology == node.subtopology),
                source_topics: BTreeSet::new(),
                sink_topics: BTreeSet::new(),
                repartition_source_topics: BTreeSet::new(),
                changelog_topics: BTreeSet::new(),
                source_topic_changelogs: BTreeSet::new(),
                stores: Vec::new(),
            });
        }
        let subtopology = &mut subtopologies[node.subtopology.0 as usize];
        subtopology.nodes.push(node.id);
        if let NodeKind::Processor { stores: names } = &node.kind {
            for name in names {
                let is_local = stores.iter().any(|store| store.spec.name == *name);
                if is_local && !subtopology.stores.contains(name) {
                    subtopology.stores.push(name.clone());
                }
            }
        }
    }
    subtopologies
}

fn check_global_parts(nodes: &[Node], global_stores: &[GlobalStore]) -> Result<(), TopologyError> {
    for global in global_stores {
        for node in nodes.iter().filter(|node| node.subtopology == global.subtopology) {
            let allowed = match &node.kind {
                NodeKind::Source(_) => node.id == global.source,
                NodeKind::Processor { stores } => node.id == global.processor || stores.is_empty(),
                NodeKind::Sink(_) => false,
            };
            if !allowed {
                return Err(TopologyError::GlobalStoreWithTasks {
                    store: global.spec.name.clone(),
                    node: node.name.clone(),
                });
            }
        }
    }
    Ok(())
}

fn check_source_changelogs(
    draft: &TopologyBuilder,
    nodes: &[Node],
    stores: &[Store],
) -> Result<(), TopologyError> {
    for store in stores.iter().filter(|store| store.subtopology.is_some()) {
        if let Some(Changelog { topic, is_source_topic: true }) = &store.changelog {
            let mut readers = nodes.iter().filter(|node| source_topics(&node.kind).contains(topic));
            if readers.all(|node| Some(node.subtopology) != store.subtopology) {
                let store = store.spec.name.clone();
                let topic = draft.source_changelogs[&store].clone();
                return Err(TopologyError::ChangelogNotASource { store, topic });
            }
        }
    }
    Ok(())
}

fn find_copartitioned(
    draft: &TopologyBuilder,
    ids: &BTreeMap<String, NodeId>,
) -> Result<Vec<Vec<NodeId>>, TopologyError> {
    let find = |name: &String| match ids.get(name) {
        Some(&id) if matches!(draft.nodes[id.index()].kind, DraftKind::Source { .. }) => Ok(id),
        _ => Err(TopologyError::UnknownSource { source_name: name.clone() }),
    };
    draft.copartitioned.iter().map(|group| group.iter().map(find).collect()).collect()
}
