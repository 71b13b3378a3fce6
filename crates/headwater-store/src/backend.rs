//! The traits a storage backend implements: bytes in, bytes out, synchronous.
//!
//! A backend knows nothing of serdes, caches or Kafka. It keeps, for one task, several *spaces* of
//! ordered keys (one per store) and a small *meta space*, and it promises one thing above all: what
//! the meta space says (a stored changelog offset) is never ahead of the data.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::{Chunk, Direction, KeyRange, KeyValueBytes, MetaUpdate, SortedBatch, StoreError};

/// Makes the storage of one task. Chosen by name in the configuration, shared by all threads.
pub trait StoreBackend: fmt::Debug + Send + Sync + 'static {
    /// Name in configuration, logs and metrics: `memory`, `sled`, `fjall`.
    fn name(&self) -> &'static str;

    /// What this backend promises beyond the contract.
    fn capabilities(&self) -> Capabilities;

    /// Opens the storage of the task whose directory is `dir`, creating both when they are absent,
    /// and holds them exclusively until the storage is closed or dropped.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when somebody else holds the directory, [`StoreError::Damaged`] when
    /// its bytes cannot be trusted (a panic of the underlying library counts), [`StoreError::Io`]
    /// and [`StoreError::Backend`] for everything else.
    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn TaskStorage>, StoreError>;
}

/// What a backend promises beyond the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Data outlives the storage: it is there after close, and after a kill up to the last sync.
    pub persistent: bool,
    /// Data and meta of one [`TaskStorage::apply`] appear together or not at all, also after a
    /// kill. Without it data may be ahead of meta, never the other way round.
    pub atomic: bool,
}

/// How a storage is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Bytes of memory the backend may use as its own page cache, fixed while it is open: the
    /// instance's budget divided by the expected number of tasks.
    pub cache_bytes: u64,
}

impl OpenOptions {
    /// Options with the given [`cache_bytes`](Self::cache_bytes).
    pub fn with_cache_bytes(cache_bytes: u64) -> Self {
        Self { cache_bytes }
    }
}

impl Default for OpenOptions {
    /// A page cache of 8 MiB.
    fn default() -> Self {
        Self::with_cache_bytes(8 * 1024 * 1024)
    }
}

/// One store's key space inside a task's storage.
///
/// The number is stable for the life of the storage on disk, so that batches stay valid over a
/// reopening. Space 0 is the meta space and is never given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(u16);

impl SpaceId {
    /// The space with number `id`. Only backends make space ids.
    pub const fn new(id: u16) -> Self {
        Self(id)
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// The write half of one task's storage: all its stores of this backend, and the meta space.
///
/// It is `Send` and its methods take `&mut self`, so it can sit with whoever applies commits while
/// the stream thread goes on reading through [`reader`](Self::reader). Dropping it without
/// [`close`](Self::close) is a crash: allowed at any time, and all that is lost is what was not yet
/// synced.
pub trait TaskStorage: fmt::Debug + Send {
    /// The space of the store called `name`, created when absent.
    ///
    /// # Errors
    /// [`StoreError::TooManySpaces`], and what the backend reports.
    fn space(&mut self, name: &str) -> Result<SpaceId, StoreError>;

    /// As [`space`](Self::space), for a store whose segments are dropped as a whole: what a key's first 8 bytes say is its
    /// [segment](crate::segment_of_key). A space that is there already stays what it is; only the price of a
    /// [drop](crate::WriteBatch::drop_segments) differs.
    ///
    /// # Errors
    /// As for [`space`](Self::space).
    fn segmented_space(&mut self, name: &str) -> Result<SpaceId, StoreError>;

    /// Names and spaces of all stores, in order of name.
    ///
    /// # Errors
    /// What the backend reports.
    fn spaces(&self) -> Result<Vec<(String, SpaceId)>, StoreError>;

    /// Deletes a store with everything in it. Its id is not used again while the storage is open.
    ///
    /// # Errors
    /// [`StoreError::UnknownSpace`], and what the backend reports.
    fn drop_space(&mut self, space: SpaceId) -> Result<(), StoreError>;

    /// Writes `batch`, drops its [segments](SortedBatch::drops), and then writes `meta`. After a crash at any instant the meta space must not be ahead
    /// of the data: meta becomes durable with the data or after it, in this order over several
    /// calls too. After an error the storage must be dropped and opened again.
    ///
    /// # Errors
    /// [`StoreError::UnknownSpace`], and what the backend reports.
    fn apply(&mut self, batch: SortedBatch<'_>, meta: &[MetaUpdate]) -> Result<(), StoreError>;

    /// The value of a key of the meta space. [`MetaKey`](crate::MetaKey) makes keys.
    ///
    /// # Errors
    /// What the backend reports.
    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Everything in the meta space, in order of key.
    ///
    /// # Errors
    /// What the backend reports.
    fn meta_entries(&self) -> Result<Vec<KeyValueBytes>, StoreError>;

    /// Makes everything applied so far safe against a loss of power. It may take milliseconds;
    /// called every few seconds or megabytes and at close, never per record.
    ///
    /// # Errors
    /// What the backend or the operating system reports.
    fn sync(&mut self) -> Result<(), StoreError>;

    /// The read half. It sees every write that has been applied, without waiting for a sync.
    ///
    /// A reader may keep the directory locked until it is dropped, so give readers back before the
    /// directory is opened again.
    fn reader(&self) -> Arc<dyn StorageReader>;

    /// Syncs and lets go of the directory.
    ///
    /// # Errors
    /// What [`sync`](Self::sync) reports.
    fn close(self: Box<Self>) -> Result<(), StoreError>;
}

/// The read half of a task's storage, shared by the stream thread, queries and tools.
///
/// Reads are not isolated from a running [`TaskStorage::apply`]: they may see part of it.
pub trait StorageReader: fmt::Debug + Send + Sync {
    /// Puts the value of `key` into `value` (replacing what it holds) and answers whether there was
    /// one. The buffer is the caller's, so that a read costs no allocation.
    ///
    /// # Errors
    /// What the backend reports.
    fn get(&self, space: SpaceId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError>;

    /// Replaces what `chunk` holds by the first entries of `range`, in the order of `direction`, as
    /// many as [`chunk.is_full`](Chunk::is_full) allows. A caller goes on with
    /// [`KeyRange::resume_after`]; no lock and no snapshot lives between calls.
    ///
    /// # Errors
    /// What the backend reports.
    fn scan(
        &self,
        space: SpaceId,
        range: &KeyRange,
        direction: Direction,
        chunk: &mut Chunk,
    ) -> Result<(), StoreError>;

    /// About how many entries the store holds. Exact for the memory backend; a disk backend may be
    /// off by what a crash left unsynced.
    ///
    /// # Errors
    /// What the backend reports.
    fn approximate_entries(&self, space: SpaceId) -> Result<u64, StoreError>;

    /// The value of a key of the meta space, as [`TaskStorage::meta`] has it.
    ///
    /// # Errors
    /// What the backend reports.
    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
}
