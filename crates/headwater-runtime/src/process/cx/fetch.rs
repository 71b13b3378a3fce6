//! Looking the entries of one key up in a store of windows or sessions, as joins and aggregations do for every record:
//! with buffers that are used again and again.

use std::ops::Range;

use headwater_store::{Direction, SegmentedEntry};

use super::{Cx, SegmentedCursor};
use crate::process::{StoreSlot, TaskError};

/// A look for the entries of one key in a stretch of time; see [`Cx::fetch`].
#[derive(Debug)]
pub struct WindowFetch {
    cursor: SegmentedCursor,
    entry: SegmentedEntry,
}

impl WindowFetch {
    /// One that finds nothing.
    fn idle() -> Self {
        Self { cursor: SegmentedCursor::idle(), entry: SegmentedEntry::default() }
    }

    /// The time of the entry that was found last: the start of a window, the end of a session.
    pub const fn time(&self) -> i64 {
        self.entry.time
    }

    /// The value that was found last.
    pub fn value(&self) -> &[u8] {
        &self.entry.value
    }
}

/// Entries of one key, copied out of a store of windows or sessions; see [`Cx::fetch_all`].
#[derive(Debug, Default)]
pub struct FetchedEntries {
    entries: Vec<Place>,
    /// Their keys and values.
    bytes: Vec<u8>,
}

/// Where an entry lies among the bytes.
#[derive(Clone, Debug)]
struct Place {
    key: Range<usize>,
    value_end: usize,
    timestamp: i64,
}

/// One of [`FetchedEntries`].
#[derive(Clone, Copy, Debug)]
pub struct FetchedEntry<'f> {
    /// The key as it is logged: with its times.
    pub key: &'f [u8],
    /// The value.
    pub value: &'f [u8],
    /// The timestamp, −1 in a store that keeps none.
    pub timestamp: i64,
}

impl FetchedEntries {
    /// In the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = FetchedEntry<'_>> {
        self.entries.iter().map(|Place { key, value_end, timestamp }| FetchedEntry {
            key: &self.bytes[key.clone()],
            value: &self.bytes[key.end..*value_end],
            timestamp: *timestamp,
        })
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }

    fn push(&mut self, entry: &SegmentedEntry) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(entry.key());
        let key = start..self.bytes.len();
        self.bytes.extend_from_slice(&entry.value);
        let value_end = self.bytes.len();
        self.entries.push(Place { key, value_end, timestamp: entry.timestamp });
    }
}

/// # Entries of one key
impl Cx<'_> {
    /// Starts to look for the entries of a key: the windows that begin from `from` to `to`, both included, or the sessions
    /// that end at `from` or later and begin at `to` or earlier. Give it back with [`end_fetch`](Self::end_fetch), so
    /// that no record allocates one.
    ///
    /// What is older than the store's retention is not found, as everywhere.
    ///
    /// # Panics
    /// When the store is none of windows or sessions: a bug of whoever built the program.
    pub fn fetch(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
        (from, to): (i64, i64),
        direction: Direction,
    ) -> WindowFetch {
        let mut fetch = self.thread.fetches.pop().unwrap_or_else(WindowFetch::idle);
        let wanted = (key, from.max(0), to);
        self.restart_segmented(&mut fetch.cursor, slot, wanted, direction);
        fetch
    }

    /// Finds the next entry, by time and then in the order in which they came; false at the end.
    ///
    /// # Errors
    /// As for [`next_entry`](Self::next_entry).
    pub fn next_fetched(&mut self, fetch: &mut WindowFetch) -> Result<bool, TaskError> {
        self.next_segmented(&mut fetch.cursor, &mut fetch.entry)
    }

    /// Ends a look.
    #[inline]
    pub fn end_fetch(&mut self, fetch: WindowFetch) {
        self.thread.fetches.push(fetch);
    }

    /// All that [`fetch`](Self::fetch) finds. Give it back with [`give_fetched`](Self::give_fetched).
    ///
    /// # Errors
    /// As for [`next_entry`](Self::next_entry).
    pub fn fetch_all(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
        span: (i64, i64),
        direction: Direction,
    ) -> Result<FetchedEntries, TaskError> {
        let mut fetch = self.fetch(slot, key, span, direction);
        let mut found = self.thread.fetched.pop().unwrap_or_default();
        found.clear();
        let result = loop {
            match self.next_fetched(&mut fetch) {
                Ok(true) => found.push(&fetch.entry),
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.end_fetch(fetch);
        result.map(|()| found)
    }

    /// Gives entries back, so that no record allocates room for them.
    #[inline]
    pub fn give_fetched(&mut self, fetched: FetchedEntries) {
        self.thread.fetched.push(fetched);
    }
}
