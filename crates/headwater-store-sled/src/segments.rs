//! Segments of windows and sessions, each in a tree of its own, so that one that is too old is dropped as a whole.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_store::one_tree::keys;
use headwater_store::{
    BatchWrite, Chunk, Direction, KeyRange, SpaceId, StoreError, segment_of_key,
};
use parking_lot::RwLock;

use crate::database::Database;
use crate::reader::fill;

/// The segments of a storage, shared by its writer and its readers.
///
/// Every read of a segment takes the lock, so that none is dropped under a reader; only who makes or drops one makes
/// readers wait.
#[derive(Debug, Default)]
pub(crate) struct Segments(RwLock<BTreeMap<(SpaceId, u64), Segment>>);

/// A segment. Its tree holds the entries under their whole keys.
#[derive(Debug)]
struct Segment {
    tree: sled::Tree,
    entries: AtomicU64,
}

impl Segments {
    /// Opens the segments that the database has. Those of no space of the storage are what a kill in the middle of a drop
    /// left behind; they go.
    pub(crate) fn open(
        &self,
        database: &Database,
        is_known: impl Fn(SpaceId) -> bool,
    ) -> Result<(), StoreError> {
        let trees = database.db("list the segments", |db| Ok(db.tree_names()))?;
        for (space, number) in trees.iter().filter_map(|tree| segment_of(tree)) {
            if !is_known(space) {
                drop_tree(database, (space, number))?;
                continue;
            }
            let count = keys::segment_count(space, number);
            let count = database.tree("read a count", |tree| tree.get(count))?;
            let count = count.and_then(|bytes| bytes.as_ref().try_into().ok());
            self.make(database, (space, number), count.map_or(0, u64::from_be_bytes))?;
        }
        Ok(())
    }

    fn make(
        &self,
        database: &Database,
        segment: (SpaceId, u64),
        entries: u64,
    ) -> Result<(), StoreError> {
        let tree = database.db("open a segment", |db| db.open_tree(name_of(segment)))?;
        self.0.write().insert(segment, Segment { tree, entries: AtomicU64::new(entries) });
        Ok(())
    }

    /// The value of a key, in the segment where it lies.
    pub(crate) fn get(
        &self,
        database: &Database,
        space: SpaceId,
        key: &[u8],
    ) -> Result<Option<sled::IVec>, StoreError> {
        let segments = self.0.read();
        let segment = segments.get(&(space, segment_of_key(key)));
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
        let (first, last) = (number(&range.start, 0), number(&range.end, u64::MAX));
        let segments = self.0.read();
        let mut segments = segments.range((space, first)..=(space, last));
        while !chunk.is_full() {
            let next = match direction {
                Direction::Forward => segments.next(),
                Direction::Reverse => segments.next_back(),
            };
            let Some((_, segment)) = next else { break };
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
            if !self.0.read().contains_key(&(space, number)) {
                self.make(database, (space, number), 0)?;
            }
            let segments = self.0.read();
            let Segment { tree, entries } = &segments[&(space, number)];
            let before = entries.load(Ordering::Relaxed);
            database.tree("apply", |counts| {
                while let Some(write) = writes.next_if(|it| segment_of_key(it.key) == number) {
                    write_entry(tree, entries, write.key, write.value)?;
                }
                let now = entries.load(Ordering::Relaxed);
                total.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
                counts.insert(keys::segment_count(space, number), &now.to_be_bytes()).map(drop)
            })?;
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
        let dropped: Vec<((SpaceId, u64), Segment)> =
            self.0.write().extract_if(range, |_, _| true).collect();
        dropped.into_iter().try_fold(0, |sum, (segment, Segment { tree, entries })| {
            drop(tree);
            drop_tree(database, segment)?;
            Ok(sum + entries.into_inner())
        })
    }

    /// Drops all segments of a space.
    pub(crate) fn drop_space(&self, database: &Database, space: SpaceId) -> Result<(), StoreError> {
        self.drop_range(database, space, 0..u64::MAX)?;
        let last = self.0.write().remove(&(space, u64::MAX));
        last.map_or(Ok(()), |_| drop_tree(database, (space, u64::MAX)))
    }
}

fn drop_tree(database: &Database, (space, number): (SpaceId, u64)) -> Result<(), StoreError> {
    database.db("drop a segment", |db| db.drop_tree(name_of((space, number))))?;
    database
        .tree("drop a segment", |tree| tree.remove(keys::segment_count(space, number)).map(drop))
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
                entries.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// The name of a segment's tree: space id, number, both big-endian.
fn name_of((space, number): (SpaceId, u64)) -> [u8; 10] {
    let mut name = [0; 10];
    name[..2].copy_from_slice(&space.get().to_be_bytes());
    name[2..].copy_from_slice(&number.to_be_bytes());
    name
}

/// The segment whose tree has this name; `None` when it is of none.
fn segment_of(tree: &[u8]) -> Option<(SpaceId, u64)> {
    let (space, number) = tree.split_first_chunk::<2>()?;
    let space = SpaceId::new(u16::from_be_bytes(*space));
    let number = u64::from_be_bytes(number.try_into().ok()?);
    keys::has_segments(space).then_some((space, number))
}
