//! The description as JSON: what follows from the graph, for people and programs, and the graph itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::document::{FORMAT, GraphDocument};
use crate::ids::NodeId;
use crate::node::{Node, NodeKind, SinkTopic, Topics};
use crate::topology::Topology;

impl Topology {
    /// The description as JSON: keys and lists sorted, topics with application id, and with what the
    /// text leaves out (changelogs, internal topics, co-partition groups). `graph` is what was added to
    /// the builder, in its order; [`Topology::from_json`] makes the topology of it again.
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
            "format": FORMAT,
            "global_stores": by_name(global_stores.collect()),
            "graph": GraphDocument::of(self),
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
