//! What was added to the builder, as data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::node::{Node, NodeKind, OffsetReset, SinkTopic, Topics};
use crate::store::StoreSpec;
use crate::topology::Topology;

/// The version of the layout. A reader refuses any other.
pub(super) const FORMAT: u32 = 1;

/// The calls that make up a graph. Topics are named without application id.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GraphDocument {
    /// Parents first.
    pub(super) nodes: Vec<NodeDocument>,
    pub(super) stores: Vec<StoreDocument>,
    pub(super) global_stores: Vec<GlobalStoreDocument>,
    /// Repartition topics, and their number of partitions where it is fixed.
    pub(super) internal_topics: BTreeMap<String, Option<u32>>,
    /// Names of sources.
    pub(super) copartitioned: Vec<Vec<String>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum NodeDocument {
    Source {
        name: String,
        /// Those named, or those that match the pattern.
        topics: Vec<String>,
        pattern: Option<String>,
        offset_reset: Option<OffsetReset>,
        timestamp_extractor: bool,
    },
    Processor {
        name: String,
        parents: Vec<String>,
        stores: Vec<String>,
    },
    Sink {
        name: String,
        parents: Vec<String>,
        topic: Option<String>,
        topic_chooser: Option<String>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreDocument {
    pub(super) store: StoreSpec,
    /// Names of processors.
    pub(super) users: Vec<String>,
    /// The source topic that serves as changelog.
    pub(super) source_topic: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GlobalStoreDocument {
    pub(super) store: StoreSpec,
    pub(super) source: String,
    pub(super) processor: String,
}

impl GraphDocument {
    pub(super) fn of(topology: &Topology) -> Self {
        let name = |id: NodeId| topology.node(id).name.clone();
        let stores = topology.stores().iter().map(|store| {
            let source = store.changelog.as_ref().filter(|changelog| changelog.is_source_topic);
            StoreDocument {
                store: StoreSpec::clone(&store.spec),
                users: store.users.iter().map(|&id| name(id)).collect(),
                source_topic: source.map(|changelog| short_name(topology, &changelog.topic)),
            }
        });
        let global_stores = topology.global_stores().iter().map(|global| GlobalStoreDocument {
            store: StoreSpec::clone(&global.spec),
            source: name(global.source),
            processor: name(global.processor),
        });
        let internal = topology.inner.repartition_topics.iter();
        let copartitioned = topology.inner.copartitioned.iter();
        Self {
            nodes: topology.nodes().iter().map(|it| NodeDocument::of(topology, it)).collect(),
            stores: stores.collect(),
            global_stores: global_stores.collect(),
            internal_topics: internal
                .map(|(topic, properties)| (short_name(topology, topic), properties.partitions))
                .collect(),
            copartitioned: copartitioned
                .map(|group| group.iter().map(|&id| name(id)).collect())
                .collect(),
        }
    }
}

impl NodeDocument {
    fn of(topology: &Topology, node: &Node) -> Self {
        let name = node.name.clone();
        let parents = node.parents.iter().map(|&id| topology.node(id).name.clone()).collect();
        match &node.kind {
            NodeKind::Source(source) => {
                let (topics, pattern) = match &source.declared {
                    Topics::Named(topics) => (topics.clone(), None),
                    Topics::Pattern(pattern) => (source.topics.clone(), Some(pattern.clone())),
                };
                let offset_reset = source.options.offset_reset;
                let timestamp_extractor = source.options.timestamp_extractor;
                Self::Source { name, topics, pattern, offset_reset, timestamp_extractor }
            }
            NodeKind::Processor { stores } => {
                Self::Processor { name, parents, stores: stores.clone() }
            }
            NodeKind::Sink(sink) => match &sink.declared {
                SinkTopic::Named(topic) => {
                    Self::Sink { name, parents, topic: Some(topic.clone()), topic_chooser: None }
                }
                SinkTopic::Dynamic { chooser } => {
                    Self::Sink { name, parents, topic: None, topic_chooser: Some(chooser.clone()) }
                }
            },
        }
    }
}

/// An internal topic's name without the application id in front; any other name as it is.
fn short_name(topology: &Topology, topic: &str) -> String {
    let short = topology.inner.repartition_topics.contains_key(topic).then(|| {
        topic.strip_prefix(topology.application_id()).and_then(|rest| rest.strip_prefix('-'))
    });
    short.flatten().unwrap_or(topic).to_owned()
}
