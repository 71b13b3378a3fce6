//! How records are grouped.

use headwater_store::serde::Serde;

use super::plain_impls;
use crate::serdes::{Codec, codec};

/// How records are grouped: serdes of the repartition topic, and its name.
pub struct Grouped<K, V> {
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
    pub(crate) name: Option<String>,
}

plain_impls!(Grouped { key, value, name });

impl<K, V> Grouped<K, V> {
    /// The serdes of the stream, as far as it still has them; a generated name.
    pub const fn new() -> Self {
        Self { key: None, value: None, name: None }
    }

    /// With these serdes.
    pub fn with(key: impl Serde<K>, value: impl Serde<V>) -> Self {
        Self { key: Some(codec(key)), value: Some(codec(value)), name: None }
    }

    /// Sets the key serde.
    pub fn with_key_serde(self, serde: impl Serde<K>) -> Self {
        Self { key: Some(codec(serde)), ..self }
    }

    /// Sets the value serde.
    pub fn with_value_serde(self, serde: impl Serde<V>) -> Self {
        Self { value: Some(codec(serde)), ..self }
    }

    /// Names the node that selects the key, and the repartition topic if there is one. With a name,
    /// all aggregations of the group share one repartition topic.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }
}

impl<K, V> Default for Grouped<K, V> {
    fn default() -> Self {
        Self::new()
    }
}
