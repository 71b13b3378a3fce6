//! How a topic is written.

use std::sync::Arc;

use headwater_store::serde::Serde;
use smallvec::SmallVec;

use super::{plain_impls, serde_setters};
use crate::record::Record;
use crate::serdes::{Codec, codec};

/// How a topic is written: serdes, partitioner, node name.
///
/// ```
/// use headwater_dsl::{Consumed, Partitions, Produced, StreamsBuilder};
/// use headwater_store::serde::{Long, Utf8};
///
/// let builder = StreamsBuilder::new();
/// builder.stream("prices", Consumed::with(Utf8, Long)).to(
///     "alerts",
///     Produced::with(Utf8, Long).with_stream_partitioner(|_topic, record, partitions| {
///         match record.value {
///             Some(price) if *price > 1_000 => Partitions::All,
///             Some(price) => Partitions::One((*price % i64::from(partitions)) as i32),
///             None => Partitions::Default,
///         }
///     }),
/// );
/// # builder.build()?;
/// # Ok::<(), headwater_dsl::DslError>(())
/// ```
pub struct Produced<K, V> {
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
    pub(crate) name: Option<String>,
    pub(crate) partitioner: Option<StreamPartitioner<K, V>>,
}

plain_impls!(Produced { key, value, name, partitioner });
serde_setters!(Produced);

/// A user's partitioner: topic, record, number of partitions.
pub(crate) type StreamPartitioner<K, V> =
    Arc<dyn Fn(&str, Record<'_, K, V>, i32) -> Partitions + Send + Sync>;

/// The partitions that a record goes to (KIP-837, feature row D22).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Partitions {
    /// What Kafka's default partitioner says: by a hash of the key.
    Default,
    /// This one.
    One(i32),
    /// Each of these; with none the record is dropped and counted.
    Each(SmallVec<[i32; 4]>),
    /// Every partition of the topic.
    All,
}

impl FromIterator<i32> for Partitions {
    fn from_iter<I: IntoIterator<Item = i32>>(partitions: I) -> Self {
        Self::Each(partitions.into_iter().collect())
    }
}

impl<K, V> Produced<K, V> {
    /// The serdes of the stream, as far as it still has them, or the defaults of the types.
    pub const fn new() -> Self {
        Self { key: None, value: None, name: None, partitioner: None }
    }

    /// Names the sink.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Chooses the partitions by a function of the topic, the record and the number of partitions.
    pub fn with_stream_partitioner(
        self,
        partitioner: impl Fn(&str, Record<'_, K, V>, i32) -> Partitions + Send + Sync + 'static,
    ) -> Self {
        Self { partitioner: Some(Arc::new(partitioner)), ..self }
    }
}
