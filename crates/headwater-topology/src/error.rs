//! What can be wrong with a graph.

/// A graph that cannot be built.
///
/// The text of the variants that the original knows too is the original's, word for word, so that a
/// search for it finds help written for Kafka Streams. Sources: `InternalTopologyBuilder`, `Topology`
/// and `Named` of Kafka Streams 4.4.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A source without topics.
    #[error("Invalid topology: topics cannot be empty")]
    NoTopics {
        /// Name of the source.
        source_name: String,
    },
    /// Two nodes of one name.
    #[error("Invalid topology: Processor {name} is already added.")]
    DuplicateNode {
        /// The name.
        name: String,
    },
    /// A topic that another source reads already.
    #[error("Invalid topology: Topic {topic} has already been registered by another source.")]
    DuplicateTopic {
        /// The topic.
        topic: String,
    },
    /// A topic that the pattern of an earlier source matches.
    #[error(
        "Invalid topology: Topic {topic} matches a Pattern already registered by another source."
    )]
    TopicMatchesPattern {
        /// The topic.
        topic: String,
        /// The pattern.
        pattern: String,
    },
    /// A pattern that matches the topic of an earlier source.
    #[error(
        "Invalid topology: Pattern {pattern} will match a topic that has already been registered by another source."
    )]
    PatternMatchesTopic {
        /// The pattern.
        pattern: String,
        /// The topic.
        topic: String,
    },
    /// A topic pattern that cannot be read; what can is described at
    /// [`Topics::Pattern`](crate::Topics::Pattern).
    #[error("invalid topic pattern {pattern:?} of source {source_name}: {problem}")]
    BadPattern {
        /// Name of the source.
        source_name: String,
        /// The pattern.
        pattern: String,
        /// What the regular expression engine says.
        problem: String,
    },
    /// A processor or sink without parents.
    #[error("Invalid topology: predecessorNames cannot be empty")]
    NoParents {
        /// The node.
        name: String,
    },
    /// A parent that is not in the graph. Parents are added before their children.
    #[error("Invalid topology: Parent node {parent} is unknown.")]
    UnknownParent {
        /// The node.
        name: String,
        /// Its parent.
        parent: String,
    },
    /// A node that is its own parent.
    #[error("Invalid topology: Parent node {name} is unknown (self-reference).")]
    OwnParent {
        /// The node.
        name: String,
    },
    /// A sink as parent.
    #[error("Invalid topology: Sink {sink} cannot be used a parent.")]
    SinkAsParent {
        /// The node.
        name: String,
        /// The sink.
        sink: String,
    },
    /// Two different stores of one name.
    #[error(
        "Invalid topology: A different StateStore has already been added with the name {store}"
    )]
    DuplicateStore {
        /// The name.
        store: String,
    },
    /// A store with the name of a global store.
    #[error(
        "Invalid topology: A different GlobalStateStore has already been added with the name {store}"
    )]
    DuplicateGlobalStore {
        /// The name.
        store: String,
    },
    /// A global store that was to be connected to a processor: every processor can read it anyway.
    #[error(
        "Invalid topology: Global StateStore {store} can be used by a Processor without being specified; it should not be explicitly passed."
    )]
    GlobalStoreConnected {
        /// The store.
        store: String,
        /// The processor.
        processor: String,
    },
    /// A store that is not in the graph.
    #[error("Invalid topology: StateStore {store} is not added yet.")]
    UnknownStore {
        /// The store.
        store: String,
        /// The processor that was to use it.
        processor: String,
    },
    /// A processor that is not in the graph.
    #[error("Invalid topology: Processor {processor} is not added yet.")]
    UnknownProcessor {
        /// The processor.
        processor: String,
        /// The store that it was to use.
        store: String,
    },
    /// Stores connected to a source or a sink.
    #[error("Invalid topology: State stores cannot be connect to sources or sinks.")]
    ConnectedSourceOrSink {
        /// The source or sink.
        node: String,
    },
    /// A store added for a source or a sink.
    #[error(
        "Invalid topology: cannot connect a state store {store} to a source node or a sink node."
    )]
    StoreOfSourceOrSink {
        /// The store.
        store: String,
        /// The source or sink.
        node: String,
    },
    /// No store to connect.
    #[error("Invalid topology: stateStoreNames cannot be empty")]
    NoStores {
        /// The processor that was to use them.
        processor: String,
    },
    /// One name for source and processor of a global store.
    #[error("Invalid topology: sourceName and processorName must be different.")]
    SourceAndProcessorNamesEqual {
        /// The name.
        name: String,
    },
    /// A store that has a source topic as changelog already.
    #[error("Invalid topology: Source store {store} is already added.")]
    DuplicateSourceStore {
        /// The store.
        store: String,
    },
    /// Repartition topics with fixed, unequal numbers of partitions that are read together.
    #[error("Invalid topology: Following topics do not have the same number of partitions: [{{{}}}]", equals(.partitions))]
    UnequalFixedPartitions {
        /// Topic names without application id, and the numbers.
        partitions: Vec<(String, u32)>,
    },
    /// Stores and internal topics with generated names, where the application asks for its own
    /// (`ensure_explicit_internal_resource_naming`, KIP-1111).
    #[error("Invalid topology: {}", unnamed(.changelog_topics, .stores, .repartition_topics))]
    UnnamedResources {
        /// Changelog topics.
        changelog_topics: Vec<String>,
        /// Stores.
        stores: Vec<String>,
        /// Repartition topics.
        repartition_topics: Vec<String>,
    },
    /// An empty name.
    #[error("Invalid topology: Name is illegal, it can't be empty")]
    EmptyName,
    /// The name `.` or `..`.
    #[error("Invalid topology: Name cannot be \".\" or \"..\"")]
    DotName {
        /// The name.
        name: String,
    },
    /// A name of more than 249 UTF-16 units.
    #[error(
        "Invalid topology: Name is illegal, it can't be longer than 249 characters, name: {name}"
    )]
    LongName {
        /// The name.
        name: String,
    },
    /// A name with other characters than topic names may have.
    #[error(
        "Invalid topology: Name \"{name}\" is illegal, it contains a character other than ASCII alphanumerics, '.', '_' and '-'"
    )]
    IllegalName {
        /// The name.
        name: String,
    },
    /// A global store's part of the graph that holds more than processors. The original accepts
    /// this and then never runs these nodes.
    #[error(
        "node {node} is connected to global store {store}: nothing but processors may hang on a global store's processor; read the store from a task's processor instead"
    )]
    GlobalStoreWithTasks {
        /// The global store.
        store: String,
        /// The node.
        node: String,
    },
    /// A co-partitioned source that is not in the graph.
    #[error("co-partitioned source {source_name} is not a source of the topology")]
    UnknownSource {
        /// Its name.
        source_name: String,
    },
    /// A source topic that is to serve as changelog, but that the store's sub-topology does not read.
    #[error(
        "topic {topic} cannot be the changelog of store {store}: no source of the store's sub-topology reads it"
    )]
    ChangelogNotASource {
        /// The store.
        store: String,
        /// The topic, without application id.
        topic: String,
    },
    /// A topic that the patterns of two sources match.
    #[error(
        "Invalid topology: Topic {topic} is already matched for another regex pattern {pattern} and hence cannot be matched to this regex pattern {other_pattern} any more."
    )]
    TopicMatchesTwoPatterns {
        /// The topic.
        topic: String,
        /// The first pattern.
        pattern: String,
        /// The second pattern.
        other_pattern: String,
    },
}

fn equals(partitions: &[(String, u32)]) -> String {
    let texts: Vec<String> =
        partitions.iter().map(|(topic, count)| format!("{topic}={count}")).collect();
    texts.join(", ")
}

fn unnamed(
    changelog_topics: &[String],
    stores: &[String],
    repartition_topics: &[String],
) -> String {
    let kinds = [
        ("changelog topic(s)", changelog_topics),
        ("state store(s)", stores),
        ("repartition topic(s)", repartition_topics),
    ];
    let lines = kinds.iter().filter(|(_, names)| !names.is_empty()).map(|(kind, names)| {
        format!("Following {kind} has not been named: {}\n", names.join(", "))
    });
    lines.collect::<Vec<_>>().concat()
}
