//! How a stream is repartitioned.

use std::sync::Arc;

use headwater_store::serde::Serde;

use super::{Partitions, StreamPartitioner, plain_impls, serde_setters};
use crate::record::Record;
use crate::serdes::{Codec, codec};

/// How a stream is repartitioned: serdes, name, number of partitions, partitioner.
pub struct Repartitioned<K, V> {
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
    pub(crate) name: Option<String>,
    pub(crate) partitions: Option<u32>,
    pub(crate) partitioner: Option<StreamPartitioner<K, V>>,
}

plain_impls!(Repartitioned { key, value, name, partitions, partitioner });
serde_setters!(Repartitioned);

impl<K, V> Repartitioned<K, V> {
    /// The serdes of the stream, as far as it still has them; a generated name; as many partitions
    /// as the topics upstream have.
    pub const fn new() -> Self {
        Self { key: None, value: None, name: None, partitions: None, partitioner: None }
    }

    /// Names the repartition topic, before the application id is put in front and `-repartition`
    /// behind it.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Fixes the number of partitions.
    pub fn with_number_of_partitions(self, partitions: u32) -> Self {
        Self { partitions: Some(partitions), ..self }
    }

    /// Chooses the partitions by a function of the topic, the record and the number of partitions.
    pub fn with_stream_partitioner(
        self,
        partitioner: impl Fn(&str, Record<'_, K, V>, i32) -> Partitions + Send + Sync + 'static,
    ) -> Self {
        Self { partitioner: Some(Arc::new(partitioner)), ..self }
    }
}
