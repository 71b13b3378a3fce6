//! A store backend of a user's own: a map in memory behind a lock. It keeps nothing over a close, so
//! every start restores from the changelogs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, RwLock};

use headwater::store::{
    Capabilities, Chunk, Direction, KeyRange, MetaUpdate, OpenOptions, SortedBatch, SpaceId,
    StorageReader, StoreBackend, StoreError, TaskStorage,
};

/// Makes storages that live as long as they are open.
#[derive(Clone, Copy, Debug, Default)]
pub struct TinyBackend;

impl StoreBackend for TinyBackend {
    fn name(&self) -> &'static str {
        "tiny"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { persistent: false, atomic: false }
    }

    fn open(
        &self,
        _dir: &Path,
        _options: &OpenOptions,
    ) -> Result<Box<dyn TaskStorage>, StoreError> {
        Ok(Box::new(TinyStorage::default()))
    }
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, Default)]
struct TinyStorage {
    names: BTreeMap<String, SpaceId>,
    last_space: u16,
    reader: Arc<TinyReader>,
}

#[derive(Debug, Default)]
struct TinyReader {
    spaces: RwLock<BTreeMap<SpaceId, Entries>>,
    meta: RwLock<Entries>,
}

impl TaskStorage for TinyStorage {
    fn space(&mut self, name: &str) -> Result<SpaceId, StoreError> {
        if let Some(space) = self.names.get(name) {
            return Ok(*space);
        }
        self.last_space += 1;
        let space = SpaceId::new(self.last_space);
        self.names.insert(name.to_owned(), space);
        self.reader.spaces.write().unwrap().insert(space, Entries::new());
        Ok(space)
    }

    fn segmented_space(&mut self, name: &str) -> Result<SpaceId, StoreError> {
        self.space(name)
    }

    fn spaces(&self) -> Result<Vec<(String, SpaceId)>, StoreError> {
        Ok(self.names.iter().map(|(name, space)| (name.clone(), *space)).collect())
    }

    fn drop_space(&mut self, space: SpaceId) -> Result<(), StoreError> {
        self.names.retain(|_, named| *named != space);
        match self.reader.spaces.write().unwrap().remove(&space) {
            Some(_) => Ok(()),
            None => Err(StoreError::UnknownSpace { space }),
        }
    }

    fn apply(&mut self, batch: SortedBatch<'_>, meta: &[MetaUpdate]) -> Result<(), StoreError> {
        let mut spaces = self.reader.spaces.write().unwrap();
        for write in batch.iter() {
            let unknown = StoreError::UnknownSpace { space: write.space };
            let entries = spaces.get_mut(&write.space).ok_or(unknown)?;
            put(entries, write.key, write.value);
        }
        for gone in batch.drops() {
            let unknown = StoreError::UnknownSpace { space: gone.space };
            let keys = gone.keys();
            spaces.get_mut(&gone.space).ok_or(unknown)?.retain(|key, _| !keys.contains(key));
        }
        drop(spaces);
        for update in meta {
            let mut known = self.reader.meta.write().unwrap();
            put(&mut known, &update.key, update.value.as_deref());
        }
        Ok(())
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.reader.meta(key)
    }

    fn meta_entries(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        Ok(self.reader.meta.read().unwrap().clone().into_iter().collect())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn reader(&self) -> Arc<dyn StorageReader> {
        self.reader.clone()
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        Ok(())
    }
}

impl StorageReader for TinyReader {
    fn get(&self, space: SpaceId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        value.clear();
        let spaces = self.spaces.read().unwrap();
        let found = spaces.get(&space).and_then(|entries| entries.get(key));
        value.extend_from_slice(found.map(Vec::as_slice).unwrap_or_default());
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
        let spaces = self.spaces.read().unwrap();
        let Some(entries) = spaces.get(&space).filter(|_| !range.is_empty()) else { return Ok(()) };
        let mut found = entries.range((range.start.clone(), range.end.clone()));
        while !chunk.is_full()
            && let Some((key, value)) = match direction {
                Direction::Forward => found.next(),
                Direction::Reverse => found.next_back(),
            }
        {
            chunk.push(key, value);
        }
        Ok(())
    }

    fn approximate_entries(&self, space: SpaceId) -> Result<u64, StoreError> {
        Ok(self.spaces.read().unwrap().get(&space).map_or(0, |entries| entries.len() as u64))
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.meta.read().unwrap().get(key).cloned())
    }
}

fn put(entries: &mut Entries, key: &[u8], value: Option<&[u8]>) {
    match value {
        Some(value) => entries.insert(key.to_vec(), value.to_vec()),
        None => entries.remove(key),
    };
}
