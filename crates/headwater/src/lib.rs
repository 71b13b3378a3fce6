//! Stateful stream processing on Apache Kafka: the whole job of Kafka Streams, in Rust.
//!
//! You describe what happens to records with [`StreamsBuilder`], and start several copies of your
//! program. They share the work, keep state on local disk, log every change of it to Kafka, and move
//! work around without losing any of it.
//!
//! ```
//! use headwater::prelude::*;
//!
//! let builder = StreamsBuilder::new();
//! builder
//!     .stream("lines", Consumed::with(Utf8, Utf8))
//!     .flat_map_values(|line, out| line.split_whitespace().for_each(|word| out.emit(word.to_owned())))
//!     .group_by(|_, word| word.clone(), Grouped::with(Utf8, Utf8))
//!     .count(Materialized::named("counts"))
//!     .to_stream()
//!     .to("counts", Produced::with(Utf8, Long));
//!
//! let topology = builder.build()?;
//! println!("{}", topology.describe());
//! # Ok::<(), DslError>(())
//! ```
//!
//! # The crates behind this one
//!
//! This crate has no logic of its own. It re-exports:
//!
//! - `headwater-dsl`, here at the root: typed streams, tables and processors.
//! - `headwater-runtime`, as [`runtime`]: tasks, stream threads and the instance.
//! - `headwater-topology`, as [`topology`]: the graph, its sub-topologies, internal topics and names.
//! - `headwater-assignor`, as [`assignor`]: which instance runs which task, and why.
//! - `headwater-store`, as [`store`] and [`serde`](mod@serde): state store backends, layouts, typed
//!   views, and from values to bytes and back.
//! - `headwater-broker`, as [`broker`]: what the engine asks of a broker.
//! - `headwater-records`, as [`records`]: Kafka's record batches.
#![cfg_attr(
    feature = "sled",
    doc = "- `headwater-store-sled`, as [`sled`]: the default disk backend."
)]
#![cfg_attr(
    feature = "fjall",
    doc = "- `headwater-store-fjall`, as [`fjall`]: a disk backend that is small in memory."
)]
#![cfg_attr(
    feature = "kafka",
    doc = "- `headwater-kafka`, as [`kafka`]: the client of a Kafka cluster."
)]
#![cfg_attr(
    feature = "embedded",
    doc = "- `headwater-embedded`, as [`embedded`]: a broker inside the process."
)]
//!
//! # Features
//!
//! | feature | what | default |
//! |---|---|---|
//! | `sled` | the sled backend of state stores | yes |
//! | `fjall` | the fjall backend of state stores, for many keys in little memory | no |
//! | `kafka` | the client of a Kafka cluster | yes |
//! | `embedded` | the broker inside the process | yes |
//! | `contract` | the test suite for store backends | no |
//! | `json` | the serde `Json`, for types with serde | no |
//! | `protobuf` | the serde `Protobuf`, for messages of prost | no |

#[cfg(feature = "kafka")]
pub use connector::{KafkaConnector, KafkaOptionsError, kafka_options};
pub use headwater_dsl::{
    AggregationWithHeaders, ApplicationTopology, Branched, BranchedKStream, Branches,
    CogroupedKStream, Consumed, ContextError, DslError, DslStoreFormat, DslStoreSuppliers,
    EagerBufferConfig, EmitPairs, EmitStrategy, EmitValues, FailOnInvalidTimestamp,
    FixedKeyProcessor, FixedKeyProcessorContext, FixedKeyRecord, GlobalKTable, Grouped,
    JoinWindows, Joined, KGroupedStream, KGroupedTable, KStream, KTable, KeyValueEntries,
    KeyValueStore, LogAndSkipOnInvalidTimestamp, Materialized, Nullable, Nullity, OffsetReset,
    Part, Partitions, Present, Printed, Processed, ProcessingContext, Processor, ProcessorCall,
    ProcessorContext, ProcessorWrapper, Produced, Punctuation, Record, RecordContext,
    RecordMetadata, Repartitioned, SessionEntriesWithHeaders, SessionStore,
    SessionStoreWithHeaders, SessionWindowedCogroupedKStream, SessionWindowedKStream,
    SessionWindows, SharedSerde, SlidingWindows, StoreSupplier, Stores, StreamJoined,
    StreamsBuilder, StrictBufferConfig, Suppressed, TableJoined, Terminal,
    TimeWindowedCogroupedKStream, TimeWindowedKStream, TimeWindows, TimestampExtractor,
    TimestampedKeyValueEntries, TimestampedKeyValueStore, TimestampedKeyValueStoreWithHeaders,
    TimestampedWindowEntries, TimestampedWindowStore, TimestampedWindowStoreWithHeaders,
    TimestampedWindowedEntries, TopicNameExtractor, TopicSelection, Topology, TopologyBuilder,
    UnlimitedWindows, UsePartitionTimeOnInvalidTimestamp, ValueTimestampHeaders,
    ValueTransformerWithKey, VersionedKeyValueStore, WallclockTimestampExtractor, WindowEntries,
    WindowEntriesWithHeaders, WindowKind, WindowStore, WindowedEntries, WindowedEntriesWithHeaders,
};
pub use headwater_runtime::{
    AclOperation, AclResource, AclRule, AclTopics, BuiltInAssignor, CloseOptions, CloseTimeout,
    DefaultTimestampExtractor, DropReason, DroppedRecords, ExceptionHandler, Failure, FailureKind,
    GroupMembership, GroupView, Handlers, Headers, HostInfo, HostInfoError, Instance,
    InstanceBuilder, InstanceError, InstanceState, KeyQueryMetadata, LagInfo, MemberView,
    NullRecords, OutputRecord, ProcessingGuarantee, ProcessorMetrics, PunctuationToken,
    PunctuationType, QueryError, QueryableStoreTypes, RackAwareStrategy, Reaction,
    ReadOnlyKeyValueStore, ReadOnlySessionStore, ReadOnlyTimestampedKeyValueStore,
    ReadOnlyTimestampedWindowStore, ReadOnlyVersionedKeyValueStore, ReadOnlyWindowStore,
    RecordingLevel, RestoreListener, StageChange, StandbyUpdateListener, StartError, StoreLag,
    StoreQueryParameters, StreamsConfig, StreamsMetadata, SuspendReason, TagKeys, TaskDuty,
    TaskError, TaskErrorKind, TaskListener, TaskRole, TaskStage, TaskState, TaskStatus, TaskView,
    ThreadMetadata, TopologyOptimization, UncaughtReaction, UserError, dead_letter,
    log_and_continue, log_and_fail, needed_acls, view_group,
};
pub use headwater_store::{ValueAndTimestamp, VersionedPut, VersionedRecord};
pub use instance::Headwater;

#[cfg(feature = "kafka")]
mod connector;
mod instance;

#[doc(inline)]
pub use headwater_assignor as assignor;
#[doc(inline)]
pub use headwater_broker as broker;
#[cfg(feature = "embedded")]
#[doc(inline)]
pub use headwater_embedded as embedded;
#[cfg(feature = "kafka")]
#[doc(inline)]
pub use headwater_kafka as kafka;
#[doc(inline)]
pub use headwater_records as records;
#[doc(inline)]
pub use headwater_runtime as runtime;
#[doc(inline)]
pub use headwater_store as store;
#[doc(inline)]
pub use headwater_store::serde;
#[cfg(feature = "fjall")]
#[doc(inline)]
pub use headwater_store_fjall as fjall;
#[cfg(feature = "sled")]
#[doc(inline)]
pub use headwater_store_sled as sled;
#[doc(inline)]
pub use headwater_topology as topology;

#[doc(inline)]
pub use headwater_runtime::metrics;

/// What most programs need: `use headwater::prelude::*;`.
pub mod prelude {
    #[cfg(feature = "json")]
    pub use crate::serde::Json;
    #[cfg(feature = "protobuf")]
    pub use crate::serde::Protobuf;
    pub use crate::serde::{
        Boolean, Double, Float, Integer, Long, RawBytes, Short, Text, Utf8, Utf8Text, UuidText,
    };
    pub use crate::serde::{SessionWindowed, TimeWindowed, Window, Windowed};
    pub use crate::{
        Branched, Consumed, DslError, EagerBufferConfig, EmitStrategy, FixedKeyProcessor,
        FixedKeyProcessorContext, FixedKeyRecord, GlobalKTable, Grouped, Headers, Headwater,
        Instance, InstanceState, JoinWindows, Joined, KGroupedStream, KGroupedTable, KStream,
        KTable, KeyValueStore, Materialized, Nullable, OffsetReset, Partitions, Present, Processed,
        ProcessingContext, Processor, ProcessorContext, Produced, Punctuation, PunctuationType,
        Record, Repartitioned, SessionStore, SessionWindows, SlidingWindows, StoreSupplier, Stores,
        StreamJoined, StreamsBuilder, StreamsConfig, StrictBufferConfig, Suppressed, TableJoined,
        TimeWindows, TimestampedKeyValueStore, TimestampedWindowStore, Topology, UnlimitedWindows,
        UserError, VersionedKeyValueStore, WindowStore,
    };
}
