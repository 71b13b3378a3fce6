//! A broker inside the process, in memory or in a directory: the ground on which Headwater runs
//! without Kafka, and on which it is tested.
//!
//! [`Embedded`] is a [`Broker`](headwater_broker::Broker) and passes its contract suite:
//!
//! - **Logs** of real record batches (format 2), checked when they are appended, handed out as they
//!   are stored. An append or a fetch costs per batch, not per record; appends to different
//!   partitions do not wait for each other.
//! - **In a directory**, append-only segments: a batch is acknowledged when the operating system
//!   has it, so it survives `kill -9`; with [`fsync`](EmbeddedOptions::fsync) it survives a power
//!   failure too. A torn end is cut off at the next start. Topics, committed offsets and
//!   beginnings of logs are kept in a journal beside them. One process at a time.
//! - **Retention, compaction and deletion of records** as Kafka does them, in the background or by
//!   [`Embedded::maintain`].
//! - **Groups** of Kafka's classic protocol, with static members, for several instances of an
//!   application in one process. Who belongs to a group is forgotten when the broker closes; what
//!   it has committed is not.
//! - **Idempotent writers** with retries, as over the wire, and [faults](FaultPlan) on order for
//!   every call; a client can be put [behind a wire](Embedded::behind) that does with each of its
//!   requests as it likes.
//! - **Transactions** with markers, aborted ranges and a last stable offset; a newer writer fences the
//!   older ones of its id, and what is open for too long is aborted. In a directory a transaction is
//!   committed, offsets included, by one entry of the journal: after `kill -9` all of it counts, or
//!   nothing. What was open is aborted at the next start.
//! - **Time**: waiting, sessions and time-outs follow tokio's time, which tests can pause; the wall
//!   clock is an [option](EmbeddedOptions::clock).
//!
//! What it is not: it has no network, so other processes cannot reach it; it keeps one copy of
//! everything, so a lost disk is lost data; its calls read and write files on the thread that makes
//! them. Compaction leaves the batches it takes records out of uncompressed. It needs Unix.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::time::Duration;
//!
//! use headwater_broker::{
//!     Broker, FetchPartition, FetchRequest, Isolation, NewTopic, ProduceBatch, TopicPartition,
//!     Topics, WriterOptions,
//! };
//! use headwater_embedded::Embedded;
//! use headwater_records::{BatchBuilder, Batches, Compression, Record};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = Embedded::in_memory();
//! let topic = NewTopic {
//!     name: "lines".into(),
//!     partitions: 1,
//!     replication_factor: None,
//!     configs: BTreeMap::new(),
//! };
//! broker.create_topic(&topic).await?;
//!
//! let mut batch = BatchBuilder::new(Compression::None);
//! batch.append(Record { timestamp: 0, key: None, value: Some(b"hello"), headers: &[] })?;
//! let topic_partition = TopicPartition::new("lines", 0);
//! let mut writer = broker.writer(WriterOptions::default()).await?;
//! let batch = ProduceBatch { topic_partition: topic_partition.clone(), batch: batch.finish() };
//! assert_eq!(writer.send(batch).await?.base_offset, 0);
//!
//! let request = FetchRequest {
//!     partitions: vec![FetchPartition {
//!         topic_partition,
//!         topic_id: None,
//!         offset: 0,
//!         max_bytes: 1 << 20,
//!     }],
//!     max_wait: Duration::from_millis(500),
//!     max_bytes: 1 << 20,
//!     isolation: Isolation::ReadUncommitted,
//! };
//! for answer in broker.reader().fetch(&request).await? {
//!     for batch in Batches::new(answer.outcome?.batches) {
//!         for record in &batch?.decompress(1 << 20)? {
//!             assert_eq!(record?.value, Some(&b"hello"[..]));
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod broker;
mod catalog;
mod config;
mod directory;
mod epochs;
mod error;
mod faults;
mod files;
mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod journal;
mod log;
mod maintenance;
mod offsets;
mod options;
mod partition;
mod producers;
mod reader;
mod segment;
mod storage;
mod topics;
mod transactions;
mod wire;
mod writer;

pub use broker::Embedded;
pub use error::OpenError;
pub use faults::{CallKind, Fault, FaultPlan, Target};
pub use files::{Files, LockedFile, OpenMode, StoredFile};
pub use maintenance::Maintained;
pub use options::EmbeddedOptions;
pub use wire::{Request, Wire};
