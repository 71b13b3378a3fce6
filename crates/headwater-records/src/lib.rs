//! Kafka's record batch (v2) and the default partitioner: bytes in, slices out.
#![deny(clippy::indexing_slicing)]

mod batch;
mod broker;
mod builder;
mod compression;
mod control;
mod error;
mod header;
mod partition;
mod record;
mod records;
mod varint;

pub use batch::{Batch, Batches};
pub use broker::{set_base_offset, set_max_timestamp_log_append};
pub use builder::{BatchBuilder, PendingBatch, ProducerStamp};
pub use compression::{Compression, UnknownCompression};
pub use control::{ControlKind, ControlMarker, control_batch};
pub use error::{Position, RecordsError};
pub use header::{BatchHeader, TimestampType};
pub use partition::{murmur2, partition_for_key};
pub use record::{Header, Record};
pub use records::{
    BatchRecords, Cursor, HeadersIter, HeadersRef, RecordCursor, RecordRef, Records,
};
