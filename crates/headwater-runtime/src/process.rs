//! The way of a record through a task: what nodes see and may do.

mod cache_benefit;
mod cx;
mod dead_letter;
mod drops;
mod emitted;
mod error;
mod extractor;
mod handler;
mod headers;
mod null_records;
mod operators;
mod program;
mod punctuation;
mod slots;
pub(crate) mod store;

pub use cx::{
    Cx, FetchedEntries, FetchedEntry, OutputTopic, SegmentedCursor, StoreCursor, StoredEntry,
    StoredVersion, WindowFetch,
};
pub use drops::{DropCounts, DropReason, DroppedRecords};
pub use emitted::EmitKind;
pub use error::{FailureKind, RecordPosition, TaskError, TaskErrorKind, UserError, UserPanic};
pub use extractor::DefaultTimestampExtractor;
pub use handler::{
    ExceptionHandler, Failure, Handlers, OutputRecord, Reaction, dead_letter, log_and_continue,
    log_and_fail,
};
pub use headers::Headers;
pub use null_records::{NullError, NullPart, NullRecords};
pub use operators::{OperatorProgram, OperatorTimes};
pub use program::{
    CachedUpdate, ExtractedTime, FlushListener, NegativeTimestamp, OffsetReset, ProcessorProgram,
    ProcessorSupplier, Program, RawRecord, SinkProgram, SourceNode, SourceProgram,
    StoreBackendChoice, StoreFormats, StoreProgram, TaskProcessor,
};
pub use punctuation::{
    DuePunctuation, FirstPunctuation, PunctuationToken, PunctuationType, Punctuations,
    ScheduledPunctuation,
};
pub use slots::{NodeIndex, OperatorSlot, ProcessorSlot, SinkSlot, StoreSlot};

pub(crate) use cx::{Origin, RETRY_OF_WHAT_STAYS, Segments, borrow_headers};
pub(crate) use dead_letter::dead_letter_headers;
