//! A topology made again of its JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::document::{FORMAT, GlobalStoreDocument, GraphDocument, NodeDocument, StoreDocument};
use crate::builder::{InternalTopicProperties, StoreSource, TopologyBuilder};
use crate::error::TopologyError;
use crate::node::{SinkTopic, SourceOptions, Topics};
use crate::topology::Topology;

/// A text that is not the JSON of a topology.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadTopologyError {
    /// No JSON, or a field that is missing, unknown or of another kind.
    #[error("this is not the JSON of a topology: {source}")]
    Syntax {
        /// What was expected, and where.
        source: serde_json::Error,
    },
    /// A layout of another version.
    #[error("the JSON of this topology has format {found}, and this version reads {FORMAT}")]
    Format {
        /// The format of the text.
        found: u32,
    },
    /// Two parts that contradict each other.
    #[error("the JSON of this topology contradicts itself: {problem}")]
    Contradiction {
        /// What speaks against what.
        problem: String,
    },
    /// A graph that cannot be.
    #[error("the JSON is of a topology that cannot be built: {source}")]
    Graph {
        /// Why not.
        #[from]
        source: TopologyError,
    },
}

#[derive(Debug, Deserialize)]
struct Head {
    format: u32,
}

/// The rest follows from the graph.
#[derive(Debug, Deserialize)]
struct Document {
    application_id: String,
    graph: GraphDocument,
}

impl Topology {
    /// The topology that [`describe_json`](Self::describe_json) wrote: equal in every description and
    /// for [`diff`](crate::diff()). Only `format`, `application_id` and `graph` are read; all else follows.
    ///
    /// # Errors
    /// If the text is anything else, or describes a graph that no builder would make.
    pub fn from_json(text: &str) -> Result<Self, ReadTopologyError> {
        let syntax = |source| ReadTopologyError::Syntax { source };
        let head: Head = serde_json::from_str(text).map_err(syntax)?;
        if head.format != FORMAT {
            return Err(ReadTopologyError::Format { found: head.format });
        }
        let document: Document = serde_json::from_str(text).map_err(syntax)?;
        let matched: Vec<String> = document.graph.nodes.iter().flat_map(matched_topics).collect();
        let topology = builder(document.graph)?.build(&document.application_id)?;
        Ok(topology.with_matched_topics(matched.iter().map(String::as_str))?)
    }
}

fn matched_topics(node: &NodeDocument) -> Vec<String> {
    match node {
        NodeDocument::Source { topics, pattern: Some(_), .. } => topics.clone(),
        _ => Vec::new(),
    }
}

fn builder(graph: GraphDocument) -> Result<TopologyBuilder, ReadTopologyError> {
    let mut builder = TopologyBuilder::new();
    for (topic, partitions) in graph.internal_topics {
        builder.add_internal_topic(topic, InternalTopicProperties { partitions });
    }
    let mut global_stores: BTreeMap<String, GlobalStoreDocument> =
        graph.global_stores.into_iter().map(|global| (global.source.clone(), global)).collect();
    let mut uses = Vec::new();
    let mut nodes = graph.nodes.into_iter();
    while let Some(node) = nodes.next() {
        match node {
            NodeDocument::Source { name, topics, timestamp_extractor, .. }
                if global_stores.contains_key(&name) =>
            {
                let global = global_stores.remove(&name).expect("it was there a moment ago");
                expect_processor(&global, nodes.next())?;
                let topic = topics.into_iter().next().unwrap_or_default();
                let processor = global.processor;
                let from = StoreSource { source: name, topic, processor, timestamp_extractor };
                builder.add_global_store(global.store, from)?;
            }
            NodeDocument::Source { name, topics, pattern, offset_reset, timestamp_extractor } => {
                let topics = pattern.map_or(Topics::Named(topics), Topics::Pattern);
                builder.add_source(
                    name,
                    topics,
                    SourceOptions { offset_reset, timestamp_extractor },
                )?;
            }
            NodeDocument::Processor { name, parents, stores } => {
                builder.add_processor(name.clone(), parents)?;
                uses.push((name, stores));
            }
            NodeDocument::Sink { name, parents, topic, topic_chooser } => {
                let topic = sink_topic(&name, topic, topic_chooser)?;
                builder.add_sink(name, topic, parents)?;
            }
        }
    }
    if let Some(source) = global_stores.into_keys().next() {
        return Err(contradiction(format!("global source {source} is not among the nodes")));
    }
    add_stores(&mut builder, graph.stores, uses)?;
    for group in graph.copartitioned {
        builder.copartition_sources(group);
    }
    Ok(builder)
}

/// The processor of a global store stands right behind its source.
fn expect_processor(
    global: &GlobalStoreDocument,
    node: Option<NodeDocument>,
) -> Result<(), ReadTopologyError> {
    match node {
        Some(NodeDocument::Processor { name, .. }) if name == global.processor => Ok(()),
        _ => Err(contradiction(format!(
            "processor {} of a global store does not follow its source {}",
            global.processor, global.source
        ))),
    }
}

fn sink_topic(
    sink: &str,
    topic: Option<String>,
    chooser: Option<String>,
) -> Result<SinkTopic, ReadTopologyError> {
    match (topic, chooser) {
        (Some(topic), None) => Ok(SinkTopic::Named(topic)),
        (None, Some(chooser)) => Ok(SinkTopic::Dynamic { chooser }),
        _ => Err(contradiction(format!("sink {sink} needs either a topic or a topic_chooser"))),
    }
}

/// A store knows its users in the order in which they were connected, and a processor its stores: no one
/// order of calls gives both, so they are laid in as they are.
fn add_stores(
    builder: &mut TopologyBuilder,
    stores: Vec<StoreDocument>,
    uses: Vec<(String, Vec<String>)>,
) -> Result<(), ReadTopologyError> {
    let mut by_store: BTreeMap<(String, String), bool> = BTreeMap::new();
    for StoreDocument { store, users, source_topic } in stores {
        let name = store.name.clone();
        if let Some(topic) = source_topic {
            builder.connect_source_store_and_topic(&name, &topic)?;
        }
        builder.add_state_store(Arc::new(store), &users)?;
        by_store.extend(users.into_iter().map(|user| ((name.clone(), user), false)));
    }
    for (processor, stores) in uses {
        for store in &stores {
            let Some(named) = by_store.get_mut(&(store.clone(), processor.clone())) else {
                return Err(contradiction(format!(
                    "processor {processor} uses store {store}, which does not name it"
                )));
            };
            *named = true;
        }
        builder.order_stores_of(&processor, stores);
    }
    match by_store.into_iter().find(|(_, named)| !named) {
        Some(((store, processor), _)) => Err(contradiction(format!(
            "store {store} names processor {processor}, which does not use it"
        ))),
        None => Ok(()),
    }
}

fn contradiction(problem: String) -> ReadTopologyError {
    ReadTopologyError::Contradiction { problem }
}
