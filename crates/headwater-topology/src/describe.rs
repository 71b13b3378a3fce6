//! The description of a topology, as text and as JSON.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::ids::NodeId;
use crate::java_order::{TreeSet, compare_names, copied_hash_set, grown_hash_map};
use crate::node::{Node, NodeKind, SinkTopic, Topics};
use crate::topology::{Subtopology, Topology};

impl Topology {
    /// The description, character by character as `Topology.describe().toString()` of Kafka Streams
    /// 4.4 (feature row X7): topics without application id; the nodes of a sub-topology by the
    /// number of ways down from them, largest first, then by name; stores and topics in the order of
    /// a Java `HashSet`.
    pub fn describe(&self) -> String {
        let parts = self.subtopologies().iter().map(|subtopology| {
            let id = subtopology.id;
            let global = self.global_stores().iter().find(|global| global.subtopology == id);
            if let Some(global) = global {
                let source = self.node(global.source);
                let processor = self.node(global.processor);
                format!(
                    "  Sub-topology: {id} for global store (will not generate tasks)\n    {}\n    {}\n",
                    node_text(source, &processor.name, ""),
                    node_text(processor, "none", &source.name),
                )
            } else {
                let nodes = SizedNodes::new(self, subtopology).texts().concat();
                format!("  Sub-topology: {id}\n{nodes}\n")
            }
        });
        format!("Topologies:\n {}", parts.collect::<Vec<_>>().concat())
    }

    /// The description as JSON: keys and lists sorted, topics with application id, and with what the
    /// text leaves out (changelogs, internal topics, co-partition groups).
    pub fn describe_json(&self) -> String {
        let by_name = |items: Vec<(&str, Value)>| -> BTreeMap<String, Value> {
            items.into_iter().map(|(name, item)| (name.to_owned(), item)).collect()
        };
        let global_stores = self.global_stores().iter().map(|global| {
            let item = json!({ "subtopology": global.subtopology, "topic": global.topic });
            (global.spec.name.as_str(), item)
        });
        let internal_topics = self.internal_topics();
        let internal_topics = internal_topics.iter().map(|topic| {
            let kind = if topic.is_changelog() { "changelog" } else { "repartition" };
            let item = json!({ "kind": kind, "partitions": topic.partitions });
            (topic.name.as_str(), item)
        });
        let stores = self.stores().iter().map(|store| {
            let changelog = store.changelog.as_ref().map(|changelog| &changelog.topic);
            let item = json!({ "changelog": changelog, "subtopology": store.subtopology });
            (store.spec.name.as_str(), item)
        });
        let subtopologies: Vec<Value> = self
            .subtopologies()
            .iter()
            .map(|subtopology| {
                let nodes = subtopology.nodes.iter().map(|&id| {
                    let node = self.node(id);
                    (node.name.as_str(), self.node_json(node))
                });
                json!({
                    "changelog_topics": subtopology.changelog_topics,
                    "global": subtopology.is_global,
                    "id": subtopology.id,
                    "nodes": by_name(nodes.collect()),
                    "repartition_source_topics": subtopology.repartition_source_topics,
                    "sink_topics": subtopology.sink_topics,
                    "source_topic_changelogs": subtopology.source_topic_changelogs,
                    "source_topics": subtopology.source_topics,
                })
            })
            .collect();
        let description = json!({
            "application_id": self.application_id(),
            "copartition_groups": self.copartition_groups(),
            "global_stores": by_name(global_stores.collect()),
            "internal_topics": by_name(internal_topics.collect()),
            "stores": by_name(stores.collect()),
            "subtopologies": subtopologies,
        });
        format!("{description:#}\n")
    }

    fn node_json(&self, node: &Node) -> Value {
        let names = |ids: &[NodeId]| -> BTreeSet<&str> {
            ids.iter().map(|&id| self.node(id).name.as_str()).collect()
        };
        let (children, parents) = (names(&node.children), names(&node.parents));
        match &node.kind {
            NodeKind::Source(source) => {
                let topics: BTreeSet<&String> = source.topics.iter().collect();
                let pattern = match &source.declared {
                    Topics::Pattern(pattern) => Some(pattern),
                    Topics::Named(_) => None,
                };
                json!({
                    "children": children, "kind": "source", "pattern": pattern, "topics": topics,
                })
            }
            NodeKind::Processor { stores } => {
                let stores: BTreeSet<&String> = stores.iter().collect();
                json!({
                    "children": children, "kind": "processor", "parents": parents, "stores": stores,
                })
            }
            NodeKind::Sink(sink) => {
                let chooser = match &sink.declared {
                    SinkTopic::Dynamic { chooser } => Some(chooser),
                    SinkTopic::Named(_) => None,
                };
                json!({
                    "kind": "sink", "parents": parents, "topic": sink.topic, "topic_chooser": chooser,
                })
            }
        }
    }
}

/// The nodes of one sub-topology with their neighbours in the original's order.
///
/// The original keeps neighbours in tree sets ordered by size and fills them while the sizes still
/// grow, in the order of a hash map over all nodes. So their order is not simply that of the final
/// sizes, and the filling has to be done over again in the same way.
struct SizedNodes<'a> {
    topology: &'a Topology,
    members: &'a [NodeId],
    /// By node index: the number of ways down from the node, itself included.
    sizes: Vec<i32>,
    predecessors: Vec<TreeSet>,
    successors: Vec<TreeSet>,
}

impl<'a> SizedNodes<'a> {
    fn new(topology: &'a Topology, subtopology: &'a Subtopology) -> Self {
        let count = topology.nodes().len();
        let mut sized = Self {
            topology,
            members: &subtopology.nodes,
            sizes: vec![1; count],
            predecessors: vec![TreeSet::default(); count],
            successors: vec![TreeSet::default(); count],
        };
        let mut nodes: Vec<&Node> = subtopology.nodes.iter().map(|&id| topology.node(id)).collect();
        grown_hash_map(&mut nodes, |node| &node.name);
        for node in nodes {
            let at = node.id.index();
            for parent in node.parents.iter().map(|parent| parent.index()) {
                let compare = |one, other| compare_sized(topology, &sized.sizes, one, other);
                sized.predecessors[at].insert(parent, compare);
                sized.successors[parent].insert(at, compare);
                sized.grow(parent, sized.sizes[at]);
            }
        }
        sized
    }

    /// Adds to the size of a node and, along every way up, to those above it.
    fn grow(&mut self, node: usize, by: i32) {
        let mut growth = vec![0_i32; node + 1];
        growth[node] = by;
        for at in (0..=node).rev() {
            if growth[at] == 0 {
                continue;
            }
            self.sizes[at] = self.sizes[at].wrapping_add(growth[at]);
            for parent in self.predecessors[at].items() {
                growth[parent] = growth[parent].wrapping_add(growth[at]);
            }
        }
    }

    fn texts(&self) -> Vec<String> {
        let mut nodes: Vec<usize> = self.members.iter().map(|id| id.index()).collect();
        nodes.sort_by(|&one, &other| compare_sized(self.topology, &self.sizes, one, other));
        let names = |set: &TreeSet| {
            let items = set.items();
            let names: Vec<&str> =
                items.iter().map(|&at| self.topology.nodes()[at].name.as_str()).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        nodes
            .into_iter()
            .map(|at| {
                let node = &self.topology.nodes()[at];
                let (successors, predecessors) = (&self.successors[at], &self.predecessors[at]);
                format!("    {}\n", node_text(node, &names(successors), &names(predecessors)))
            })
            .collect()
    }
}

fn compare_sized(topology: &Topology, sizes: &[i32], one: usize, other: usize) -> Ordering {
    if one == other {
        return Ordering::Equal;
    }
    let name = |at: usize| topology.nodes()[at].name.as_str();
    match sizes[other].wrapping_sub(sizes[one]) {
        0 => compare_names(name(one), name(other)),
        difference => difference.cmp(&0),
    }
}

fn node_text(node: &Node, successors: &str, predecessors: &str) -> String {
    let name = &node.name;
    let head = match &node.kind {
        NodeKind::Source(source) => {
            let topics = match &source.declared {
                Topics::Named(topics) => bracketed(topics),
                Topics::Pattern(pattern) => pattern.clone(),
            };
            return format!("Source: {name} (topics: {topics})\n      --> {successors}");
        }
        NodeKind::Processor { stores } => {
            let stores = bracketed(stores);
            format!("Processor: {name} (stores: {stores})\n      --> {successors}")
        }
        NodeKind::Sink(sink) => match &sink.declared {
            SinkTopic::Named(topic) => format!("Sink: {name} (topic: {topic})"),
            SinkTopic::Dynamic { chooser } => format!("Sink: {name} (extractor class: {chooser})"),
        },
    };
    format!("{head}\n      <-- {predecessors}")
}

fn bracketed(names: &[String]) -> String {
    format!("[{}]", copied_hash_set(names.iter().map(String::as_str)).join(", "))
}
