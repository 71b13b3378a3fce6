//! Ranges of keys, and the chunks in which a backend hands out their entries.

use std::ops::Bound;

/// A key and its value, borrowed.
pub type KeyValueRef<'a> = (&'a [u8], &'a [u8]);

/// A key and its value.
pub type KeyValueBytes = (Vec<u8>, Vec<u8>);

/// Which way a range is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Reverse,
}

/// A range of keys in byte order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// Where the range starts.
    pub start: Bound<Vec<u8>>,
    /// Where the range ends.
    pub end: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    pub const fn all() -> Self {
        Self { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// From `from` to `to`, both included, `None` meaning open, as Kafka Streams' `range` has it.
    pub fn inclusive(from: Option<&[u8]>, to: Option<&[u8]>) -> Self {
        let bound = |key: Option<&[u8]>| {
            key.map_or(Bound::Unbounded, |key| Bound::Included(key.to_owned()))
        };
        Self { start: bound(from), end: bound(to) }
    }

    /// Every key that starts with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        let end =
            prefix.iter().rposition(|&byte| byte != u8::MAX).map_or(Bound::Unbounded, |last| {
                let mut end = prefix[..=last].to_owned();
                end[last] += 1;
                Bound::Excluded(end)
            });
        Self { start: Bound::Included(prefix.to_owned()), end }
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        !self.is_before(key) && !self.is_after(key)
    }

    /// Whether no key can lie in the range, because it ends where or before it starts.
    pub fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (
                Bound::Included(start) | Bound::Excluded(start),
                Bound::Included(end) | Bound::Excluded(end),
            ) => start >= end,
            (Bound::Unbounded, Bound::Excluded(end)) => end.is_empty(),
            (_, Bound::Unbounded) | (Bound::Unbounded, Bound::Included(_)) => false,
        }
    }

    /// Narrows the range to what lies beyond `key`, seen in `direction`.
    pub fn resume_after(&mut self, key: &[u8], direction: Direction) {
        let bound = match direction {
            Direction::Forward => &mut self.start,
            Direction::Reverse => &mut self.end,
        };
        let mut place = take_room(bound);
        place.extend_from_slice(key);
        *bound = Bound::Excluded(place);
    }

    /// Becomes the range from `start` to `end`, both included. The room of its bounds is used again.
    pub(crate) fn set_inclusive(&mut self, start: &[u8], end: &[u8]) {
        for (bound, key) in [(&mut self.start, start), (&mut self.end, end)] {
            let mut place = take_room(bound);
            place.extend_from_slice(key);
            *bound = Bound::Included(place);
        }
    }

    /// Becomes a copy of another range. The room of its bounds is used again.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        copy_bound(&mut self.start, &other.start);
        copy_bound(&mut self.end, &other.end);
    }

    /// Whether `key` lies before the start of the range.
    pub(crate) fn is_before(&self, key: &[u8]) -> bool {
        match &self.start {
            Bound::Included(start) => key < start.as_slice(),
            Bound::Excluded(start) => key <= start.as_slice(),
            Bound::Unbounded => false,
        }
    }

    /// Whether `key` lies after the end of the range.
    pub(crate) fn is_after(&self, key: &[u8]) -> bool {
        match &self.end {
            Bound::Included(end) => key > end.as_slice(),
            Bound::Excluded(end) => key >= end.as_slice(),
            Bound::Unbounded => false,
        }
    }
}

/// The room that a bound takes, emptied.
fn take_room(bound: &mut Bound<Vec<u8>>) -> Vec<u8> {
    match std::mem::replace(bound, Bound::Unbounded) {
        Bound::Included(mut room) | Bound::Excluded(mut room) => {
            room.clear();
            room
        }
        Bound::Unbounded => Vec::new(),
    }
}

fn copy_bound(bound: &mut Bound<Vec<u8>>, from: &Bound<Vec<u8>>) {
    *bound = from.as_ref().map(|key| {
        let mut place = take_room(bound);
        place.extend_from_slice(key);
        place
    });
}

/// A stretch of entries copied out of a backend: one buffer, reused from chunk to chunk.
#[derive(Clone, Debug)]
pub struct Chunk {
    bytes: Vec<u8>,
    entries: Vec<ChunkEntry>,
    max_entries: usize,
}

#[derive(Clone, Copy, Debug)]
struct ChunkEntry {
    start: usize,
    value_start: usize,
    end: usize,
}

impl Chunk {
    /// Above this many bytes a chunk is full, whatever its limit of entries.
    const MAX_BYTES: usize = 256 * 1024;

    /// An empty chunk for at most `max_entries` entries (at least one).
    pub fn new(max_entries: usize) -> Self {
        Self { bytes: Vec::new(), entries: Vec::new(), max_entries: max_entries.max(1) }
    }

    /// Whether the backend should stop adding entries.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.max_entries || self.bytes.len() >= Self::MAX_BYTES
    }

    /// Adds an entry.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let value_start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.entries.push(ChunkEntry { start, value_start, end: self.bytes.len() });
    }

    /// Forgets all entries and keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Key and value of the entry at `index`, in the order they were added.
    pub fn get(&self, index: usize) -> Option<KeyValueRef<'_>> {
        let entry = self.entries.get(index)?;
        Some((
            &self.bytes[entry.start..entry.value_start],
            &self.bytes[entry.value_start..entry.end],
        ))
    }

    /// Keys and values in the order they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = KeyValueRef<'_>> {
        self.entries.iter().map(|entry| {
            (&self.bytes[entry.start..entry.value_start], &self.bytes[entry.value_start..entry.end])
        })
    }
}
