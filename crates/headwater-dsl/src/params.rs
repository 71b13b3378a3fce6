//! Parameters of operators, named as in Kafka Streams (feature row D9).

mod consumed;
mod grouped;
mod materialized;
mod processed;
mod produced;
mod repartitioned;

pub use consumed::{
    Consumed, FailOnInvalidTimestamp, LogAndSkipOnInvalidTimestamp, TimestampExtractor,
    UsePartitionTimeOnInvalidTimestamp,
};
pub use grouped::Grouped;
pub use materialized::Materialized;
pub use processed::Processed;
pub use produced::{Partitions, Produced};
pub use repartitioned::Repartitioned;

pub(crate) use consumed::Extractor;
pub(crate) use produced::StreamPartitioner;

/// `Debug`, `Clone` and `Default` for parameter objects whatever their type parameters are.
macro_rules! plain_impls {
    ($name:ident { $($field:ident),* }) => {
        impl<K, V> Clone for $name<K, V> {
            fn clone(&self) -> Self {
                Self { $($field: self.$field.clone()),* }
            }
        }

        impl<K, V> std::fmt::Debug for $name<K, V> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use plain_impls;
