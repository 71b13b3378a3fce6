//! Tasks, stream threads and the instance.
//!
//! [`process`] is the way of a record through a task: what nodes see ([`Cx`]) and what a topology's
//! behaviour is made of ([`Program`]). [`Worker`] is a stream thread's work as a plain struct: it is
//! told by messages ([`ToWorker`]), works when [`Worker::step`] is called, and answers by messages
//! ([`FromWorker`]). Whoever calls it owns time, threads and I/O.

mod acls;
mod config;
mod facts;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod global;
mod group_view;
pub mod hosting;
mod instance;
pub mod metrics;
pub mod process;
pub mod query;
mod state_dir;
mod task;
mod topics_check;
mod worker;

pub use acls::{AclOperation, AclResource, AclRule, AclTopics, needed_acls};
pub use config::{
    BadRecord, BuiltInAssignor, ConfigError, DslStoreFormat, DslStoreSuppliers, Finding,
    FindingReason, ProcessingGuarantee, StreamsConfig, TagKeys, TopologyOptimization,
};
pub use group_view::{GroupView, MemberView, TaskDuty, TaskView, view_group};
pub use headwater_assignor::RackAwareStrategy;
pub use headwater_changelog::{RestoreListener, StandbyUpdateListener, StoreLag, SuspendReason};
pub use instance::{
    Application, CloseOptions, CloseTimeout, Connector, Execution, GroupMembership, HostInfo,
    HostInfoError, Instance, InstanceBuilder, InstanceError, InstanceState, KeyQueryMetadata,
    LagInfo, MemoryBytes, MemoryUse, StageChange, StartError, StreamsMetadata, TaskListener,
    TaskRole, TaskStage, TaskStatus, ThreadMetadata, UncaughtReaction,
};
pub use metrics::{MetricsScope, ProcessorMetrics, RecordingLevel, SharedRecorder};
pub use process::{
    CachedUpdate, Cx, DefaultTimestampExtractor, DropCounts, DropReason, DroppedRecords, EmitKind,
    ExceptionHandler, ExtractedTime, Failure, FailureKind, FetchedEntries, FetchedEntry,
    FlushListener, Handlers, Headers, NodeIndex, NullError, NullPart, NullRecords, OffsetReset,
    OperatorProgram, OperatorSlot, OperatorTimes, OutputRecord, OutputTopic, ProcessorProgram,
    ProcessorSlot, ProcessorSupplier, Program, PunctuationToken, PunctuationType, RawRecord,
    Reaction, RecordPosition, SegmentedCursor, SinkProgram, SinkSlot, SourceNode, SourceProgram,
    StoreBackendChoice, StoreCursor, StoreFormats, StoreProgram, StoreSlot, StoredEntry,
    StoredVersion, TaskError, TaskErrorKind, TaskProcessor, UserError, UserPanic, WindowFetch,
    dead_letter, log_and_continue, log_and_fail,
};
pub use query::{
    QueryError, QueryableStoreType, QueryableStoreTypes, ReadOnlyKeyValueStore,
    ReadOnlySessionStore, ReadOnlyTimestampedKeyValueStore, ReadOnlyTimestampedWindowStore,
    ReadOnlyVersionedKeyValueStore, ReadOnlyWindowStore, StoreQueryParameters,
};
pub use state_dir::{StateDirError, StateDirectory};
pub use task::{
    Behind, Choice, InputFacts, InputStart, MaxTaskIdle, NewTask, OffsetMetadata, StorePlace,
    TaskState, TaskWatch, UnreadableMetadata, choose,
};
pub use topics_check::TopicsError;
pub use worker::{
    BatchOrigin, CalledRecord, ClosedTask, CommittedTask, FetchedInput, FromWorker, Now,
    OutputBatch, OutputLimits, Partitioning, SealedCommit, SealedStorage, SealedTask, Step,
    StoreQuestion, ToWorker, TopicLookup, Worker, WorkerConfig, WorkerCounts,
};
