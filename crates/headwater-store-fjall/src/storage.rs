//! The write half.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use headwater_store::one_tree::Spaces;
use headwater_store::one_tree::keys::{self, TreeKey};
use headwater_store::{
    Damage, Direction, KeyRange, KeyValueBytes, MetaUpdate, RecordProblem, SegmentDrop,
    SortedBatch, SpaceId, StorageReader, StoreError, TaskStorage,
};

use crate::database::{Database, ENTRY_OVERHEAD_BYTES, Enough, Writes};
use crate::reader::FjallReader;

#[derive(Debug)]
pub(crate) struct FjallStorage {
    spaces: Spaces,
    database: Arc<Database>,
}

impl FjallStorage {
    /// The storage over a database of a known format.
    pub(crate) fn new(database: Arc<Database>) -> Result<Self, StoreError> {
        let last = database.get("read the last space", keys::LAST_SPACE)?;
        let names = prefixed(&database, keys::NAMES)?;
        let spaces = Spaces::read(database.dir(), last.as_deref(), names, |id| {
            let count = database.get("read a count", &keys::count(id))?;
            Ok(count.map(|bytes| bytes.to_vec()))
        })?;
        let storage = Self { spaces, database };
        storage.finish_drops()?;
        Ok(storage)
    }

    /// Deletes what a kill in the middle of a drop left behind, of a space or of segments.
    fn finish_drops(&self) -> Result<(), StoreError> {
        self.spaces.dropped().try_for_each(|id| self.delete_entries(id))?;
        for (key, value) in prefixed(&self.database, keys::SEGMENT_DROPS)? {
            let gone = keys::read_segment_drop(&key, &value).ok_or_else(|| {
                let (expected, found) = (18, key.len() + value.len());
                let problem = RecordProblem::Length { expected, found };
                let damage = Damage::Record { record: "drop of segments", problem };
                StoreError::damaged(self.database.dir(), damage)
            })?;
            self.delete_segments(&gone)?;
        }
        Ok(())
    }

    /// Deletes all of a space. The number of its entries goes last and says whether there may be any.
    fn delete_entries(&self, space: SpaceId) -> Result<(), StoreError> {
        let count = keys::count(space);
        if self.database.get("drop a space", &count)?.is_none() {
            return Ok(());
        }
        let all = keys::range(space, &KeyRange::all());
        self.delete_range("drop a space", all, |writes, _, is_last| {
            if is_last {
                writes.put(&count, None);
            }
        })
    }

    /// Deletes the entries of segments, and then the record that says to do so.
    fn delete_segments(&self, gone: &SegmentDrop) -> Result<(), StoreError> {
        let space = gone.space;
        let counts = self.spaces.counts().read();
        let count = counts.get(&space).ok_or(StoreError::UnknownSpace { space })?;
        let range = keys::range(space, &gone.keys());
        self.delete_range("drop segments", range, |writes, deleted, is_last| {
            let left = count.load(Ordering::Relaxed) - deleted;
            count.store(left, Ordering::Relaxed);
            writes.put(&keys::count(space), Some(&left.to_be_bytes()));
            if is_last {
                writes.put(&keys::segment_drop(gone), None);
            }
        })
    }

    /// Deletes the entries of a range in stretches that fit the write buffer, each as one with what `beside` writes: it
    /// is told how many entries the stretch deletes, and whether it is the last.
    fn delete_range(
        &self,
        operation: &'static str,
        (mut start, end): (Bound<TreeKey>, Bound<TreeKey>),
        mut beside: impl FnMut(&Writes<'_>, u64, bool),
    ) -> Result<(), StoreError> {
        let room = self.database.write_buffer_bytes();
        loop {
            let (mut found, mut bytes) = (Vec::new(), 0);
            self.database.scan(operation, (start, end.clone()), Direction::Forward, |key, _| {
                bytes += buffered_bytes(key, None);
                found.push(TreeKey::from_slice(key));
                if bytes < room { Enough::No } else { Enough::Yes }
            })?;
            let is_last = bytes < room;
            self.database.write(operation, |writes| {
                for key in &found {
                    writes.put(key, None);
                }
                beside(writes, found.len() as u64, is_last);
            })?;
            self.database.flush_if_full()?;
            match found.pop() {
                Some(last) if !is_last => start = Bound::Excluded(last),
                _ => return Ok(()),
            }
        }
    }

    /// What the batch makes of the numbers of entries.
    fn count(&self, batch: SortedBatch<'_>) -> Result<BTreeMap<SpaceId, u64>, StoreError> {
        let mut counts = BTreeMap::new();
        let before = self.spaces.counts().read();
        for write in batch.iter() {
            let space = write.space;
            let key = keys::entry(space, write.key);
            Database::check_key(&key)?;
            let stored = before.get(&space).ok_or(StoreError::UnknownSpace { space })?;
            let stored = stored.load(Ordering::Relaxed);
            let count = counts.entry(space).or_insert(stored);
            // A store that was empty has none of the batch's keys, each of which is there once.
            let known = stored > 0 && self.database.get("apply", &key)?.is_some();
            match (known, write.value) {
                (false, Some(_)) => *count += 1,
                (true, None) => *count -= 1,
                (true, Some(_)) | (false, None) => {}
            }
        }
        Ok(counts)
    }
}

impl TaskStorage for FjallStorage {
    fn space(&mut self, name: &str) -> Result<SpaceId, StoreError> {
        if let Some(id) = self.spaces.find(name) {
            return Ok(id);
        }
        let id = self.spaces.next(name)?;
        let bytes = id.get().to_be_bytes();
        let key = keys::name(name);
        Database::check_key(&key)?;
        self.database.write("make a space", |writes| {
            writes.put(keys::LAST_SPACE, Some(&bytes));
            writes.put(&key, Some(&bytes));
        })?;
        self.spaces.add(name, id);
        Ok(id)
    }

    /// The tree has no cheaper way to drop a segment than to delete its keys.
    fn segmented_space(&mut self, name: &str) -> Result<SpaceId, StoreError> {
        self.space(name)
    }

    fn spaces(&self) -> Result<Vec<(String, SpaceId)>, StoreError> {
        Ok(self.spaces.all())
    }

    fn drop_space(&mut self, space: SpaceId) -> Result<(), StoreError> {
        let name = self.spaces.name_of(space)?;
        // The name goes first: a kill in between leaves entries without a store, which the next
        // opening deletes.
        self.database.write("drop a space", |writes| writes.put(&keys::name(&name), None))?;
        self.spaces.remove(&name, space);
        self.delete_entries(space)
    }

    fn apply(&mut self, batch: SortedBatch<'_>, meta: &[MetaUpdate]) -> Result<(), StoreError> {
        let counts = self.count(batch)?;
        let mut small: BTreeMap<TreeKey, Option<Vec<u8>>> = BTreeMap::new();
        for update in meta {
            let key = keys::meta(&update.key);
            Database::check_key(&key)?;
            small.insert(key, update.value.clone());
        }
        // The segments go afterwards, in stretches of their own; a kill in between leaves word of them.
        let drops = batch.drops().filter(|gone| !gone.segments.is_empty());
        for gone in drops.clone() {
            self.spaces.name_of(gone.space)?;
            let end = gone.segments.end.to_be_bytes().to_vec();
            small.insert(keys::segment_drop(gone), Some(end));
        }
        small.extend(
            counts.iter().map(|(&space, entries)| {
                (keys::count(space), Some(entries.to_be_bytes().to_vec()))
            }),
        );
        // Keys of the meta space and of counts are before those of all stores.
        let entries = small.iter().map(|(key, value)| (key.clone(), value.as_deref()));
        let entries = entries
            .chain(batch.iter().map(|write| (keys::entry(write.space, write.key), write.value)));
        let bytes: u64 = batch.iter().map(|write| buffered_bytes(write.key, write.value)).sum();
        if bytes >= self.database.write_buffer_bytes() {
            self.database.write_table("apply", entries)?;
        } else {
            self.database.write("apply", |writes| {
                entries.for_each(|(key, value)| writes.put(&key, value));
            })?;
            self.database.flush_if_full()?;
        }
        let all = self.spaces.counts().read();
        for (space, entries) in counts {
            if let Some(count) = all.get(&space) {
                count.store(entries, Ordering::Relaxed);
            }
        }
        drop(all);
        drops.clone().try_for_each(|gone| self.delete_segments(gone))
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.database.get("read meta", &keys::meta(key))?;
        Ok(value.map(|bytes| bytes.to_vec()))
    }

    fn meta_entries(&self) -> Result<Vec<KeyValueBytes>, StoreError> {
        prefixed(&self.database, keys::METAS)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.database.flush()
    }

    fn reader(&self) -> Arc<dyn StorageReader> {
        Arc::new(FjallReader {
            database: Arc::clone(&self.database),
            counts: self.spaces.counts().clone(),
        })
    }

    fn close(mut self: Box<Self>) -> Result<(), StoreError> {
        self.sync()
    }
}

/// What an entry takes in the write buffer.
fn buffered_bytes(key: &[u8], value: Option<&[u8]>) -> u64 {
    let bytes = key.len() + value.map_or(0, <[u8]>::len);
    bytes as u64 + ENTRY_OVERHEAD_BYTES
}

/// All keys that start with `prefix`, without it, and their values.
fn prefixed(database: &Database, prefix: &[u8]) -> Result<Vec<KeyValueBytes>, StoreError> {
    let mut found = Vec::new();
    let from = Bound::Included(TreeKey::from_slice(prefix));
    database.scan("read meta", (from, Bound::Unbounded), Direction::Forward, |key, value| {
        let Some(rest) = key.strip_prefix(prefix) else { return Enough::Yes };
        found.push((rest.to_vec(), value.to_vec()));
        Enough::No
    })?;
    Ok(found)
}
