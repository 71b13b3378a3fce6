//! Typed streams and tables.
//!
//! [`StreamsBuilder`] is the entry: it makes [`KStream`]s and [`KTable`]s, whose operators describe a
//! program, and builds a [`Topology`] of it. [`TopologyBuilder`] does so node by node. Names, node numbers and semantics are those of Kafka
//! Streams, so that an application can take over a Java one's topics.
//!
//! ```
//! use headwater_dsl::{Consumed, Grouped, Materialized, Produced, StreamsBuilder};
//! use headwater_store::serde::{Long, Utf8};
//!
//! let builder = StreamsBuilder::new();
//! builder
//!     .stream("lines", Consumed::with(Utf8, Utf8))
//!     .flat_map_values(|line, out| line.split_whitespace().for_each(|word| out.emit(word.to_owned())))
//!     .group_by(|_, word| word.clone(), Grouped::with(Utf8, Utf8))
//!     .count(Materialized::named("counts"))
//!     .to_stream()
//!     .to("counts", Produced::with(Utf8, Long));
//! let topology = builder.build()?;
//! # drop(topology);
//! # Ok::<(), headwater_dsl::DslError>(())
//! ```

mod builder;
mod cogrouped;
mod edge;
mod error;
mod graph;
mod kgrouped_stream;
mod kgrouped_table;
mod kstream;
mod ktable;
mod low_level;
mod nodes;
mod nullity;
mod params;
mod processor;
mod record;
mod serdes;
mod store;
mod topology;
mod windowed;
mod wiring;
mod wrapper;

pub use builder::{GlobalKTable, StreamsBuilder, TopicSelection};
pub use cogrouped::{
    CogroupedKStream, SessionWindowedCogroupedKStream, TimeWindowedCogroupedKStream,
};
pub use error::{DslError, Part};
pub use kgrouped_stream::KGroupedStream;
pub use kgrouped_table::KGroupedTable;
pub use kstream::{BranchedKStream, Branches, EmitPairs, EmitValues, KStream, Terminal};
pub use ktable::KTable;
pub use low_level::TopologyBuilder;
pub use nullity::{Nullable, Nullity, Present};
pub use params::{
    Branched, Consumed, EagerBufferConfig, EmitStrategy, FailOnInvalidTimestamp, Grouped,
    JoinWindows, Joined, LogAndSkipOnInvalidTimestamp, Materialized, Partitions, Printed,
    Processed, Produced, RecordContext, Repartitioned, SessionWindows, SlidingWindows,
    StreamJoined, StrictBufferConfig, Suppressed, TableJoined, TimeWindows, TimestampExtractor,
    TopicNameExtractor, UnlimitedWindows, UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
};
pub use processor::{
    AggregationWithHeaders, ContextError, FixedKeyProcessor, FixedKeyProcessorContext,
    FixedKeyRecord, KeyValueEntries, KeyValueStore, ProcessingContext, Processor, ProcessorContext,
    ProcessorHost, Punctuation, RecordMetadata, SessionEntriesWithHeaders, SessionStore,
    SessionStoreWithHeaders, TimestampedKeyValueEntries, TimestampedKeyValueStore,
    TimestampedKeyValueStoreWithHeaders, TimestampedWindowEntries, TimestampedWindowStore,
    TimestampedWindowStoreWithHeaders, TimestampedWindowedEntries, ValueTimestampHeaders,
    ValueTransformerWithKey, VersionedKeyValueStore, WindowEntries, WindowEntriesWithHeaders,
    WindowStore, WindowedEntries, WindowedEntriesWithHeaders,
};
pub use record::Record;
pub use serdes::SharedSerde;
pub use store::{StoreSupplier, Stores};
pub use topology::{ApplicationTopology, Topology};
pub use windowed::{SessionWindowedKStream, TimeWindowedKStream, WindowKind};
pub use wrapper::{ProcessorCall, ProcessorWrapper};

pub use headwater_runtime::{DslStoreFormat, DslStoreSuppliers};
pub use headwater_topology::OffsetReset;
