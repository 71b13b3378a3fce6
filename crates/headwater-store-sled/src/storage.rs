//! The write half.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_store::one_tree::{Spaces, keys};
use headwater_store::{
    KeyValueBytes, MetaUpdate, SegmentDrop, SortedBatch, SpaceId, StorageReader, StoreError,
    TaskStorage,
};

use crate::database::Database;
use crate::reader::SledReader;
use crate::segments::write_entry;

#[derive(Debug)]
pub(crate) struct SledStorage {
    spaces: Spaces,
    /// Large values that are safe on the disk.
    synced_blobs: BTreeSet<OsString>,
    database: Arc<Database>,
}

impl SledStorage {
    /// The storage over a database of a known format.
    pub(crate) fn new(database: Arc<Database>) -> Result<Self, StoreError> {
        let last = database.tree("read the last space", |tree| tree.get(keys::LAST_SPACE))?;
        let names = prefixed(&database, keys::NAMES)?;
        let spaces = Spaces::read(database.dir(), last.as_deref(), names, |id| {
            let count = database.tree("read a count", |tree| tree.get(keys::count(id)))?;
            Ok(count.map(|bytes| bytes.to_vec()))
        })?;
        database.segments.open(&database, &spaces)?;
        let storage = Self { spaces, synced_blobs: BTreeSet::new(), database };
        storage.finish_drops()?;
        Ok(storage)
    }

    /// Deletes what a kill in the middle of [`drop_space`](TaskStorage::drop_space) left behind.
    fn finish_drops(&self) -> Result<(), StoreError> {
        self.spaces.dropped().try_for_each(|id| self.delete_entries(id))
    }

    fn delete_entries(&self, space: SpaceId) -> Result<(), StoreError> {
        self.database.tree("drop a space", |tree| {
            for key in tree.scan_prefix(keys::space_prefix(space)).keys() {
                tree.remove(key?)?;
            }
            tree.remove(keys::count(space)).map(drop)
        })
    }

    fn make_space(&mut self, name: &str, id: SpaceId) -> Result<SpaceId, StoreError> {
        self.database.tree("make a space", |tree| {
            tree.insert(keys::LAST_SPACE, &keys::number_of(id).to_be_bytes())?;
            tree.insert(keys::name(name), &id.get().to_be_bytes())
        })?;
        self.spaces.add(name, id);
        Ok(id)
    }

    fn drop_segments(&self, gone: &SegmentDrop) -> Result<(), StoreError> {
        let space = gone.space;
        let counts = self.spaces.counts().read();
        let count = counts.get(&space).ok_or(StoreError::UnknownSpace { space })?;
        let database = &self.database;
        if keys::has_segments(space) {
            let entries = database.segments.drop_range(database, space, gone.segments.clone())?;
            count.fetch_sub(entries, Ordering::Relaxed);
        } else if !gone.segments.is_empty() {
            database.tree("delete a range", |tree| {
                let found = tree.range(keys::range(space, &gone.keys())).keys();
                found.into_iter().try_for_each(|key| write_entry(tree, count, &key?, None))
            })?;
        }
        self.write_count(space, count)
    }

    fn write_count(&self, space: SpaceId, count: &AtomicU64) -> Result<(), StoreError> {
        let entries = count.load(Ordering::Relaxed).to_be_bytes();
        self.database.tree("apply", |tree| tree.insert(keys::count(space), &entries).map(drop))
    }
}

impl TaskStorage for SledStorage {
    fn space(&mut self, name: &str) -> Result<SpaceId, StoreError> {
        if let Some(id) = self.spaces.find(name) {
            return Ok(id);
        }
        let id = self.spaces.next(name)?;
        self.make_space(name, id)
    }

    fn segmented_space(&mut self, name: &str) -> Result<SpaceId, StoreError> {
        if let Some(id) = self.spaces.find(name) {
            return Ok(id);
        }
        let id = self.spaces.next_with_segments(name)?;
        self.make_space(name, id)
    }

    fn spaces(&self) -> Result<Vec<(String, SpaceId)>, StoreError> {
        Ok(self.spaces.all())
    }

    fn drop_space(&mut self, space: SpaceId) -> Result<(), StoreError> {
        let name = self.spaces.name_of(space)?;
        // The name goes first: a kill in between leaves entries without a store, which the next
        // opening deletes.
        self.database.tree("drop a space", |tree| tree.remove(keys::name(&name)))?;
        self.spaces.remove(&name, space);
        self.database.segments.drop_space(&self.database, space)?;
        self.delete_entries(space)
    }

    fn apply(&mut self, batch: SortedBatch<'_>, meta: &[MetaUpdate]) -> Result<(), StoreError> {
        let counts = self.spaces.counts().read();
        let mut writes = batch.iter().peekable();
        while let Some(first) = writes.peek() {
            let space = first.space;
            let count = counts.get(&space).ok_or(StoreError::UnknownSpace { space })?;
            let mut in_space = std::iter::from_fn(|| writes.next_if(|write| write.space == space));
            if keys::has_segments(space) {
                self.database.segments.write(&self.database, space, count, in_space)?;
            } else {
                self.database.tree("apply", |tree| {
                    in_space.try_for_each(|write| {
                        write_entry(tree, count, &keys::entry(space, write.key), write.value)
                    })
                })?;
            }
            self.write_count(space, count)?;
        }
        batch.drops().try_for_each(|gone| self.drop_segments(gone))?;
        self.database.tree("apply meta", |tree| {
            for update in meta {
                let key = keys::meta(&update.key);
                match &update.value {
                    Some(value) => tree.insert(key, value.as_slice())?,
                    None => tree.remove(key)?,
                };
            }
            Ok(())
        })
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.database.tree("read meta", |tree| tree.get(keys::meta(key)))?;
        Ok(value.map(|bytes| bytes.to_vec()))
    }

    fn meta_entries(&self) -> Result<Vec<KeyValueBytes>, StoreError> {
        prefixed(&self.database, keys::METAS)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.database.sync(&mut self.synced_blobs)
    }

    fn reader(&self) -> Arc<dyn StorageReader> {
        Arc::new(SledReader {
            database: Arc::clone(&self.database),
            counts: self.spaces.counts().clone(),
        })
    }

    fn close(mut self: Box<Self>) -> Result<(), StoreError> {
        self.sync()
    }
}

/// All keys that start with `prefix`, without it, and their values.
fn prefixed(database: &Database, prefix: &[u8]) -> Result<Vec<KeyValueBytes>, StoreError> {
    database.tree("read meta", |tree| {
        tree.scan_prefix(prefix)
            .map(|entry| entry.map(|(key, value)| (key[prefix.len()..].to_vec(), value.to_vec())))
            .collect()
    })
}
