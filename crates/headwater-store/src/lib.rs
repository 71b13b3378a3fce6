//! State stores: backends, the overlay of uncommitted writes, layouts, serdes and typed views.
//!
//! A task keeps all its stores of one kind in one *storage*, made by a [`StoreBackend`]: in memory
//! ([`MemoryBackend`]) or on disk (`headwater-store-sled`, `headwater-store-fjall`). Storages know bytes
//! only. Above them sits, for each store, an [`Overlay`] that belongs to the stream thread; above that the
//! typed [`KeyValueStore`].
//!
//! # Three levels
//!
//! ```text
//!   get ─▶ open writes ─▶ sealed writes ─▶ backend          put ─▶ open writes
//!          (this commit)  (in flight)      (TaskStorage)
//! ```
//!
//! - **Open**: written since the last commit began. [`Overlay::put`] goes here and nowhere else.
//! - **Sealed**: [`Overlay::seal`] copies the open writes into a [`WriteBatch`] and the task goes on at
//!   once. Somebody else acknowledges, commits, and applies the batch with [`TaskStorage::apply`]; at
//!   most one seal is in flight. Then [`Overlay::release`] makes its entries clean: they stay readable
//!   from memory while there is room. If the commit fails, [`Overlay::abandon`] forgets both levels, and
//!   what the backend holds is again the truth.
//! - **Backend**: what was committed. Its [`StorageReader`] can be read by anybody at any time.
//!
//! The meta space of a storage holds the [`ChangelogPosition`]s up to which the data are complete; a
//! position is written after its data, so it may be behind them but **never ahead**. What lies
//! in between is read from the changelog once more after a crash, which changes nothing.
//!
//! # Two budgets
//!
//! - **Unforwarded bytes** (`statestore_cache_max_bytes`). With [`Caching::On`] an update waits in the
//!   record cache, and only the last one of a key goes to the changelog and downstream. The cache is
//!   that of Kafka Streams to the byte and to the order of its evictions (feature row P17):
//!   while the [`cache_bytes`](Overlay::cache_bytes) of a thread's stores are over the budget, call
//!   [`Overlay::evict_oldest`] on the store just written to and forward what it hands out.
//! - **Uncommitted bytes** (`statestore_uncommitted_max_bytes`). Everything written since the seal is
//!   held in memory: when the sum of [`uncommitted_bytes`](Overlay::uncommitted_bytes) is over this
//!   budget, commit early.
//!
//! # Example
//!
//! ```
//! use std::path::Path;
//!
//! use headwater_store::{
//!     CacheFlush, Caching, MemoryBackend, OldValues, OpenOptions, Overlay, OverlayOptions,
//!     StoreBackend, WriteBatch,
//! };
//!
//! let mut storage = MemoryBackend::new().open(Path::new("0_3"), &OpenOptions::default())?;
//! let space = storage.space("counts")?;
//! let options =
//!     OverlayOptions { caching: Caching::On(OldValues::All), ..OverlayOptions::default() };
//! let mut counts: Overlay = Overlay::new("counts", space, storage.reader(), options);
//!
//! // Two updates of one key: one change to forward, with the value from before both.
//! counts.put(b"word", Some(b"1"), || ());
//! counts.put(b"word", Some(b"2"), || ());
//! let mut flush = CacheFlush::new();
//! counts.take_unforwarded(&mut flush)?;
//! let changes: Vec<_> = flush.iter().map(|change| (change.key, change.old, change.new)).collect();
//! assert_eq!(changes, [(&b"word"[..], None, Some(&b"2"[..]))]);
//!
//! // Commit: seal, go on, apply elsewhere, release.
//! let mut batch = WriteBatch::new();
//! counts.seal(&mut batch)?;
//! counts.put(b"word", Some(b"3"), || ());
//! assert_eq!(counts.get(b"word")?, Some(&b"3"[..]));
//! storage.apply(batch.sort(), &[])?;
//! counts.release();
//!
//! // What was not committed is gone when the next commit fails.
//! counts.abandon();
//! assert_eq!(counts.get(b"word")?, Some(&b"2"[..]));
//! # Ok::<(), headwater_store::StoreError>(())
//! ```
//!
//! # Other backends
//!
//! Implement [`StoreBackend`], [`TaskStorage`] and [`StorageReader`], and mount the contract suite
//! (feature `contract`, macro `contract_suite!`) in your tests: it is the definition of what a backend
//! must do. [`one_tree`] has what a backend over an ordered tree of bytes needs besides.

mod access;
mod backend;
mod batch;
mod buffered;
#[cfg(feature = "contract")]
pub mod contract;
mod error;
mod foreign_key;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod headers;
mod latest;
mod layout;
mod lru;
mod memory;
mod meta;
pub mod one_tree;
mod overlay;
mod range;
mod segmented;
pub mod serde;
mod table;
mod timestamped;
mod versioned;
mod view;
mod watched;

pub use access::{CommittedSegments, CommittedStore, KeyValueAccess, KeyValueRead};
pub use backend::{Capabilities, OpenOptions, SpaceId, StorageReader, StoreBackend, TaskStorage};
pub use batch::{BatchWrite, SegmentDrop, SortedBatch, WriteBatch, segment_of_key};
pub use buffered::{BufferedContext, BufferedError, BufferedValue, BufferedValueWithHeaders};
pub use error::{Damage, Part, RecordProblem, StoreError};
pub use foreign_key::{
    ForeignKeyError, Instruction, Subscription, SubscriptionResponse, ValueHash, murmur3_128,
    primary_key_of, push_foreign_key,
};
pub use headers::{StoredHeader, push_headers, read_headers, split_headers};
pub use latest::LatestWrites;
pub use layout::{Layout, StoredValue};
pub use lru::LruLayout;
pub use memory::{MemoryBackend, MemoryContents};
pub use meta::{ChangelogPosition, LastNumber, MetaKey, MetaUpdate, StoreDescription, StreamTime};
pub use overlay::{
    CacheContext, CacheFlush, CachedChange, Caching, ENTRY_OVERHEAD_BYTES, OldValues, Overlay,
    OverlayCursor, OverlayOptions,
};
pub use range::{Chunk, Direction, KeyRange, KeyValueBytes, KeyValueRef};
pub use segmented::{
    QueriedKeys, SEGMENT_PREFIX, SESSION_SUFFIX, SegmentedEntry, SegmentedKind, SegmentedOptions,
    SegmentedQuery, SegmentedRead, SegmentedScan, WINDOW_SUFFIX, push_session_key, push_window_key,
    read_session_key, read_window_key,
};
pub use timestamped::{
    TIMESTAMP_BYTES, Timestamped, ValueAndTimestamp, push_timestamped, split_timestamp,
};
pub use versioned::{VersionedLayout, VersionedOptions, VersionedPut, VersionedRecord};
pub use view::{
    Entries, KeyValueStore, TimestampedKeyValueStore, open_key_value, open_timestamped_key_value,
};
pub use watched::{StorageWatch, WatchedStorage};
