//! Parameters of operators, named as in Kafka Streams (feature row D9).

mod branched;
mod consumed;
mod grouped;
mod join_windows;
mod joined;
mod materialized;
mod printed;
mod processed;
mod produced;
mod repartitioned;
mod stream_joined;
mod suppressed;
mod table_joined;
mod topic_name;
mod windows;

pub use branched::Branched;
pub use consumed::{
    Consumed, FailOnInvalidTimestamp, LogAndSkipOnInvalidTimestamp, TimestampExtractor,
    UsePartitionTimeOnInvalidTimestamp, WallclockTimestampExtractor,
};
pub use grouped::Grouped;
pub use join_windows::JoinWindows;
pub use joined::Joined;
pub use materialized::Materialized;
pub use printed::Printed;
pub use processed::Processed;
pub use produced::{Partitions, Produced};
pub use repartitioned::Repartitioned;
pub use stream_joined::StreamJoined;
pub use suppressed::{EagerBufferConfig, StrictBufferConfig, Suppressed};
pub use table_joined::TableJoined;
pub use topic_name::{RecordContext, TopicNameExtractor};
pub use windows::{EmitStrategy, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows};

pub(crate) use consumed::Extractor;
pub(crate) use printed::print_line;
pub(crate) use produced::StreamPartitioner;
pub(crate) use suppressed::Until;
pub(crate) use windows::{ms, wrong};

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

/// How serdes are given to a parameter object that has a key and a value one.
macro_rules! serde_setters {
    ($name:ident) => {
        impl<K, V> $name<K, V> {
            /// With these serdes.
            pub fn with(key: impl Serde<K>, value: impl Serde<V>) -> Self {
                Self { key: Some(codec(key)), value: Some(codec(value)), ..Self::new() }
            }

            /// Sets the key serde.
            pub fn with_key_serde(self, serde: impl Serde<K>) -> Self {
                Self { key: Some(codec(serde)), ..self }
            }

            /// Sets the value serde.
            pub fn with_value_serde(self, serde: impl Serde<V>) -> Self {
                Self { value: Some(codec(serde)), ..self }
            }
        }

        impl<K, V> Default for $name<K, V> {
            fn default() -> Self {
                Self::new()
            }
        }
    };
}

pub(crate) use {plain_impls, serde_setters};
