//! The write half.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_store::one_tree::{Spaces, keys};
use headwater_store::{
    KeyValueBytes, MetaUpdate, SortedBatch, SpaceId, StorageReader, StoreError, TaskStorage,
};

use crate::database::Database;
use crate::reader::SledReader;

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

    /// Writes one entry and keeps its space's count.
    fn write(
        tree: &sled::Tree,
        count: &AtomicU64,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> sled::Result<()> {
        match value {
            Some(value) => {
                if tree.insert(key, value)?.is_none() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
            None => {
                if tree.remove(key)?.is_some() {
                    count.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }
}

impl TaskStorage for SledStorage {
    fn space(&mut self, name: &str) -> Result<SpaceId, StoreError> {
        if let Some(id) = self.spaces.find(name) {
            return Ok(id);
        }
        let id = self.spaces.next(name)?;
        let bytes = id.get().to_be_bytes();
        self.database.tree("make a space", |tree| {
            tree.insert(keys::LAST_SPACE, &bytes)?;
            tree.insert(keys::name(name), &bytes)
        })?;
        self.spaces.add(name, id);
        Ok(id)
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
        self.delete_entries(space)
    }

    fn apply(&mut self, batch: SortedBatch<'_>, meta: &[MetaUpdate]) -> Result<(), StoreError> {
        let counts = self.spaces.counts().read();
        let mut writes = batch.iter().peekable();
        while let Some(first) = writes.peek() {
            let space = first.space;
            let count = counts.get(&space).ok_or(StoreError::UnknownSpace { space })?;
            self.database.tree("apply", |tree| {
                while let Some(write) = writes.next_if(|write| write.space == space) {
                    let key = keys::entry(space, write.key);
                    Self::write(tree, count, &key, write.value)?;
                }
                let entries = count.load(Ordering::Relaxed).to_be_bytes();
                tree.insert(keys::count(space), &entries).map(drop)
            })?;
        }
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
