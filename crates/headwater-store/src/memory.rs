//! The backend that keeps state in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{
    Capabilities, Chunk, Direction, KeyRange, KeyValueBytes, MetaUpdate, OpenOptions, SegmentDrop,
    SortedBatch, SpaceId, StorageReader, StoreBackend, StoreError, TaskStorage,
};

mod image;
mod space;
#[cfg(all(test, feature = "contract"))]
mod tests;

use image::{Contents, Image};
use space::Space;

const NAME: &str = "memory";

/// Keeps state in memory: for in-memory stores, which are restored from their changelogs at every
/// start, and for tests.
///
/// [`new`](Self::new) makes the volatile kind: every opening starts empty, whatever the directory.
/// [`durable`](Self::durable) makes one whose storages are found again by directory, through all
/// clones of the backend, as if they were files; a test can then
/// [take back](Self::lose_unsynced) what was not yet synced, one write at a time.
#[derive(Clone, Debug, Default)]
pub struct MemoryBackend {
    /// Guards the table of images only; taken when a storage is opened, never when it is used.
    disk: Option<Arc<Mutex<Images>>>,
}

/// What a storage in memory holds, copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryContents {
    /// The entries of each store, in order of key.
    pub stores: BTreeMap<String, Vec<KeyValueBytes>>,
    /// The meta space, in order of key.
    pub meta: Vec<KeyValueBytes>,
}

/// The storages of a durable backend by directory.
type Images = BTreeMap<PathBuf, Arc<Image>>;

impl MemoryBackend {
    /// Storages that live as long as they are open.
    pub const fn new() -> Self {
        Self { disk: None }
    }

    /// Storages that outlive their closing, until the last clone of this backend is dropped.
    pub fn durable() -> Self {
        Self { disk: Some(Arc::default()) }
    }

    /// How many single writes to `dir`, of data and of meta, a loss of power could take away.
    pub fn unsynced_writes(&self, dir: &Path) -> usize {
        self.image(dir).map_or(0, |image| image.read().unsynced_writes())
    }

    /// Loses power: of the writes since the last sync of `dir` only the first `kept` remain. The
    /// storage of `dir`, if it is still open, is cut off: its methods fail from now on.
    pub fn lose_unsynced(&self, dir: &Path, kept: usize) {
        if let Some(image) = self.image(dir) {
            image.write().lose_unsynced(kept);
        }
    }

    /// What the storage of `dir` holds now, whoever has it open; `None` when there is none.
    pub fn look(&self, dir: &Path) -> Option<MemoryContents> {
        self.image(dir).map(|image| image.read().copied())
    }

    /// Removes what a durable backend has of `dir`, as deleting the directory does. A storage that is
    /// still open is not found any more.
    pub fn remove(&self, dir: &Path) {
        if let Some(disk) = &self.disk {
            disk.lock().remove(dir);
        }
    }

    fn image(&self, dir: &Path) -> Option<Arc<Image>> {
        self.disk.as_ref().and_then(|disk| disk.lock().get(dir).map(Arc::clone))
    }
}

impl StoreBackend for MemoryBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { persistent: self.disk.is_some(), atomic: false }
    }

    fn open(&self, dir: &Path, _options: &OpenOptions) -> Result<Box<dyn TaskStorage>, StoreError> {
        let image = match &self.disk {
            None => Arc::new(Image::new(false)),
            Some(disk) => Arc::clone(
                disk.lock().entry(dir.to_owned()).or_insert_with(|| Arc::new(Image::new(true))),
            ),
        };
        let Some(holder) = image.take() else {
            return Err(StoreError::Locked { dir: dir.to_owned() });
        };
        Ok(Box::new(MemoryStorage { image, holder }))
    }
}

/// The write half of a storage in memory.
#[derive(Debug)]
struct MemoryStorage {
    image: Arc<Image>,
    holder: u64,
}

/// Writes applied under one lock, so that readers never wait for a whole commit.
const WRITES_PER_LOCK: usize = 64;

impl MemoryStorage {
    /// The contents, unless the storage was cut off by [`MemoryBackend::lose_unsynced`].
    fn contents(
        &self,
        operation: &'static str,
    ) -> Result<parking_lot::RwLockWriteGuard<'_, Contents>, StoreError> {
        let contents = self.image.write();
        if contents.is_held_by(self.holder) {
            Ok(contents)
        } else {
            Err(StoreError::Backend { backend: NAME, operation, source: CutOff.into() })
        }
    }
}

impl MemoryStorage {
    fn open_space(&self, name: &str, make: fn() -> Space) -> Result<SpaceId, StoreError> {
        let mut contents = self.contents("open a space")?;
        if let Some(&id) = contents.names().get(name) {
            return Ok(id);
        }
        contents.create_space(name, make()).ok_or_else(|| StoreError::TooManySpaces {
            store: name.to_owned(),
            limit: usize::from(u16::MAX),
        })
    }
}

impl TaskStorage for MemoryStorage {
    fn space(&mut self, name: &str) -> Result<SpaceId, StoreError> {
        self.open_space(name, Space::plain)
    }

    fn segmented_space(&mut self, name: &str) -> Result<SpaceId, StoreError> {
        self.open_space(name, Space::segmented)
    }

    fn spaces(&self) -> Result<Vec<(String, SpaceId)>, StoreError> {
        let contents = self.contents("list spaces")?;
        Ok(contents.names().iter().map(|(name, &id)| (name.clone(), id)).collect())
    }

    fn drop_space(&mut self, space: SpaceId) -> Result<(), StoreError> {
        if self.contents("drop a space")?.drop_space(space) {
            Ok(())
        } else {
            Err(StoreError::UnknownSpace { space })
        }
    }

    fn apply(&mut self, batch: SortedBatch<'_>, meta: &[MetaUpdate]) -> Result<(), StoreError> {
        let mut writes = batch.iter();
        while writes.len() > 0 {
            let mut contents = self.contents("apply")?;
            for write in writes.by_ref().take(WRITES_PER_LOCK) {
                if !contents.write(write.space, write.key, write.value) {
                    return Err(StoreError::UnknownSpace { space: write.space });
                }
            }
        }
        for SegmentDrop { space, segments } in batch.drops() {
            let dropped = self.contents("apply")?.drop_segments(*space, segments.clone());
            // Freed here, when no reader waits any more.
            drop(dropped.ok_or(StoreError::UnknownSpace { space: *space })?);
        }
        let mut contents = self.contents("apply")?;
        for update in meta {
            contents.write_meta(update);
        }
        Ok(())
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.contents("read meta")?.meta().get(key).cloned())
    }

    fn meta_entries(&self) -> Result<Vec<KeyValueBytes>, StoreError> {
        let contents = self.contents("read meta")?;
        Ok(contents.meta().iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.contents("sync")?.sync();
        Ok(())
    }

    fn reader(&self) -> Arc<dyn StorageReader> {
        Arc::new(MemoryReader(Arc::clone(&self.image)))
    }

    fn close(mut self: Box<Self>) -> Result<(), StoreError> {
        self.sync()
    }
}

impl Drop for MemoryStorage {
    fn drop(&mut self) {
        self.image.give_back(self.holder);
    }
}

#[derive(Debug)]
struct MemoryReader(Arc<Image>);

impl StorageReader for MemoryReader {
    fn get(&self, space: SpaceId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        let contents = self.0.read();
        let found = contents.space(space).ok_or(StoreError::UnknownSpace { space })?.get(key);
        value.clear();
        value.extend_from_slice(found.unwrap_or_default());
        Ok(found.is_some())
    }

    fn scan(
        &self,
        space: SpaceId,
        range: &KeyRange,
        direction: Direction,
        chunk: &mut Chunk,
    ) -> Result<(), StoreError> {
        chunk.clear();
        let contents = self.0.read();
        let found = contents.space(space).ok_or(StoreError::UnknownSpace { space })?;
        found.scan(range, direction, chunk);
        Ok(())
    }

    fn approximate_entries(&self, space: SpaceId) -> Result<u64, StoreError> {
        let contents = self.0.read();
        let found = contents.space(space).ok_or(StoreError::UnknownSpace { space })?;
        Ok(found.len() as u64)
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.0.read().meta().get(key).cloned())
    }
}

/// The storage lost its power.
#[derive(Debug, thiserror::Error)]
#[error("the storage was cut off by a simulated loss of power")]
struct CutOff;
