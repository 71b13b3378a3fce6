//! State stores: what operators keep, and what processors can name.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::StoreFormats;
use headwater_store::serde::Serde;
use headwater_topology::{StoreKind, StoreSpec};

use crate::error::Part;
use crate::serdes::{Codec, DefaultSerdes, codec};

/// A store of the topology together with its serdes.
#[derive(Clone, Debug)]
pub(crate) struct StoreDeclaration {
    pub(crate) spec: Arc<StoreSpec>,
    pub(crate) serdes: StoreSerdes,
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

    fn new(
        name: impl Into<String>,
        kind: StoreKind,
        key: impl Serde<K>,
        value: impl Serde<V>,
    ) -> Self {
        Self {
            spec: StoreSpec::new(name, kind),
            serdes: StoreSerdes::new(Some(codec(key)), Some(codec(value))),
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
        Arc::new(StoreDeclaration { spec: Arc::new(self.spec), serdes: self.serdes })
    }
}

/// The kinds of stores that processors can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKindOf {
    KeyValue,
    TimestampedKeyValue,
}

impl StoreKindOf {
    pub(crate) const fn of(kind: &StoreKind) -> Option<Self> {
        match kind {
            StoreKind::KeyValue => Some(Self::KeyValue),
            StoreKind::TimestampedKeyValue => Some(Self::TimestampedKeyValue),
            _ => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::KeyValue => "key-value",
            Self::TimestampedKeyValue => "timestamped key-value",
        }
    }
}
