//! The open tree behind a border where its errors and panics become ours, and what is done about its
//! write buffer and its tables, and when.

use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_store::one_tree::keys::TreeKey;
use headwater_store::one_tree::{DirectoryLock, guarded};
use headwater_store::{Damage, Direction, StoreError};
use lsm_tree::compaction::Leveled;
use lsm_tree::{
    AbstractTree as _, AnyTree, Cache, Config, DescriptorTable, Guard as _, SeqNo,
    SequenceNumberCounter, Slice,
};

use crate::backend::NAME;

/// Longest key of the engine's tables.
const MAX_KEY_BYTES: usize = u16::MAX as usize;

/// The write buffer gets this share of the memory that a storage is given.
const WRITE_BUFFER_SHARE: u64 = 4;
/// What a buffered entry takes besides key and value.
pub(crate) const ENTRY_OVERHEAD_BYTES: u64 = 128;
const MIN_WRITE_BUFFER_BYTES: u64 = 128 * 1024;
/// More of it would only make each sync longer.
const MAX_WRITE_BUFFER_BYTES: u64 = 8 * 1024 * 1024;

/// Below this there is not one block for each part of the cache.
const MIN_CACHE_BYTES: u64 = 256 * 1024;

/// Size of the tables that merging makes; the first level may have four times as much.
const TABLE_BYTES: u64 = 8 * 1024 * 1024;
/// So many flushed buffers are merged into the first level.
const FLUSHED_MAX: u8 = 4;
/// Merges after a flush: that into the first level, and what follows from it in those below.
const MERGES_PER_FLUSH: usize = 3;

/// Files of tables that are kept open.
const OPEN_FILES_MAX: usize = 64;

/// Reads see everything: nobody holds on to a state of the past.
const NOW: SeqNo = SeqNo::MAX;

/// One tree.
pub(crate) struct Database {
    /// Directory of the task, for errors.
    dir: PathBuf,
    tree: AnyTree,
    seqno: SequenceNumberCounter,
    write_buffer_bytes: u64,
    merging: Arc<Leveled>,
    // Dropped after the tree.
    _lock: DirectoryLock,
}

impl Database {
    pub(crate) fn open(
        dir: &Path,
        path: &Path,
        memory_bytes: u64,
        lock: DirectoryLock,
    ) -> Result<Self, StoreError> {
        let write_buffer_bytes = (memory_bytes / WRITE_BUFFER_SHARE)
            .clamp(MIN_WRITE_BUFFER_BYTES, MAX_WRITE_BUFFER_BYTES);
        let cache_bytes = memory_bytes.saturating_sub(write_buffer_bytes).max(MIN_CACHE_BYTES);
        let seqno = SequenceNumberCounter::default();
        let tree = guard(dir, "open the tree", || {
            let tree = Config::new(path, seqno.clone(), SequenceNumberCounter::default())
                .use_cache(Arc::new(Cache::with_capacity_bytes(cache_bytes)))
                .use_descriptor_table(Some(Arc::new(DescriptorTable::new(OPEN_FILES_MAX))))
                .open()?;
            seqno.set(tree.get_highest_seqno().map_or(0, |highest| highest + 1));
            Ok(tree)
        })?;
        let merging =
            Leveled::default().with_l0_threshold(FLUSHED_MAX).with_table_target_size(TABLE_BYTES);
        Ok(Self {
            dir: dir.to_owned(),
            tree,
            seqno,
            write_buffer_bytes,
            merging: Arc::new(merging),
            _lock: lock,
        })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn get(
        &self,
        operation: &'static str,
        key: &[u8],
    ) -> Result<Option<Slice>, StoreError> {
        guard(&self.dir, operation, || self.tree.get(key, NOW))
    }

    /// Calls `take` with the entries between two keys until it has enough.
    pub(crate) fn scan(
        &self,
        operation: &'static str,
        range: (Bound<TreeKey>, Bound<TreeKey>),
        direction: Direction,
        mut take: impl FnMut(&[u8], &[u8]) -> Enough,
    ) -> Result<(), StoreError> {
        guard(&self.dir, operation, || {
            let mut entries = self.tree.range(range, NOW, None);
            loop {
                let next = match direction {
                    Direction::Forward => entries.next(),
                    Direction::Reverse => entries.next_back(),
                };
                let Some(entry) = next else { return Ok(()) };
                let (key, value) = entry.into_inner()?;
                if take(&key, &value) == Enough::Yes {
                    return Ok(());
                }
            }
        })
    }

    /// Writes all that `f` puts, as one: all of it survives, or nothing. `f` keeps the write buffer
    /// in mind by itself.
    pub(crate) fn write(
        &self,
        operation: &'static str,
        f: impl FnOnce(&Writes<'_>),
    ) -> Result<(), StoreError> {
        guard(&self.dir, operation, || {
            f(&Writes { tree: &self.tree, seqno: self.seqno.next() });
            Ok(())
        })
    }

    /// Writes entries in ascending order of key, each key once, to tables of their own, as one. What
    /// is in the write buffer is flushed before.
    pub(crate) fn write_table<'a>(
        &self,
        operation: &'static str,
        entries: impl Iterator<Item = (TreeKey, Option<&'a [u8]>)>,
    ) -> Result<(), StoreError> {
        guard(&self.dir, operation, || {
            let mut table = self.tree.ingestion()?;
            for (key, value) in entries {
                match value {
                    Some(value) => table.write(&*key, value)?,
                    None => table.write_tombstone(&*key)?,
                }
            }
            table.finish()
        })?;
        self.merge()
    }

    /// How much may wait in the write buffer, [`ENTRY_OVERHEAD_BYTES`] for each entry included.
    pub(crate) fn write_buffer_bytes(&self) -> u64 {
        self.write_buffer_bytes
    }

    /// Flushes the write buffer if it is full.
    pub(crate) fn flush_if_full(&self) -> Result<(), StoreError> {
        if self.tree.active_memtable().size() < self.write_buffer_bytes {
            return Ok(());
        }
        self.flush()
    }

    /// Makes everything safe that was written, and merges what has become too many tables.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        guard(&self.dir, "flush", || self.tree.flush_active_memtable(self.seqno.get()))?;
        self.merge()
    }

    fn merge(&self) -> Result<(), StoreError> {
        guard(&self.dir, "merge tables", || {
            (0..MERGES_PER_FLUSH).try_for_each(|_| {
                let merging: Arc<Leveled> = Arc::clone(&self.merging);
                self.tree.compact(merging, self.seqno.get())
            })
        })
    }

    /// Refuses a key that the engine would panic at.
    pub(crate) fn check_key(key: &[u8]) -> Result<(), StoreError> {
        if key.len() <= MAX_KEY_BYTES {
            return Ok(());
        }
        Err(StoreError::Backend {
            backend: NAME,
            operation: "write a key",
            source: KeyTooLong { bytes: key.len() - 2 }.into(),
        })
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// A key that the engine cannot hold.
#[derive(Debug, thiserror::Error)]
#[error(
    "the key has {bytes} bytes, fjall holds keys of up to {} bytes; keep stores with longer keys in \
     another backend",
    MAX_KEY_BYTES - 2
)]
struct KeyTooLong {
    bytes: usize,
}

/// Whether a scan has what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enough {
    Yes,
    No,
}

/// Writes into the write buffer that belong together.
pub(crate) struct Writes<'a> {
    tree: &'a AnyTree,
    seqno: SeqNo,
}

impl Writes<'_> {
    /// Gives a key a value, or deletes it.
    pub(crate) fn put(&self, key: &[u8], value: Option<&[u8]>) {
        match value {
            Some(value) => self.tree.insert(key, value, self.seqno),
            None => self.tree.remove(key, self.seqno),
        };
    }
}

/// Calls into the tree; its errors, and its panics, come back as ours.
fn guard<T>(
    dir: &Path,
    operation: &'static str,
    f: impl FnOnce() -> lsm_tree::Result<T>,
) -> Result<T, StoreError> {
    guarded(dir, f, |error| translate(dir, operation, error))
}

#[cold]
fn translate(dir: &Path, operation: &'static str, error: lsm_tree::Error) -> StoreError {
    match error {
        lsm_tree::Error::Io(source) if !is_damage(&source) => {
            StoreError::Io { operation, path: dir.to_owned(), source }
        }
        // All other errors say what files look like.
        error => StoreError::damaged(dir, Damage::Backend { source: error.into() }),
    }
}

/// Whether the engine says by an I/O error what its files look like, not what the system refuses.
fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidData
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::NotFound
    )
}
