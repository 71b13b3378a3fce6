//! From the builder's draft to the built graph.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Changelog, GlobalStore, Inner, Store, Subtopology, Topology, source_topics};
use crate::builder::{DraftKind, TopologyBuilder};
use crate::error::TopologyError;
use crate::ids::{NodeId, SubtopologyId};
use crate::node::{Node, NodeKind, SinkNode, SinkTopic, SourceNode, Topics};
use crate::union::DisjointSets;

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
        generated_names: draft.generated_names.clone(),
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
