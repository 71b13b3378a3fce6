//! How two streams are joined.

use std::collections::BTreeMap;
use std::fmt;

use headwater_store::serde::Serde;

use crate::serdes::{Codec, codec};
use crate::store::StoreSupplier;

/// How two streams are joined: serdes of both, names, and the stores that their records are kept in.
///
/// ```
/// use headwater_dsl::StreamJoined;
/// use headwater_store::serde::{Long, Utf8};
///
/// let joined: StreamJoined<String, i64, String> =
///     StreamJoined::with(Utf8, Long, Utf8).named("payments").with_store_name("payments");
/// ```
pub struct StreamJoined<K, V, V2> {
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
    pub(crate) other_value: Option<Codec<V2>>,
    pub(crate) name: Option<String>,
    pub(crate) store_name: Option<String>,
    pub(crate) in_memory: bool,
    pub(crate) logging: Option<BTreeMap<String, String>>,
    pub(crate) this_store: Option<StoreSupplier>,
    pub(crate) other_store: Option<StoreSupplier>,
}

impl<K, V, V2> StreamJoined<K, V, V2> {
    /// Generated names, stores on disk with changelogs. Records are kept with the default serdes of their types;
    /// where a type has none, with the serdes that the streams still have.
    pub const fn new() -> Self {
        Self {
            key: None,
            value: None,
            other_value: None,
            name: None,
            store_name: None,
            in_memory: false,
            logging: Some(BTreeMap::new()),
            this_store: None,
            other_store: None,
        }
    }

    /// With the serdes of keys, of the left stream's values and of the right one's.
    pub fn with(key: impl Serde<K>, value: impl Serde<V>, other_value: impl Serde<V2>) -> Self {
        Self::new().with_key_serde(key).with_value_serde(value).with_other_value_serde(other_value)
    }

    /// Sets the serde of the keys.
    pub fn with_key_serde(self, serde: impl Serde<K>) -> Self {
        Self { key: Some(codec(serde)), ..self }
    }

    /// Sets the serde of the left stream's values.
    pub fn with_value_serde(self, serde: impl Serde<V>) -> Self {
        Self { value: Some(codec(serde)), ..self }
    }

    /// Sets the serde of the right stream's values.
    pub fn with_other_value_serde(self, serde: impl Serde<V2>) -> Self {
        Self { other_value: Some(codec(serde)), ..self }
    }

    /// Names the nodes of the join, and the repartition topics of the streams if there are any (Kafka Streams'
    /// `withName`).
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Names the stores and their changelogs (Kafka Streams' `StreamJoined.as`).
    #[doc(alias = "as")]
    pub fn with_store_name(self, name: impl Into<String>) -> Self {
        Self { store_name: Some(name.into()), ..self }
    }

    /// Keeps the records in memory only; they are restored from the changelogs.
    pub fn in_memory(self) -> Self {
        Self { in_memory: true, ..self }
    }

    /// Sets the changelog topics' own configuration, over the defaults. They are never compacted. Stores of suppliers
    /// keep the defaults, as in Kafka Streams.
    pub fn with_logging_enabled(self, topic_config: BTreeMap<String, String>) -> Self {
        Self { logging: Some(topic_config), ..self }
    }

    /// Does without changelogs: what is kept is lost when the task moves. Stores of suppliers have changelogs
    /// nevertheless, as in Kafka Streams.
    pub fn with_logging_disabled(self) -> Self {
        Self { logging: None, ..self }
    }

    /// Keeps the left stream's records in the store that a supplier makes, under its name. It must keep duplicates,
    /// and windows as large and for as long as the join needs them, which shows when the join is made.
    pub fn with_this_store_supplier(self, supplier: StoreSupplier) -> Self {
        Self { this_store: Some(supplier), ..self }
    }

    /// [`with_this_store_supplier`](Self::with_this_store_supplier) for the right stream's records.
    pub fn with_other_store_supplier(self, supplier: StoreSupplier) -> Self {
        Self { other_store: Some(supplier), ..self }
    }
}

impl<K, V, V2> Clone for StreamJoined<K, V, V2> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            value: self.value.clone(),
            other_value: self.other_value.clone(),
            name: self.name.clone(),
            store_name: self.store_name.clone(),
            in_memory: self.in_memory,
            logging: self.logging.clone(),
            this_store: self.this_store.clone(),
            other_store: self.other_store.clone(),
        }
    }
}

impl<K, V, V2> fmt::Debug for StreamJoined<K, V, V2> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamJoined").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<K, V, V2> Default for StreamJoined<K, V, V2> {
    fn default() -> Self {
        Self::new()
    }
}
