//! What can be wrong with a stream program.

use headwater_topology::TopologyError;

/// A program of streams and tables that cannot be built.
///
/// Operators never fail where they are called: the first mistake is kept and comes out of
/// [`StreamsBuilder::build`](crate::StreamsBuilder::build), or earlier out of
/// [`StreamsBuilder::check`](crate::StreamsBuilder::check).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DslError {
    /// The graph itself is wrong. The text is Kafka Streams'.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// Two sources read topics in common, but not the same topics (feature row D20).
    #[error(
        "Invalid topology: Two source nodes are subscribed to overlapping but not equal input topics"
    )]
    OverlappingSources {
        /// The topics of the first source.
        topics: Vec<String>,
        /// The topics of the second source.
        other_topics: Vec<String>,
    },
    /// Two sources read the same topics and begin in different places (feature row D20).
    #[error(
        "Invalid topology: Can't configure different offset reset policies on the same input topic(s)"
    )]
    ConflictingOffsetResets {
        /// The topics.
        topics: Vec<String>,
    },
    /// Two sources read the same topics as different types.
    #[error(
        "topics {topics:?} are read as {} and as {}; read them once and convert with map_values", types[0], types[1]
    )]
    SourceOfTwoTypes {
        /// The topics.
        topics: Vec<String>,
        /// Names of the two Rust types.
        types: [&'static str; 2],
    },
    /// A key or value has to be read or written and nobody said how.
    #[error(
        "node {node} needs a serde for its {part} of type {type_name}: give one to this operator (such as Grouped::with or Produced::with), or a default to the StreamsBuilder"
    )]
    MissingSerde {
        /// The node.
        node: String,
        /// Key or value.
        part: Part,
        /// The Rust type.
        type_name: &'static str,
    },
    /// Two streams or tables that were made by different builders.
    #[error(
        "node {node} belongs to another StreamsBuilder; streams that meet must come from the same one"
    )]
    OtherBuilder {
        /// The node of the stream that was passed.
        node: String,
    },
    /// A name for a node that gets its name elsewhere.
    #[error("node {node} cannot be renamed to {name}; give its name in the operator's parameters")]
    NotNameable {
        /// The node.
        node: String,
        /// The name.
        name: String,
    },
    /// A file that a stream is to be printed to and that cannot be opened.
    #[error("a stream cannot be printed to {path}: {reason}")]
    Unprintable {
        /// The file.
        path: String,
        /// What the operating system says.
        reason: String,
    },
    /// Windows that cannot be, or a store that does not keep them long enough.
    #[error("{problem}")]
    WrongWindows {
        /// What is wrong.
        problem: String,
    },
    /// A table whose updates are to be held back until windows close, and which is not made of an aggregation in
    /// windows (feature row D51). The text is Kafka Streams'.
    #[error(
        "Invalid topology: Window close time is only defined for windowed computations. Got [{chain}]."
    )]
    NoWindowsToClose {
        /// The nodes from the root to the table.
        chain: String,
    },
    /// Updates of a versioned table cannot be held back (feature row D51). The text is Kafka Streams'.
    #[error("Invalid topology: suppress() is only supported for non-versioned KTables")]
    SuppressOfVersioned,
    /// A global table in a versioned store (feature row D4). The text is Kafka Streams'.
    #[error("Invalid topology: GlobalTables cannot be versioned.")]
    VersionedGlobalTable,
    /// A join of a stream with a grace period and a table without history (feature row D38).
    #[error(
        "join {node} has a grace period, for which its table must be versioned; materialize the table in a versioned store"
    )]
    GraceWithoutHistory {
        /// The node of the join.
        node: String,
    },
    /// A join of a stream with a grace period that is longer than its table's history.
    #[error(
        "join {node} has a grace period of {grace_ms} ms, but store {store} keeps only {history_ms} ms of history; let it keep at least as much"
    )]
    GraceBeyondHistory {
        /// The node of the join.
        node: String,
        /// The table's store.
        store: String,
        /// Its history in milliseconds.
        history_ms: i64,
        /// The grace period in milliseconds.
        grace_ms: i64,
    },
    /// A repartition topic with no partition.
    #[error("repartition topic {topic} needs at least 1 partition")]
    NoPartitions {
        /// The topic, without application id.
        topic: String,
    },
    /// A join of streams that is to keep its records in a store that cannot do so (feature row D32).
    #[error("store {store} cannot keep the records of join {node}: {problem}")]
    UnfitJoinStore {
        /// The node of the join.
        node: String,
        /// The store.
        store: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A versioned store whose segments cover no time.
    #[error("segmentInterval cannot be zero: give versioned store {store} one of at least 1 ms")]
    NoSegmentInterval {
        /// The store.
        store: String,
    },
    /// A table that a supplier's store is no place for.
    #[error("store {store} is a {found}, but its table needs {wanted}; give it another supplier")]
    OtherStoreKind {
        /// The store.
        store: String,
        /// What the supplier makes.
        found: String,
        /// What the table needs.
        wanted: &'static str,
    },
    /// A store that does not keep a window for as long as it takes.
    #[error(
        "window store {store} keeps windows of {window_size_ms} ms for {retention_ms} ms; let it keep them at least as long as they are"
    )]
    RetentionBelowWindow {
        /// The store.
        store: String,
        /// How long windows are kept, in milliseconds.
        retention_ms: i64,
        /// How long they are, in milliseconds.
        window_size_ms: i64,
    },
    /// A store that cannot be cached.
    #[error(
        "store {store} cannot be cached, because it is versioned; leave with_caching_enabled out"
    )]
    NotCacheable {
        /// The store.
        store: String,
    },
    /// A node that forwards records of another type than a node below it takes.
    #[error("node {node} forwards {forwarded}, which a node below it does not take")]
    OtherRecordType {
        /// The node that forwards.
        node: String,
        /// Name of the Rust type of its edges.
        forwarded: &'static str,
    },
}

/// Key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The key.
    Key,
    /// The value.
    Value,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Key => "key",
            Self::Value => "value",
        })
    }
}
