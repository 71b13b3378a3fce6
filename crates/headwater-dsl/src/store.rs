//! State stores: what operators keep, and what processors can name.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_runtime::{DslStoreFormat, DslStoreSuppliers, StoreFormats, StreamsConfig};
use headwater_store::serde::{RawBytes, Serde};
use headwater_topology::{StoreKind, StoreSpec};

use crate::error::Part;
use crate::serdes::{Codec, DefaultSerdes, codec};

mod supplier;

pub use supplier::StoreSupplier;

pub(crate) use supplier::check;

use supplier::{session, set_segment_interval, versioned, window};

/// A store of the topology together with its serdes.
#[expect(
    clippy::struct_excessive_bools,
    reason = "properties of their own, which go together in any way"
)]
#[derive(Clone, Debug)]
pub(crate) struct StoreDeclaration {
    pub(crate) spec: Arc<StoreSpec>,
    pub(crate) serdes: StoreSerdes,
    /// Whether windows or sessions are also found by their time.
    pub(crate) by_time: bool,
    /// Whether its values are kept as the builder or the configuration says
    /// ([`DslStoreFormat`](headwater_runtime::DslStoreFormat)).
    pub(crate) takes_format: bool,
    /// Whether it is on disk or in memory as the builder or the configuration says
    /// ([`DslStoreSuppliers`](headwater_runtime::DslStoreSuppliers)).
    pub(crate) takes_suppliers: bool,
    /// Whether values of windows, of sessions and of a suppression are kept or logged with headers.
    pub(crate) with_headers: bool,
    /// How long windows or sessions are kept, where that is not what the settings of the changelog follow.
    pub(crate) own_retention_ms: Option<i64>,
}

/// How and where stores of tables are, unless they say so themselves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DslStores {
    pub(crate) format: DslStoreFormat,
    pub(crate) suppliers: DslStoreSuppliers,
}

impl DslStores {
    pub(crate) const fn in_config(config: &StreamsConfig) -> Self {
        Self { format: config.dsl_store_format, suppliers: config.dsl_store_suppliers }
    }
}

/// What the builder says of that, whatever the configuration says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GivenDslStores {
    pub(crate) format: Option<DslStoreFormat>,
    pub(crate) suppliers: Option<DslStoreSuppliers>,
}

impl GivenDslStores {
    /// What the builder says, and of what it says nothing, this.
    pub(crate) fn or(self, others: DslStores) -> DslStores {
        DslStores {
            format: self.format.unwrap_or(others.format),
            suppliers: self.suppliers.unwrap_or(others.suppliers),
        }
    }
}

impl StoreDeclaration {
    /// A store of an operator that lays keys and values out itself.
    pub(crate) fn of_bytes(spec: StoreSpec) -> Arc<Self> {
        let serdes = StoreSerdes::new::<Bytes, Bytes>(Some(codec(RawBytes)), Some(codec(RawBytes)));
        Arc::new(Self::new(Arc::new(spec), serdes))
    }

    /// A store that is as its kind says.
    pub(crate) const fn new(spec: Arc<StoreSpec>, serdes: StoreSerdes) -> Self {
        Self {
            spec,
            serdes,
            by_time: false,
            takes_format: false,
            takes_suppliers: false,
            with_headers: false,
            own_retention_ms: None,
        }
    }
}

/// The serdes of a store, of some types.
#[derive(Clone)]
pub(crate) struct StoreSerdes {
    typed: Arc<dyn Any + Send + Sync>,
    formats: FormatsOf,
}

/// The formats of serdes whose types are known to the function.
type FormatsOf = fn(&StoreSerdes, &DefaultSerdes, &str) -> Option<StoreFormats>;

struct Typed<K, V> {
    key: Option<Codec<K>>,
    value: Option<Codec<V>>,
}

impl StoreSerdes {
    pub(crate) fn new<K: 'static, V: 'static>(
        key: Option<Codec<K>>,
        value: Option<Codec<V>>,
    ) -> Self {
        Self {
            typed: Arc::new(Typed { key, value }),
            formats: |serdes, defaults, node| {
                let (key, value) = serdes.typed::<K, V>(defaults, node)?;
                Some(StoreFormats { key: key.format(), value: value.format() })
            },
        }
    }

    /// The names of the formats.
    pub(crate) fn formats(&self, defaults: &DefaultSerdes, node: &str) -> Option<StoreFormats> {
        (self.formats)(self, defaults, node)
    }

    /// The serdes, if the store has these types.
    pub(crate) fn typed<K: 'static, V: 'static>(
        &self,
        defaults: &DefaultSerdes,
        node: &str,
    ) -> Option<(Codec<K>, Codec<V>)> {
        let typed = self.typed.downcast_ref::<Typed<K, V>>()?;
        // A store without serde for its types has failed the build.
        let key = defaults.resolve(typed.key.as_ref(), Part::Key, node).ok()?;
        let value = defaults.resolve(typed.value.as_ref(), Part::Value, node).ok()?;
        Some((key, value))
    }
}

impl fmt::Debug for StoreSerdes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreSerdes")
    }
}

/// A store for processors, to be added with
/// [`StreamsBuilder::add_state_store`](crate::StreamsBuilder::add_state_store) (feature rows P5, P6).
///
/// Persistent, with a changelog and without cache unless told otherwise.
///
/// ```
/// use headwater_dsl::Stores;
/// use headwater_store::serde::{Long, Utf8};
///
/// let seen = Stores::key_value("seen", Utf8, Long).in_memory().with_logging_disabled();
/// ```
#[derive(Clone, Debug)]
pub struct Stores<K, V> {
    spec: StoreSpec,
    serdes: StoreSerdes,
    /// Whether values of windows and sessions are kept with headers.
    with_headers: bool,
    types: PhantomData<Types<K, V>>,
}

type Types<K, V> = fn() -> (K, V);

impl<K: 'static, V: 'static> Stores<K, V> {
    /// A store of values by key.
    pub fn key_value(name: impl Into<String>, key: impl Serde<K>, value: impl Serde<V>) -> Self {
        Self::new(name, StoreKind::KeyValue, key, value)
    }

    /// A store of values with timestamps, by key.
    pub fn timestamped_key_value(
        name: impl Into<String>,
        key: impl Serde<K>,
        value: impl Serde<V>,
    ) -> Self {
        Self::new(name, StoreKind::TimestampedKeyValue, key, value)
    }

    /// A store of values with timestamps and headers, by key (KIP-1271).
    pub fn timestamped_key_value_with_headers(
        name: impl Into<String>,
        key: impl Serde<K>,
        value: impl Serde<V>,
    ) -> Self {
        Self::new(name, StoreKind::TimestampedKeyValueWithHeaders, key, value)
    }

    /// A store of values by key that keeps `max_entries` and drops those that were least recently
    /// written or read. It is in memory, and never cached.
    pub fn lru_map(
        name: impl Into<String>,
        max_entries: usize,
        key: impl Serde<K>,
        value: impl Serde<V>,
    ) -> Self {
        Self::new(name, StoreKind::Lru { max_entries }, key, value).in_memory()
    }

    /// A store of values by key and time (KIP-889). What was valid at a time stays readable until
    /// stream time is `history_retention` ahead of its end.
    ///
    /// Such a store cannot be cached, which shows when the topology is built.
    pub fn versioned_key_value(
        name: impl Into<String>,
        history_retention: Duration,
        key: impl Serde<K>,
        value: impl Serde<V>,
    ) -> Self {
        Self::new(name, versioned(history_retention), key, value)
    }

    /// A store of values by key and window: a window is known by its start, and `window_size` says where it ends.
    /// Windows are kept until one begins that is `retention` later (feature row P14).
    ///
    /// With `retain_duplicates` a key and a window can have several values; nothing is deleted then, and the
    /// store is never cached.
    ///
    /// A retention that is shorter than a window shows when the topology is built.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use headwater_dsl::Stores;
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let hour = Duration::from_secs(60 * 60);
    /// let visits = Stores::window("visits", 24 * hour, hour, false, Utf8, Long);
    /// # drop(visits);
    /// ```
    pub fn window(
        name: impl Into<String>,
        retention: Duration,
        window_size: Duration,
        retain_duplicates: bool,
        key: impl Serde<K>,
        value: impl Serde<V>,
    ) -> Self {
        Self::new(name, window(retention, window_size, retain_duplicates, false), key, value)
    }

    /// As [`window`](Self::window) without duplicates, of values with timestamps: windowed tables are kept in such
    /// stores.
    pub fn timestamped_window(
        name: impl Into<String>,
        retention: Duration,
        window_size: Duration,
        key: impl Serde<K>,
        value: impl Serde<V>,
    ) -> Self {
        Self::new(name, window(retention, window_size, false, true), key, value)
    }

    /// As [`timestamped_window`](Self::timestamped_window), of values with timestamps and headers (KIP-1271).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use headwater_dsl::Stores;
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let hour = Duration::from_secs(60 * 60);
    /// let visits = Stores::timestamped_window_with_headers("visits", 24 * hour, hour, Utf8, Long);
    /// # drop(visits);
    /// ```
    pub fn timestamped_window_with_headers(
        name: impl Into<String>,
        retention: Duration,
        window_size: Duration,
        key: impl Serde<K>,
        value: impl Serde<V>,
    ) -> Self {
        let store = Self::timestamped_window(name, retention, window_size, key, value);
        Self { with_headers: true, ..store }
    }

    /// As [`session`](Self::session), of values with headers (KIP-1271).
    pub fn session_with_headers(
        name: impl Into<String>,
        retention: Duration,
        key: impl Serde<K>,
        value: impl Serde<V>,
    ) -> Self {
        Self { with_headers: true, ..Self::session(name, retention, key, value) }
    }

    /// A store of values by key and session, kept until a session ends that is `retention` later.
    pub fn session(
        name: impl Into<String>,
        retention: Duration,
        key: impl Serde<K>,
        value: impl Serde<V>,
    ) -> Self {
        Self::new(name, session(retention), key, value)
    }

    /// Sets how much time one segment of a versioned store's older versions covers. Default: the
    /// longer the history, the longer, as in Kafka Streams.
    ///
    /// Of another kind of store it sets nothing.
    pub fn with_segment_interval(mut self, segment_interval: Duration) -> Self {
        set_segment_interval(&mut self.spec.kind, segment_interval);
        self
    }

    fn new(
        name: impl Into<String>,
        kind: StoreKind,
        key: impl Serde<K>,
        value: impl Serde<V>,
    ) -> Self {
        Self {
            spec: StoreSpec::new(name, kind),
            serdes: StoreSerdes::new(Some(codec(key)), Some(codec(value))),
            with_headers: false,
            types: PhantomData,
        }
    }

    /// Keeps the store in memory only; it is restored from its changelog.
    pub fn in_memory(self) -> Self {
        Self { spec: self.spec.in_memory(), ..self }
    }

    /// Does without changelog: the contents are lost when the task moves.
    pub fn with_logging_disabled(self) -> Self {
        Self { spec: self.spec.with_logging_disabled(), ..self }
    }

    /// Sets the changelog topic's own configuration, over the defaults.
    pub fn with_logging_enabled(self, topic_config: BTreeMap<String, String>) -> Self {
        Self { spec: self.spec.with_logging_enabled(topic_config), ..self }
    }

    /// Logs only the last update of a key between two commits.
    pub fn with_caching_enabled(self) -> Self {
        Self { spec: self.spec.with_caching(true), ..self }
    }

    pub(crate) fn declare(self) -> Arc<StoreDeclaration> {
        let declaration = StoreDeclaration::new(Arc::new(self.spec), self.serdes);
        Arc::new(StoreDeclaration { with_headers: self.with_headers, ..declaration })
    }
}

/// The kinds of stores that processors can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKindOf {
    KeyValue,
    TimestampedKeyValue,
    TimestampedKeyValueWithHeaders,
    VersionedKeyValue,
    Window,
    TimestampedWindow,
    TimestampedWindowWithHeaders,
    Session,
    SessionWithHeaders,
}

impl StoreKindOf {
    pub(crate) fn of(declaration: &StoreDeclaration) -> Option<Self> {
        match &declaration.spec.kind {
            StoreKind::KeyValue | StoreKind::Lru { .. } => Some(Self::KeyValue),
            StoreKind::TimestampedKeyValue => Some(Self::TimestampedKeyValue),
            StoreKind::TimestampedKeyValueWithHeaders => Some(Self::TimestampedKeyValueWithHeaders),
            StoreKind::Versioned { .. } => Some(Self::VersionedKeyValue),
            StoreKind::Window { timestamped: false, .. } => Some(Self::Window),
            StoreKind::Window { timestamped: true, .. } if declaration.with_headers => {
                Some(Self::TimestampedWindowWithHeaders)
            }
            StoreKind::Window { timestamped: true, .. } => Some(Self::TimestampedWindow),
            StoreKind::Session { .. } if declaration.with_headers => Some(Self::SessionWithHeaders),
            StoreKind::Session { .. } => Some(Self::Session),
            _ => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::KeyValue => "key-value",
            Self::TimestampedKeyValue => "timestamped key-value",
            Self::TimestampedKeyValueWithHeaders => "timestamped key-value with headers",
            Self::VersionedKeyValue => "versioned key-value",
            Self::Window => "window",
            Self::TimestampedWindow => "timestamped window",
            Self::TimestampedWindowWithHeaders => "timestamped window with headers",
            Self::Session => "session",
            Self::SessionWithHeaders => "session with headers",
        }
    }

    /// Whether a store of this kind can be used as one of `wanted`: headers are one thing more, and need not be looked
    /// at.
    pub(crate) const fn serves_as(self, wanted: Self) -> bool {
        matches!(
            (self, wanted),
            (Self::TimestampedKeyValueWithHeaders, Self::TimestampedKeyValue)
                | (Self::TimestampedWindowWithHeaders, Self::TimestampedWindow)
                | (Self::SessionWithHeaders, Self::Session)
        )
    }
}
