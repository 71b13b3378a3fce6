//! How records are grouped.

use headwater_store::serde::Serde;

use super::{plain_impls, serde_setters};
use crate::serdes::{Codec, codec};

/// How records are grouped: serdes of the repartition topic, and its name.
pub struct Grouped<K, V> {
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
    pub(crate) name: Option<String>,
}

plain_impls!(Grouped { key, value, name });
serde_setters!(Grouped);

impl<K, V> Grouped<K, V> {
    /// The serdes of the stream, as far as it still has them; a generated name.
    pub const fn new() -> Self {
        Self { key: None, value: None, name: None }
    }

    /// Names the node that selects the key, and the repartition topic if there is one. With a name,
    /// all aggregations of the group share one repartition topic.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }
}
