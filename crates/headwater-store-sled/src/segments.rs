//! Segments of windows and sessions, each in a tree of its own, so that one that is too old is dropped as a whole.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_store::one_tree::{Spaces, keys};
use headwater_store::{
    BatchWrite, Chunk, Direction, KeyRange, SpaceId, StoreError, segment_of_key,
};
use parking_lot::{Mutex, RwLock};

use crate::database::Database;
use crate::reader::fill;

#[cfg(test)]
mod tests;

/// The segments of a storage, shared by its writer and its readers.
///
/// The lock is held only to look a segment up, never while one is read or written. A tree must not be dropped under a
/// reader; so one that is dropped waits until no reader has it any more.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    segments: RwLock<BTreeMap<Id, Arc<Segment>>>,
    /// Those that are gone from the store and that somebody may still read.
    read: Mutex<Vec<(Id, Arc<Segment>)>>,
}

/// Space and number.
type Id = (SpaceId, u64);

/// A segment. Its tree holds the entries under their whole keys.
#[derive(Debug)]
struct Segment {
    tree: sled::Tree,
    entries: AtomicU64,
}

impl Segments {
    /// Opens the segments that the database has, and gives each space with segments the sum of their entries: a kill may
    /// have come between the two. A tree without a number of entries, or of no space of the storage, is what a kill in the
    /// middle of a drop left behind; it goes.
    pub(crate) fn open(&self, database: &Database, spaces: &Spaces) -> Result<(), StoreError> {
        let counts = spaces.counts().read();
        let totals = || counts.iter().filter(|&(&space, _)| keys::has_segments(space));
        totals().for_each(|(_, total)| total.store(0, Ordering::Relaxed));
        let trees = database.db("list the segments", |db| Ok(db.tree_names()))?;
        for (space, number) in trees.iter().filter_map(|tree| segment_of(tree)) {
            let count = keys::segment_count(space, number);
            let count = database.tree("read a count", |tree| tree.get(count))?;
            let count = count.and_then(|bytes| bytes.as_ref().try_into().ok());
            if let (Some(total), Some(count)) = (counts.get(&space), count) {
                let entries = u64::from_be_bytes(count);
                self.insert(database, (space, number), entries)?;
                total.fetch_add(entries, Ordering::Relaxed);
            } else {
                forget(database, (space, number))?;
                drop_tree(database, (space, number))?;
            }
        }
        Ok(())
    }

    /// Makes a segment, without entries also where one of the same number is not gone yet.
    fn make(&self, database: &Database, id: Id) -> Result<Arc<Segment>, StoreError> {
        self.drop_unread(database)?;
        let mut read = self.read.lock();
        if let Some(index) = read.iter().position(|(it, _)| *it == id) {
            let (_, old) = read.swap_remove(index);
            database.db("drop a segment", |_| old.tree.clear())?;
        }
        drop(read);
        let segment = self.insert(database, id, 0)?;
        write_count(database, id, 0)?;
        Ok(segment)
    }

    fn insert(
        &self,
        database: &Database,
        id: Id,
        entries: u64,
    ) -> Result<Arc<Segment>, StoreError> {
        let tree = database.db("open a segment", |db| db.open_tree(name_of(id)))?;
        let segment = Arc::new(Segment { tree, entries: AtomicU64::new(entries) });
        self.segments.write().insert(id, Arc::clone(&segment));
        Ok(segment)
    }

    fn find(&self, id: Id) -> Option<Arc<Segment>> {
        self.segments.read().get(&id).cloned()
    }

    /// The value of a key, in the segment where it lies.
    pub(crate) fn get(
        &self,
        database: &Database,
        space: SpaceId,
        key: &[u8],
    ) -> Result<Option<sled::IVec>, StoreError> {
        let segment = self.find((space, segment_of_key(key)));
        segment.map_or(Ok(None), |segment| database.db("read", |_| segment.tree.get(key)))
    }

    /// Takes entries of a range, which is not empty, until the chunk is full.
    pub(crate) fn scan(
        &self,
        database: &Database,
        space: SpaceId,
        range: &KeyRange,
        direction: Direction,
        chunk: &mut Chunk,
    ) -> Result<(), StoreError> {
        let number = |bound: &Bound<Vec<u8>>, open: u64| match bound {
            Bound::Included(key) | Bound::Excluded(key) => segment_of_key(key),
            Bound::Unbounded => open,
        };
        let mut first = Bound::Included((space, number(&range.start, 0)));
        let mut last = Bound::Included((space, number(&range.end, u64::MAX)));
        while !chunk.is_full() {
            let segments = self.segments.read();
            let mut within = segments.range((first, last));
            let next = match direction {
                Direction::Forward => within.next(),
                Direction::Reverse => within.next_back(),
            };
            let Some((&id, segment)) = next else { break };
            let segment = Arc::clone(segment);
            drop(segments);
            match direction {
                Direction::Forward => first = Bound::Excluded(id),
                Direction::Reverse => last = Bound::Excluded(id),
            }
            database.db("read a range", |_| {
                let range = (range.start.clone(), range.end.clone());
                fill(segment.tree.range(range), direction, chunk, |key| key)
            })?;
        }
        Ok(())
    }

    /// Writes what is to be written to one space. `write` writes one entry and keeps a count; `total` is that of the space.
    pub(crate) fn write<'b>(
        &self,
        database: &Database,
        space: SpaceId,
        total: &AtomicU64,
        writes: impl Iterator<Item = BatchWrite<'b>>,
    ) -> Result<(), StoreError> {
        let mut writes = writes.peekable();
        while let Some(first) = writes.peek() {
            let number = segment_of_key(first.key);
            let id = (space, number);
            let segment = match self.find(id) {
                Some(segment) => segment,
                None => self.make(database, id)?,
            };
            let Segment { tree, entries } = &*segment;
            let before = entries.load(Ordering::Relaxed);
            database.db("apply", |_| {
                while let Some(write) = writes.next_if(|it| segment_of_key(it.key) == number) {
                    write_entry(tree, entries, write.key, write.value)?;
                }
                Ok(())
            })?;
            let now = entries.load(Ordering::Relaxed);
            total.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
            write_count(database, id, now)?;
        }
        Ok(())
    }

    /// Drops segments of a space. Answers how many entries they had.
    pub(crate) fn drop_range(
        &self,
        database: &Database,
        space: SpaceId,
        numbers: Range<u64>,
    ) -> Result<u64, StoreError> {
        if numbers.is_empty() {
            return Ok(0);
        }
        let range = (space, numbers.start)..(space, numbers.end);
        let dropped: Vec<(Id, Arc<Segment>)> =
            self.segments.write().extract_if(range, |_, _| true).collect();
        self.drop_all(database, dropped)
    }

    /// Drops all segments of a space.
    pub(crate) fn drop_space(&self, database: &Database, space: SpaceId) -> Result<(), StoreError> {
        let all = (space, 0)..=(space, u64::MAX);
        let dropped: Vec<(Id, Arc<Segment>)> =
            self.segments.write().extract_if(all, |_, _| true).collect();
        self.drop_all(database, dropped).map(drop)
    }

    fn drop_all(
        &self,
        database: &Database,
        dropped: Vec<(Id, Arc<Segment>)>,
    ) -> Result<u64, StoreError> {
        let mut sum = 0;
        for (id, segment) in dropped {
            sum += segment.entries.load(Ordering::Relaxed);
            // A tree without its number is gone, also for the next opening.
            forget(database, id)?;
            self.read.lock().push((id, segment));
        }
        self.drop_unread(database)?;
        Ok(sum)
    }

    /// Drops the trees of segments that are gone and that nobody reads any more.
    fn drop_unread(&self, database: &Database) -> Result<(), StoreError> {
        let mut read = self.read.lock();
        for (id, segment) in std::mem::take(&mut *read) {
            match Arc::try_unwrap(segment) {
                Ok(Segment { tree, .. }) => {
                    drop(tree);
                    drop_tree(database, id)?;
                }
                Err(segment) => read.push((id, segment)),
            }
        }
        Ok(())
    }
}

fn drop_tree(database: &Database, id: Id) -> Result<(), StoreError> {
    database.db("drop a segment", |db| db.drop_tree(name_of(id)).map(drop))
}

fn write_count(database: &Database, (space, number): Id, entries: u64) -> Result<(), StoreError> {
    let key = keys::segment_count(space, number);
    database.tree("write a count", |tree| tree.insert(key, &entries.to_be_bytes()).map(drop))
}

fn forget(database: &Database, (space, number): Id) -> Result<(), StoreError> {
    database
        .tree("forget a segment", |tree| tree.remove(keys::segment_count(space, number)).map(drop))
}

/// Writes one entry and keeps the count of entries.
pub(crate) fn write_entry(
    tree: &sled::Tree,
    entries: &AtomicU64,
    key: &[u8],
    value: Option<&[u8]>,
) -> sled::Result<()> {
    match value {
        Some(value) => {
            if tree.insert(key, value)?.is_none() {
                entries.fetch_add(1, Ordering::Relaxed);
            }
        }
        None => {
            if tree.remove(key)?.is_some() {
                // After a kill the number may be lower than what is there. Nobody else changes it.
                let left = entries.load(Ordering::Relaxed).saturating_sub(1);
                entries.store(left, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// The name of a segment's tree: space id, number, both big-endian.
fn name_of((space, number): Id) -> [u8; 10] {
    let mut name = [0; 10];
    name[..2].copy_from_slice(&space.get().to_be_bytes());
    name[2..].copy_from_slice(&number.to_be_bytes());
    name
}

/// The segment whose tree has this name; `None` when it is of none.
fn segment_of(tree: &[u8]) -> Option<Id> {
    let (space, number) = tree.split_first_chunk::<2>()?;
    let space = SpaceId::new(u16::from_be_bytes(*space));
    let number = u64::from_be_bytes(number.try_into().ok()?);
    keys::has_segments(space).then_some((space, number))
}
