//! A disk backend of Headwater's state stores on fjall's storage engine, the log-structured merge tree
//! of [`lsm-tree`](https://docs.rs/lsm-tree): small in memory however many keys there are.
//!
//! ```
//! use headwater_store::{OpenOptions, StoreBackend, WriteBatch};
//! use headwater_store_fjall::FjallBackend;
//!
//! let home = tempfile::tempdir()?;
//! let mut storage = FjallBackend::new().open(&home.path().join("0_3"), &OpenOptions::default())?;
//! let counts = storage.space("counts")?;
//! let mut batch = WriteBatch::new();
//! batch.push(counts, b"word", Some(b"7"));
//! storage.apply(batch.sort(), &[])?;
//!
//! let mut value = Vec::new();
//! assert!(storage.reader().get(counts, b"word", &mut value)?);
//! assert_eq!(value, b"7");
//! storage.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! How the engine is used, and why (`docs/design/0007-fjall.md`; figures in `docs/performance/stores.md`):
//!
//! - The tree alone, not fjall's database around it: the changelog in Kafka is the journal already. So a
//!   change is written to the disk once, not twice; there are no 64 MiB of journal for each task; and no
//!   threads: tables are written and merged within [`apply`] and [`sync`], away from stream threads.
//! - One tree for each task. A store is a prefix of two bytes, the meta space is prefix 0
//!   ([`one_tree`](headwater_store::one_tree)).
//! - A commit lies in one write buffer, and a buffer becomes durable as a whole. So data and stored
//!   offsets appear together or not at all, whenever the end comes. A commit that is larger than the
//!   write buffer does not pass through it: it is written to a table of its own.
//! - Segments that a commit drops are deleted after it, in stretches that fit the write buffer. The commit says that they
//!   are to go, so that the next opening goes on where a kill ended it.
//! - [`OpenOptions::cache_bytes`] is for blocks of tables and for the write buffer together. Beyond it lie
//!   the filters and indexes that a table keeps open, about two bytes a key at most.
//! - Numbers of entries are exact: each key that is written is looked up before. For a new key the filters
//!   answer that.
//! - A key can have 65,533 bytes, as the engine's tables have it; a longer one is refused.
//!
//! [`apply`]: headwater_store::TaskStorage::apply
//! [`sync`]: headwater_store::TaskStorage::sync
//! [`OpenOptions::cache_bytes`]: headwater_store::OpenOptions::cache_bytes

mod backend;
mod database;
mod reader;
mod storage;

pub use backend::FjallBackend;
