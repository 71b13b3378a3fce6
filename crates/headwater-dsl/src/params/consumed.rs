//! How a topic is read.

use std::sync::Arc;

use headwater_runtime::UserError;
use headwater_store::serde::Serde;
use headwater_topology::OffsetReset;

use super::{plain_impls, serde_setters};
use crate::record::Record;
use crate::serdes::{Codec, codec};

/// How a topic is read: serdes, timestamp extractor, where to begin, node name.
///
/// ```
/// use headwater_dsl::{Consumed, StreamsBuilder};
/// use headwater_store::serde::{Long, Utf8};
///
/// let builder = StreamsBuilder::new();
/// let prices = builder.stream("prices", Consumed::with(Utf8, Long).named("prices"));
/// # drop(prices);
/// # assert!(builder.build()?.describe().contains("Source: prices (topics: [prices])"));
/// # Ok::<(), headwater_dsl::DslError>(())
/// ```
pub struct Consumed<K, V> {
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
    pub(crate) name: Option<String>,
    pub(crate) extractor: Option<Extractor<K, V>>,
    pub(crate) offset_reset: Option<OffsetReset>,
}

plain_impls!(Consumed { key, value, name, extractor, offset_reset });
serde_setters!(Consumed);

impl<K, V> Consumed<K, V> {
    /// Everything as the builder and the application have it by default.
    pub const fn new() -> Self {
        Self { key: None, value: None, name: None, extractor: None, offset_reset: None }
    }

    /// Names the source node.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Where to begin on a partition without committed offset.
    pub fn with_offset_reset_policy(self, policy: OffsetReset) -> Self {
        Self { offset_reset: Some(policy), ..self }
    }

    /// Takes the time of each record from this extractor (feature row R13).
    ///
    /// A function of a record and the partition's time will do, see [`TimestampExtractor`].
    pub fn with_timestamp_extractor(self, extractor: impl TimestampExtractor<K, V>) -> Self {
        Self { extractor: Some(Arc::new(extractor)), ..self }
    }
}

pub(crate) type Extractor<K, V> = Arc<dyn TimestampExtractor<K, V>>;

/// Says which time a record has.
pub trait TimestampExtractor<K, V>: Send + Sync + 'static {
    /// The time of a record in milliseconds since 1970; a negative one drops the record, counted.
    /// `partition_time` is the highest so far in the record's partition, −1 before the first.
    ///
    /// # Errors
    /// An error is a deserialization failure of the record.
    fn extract(&self, record: Record<'_, K, V>, partition_time: i64) -> Result<i64, UserError>;

    /// Whether the time is that of the wall clock when the record is processed, whatever
    /// [`extract`](Self::extract) says.
    fn is_wall_clock(&self) -> bool {
        false
    }

    /// Whether the key and value are looked at. If not, they need not be read twice.
    fn reads_record(&self) -> bool {
        true
    }
}

impl<K, V, F> TimestampExtractor<K, V> for F
where
    F: Fn(Record<'_, K, V>, i64) -> i64 + Send + Sync + 'static,
{
    fn extract(&self, record: Record<'_, K, V>, partition_time: i64) -> Result<i64, UserError> {
        Ok(self(record, partition_time))
    }
}

/// The record's own time; an invalid one is an error. The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct FailOnInvalidTimestamp;

/// The record's own time; records with an invalid one are dropped and counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogAndSkipOnInvalidTimestamp;

/// The record's own time; instead of an invalid one, the highest so far in the partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsePartitionTimeOnInvalidTimestamp;

/// The time of the wall clock when the record is processed, whatever the record says.
///
/// ```
/// use headwater_dsl::{Consumed, StreamsBuilder, WallclockTimestampExtractor};
/// use headwater_store::serde::Utf8;
///
/// let builder = StreamsBuilder::new();
/// let arrivals = builder.stream(
///     "arrivals",
///     Consumed::with(Utf8, Utf8).with_timestamp_extractor(WallclockTimestampExtractor),
/// );
/// # drop(arrivals);
/// # builder.build()?;
/// # Ok::<(), headwater_dsl::DslError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct WallclockTimestampExtractor;

impl<K, V> TimestampExtractor<K, V> for WallclockTimestampExtractor {
    fn extract(&self, record: Record<'_, K, V>, _: i64) -> Result<i64, UserError> {
        Ok(record.timestamp)
    }

    fn is_wall_clock(&self) -> bool {
        true
    }

    fn reads_record(&self) -> bool {
        false
    }
}

impl<K, V> TimestampExtractor<K, V> for FailOnInvalidTimestamp {
    fn extract(&self, record: Record<'_, K, V>, _: i64) -> Result<i64, UserError> {
        let timestamp = record.timestamp;
        if timestamp < 0 {
            return Err(Box::new(headwater_runtime::process::NegativeTimestamp { timestamp }));
        }
        Ok(timestamp)
    }

    fn reads_record(&self) -> bool {
        false
    }
}

impl<K, V> TimestampExtractor<K, V> for LogAndSkipOnInvalidTimestamp {
    fn extract(&self, record: Record<'_, K, V>, _: i64) -> Result<i64, UserError> {
        Ok(record.timestamp)
    }

    fn reads_record(&self) -> bool {
        false
    }
}

impl<K, V> TimestampExtractor<K, V> for UsePartitionTimeOnInvalidTimestamp {
    fn extract(&self, record: Record<'_, K, V>, partition_time: i64) -> Result<i64, UserError> {
        if record.timestamp >= 0 {
            Ok(record.timestamp)
        } else if partition_time >= 0 {
            Ok(partition_time)
        } else {
            FailOnInvalidTimestamp.extract(record, partition_time)
        }
    }

    fn reads_record(&self) -> bool {
        false
    }
}
