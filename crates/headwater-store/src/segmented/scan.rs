//! Scans over a store of windows or sessions (feature row P32).

use std::ops::{Bound, RangeInclusive};
use std::vec;

use super::{SEGMENT_PREFIX, SegmentedKind, SegmentedOptions, read_session_key, read_window_key};
use crate::{Direction, KeyRange, KeyValueRef, Layout, OverlayCursor, StoreError};

#[cfg(test)]
mod tests;

/// A store of windows or sessions as a [`SegmentedScan`] reads it.
pub trait SegmentedRead {
    /// The next entry of a range of stored keys.
    ///
    /// # Errors
    /// What the backend reports.
    fn next<'a>(
        &'a mut self,
        cursor: &'a mut OverlayCursor,
    ) -> Result<Option<KeyValueRef<'a>>, StoreError>;

    /// Whether an entry is to be seen: it is not older than the store's retention.
    fn is_visible(&self, stored_key: &[u8], time: i64) -> bool;
}

/// Which entries of a store of windows or sessions are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentedQuery {
    /// Of which keys.
    pub keys: QueriedKeys,
    /// The lowest time: the start of a window, the end of a session.
    pub from: i64,
    /// The highest start, of windows and of sessions.
    pub to: i64,
}

/// The serialized keys that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueriedKeys {
    /// One.
    One(Vec<u8>),
    /// Those from one to another, both included; `None` is open.
    Between(Option<Vec<u8>>, Option<Vec<u8>>),
}

impl QueriedKeys {
    /// Every key.
    pub const fn all() -> Self {
        Self::Between(None, None)
    }

    fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::One(wanted) => wanted == key,
            Self::Between(from, to) => {
                from.as_ref().is_none_or(|from| key >= from.as_slice())
                    && to.as_ref().is_none_or(|to| key <= to.as_slice())
            }
        }
    }
}

/// An entry of a store of windows or sessions, copied out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentedEntry {
    pub(super) stored_key: Vec<u8>,
    /// The time by which it is kept: the start of a window, the end of a session.
    pub time: i64,
    /// The value, without timestamp and headers.
    pub value: Vec<u8>,
    /// The timestamp, −1 in a store that keeps none.
    pub timestamp: i64,
    /// The headers, as [`push_headers`](crate::push_headers) writes them without the first length.
    pub headers: Vec<u8>,
}

impl SegmentedEntry {
    /// The key as it is logged: without its segment, with its times.
    pub fn key(&self) -> &[u8] {
        self.stored_key.get(SEGMENT_PREFIX..).unwrap_or_default()
    }

    fn set(&mut self, options: SegmentedOptions, time: i64, (stored_key, stored): KeyValueRef<'_>) {
        let stored = Layout::Segmented(options).split(stored);
        for (kept, new) in [
            (&mut self.stored_key, stored_key),
            (&mut self.value, stored.value),
            (&mut self.headers, stored.headers),
        ] {
            kept.clear();
            kept.extend_from_slice(new);
        }
        self.timestamp = stored.timestamp.unwrap_or(-1);
        self.time = time;
    }
}

/// A place in the entries that a query finds: segment by segment, and in a segment by key and time; in a store in
/// memory by time and key, as in Kafka Streams.
///
/// It borrows nothing, so the store may be written between two steps.
#[derive(Debug)]
pub struct SegmentedScan {
    options: SegmentedOptions,
    query: SegmentedQuery,
    direction: Direction,
    /// Segments that were not read yet.
    rest: Option<(i64, i64)>,
    reading: Option<Reading>,
    /// In the segment that is read.
    cursor: OverlayCursor,
    /// Where the wanted key begins and ends in any segment, with room for its number in front.
    bounds: [Vec<u8>; 2],
    /// The rest of a segment that is handed out by time.
    sorted: vec::IntoIter<(Vec<u8>, Vec<u8>)>,
}

/// A segment that is being read.
#[derive(Clone, Copy, Debug)]
struct Reading {
    segment: i64,
    is_empty: bool,
}

/// So many empty segments are looked at one by one before the next one that is not empty is looked for.
const EMPTY_IN_TURN: i64 = 2;

impl SegmentedScan {
    /// A scan over these segments: those that have visible entries, or fewer.
    pub fn new(
        options: SegmentedOptions,
        query: SegmentedQuery,
        direction: Direction,
        segments: RangeInclusive<i64>,
    ) -> Self {
        let mut scan = Self { query, ..Self::idle() };
        scan.begin(options, direction, segments);
        scan
    }

    /// One that finds nothing, until it is [restarted](Self::restart).
    pub fn idle() -> Self {
        Self {
            options: SegmentedOptions::new(SegmentedKind::Window, 0),
            query: SegmentedQuery { keys: QueriedKeys::all(), from: 0, to: -1 },
            direction: Direction::Forward,
            rest: None,
            reading: None,
            cursor: OverlayCursor::new(KeyRange::all(), Direction::Forward),
            bounds: [Vec::new(), Vec::new()],
            sorted: Vec::new().into_iter(),
        }
    }

    /// Begins anew, with the entries of one key whose time is `from` or later and which begin at `to` or earlier. It
    /// costs no allocation when keys as long were looked for before.
    pub fn restart(
        &mut self,
        options: SegmentedOptions,
        (key, from, to): (&[u8], i64, i64),
        direction: Direction,
        segments: RangeInclusive<i64>,
    ) {
        let query = &mut self.query;
        (query.from, query.to) = (from, to);
        if let QueriedKeys::One(wanted) = &mut query.keys {
            wanted.clear();
            wanted.extend_from_slice(key);
        } else {
            query.keys = QueriedKeys::One(key.to_owned());
        }
        self.begin(options, direction, segments);
    }

    fn begin(
        &mut self,
        options: SegmentedOptions,
        direction: Direction,
        segments: RangeInclusive<i64>,
    ) {
        (self.options, self.direction) = (options, direction);
        let query = &self.query;
        let first = options.segment(query.from.max(0)).max(*segments.start());
        let last = match options.kind {
            SegmentedKind::Window => options.segment(query.to).min(*segments.end()),
            // A session ends as late as it likes.
            SegmentedKind::Session => *segments.end(),
        };
        self.rest = (first <= last && query.to >= 0).then_some((first, last));
        self.reading = None;
        self.sorted = Vec::new().into_iter();
        self.set_bounds();
    }

    /// Puts the next entry into `entry`, replacing what it holds; false at the end.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn next(
        &mut self,
        store: &mut impl SegmentedRead,
        entry: &mut SegmentedEntry,
    ) -> Result<bool, StoreError> {
        loop {
            if let Some((key, stored)) = self.sorted.next() {
                let ((time, _), _) = times_and_key(self.options.kind, &key);
                entry.set(self.options, time, (&key, &stored));
                return Ok(true);
            }
            if self.reading.is_none() && !self.begin_segment() {
                return Ok(false);
            }
            if self.options.in_memory && !matches!(self.query.keys, QueriedKeys::One(_)) {
                self.sort_segment(store)?;
            } else if self.read_segment(store, entry)? {
                return Ok(true);
            }
        }
    }

    /// Begins to read the next segment; false after the last.
    fn begin_segment(&mut self) -> bool {
        let Some((first, last)) = self.rest else { return false };
        let (segment, rest) = match self.direction {
            Direction::Forward => (first, (first + 1, last)),
            Direction::Reverse => (last, (first, last - 1)),
        };
        self.rest = (rest.0 <= rest.1).then_some(rest);
        if let QueriedKeys::One(_) = self.query.keys {
            for bound in &mut self.bounds {
                bound[..SEGMENT_PREFIX].copy_from_slice(&segment.to_be_bytes());
            }
            let [first, last] = &self.bounds;
            self.cursor.restart(first, last, self.direction);
        } else {
            self.cursor.restart_range(self.range_in(segment), self.direction);
        }
        self.reading = Some(Reading { segment, is_empty: true });
        true
    }

    /// The next entry of the segment that is being read; false at its end.
    fn read_segment(
        &mut self,
        store: &mut impl SegmentedRead,
        entry: &mut SegmentedEntry,
    ) -> Result<bool, StoreError> {
        let Self { options, query, cursor, reading, .. } = self;
        while let Some(Reading { is_empty, .. }) = reading {
            let Some(found) = store.next(cursor)? else { break };
            *is_empty = false;
            if let Some(time) = query.time_if_wanted(options.kind, found.0) {
                entry.set(*options, time, found);
                if store.is_visible(&entry.stored_key, time) {
                    return Ok(true);
                }
            }
        }
        self.end_segment(store)?;
        Ok(false)
    }

    /// Reads a whole segment, to hand it out by time.
    fn sort_segment(&mut self, store: &mut impl SegmentedRead) -> Result<(), StoreError> {
        let Self { options, query, cursor, reading, .. } = self;
        let mut found = Vec::new();
        while let Some(Reading { is_empty, .. }) = reading {
            let Some((stored_key, stored)) = store.next(cursor)? else { break };
            *is_empty = false;
            if let Some(time) = query.time_if_wanted(options.kind, stored_key) {
                found.push((time, (stored_key.to_owned(), stored.to_owned())));
            }
        }
        found.retain(|(time, (stored_key, _))| store.is_visible(stored_key, *time));
        let mut found: Vec<_> = found.into_iter().map(|(_, entry)| entry).collect();
        let kind = options.kind;
        found.sort_by_cached_key(|(stored_key, _)| {
            let mut key = Vec::with_capacity(stored_key.len());
            let (times, bare) = times_and_key(kind, stored_key);
            key.extend_from_slice(&times.0.to_be_bytes());
            key.extend_from_slice(bare);
            key.extend_from_slice(&stored_key[SEGMENT_PREFIX + bare.len()..]);
            key
        });
        if self.direction == Direction::Reverse {
            found.reverse();
        }
        self.sorted = found.into_iter();
        self.end_segment(store)
    }

    /// After some empty segments, of which there can be millions, goes on with one that is not.
    fn end_segment(&mut self, store: &mut impl SegmentedRead) -> Result<(), StoreError> {
        let Some(Reading { segment, is_empty }) = self.reading.take() else { return Ok(()) };
        let Some((first, last)) = self.rest else { return Ok(()) };
        if !is_empty || last - first < EMPTY_IN_TURN {
            return Ok(());
        }
        let mut range = KeyRange::inclusive(Some(&first.to_be_bytes()), None);
        range.end = SegmentedOptions::before_segment(last + 1).end;
        debug_assert!(segment < first || segment > last, "a segment is read once");
        self.cursor.restart_range(range, self.direction);
        let next = store.next(&mut self.cursor)?.and_then(|(key, _)| key.first_chunk().copied());
        self.rest = next.map(i64::from_be_bytes).map(|next| match self.direction {
            Direction::Forward => (next, last),
            Direction::Reverse => (first, next),
        });
        Ok(())
    }

    /// The first and the last stored key that an entry of the one wanted key can have.
    fn set_bounds(&mut self) {
        let SegmentedQuery { keys: QueriedKeys::One(key), from, to } = &self.query else { return };
        let [first, last] = &mut self.bounds;
        for bound in [&mut *first, &mut *last] {
            bound.clear();
            bound.extend_from_slice(&[0; SEGMENT_PREFIX]);
            bound.extend_from_slice(key);
        }
        first.extend_from_slice(&from.max(&0).to_be_bytes());
        match self.options.kind {
            SegmentedKind::Window => {
                first.extend_from_slice(&[0; 4]);
                last.extend_from_slice(&to.to_be_bytes());
                last.extend_from_slice(&[u8::MAX; 4]);
            }
            SegmentedKind::Session => {
                first.extend_from_slice(&[0; 8]);
                last.extend_from_slice(&[u8::MAX; 16]);
            }
        }
    }

    /// The stored keys of a segment among which those from one key to another are.
    fn range_in(&self, segment: i64) -> KeyRange {
        let mut range = SegmentedOptions::whole_segment(segment);
        let QueriedKeys::Between(from, to) = &self.query.keys else { return range };
        let bound = |parts: &[&[u8]]| [&[&segment.to_be_bytes()[..]], parts].concat().concat();
        if let Some(from) = from {
            range.start = Bound::Included(bound(&[from]));
        }
        if let Some(to) = to {
            range.end = Bound::Included(bound(&[not_below_times(to), &[u8::MAX; 16]]));
        }
        range
    }
}

/// As much of the highest key of a range as no shorter key of the range is above with its times behind it: these
/// begin with a byte below 0x80.
fn not_below_times(key: &[u8]) -> &[u8] {
    let low = key.iter().skip(1).position(|&byte| byte < 0x80);
    low.map_or(key, |low| &key[..=low])
}

impl SegmentedQuery {
    /// The time by which an entry is kept, if it is wanted.
    fn time_if_wanted(&self, kind: SegmentedKind, stored_key: &[u8]) -> Option<i64> {
        if stored_key.len() < SEGMENT_PREFIX + kind.suffix() {
            return None;
        }
        let ((time, start), key) = times_and_key(kind, stored_key);
        (time >= self.from && start <= self.to && self.keys.contains(key)).then_some(time)
    }
}

/// The time by which an entry is kept, its start, and its key alone.
fn times_and_key(kind: SegmentedKind, stored_key: &[u8]) -> ((i64, i64), &[u8]) {
    let key = stored_key.get(SEGMENT_PREFIX..).unwrap_or_default();
    match kind {
        SegmentedKind::Window => {
            read_window_key(key).map_or(((-1, -1), key), |(key, start, _)| ((start, start), key))
        }
        SegmentedKind::Session => {
            read_session_key(key).map_or(((-1, -1), key), |(key, start, end)| ((end, start), key))
        }
    }
}
