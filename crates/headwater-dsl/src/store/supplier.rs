//! Stores for tables, other than the usual one.

use std::time::Duration;

use headwater_topology::{StoreKind, StoreSpec};

use crate::error::DslError;

/// A store for a table, other than the usual one: the `KeyValueBytesStoreSupplier`s of Kafka Streams'
/// class `Stores` (feature row P5). For
/// [`Materialized::from_supplier`](crate::Materialized::from_supplier).
///
/// ```
/// use std::time::Duration;
///
/// use headwater_dsl::{Consumed, Materialized, StoreSupplier, StreamsBuilder};
/// use headwater_store::serde::{Long, Utf8};
///
/// let builder = StreamsBuilder::new();
/// // Prices, as they were at any time of the last day.
/// let day = Duration::from_secs(24 * 60 * 60);
/// let prices = builder.table(
///     "prices",
///     Consumed::with(Utf8, Long),
///     Materialized::from_supplier(StoreSupplier::persistent_versioned_key_value_store("prices", day)),
/// );
/// # drop(prices);
/// # builder.build()?;
/// # Ok::<(), headwater_dsl::DslError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSupplier {
    pub(crate) name: String,
    pub(crate) kind: StoreKind,
    pub(crate) persistent: bool,
}

impl StoreSupplier {
    /// A store on disk that keeps values without timestamps. A table in it forgets how old its values
    /// are: to whoever reads it their timestamp is −1.
    pub fn persistent_key_value_store(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: StoreKind::KeyValue, persistent: true }
    }

    /// The usual store of a table: on disk, with timestamps.
    pub fn persistent_timestamped_key_value_store(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: StoreKind::TimestampedKeyValue, persistent: true }
    }

    /// A store in memory, with timestamps.
    pub fn in_memory_key_value_store(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: StoreKind::TimestampedKeyValue, persistent: false }
    }

    /// A store on disk that keeps a history: what was valid at a time stays readable until stream
    /// time is `history_retention` ahead of its end, and updates that are older are refused and
    /// counted (KIP-889). The table in it is versioned (KIP-914, feature row D52), and never cached.
    pub fn persistent_versioned_key_value_store(
        name: impl Into<String>,
        history_retention: Duration,
    ) -> Self {
        Self { name: name.into(), kind: versioned(history_retention), persistent: true }
    }

    /// A store on disk for windows: a window is kept until one begins that is `retention` later. It must be at least
    /// as long as a window is, which shows when the topology is built; a windowed table in it has timestamps, and
    /// one that takes records for longer than the retention does not find older windows any more.
    ///
    /// With `retain_duplicates` a key and a window can have several values, as a join of streams needs.
    pub fn persistent_window_store(
        name: impl Into<String>,
        retention: Duration,
        window_size: Duration,
        retain_duplicates: bool,
    ) -> Self {
        let kind = window(retention, window_size, retain_duplicates, false);
        Self { name: name.into(), kind, persistent: true }
    }

    /// As [`persistent_window_store`](Self::persistent_window_store), in memory.
    pub fn in_memory_window_store(
        name: impl Into<String>,
        retention: Duration,
        window_size: Duration,
        retain_duplicates: bool,
    ) -> Self {
        let kind = window(retention, window_size, retain_duplicates, false);
        Self { name: name.into(), kind, persistent: false }
    }

    /// A store on disk for sessions: a session is kept until one ends that is `retention` later.
    pub fn persistent_session_store(name: impl Into<String>, retention: Duration) -> Self {
        Self { name: name.into(), kind: session(retention), persistent: true }
    }

    /// As [`persistent_session_store`](Self::persistent_session_store), in memory.
    pub fn in_memory_session_store(name: impl Into<String>, retention: Duration) -> Self {
        Self { name: name.into(), kind: session(retention), persistent: false }
    }

    /// Sets how much time one segment of a versioned store's older versions covers. Default: the
    /// longer the history, the longer, as in Kafka Streams.
    ///
    /// Of another kind of store it sets nothing.
    pub fn with_segment_interval(mut self, segment_interval: Duration) -> Self {
        set_segment_interval(&mut self.kind, segment_interval);
        self
    }
}

/// The kind of a store with this history.
pub(super) fn versioned(history_retention: Duration) -> StoreKind {
    StoreKind::Versioned {
        history_retention_ms: milliseconds(history_retention),
        segment_interval_ms: None,
    }
}

/// The kind of a store of windows.
pub(super) fn window(
    retention: Duration,
    window_size: Duration,
    retain_duplicates: bool,
    timestamped: bool,
) -> StoreKind {
    StoreKind::Window {
        retention_ms: milliseconds(retention),
        window_size_ms: milliseconds(window_size),
        retain_duplicates,
        timestamped,
    }
}

/// The kind of a store of sessions.
pub(super) fn session(retention: Duration) -> StoreKind {
    StoreKind::Session { retention_ms: milliseconds(retention) }
}

pub(super) fn set_segment_interval(kind: &mut StoreKind, interval: Duration) {
    if let StoreKind::Versioned { segment_interval_ms, .. } = kind {
        *segment_interval_ms = Some(milliseconds(interval));
    }
}

/// What is wrong with a store.
pub(crate) fn check(spec: &StoreSpec) -> Result<(), DslError> {
    let store = spec.name.clone();
    let segment_interval_ms = match spec.kind {
        StoreKind::Versioned { segment_interval_ms, .. } => segment_interval_ms,
        StoreKind::Window { retention_ms, window_size_ms, .. } if retention_ms < window_size_ms => {
            return Err(DslError::RetentionBelowWindow { store, retention_ms, window_size_ms });
        }
        _ => return Ok(()),
    };
    if segment_interval_ms == Some(0) {
        return Err(DslError::NoSegmentInterval { store });
    }
    if spec.caching { Err(DslError::NotCacheable { store }) } else { Ok(()) }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
