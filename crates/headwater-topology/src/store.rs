//! State stores, as far as the graph needs to know them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A state store: its name and what decides over its changelog. Serdes and behaviour are attached
/// elsewhere, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSpec {
    /// Name, unique in the topology.
    pub name: String,
    /// Kind.
    pub kind: StoreKind,
    /// Whether the store survives on disk.
    pub persistent: bool,
    /// The changelog's own topic configuration (over Headwater's and the application's defaults);
    /// `None`: no changelog.
    pub logging: Option<BTreeMap<String, String>>,
    /// Whether updates are cached: only the last one of a key goes downstream at commit. Never in
    /// effect for windows that retain duplicates.
    pub caching: bool,
}

impl StoreSpec {
    /// A persistent store with a changelog and without cache, as the low-level builders of
    /// `Stores` make them (feature row P6).
    pub fn new(name: impl Into<String>, kind: StoreKind) -> Self {
        Self {
            name: name.into(),
            kind,
            persistent: true,
            logging: Some(BTreeMap::new()),
            caching: false,
        }
    }

    /// Keeps the store in memory only.
    pub fn in_memory(self) -> Self {
        Self { persistent: false, ..self }
    }

    /// Does without changelog: the contents are lost when the task moves.
    pub fn with_logging_disabled(self) -> Self {
        Self { logging: None, ..self }
    }

    /// Writes a changelog, whose topic gets this configuration on top of the defaults.
    pub fn with_logging_enabled(self, topic_config: BTreeMap<String, String>) -> Self {
        Self { logging: Some(topic_config), ..self }
    }

    /// Turns the cache on or off.
    pub fn with_caching(self, caching: bool) -> Self {
        Self { caching, ..self }
    }
}

/// The kinds of state stores (feature row P5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum StoreKind {
    /// Values by key.
    KeyValue,
    /// Values with timestamps, by key.
    TimestampedKeyValue,
    /// Values with timestamps and headers, by key (KIP-1271).
    TimestampedKeyValueWithHeaders,
    /// Values by key, of which the least recently used are dropped.
    Lru {
        /// How many are kept.
        max_entries: usize,
    },
    /// Values by key and validity interval.
    Versioned {
        /// How long old versions stay readable.
        history_retention_ms: i64,
        /// How much time one segment of old versions covers; `None`: derived from the retention.
        segment_interval_ms: Option<i64>,
    },
    /// Values by key and window start.
    Window {
        /// How long windows are kept.
        retention_ms: i64,
        /// Size of the windows.
        window_size_ms: i64,
        /// Whether one key and start can have several values, as the stores of a stream-stream
        /// join do. The changelog is then not compacted.
        retain_duplicates: bool,
        /// Whether values carry timestamps, as those of windowed aggregations do.
        timestamped: bool,
    },
    /// Values by key, session start and session end.
    Session {
        /// How long sessions are kept.
        retention_ms: i64,
    },
    /// Unmatched records of an outer stream-stream join, by time, side and key (feature row P15).
    OuterJoin,
    /// Updates that `suppress` holds back (feature row P16).
    SuppressBuffer,
    /// Stream records that a stream-table join holds back for its grace period.
    StreamTableJoinBuffer,
    /// Subscriptions of a foreign-key join.
    ForeignKeySubscription,
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyValue => f.write_str("key-value store"),
            Self::TimestampedKeyValue => f.write_str("timestamped key-value store"),
            Self::TimestampedKeyValueWithHeaders => {
                f.write_str("timestamped key-value store with headers")
            }
            Self::Lru { max_entries } => write!(f, "LRU store of {max_entries} entries"),
            Self::Versioned { history_retention_ms, segment_interval_ms: None } => {
                write!(f, "versioned store with {history_retention_ms} ms of history")
            }
            Self::Versioned { history_retention_ms, segment_interval_ms: Some(interval_ms) } => {
                write!(
                    f,
                    "versioned store with {history_retention_ms} ms of history in segments of {interval_ms} ms"
                )
            }
            Self::Window { retention_ms, window_size_ms, retain_duplicates, timestamped } => {
                let timestamped = if *timestamped { "timestamped " } else { "" };
                let duplicates = if *retain_duplicates { ", with duplicates" } else { "" };
                write!(
                    f,
                    "{timestamped}store of {window_size_ms} ms windows kept for {retention_ms} ms{duplicates}"
                )
            }
            Self::Session { retention_ms } => {
                write!(f, "store of sessions kept for {retention_ms} ms")
            }
            Self::OuterJoin => f.write_str("store of unmatched records of an outer join"),
            Self::SuppressBuffer => f.write_str("suppress buffer"),
            Self::StreamTableJoinBuffer => f.write_str("buffer of a stream-table join"),
            Self::ForeignKeySubscription => f.write_str("subscriptions of a foreign-key join"),
        }
    }
}
