//! The default disk backend of Headwater's state stores, on [sled](https://docs.rs/sled).
//!
//! ```
//! use headwater_store::{OpenOptions, StoreBackend, WriteBatch};
//! use headwater_store_sled::SledBackend;
//!
//! let home = tempfile::tempdir()?;
//! let mut storage = SledBackend::new().open(&home.path().join("0_3"), &OpenOptions::default())?;
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
//! How sled is used, and why (measured; the figures are in `docs/performance/stores.md`):
//!
//! - One database per task directory with one tree for all stores. A store is a prefix of two bytes,
//!   the meta space is prefix 0. More trees cost memory and disk each; so only segments of windows and
//!   sessions, which go as a whole when they are too old, are trees of their own.
//! - A commit is a sequence of plain inserts in the order of keys, the meta space last. sled's log keeps
//!   that order, so after a crash a stored offset is never ahead of the data. sled's own batches and
//!   transactions take a lock that is shared by all databases of the process, so they are never used.
//! - sled's `flush` only hands its log to the operating system, so [`sync`] follows it with a real
//!   one. Large values lie in files of their own, which sled never syncs; they are synced too.
//! - sled reports some damage as an error and some by a panic; and a log that does not begin with a
//!   segment it knows is an empty database to it. All of that becomes [`StoreError::Damaged`]: a task
//!   then rebuilds its state from its changelogs.
//!
//! [`sync`]: headwater_store::TaskStorage::sync
//! [`StoreError::Damaged`]: headwater_store::StoreError::Damaged

mod backend;
mod database;
mod reader;
mod segments;
mod storage;

pub use backend::SledBackend;
