//! The nodes of the graph.

use crate::ids::{NodeId, SubtopologyId};

/// The topics that a source reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topics {
    /// These topics.
    Named(Vec<String>),
    /// Every topic whose whole name matches this regular expression. The syntax is that of the
    /// `regex-lite` crate, which is Java's except for this: look-around, back references and
    /// `\p{..}` are refused; a possessive quantifier such as `a++` is a plain one repeated.
    Pattern(String),
}

impl Topics {
    /// One topic.
    pub fn one(topic: impl Into<String>) -> Self {
        Self::Named(vec![topic.into()])
    }
}

/// Where a source starts on a partition without committed offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OffsetReset {
    /// At the oldest record.
    Earliest,
    /// Behind the newest record.
    Latest,
    /// Nowhere: it is an error.
    None,
    /// At the first record that is younger than this.
    ByDuration {
        /// Age in milliseconds.
        duration_ms: i64,
    },
}

/// What a source may have besides topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceOptions {
    /// Where to start without committed offset; `None`: as the application is configured.
    pub offset_reset: Option<OffsetReset>,
    /// Whether the source has a timestamp extractor of its own.
    pub timestamp_extractor: bool,
}

/// The topic that a sink writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkTopic {
    /// This topic.
    Named(String),
    /// The topic that a function chooses for each record.
    Dynamic {
        /// What the description calls the function.
        chooser: String,
    },
}

impl SinkTopic {
    /// A sink that always writes to this topic.
    pub fn named(topic: impl Into<String>) -> Self {
        Self::Named(topic.into())
    }
}

/// A node of a built topology.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// Position in the topology.
    pub id: NodeId,
    /// Name, unique in the topology.
    pub name: String,
    /// What it is.
    pub kind: NodeKind,
    /// Parents as they were named; a parent named twice stands here twice.
    pub parents: Vec<NodeId>,
    /// Children in the order in which they were added, which is the order in which they get each
    /// record. A child that named this node twice stands here twice and gets each record twice.
    pub children: Vec<NodeId>,
    /// The sub-topology it belongs to.
    pub subtopology: SubtopologyId,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeKind {
    /// Reads topics.
    Source(SourceNode),
    /// Runs user code.
    Processor {
        /// Names of the connected stores, in the order in which they were connected.
        stores: Vec<String>,
    },
    /// Writes to a topic.
    Sink(SinkNode),
}

/// A source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceNode {
    /// The topics as they were given.
    pub declared: Topics,
    /// Full names of the topics: internal topics with the application id in front. Those of a
    /// pattern are known after [`Topology::with_matched_topics`](crate::Topology::with_matched_topics).
    pub topics: Vec<String>,
    /// The rest.
    pub options: SourceOptions,
}

/// A sink.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkNode {
    /// The topic as it was given.
    pub declared: SinkTopic,
    /// Full name of the topic: that of an internal topic has the application id in front. `None`
    /// where a function chooses.
    pub topic: Option<String>,
}
