//! Ordered reading over the overlay and what lies below it.

use std::cmp::Ordering;
use std::ops::Bound;

use super::order::{Place, SlotOrder};
use super::{CacheContext, Overlay};
use crate::table::Slot;
use crate::{Chunk, Direction, KeyRange, KeyValueRef, StoreError};

/// Entries read from the backend at once.
const CHUNK_ENTRIES: usize = 256;

/// A place in a range of a store, moved on by [`Overlay::next`].
///
/// It borrows nothing, so the store may be written between two steps. A write ahead of the cursor may
/// or may not be seen; every key that is there all the time is seen exactly once.
#[derive(Debug)]
pub struct OverlayCursor {
    /// What is still to be read.
    rest: KeyRange,
    direction: Direction,
    /// [`Overlay::order`] that `at` belongs to.
    order: Option<u64>,
    /// In the overlay's order, in front of what is next in the cursor's direction.
    at: Place,
    /// [`Overlay::releases`] that `chunk` belongs to.
    releases: Option<u64>,
    chunk: Chunk,
    /// Next entry of `chunk`.
    chunk_at: usize,
    /// What comes after `chunk` in the backend.
    below: KeyRange,
    /// Whether something does.
    has_below: bool,
}

/// Where the next entry comes from.
#[derive(Clone, Copy)]
enum Next {
    Overlay(Slot),
    Backend,
    End,
}

impl OverlayCursor {
    /// At the beginning of a range.
    pub fn new(range: KeyRange, direction: Direction) -> Self {
        Self {
            rest: range,
            direction,
            order: None,
            at: Place::default(),
            releases: None,
            chunk: Chunk::new(CHUNK_ENTRIES),
            chunk_at: 0,
            below: KeyRange::all(),
            has_below: false,
        }
    }

    /// Begins anew with the range from `start` to `end`, both included. Costs no allocation once the cursor has been
    /// in ranges of such keys.
    pub fn restart(&mut self, start: &[u8], end: &[u8], direction: Direction) {
        self.rest.set_inclusive(start, end);
        self.direction = direction;
        self.order = None;
        self.releases = None;
    }

    /// Begins anew with a range.
    pub fn restart_range(&mut self, range: KeyRange, direction: Direction) {
        self.rest = range;
        self.direction = direction;
        self.order = None;
        self.releases = None;
    }

    /// Whether `a` comes before `b`.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self.direction {
            Direction::Forward => a.cmp(b),
            Direction::Reverse => b.cmp(a),
        }
    }
}

impl<C: CacheContext> Overlay<C> {
    /// Key and value of the next entry, `None` at the end of the range.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn next<'a>(
        &'a mut self,
        cursor: &'a mut OverlayCursor,
    ) -> Result<Option<KeyValueRef<'a>>, StoreError> {
        self.sort_in();
        self.find_place(cursor);
        let found = loop {
            self.fill_chunk(cursor)?;
            match self.choose(cursor) {
                Next::Overlay(slot) if self.pass_overlay(cursor, slot) => {}
                found => break found,
            }
        };
        match found {
            Next::End => Ok(None),
            Next::Overlay(slot) => {
                let entry = self.table.get(slot);
                Ok(entry.value().map(|value| (entry.key(), value)))
            }
            Next::Backend => {
                let index = cursor.chunk_at;
                cursor.chunk_at += 1;
                let entry = cursor.chunk.get(index);
                if let Some((key, _)) = entry {
                    cursor.rest.resume_after(key, cursor.direction);
                    self.visit(key);
                }
                Ok(entry)
            }
        }
    }

    /// Moves the cursor past an entry of the overlay, and past what it hides below. Whether the entry
    /// is a deleted key, which is not handed out.
    fn pass_overlay(&mut self, cursor: &mut OverlayCursor, slot: Slot) -> bool {
        match cursor.direction {
            Direction::Forward => cursor.at = self.sorted.forward(cursor.at),
            Direction::Reverse => cursor.at = self.sorted.back(cursor.at),
        }
        if let Some(cache) = &mut self.cache {
            cache.visited(slot);
        }
        let entry = self.table.get(slot);
        if cursor.chunk.get(cursor.chunk_at).is_some_and(|(below, _)| below == entry.key()) {
            cursor.chunk_at += 1;
        }
        cursor.rest.resume_after(entry.key(), cursor.direction);
        entry.value().is_none()
    }

    /// Counts the sight of a key as a use, if the record cache has it.
    fn visit(&mut self, key: &[u8]) {
        if let Some(cache) = &mut self.cache
            && let Some(slot) = self.table.find(self.table.hash(key), key)
        {
            cache.visited(slot);
        }
    }

    /// Brings `unsorted` into `sorted`.
    fn sort_in(&mut self) {
        if self.unsorted.is_empty() {
            return;
        }
        let table = &self.table;
        let key = |slot: Slot| table.get(slot).key();
        self.sorted.add(&self.unsorted, key);
        self.unsorted.clear();
        self.order += 1;
    }

    /// Finds the cursor's place again after the order of the overlay changed, and lets it read the
    /// backend again after a release moved entries there.
    fn find_place(&self, cursor: &mut OverlayCursor) {
        if cursor.order != Some(self.order) {
            cursor.order = Some(self.order);
            let key = |slot: Slot| self.table.get(slot).key();
            let rest = &cursor.rest;
            cursor.at = match (cursor.direction, &rest.start, &rest.end) {
                (Direction::Forward, Bound::Included(start) | Bound::Excluded(start), _) => {
                    self.sorted.place(start, |slot| rest.is_before(key(slot)))
                }
                (Direction::Reverse, _, Bound::Included(end) | Bound::Excluded(end)) => {
                    self.sorted.place(end, |slot| !rest.is_after(key(slot)))
                }
                (Direction::Forward, Bound::Unbounded, _) => SlotOrder::start(),
                (Direction::Reverse, _, Bound::Unbounded) => self.sorted.end(),
            };
        }
        if cursor.releases != Some(self.releases) {
            cursor.releases = Some(self.releases);
            cursor.chunk.clear();
            cursor.chunk_at = 0;
            cursor.below.copy_from(&cursor.rest);
            cursor.has_below = true;
        }
    }

    fn fill_chunk(&self, cursor: &mut OverlayCursor) -> Result<(), StoreError> {
        if cursor.chunk_at < cursor.chunk.len() {
            return Ok(());
        }
        if !cursor.has_below {
            return Ok(());
        }
        cursor.chunk.clear();
        cursor.chunk_at = 0;
        self.reader.scan(self.space, &cursor.below, cursor.direction, &mut cursor.chunk)?;
        // A chunk that is not full has the last entry that there is.
        cursor.has_below = cursor.chunk.is_full();
        if let Some((last, _)) =
            cursor.chunk.len().checked_sub(1).and_then(|at| cursor.chunk.get(at))
        {
            cursor.below.resume_after(last, cursor.direction);
        }
        Ok(())
    }

    fn choose(&self, cursor: &OverlayCursor) -> Next {
        let slot = match cursor.direction {
            Direction::Forward => self.sorted.after(cursor.at),
            Direction::Reverse => self.sorted.before(cursor.at),
        };
        let above = slot.map(|slot| (slot, self.table.get(slot).key())).filter(|(_, key)| {
            match cursor.direction {
                Direction::Forward => !cursor.rest.is_after(key),
                Direction::Reverse => !cursor.rest.is_before(key),
            }
        });
        match (above, cursor.chunk.get(cursor.chunk_at)) {
            (None, None) => Next::End,
            (None, Some(_)) => Next::Backend,
            (Some((slot, _)), None) => Next::Overlay(slot),
            (Some((slot, above)), Some((below, _))) => match cursor.compare(above, below) {
                Ordering::Greater => Next::Backend,
                Ordering::Less | Ordering::Equal => Next::Overlay(slot),
            },
        }
    }
}
