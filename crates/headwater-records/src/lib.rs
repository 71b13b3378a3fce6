//! Kafka's record batch (format version 2) and the default partitioner: bytes in, slices out.
//!
//! Records are encoded straight into the growing batch of their partition
//! ([`BatchBuilder`]); a finished batch ([`PendingBatch`]) is stamped with its producer when it is
//! sent. A fetched buffer is split into batches ([`Batches`]) without copying; a batch is checked
//! and decompressed once ([`Batch::decompress`]), and its records are slices of it
//! ([`BatchRecords`]). All five compressions are always there.
//!
//! What is read is never trusted: damage, lies and sizes beyond the caller's limit are a
//! [`RecordsError`] with the place in the buffer, and cost no more memory than the limit.
//!
//! The format is that of KIP-98 and of Kafka's `DefaultRecordBatch`; message formats before Kafka
//! 0.11 are refused.
//!
//! # Example
//!
//! ```
//! use headwater_records::{
//!     BatchBuilder, Batches, Compression, ProducerStamp, Record, partition_for_key,
//! };
//!
//! let mut builder = BatchBuilder::new(Compression::Lz4);
//! for (key, value) in [("apple", "1"), ("pear", "2")] {
//!     builder.append(Record {
//!         timestamp: 1_700_000_000_000,
//!         key: Some(key.as_bytes()),
//!         value: Some(value.as_bytes()),
//!         headers: &[],
//!     })?;
//! }
//! let mut pending = builder.finish();
//! let sent = pending.stamp(ProducerStamp {
//!     producer_id: 4711,
//!     producer_epoch: 0,
//!     base_sequence: 0,
//!     transactional: false,
//! });
//!
//! let mut keys = Vec::new();
//! for batch in Batches::new(sent) {
//!     let records = batch?.decompress(1 << 20)?;
//!     for record in &records {
//!         let key = record?.key.unwrap_or_default();
//!         // Kept without a copy: it shares the batch.
//!         keys.push(records.bytes().slice_ref(key));
//!     }
//! }
//! assert_eq!(keys, ["apple", "pear"]);
//! assert_eq!(partition_for_key(&keys[0], 4), 1);
//! # Ok::<(), headwater_records::RecordsError>(())
//! ```
#![deny(clippy::indexing_slicing)]

mod batch;
mod broker;
mod builder;
mod compression;
mod control;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod header;
mod partition;
mod record;
mod records;
mod retain;
mod varint;

pub use batch::{Batch, Batches};
pub use broker::{set_base_offset, set_max_timestamp_log_append};
pub use builder::{BatchBuilder, PendingBatch, ProducerStamp};
pub use compression::{Compression, UnknownCompression};
pub use control::{ControlKind, ControlMarker, control_batch};
pub use error::{Position, RecordsError};
pub use header::{BatchHeader, HEADER_SIZE, TimestampType};
pub use partition::{murmur2, partition_for_key};
pub use record::{Header, Record};
pub use records::{BatchRecords, Cursor, HeadersIter, HeadersRef, RecordRef, Records};
pub use retain::Retained;
