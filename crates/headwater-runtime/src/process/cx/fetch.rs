//! Looking the values of one key up in a store of windows, as joins of streams do for every record: with
//! buffers that are used again and again.

use std::ops::RangeInclusive;

use headwater_store::{Direction, KeyRange, OverlayCursor, SEGMENT_PREFIX, WINDOW_SUFFIX};

use super::Cx;
use crate::process::store::{Keeper, TaskStore, unreadable};
use crate::process::{StoreSlot, TaskError};

/// A look for the values of one key in a stretch of time; see [`Cx::fetch`].
#[derive(Debug)]
pub struct WindowFetch {
    store: StoreSlot,
    /// The keys that the first and the last entry can have in the segment that is read.
    first: Vec<u8>,
    last: Vec<u8>,
    /// What comes after that segment.
    segments: RangeInclusive<i64>,
    is_reading: bool,
    cursor: OverlayCursor,
    /// The entry that was found last.
    time: i64,
    value: Vec<u8>,
}

impl WindowFetch {
    /// One that finds nothing.
    fn idle() -> Self {
        Self {
            store: StoreSlot(0),
            first: Vec::new(),
            last: Vec::new(),
            segments: RangeInclusive::new(1, 0),
            is_reading: false,
            cursor: OverlayCursor::new(KeyRange::all(), Direction::Forward),
            time: -1,
            value: Vec::new(),
        }
    }

    /// The time of the value that was found last.
    pub const fn time(&self) -> i64 {
        self.time
    }

    /// The value that was found last.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    fn set_bounds(&mut self, store: StoreSlot, key: &[u8], from: i64, to: i64) {
        self.store = store;
        let bounds = [(&mut self.first, from, [0; 4]), (&mut self.last, to, [u8::MAX; 4])];
        for (bound, time, number) in bounds {
            bound.clear();
            bound.extend_from_slice(&[0; SEGMENT_PREFIX]);
            bound.extend_from_slice(key);
            bound.extend_from_slice(&time.to_be_bytes());
            bound.extend_from_slice(&number);
        }
    }

    /// Goes on with the next segment; false at the end.
    fn next_segment(&mut self) -> bool {
        let Some(segment) = self.segments.next() else { return false };
        for bound in [&mut self.first, &mut self.last] {
            bound[..SEGMENT_PREFIX].copy_from_slice(&segment.to_be_bytes());
        }
        self.cursor.restart(&self.first, &self.last, Direction::Forward);
        self.is_reading = true;
        true
    }
}

/// # Values of one key
impl Cx<'_> {
    /// Starts to look for the values of a key whose windows begin from `from` to `to`, both included. Give it back
    /// with [`end_fetch`](Self::end_fetch), so that no record allocates one.
    ///
    /// What is older than the store's retention is not found, as everywhere.
    ///
    /// # Panics
    /// When the store is none of windows: a bug of whoever built the program.
    pub fn fetch(&mut self, slot: StoreSlot, key: &[u8], from: i64, to: i64) -> WindowFetch {
        let mut fetch = self.thread.fetches.pop().unwrap_or_else(WindowFetch::idle);
        let segments = self.task.stores[slot.index()].segments();
        let from = from.max(segments.visible_from()).max(0);
        let to = to.min(segments.newest());
        fetch.set_bounds(slot, key, from, to.max(0));
        fetch.is_reading = false;
        fetch.segments = if from <= to {
            segments.options.segment(from)..=segments.options.segment(to)
        } else {
            RangeInclusive::new(1, 0)
        };
        fetch
    }

    /// Finds the next value, by time and then in the order in which they came; false at the end.
    ///
    /// # Errors
    /// As for [`next_entry`](Self::next_entry).
    pub fn next_fetched(&mut self, fetch: &mut WindowFetch) -> Result<bool, TaskError> {
        let task = self.task.id;
        let TaskStore { name, overlay, layout, keeper, .. } =
            &mut self.task.stores[fetch.store.index()];
        let Keeper::Segmented(segments) = keeper else { unreachable!("asked when it began") };
        loop {
            if !fetch.is_reading && !fetch.next_segment() {
                return Ok(false);
            }
            let found = overlay.next(&mut fetch.cursor);
            let Some((key, stored)) = found.map_err(|error| unreadable(task, name, error))? else {
                fetch.is_reading = false;
                continue;
            };
            // Other keys can lie between: longer ones that begin like this one and go on like a time.
            let key_end = fetch.first.len() - WINDOW_SUFFIX;
            if key.len() != fetch.first.len() || key[..key_end] != fetch.first[..key_end] {
                continue;
            }
            let Some(time) = segments.options.time_of(key) else { continue };
            fetch.time = time;
            fetch.value.clear();
            fetch.value.extend_from_slice(layout.split(stored).value);
            return Ok(true);
        }
    }

    /// Ends a look.
    #[inline]
    pub fn end_fetch(&mut self, fetch: WindowFetch) {
        self.thread.fetches.push(fetch);
    }
}
