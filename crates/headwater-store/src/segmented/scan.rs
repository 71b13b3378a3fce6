//! Scans over a store of windows or sessions (feature row P32).

use std::ops::RangeInclusive;
use std::vec;

use super::{SEGMENT_PREFIX, SegmentedKind, SegmentedOptions, read_session_key, read_window_key};
use crate::{Direction, KeyRange, KeyValueRef, Layout, OverlayCursor, StoreError};

#[cfg(test)]
mod tests;

/// A store of windows or sessions as a [`SegmentedScan`] reads it.
pub trait SegmentedRead {
    /// Starts reading a range of stored keys.
    ///
    /// # Errors
    /// What the backend reports.
    fn range(&mut self, range: KeyRange, direction: Direction)
    -> Result<OverlayCursor, StoreError>;

    /// The next entry of a range.
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

    fn set(&mut self, options: SegmentedOptions, (stored_key, stored): KeyValueRef<'_>) {
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
    /// The rest of a segment that is handed out by time.
    sorted: vec::IntoIter<(Vec<u8>, Vec<u8>)>,
}

/// A segment that is being read.
#[derive(Debug)]
struct Reading {
    segment: i64,
    cursor: OverlayCursor,
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
        let first = options.segment(query.from.max(0)).max(*segments.start());
        let last = match options.kind {
            SegmentedKind::Window => options.segment(query.to).min(*segments.end()),
            // A session ends as late as it likes.
            SegmentedKind::Session => *segments.end(),
        };
        let rest = (first <= last && query.to >= 0).then_some((first, last));
        let sorted = Vec::new().into_iter();
        Self { options, query, direction, rest, reading: None, sorted }
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
                entry.set(self.options, (&key, &stored));
                return Ok(true);
            }
            if self.reading.is_none() && !self.begin_segment(store)? {
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
    fn begin_segment(&mut self, store: &mut impl SegmentedRead) -> Result<bool, StoreError> {
        let Some((first, last)) = self.rest else { return Ok(false) };
        let (segment, rest) = match self.direction {
            Direction::Forward => (first, (first + 1, last)),
            Direction::Reverse => (last, (first, last - 1)),
        };
        self.rest = (rest.0 <= rest.1).then_some(rest);
        let cursor = store.range(self.range_in(segment), self.direction)?;
        self.reading = Some(Reading { segment, cursor, is_empty: true });
        Ok(true)
    }

    /// The next entry of the segment that is being read; false at its end.
    fn read_segment(
        &mut self,
        store: &mut impl SegmentedRead,
        entry: &mut SegmentedEntry,
    ) -> Result<bool, StoreError> {
        while let Some(Reading { cursor, is_empty, .. }) = &mut self.reading {
            let Some(found) = store.next(cursor)? else { break };
            *is_empty = false;
            if self.query.matches(self.options.kind, found.0) {
                entry.set(self.options, found);
                let time = self.options.time_of(entry.key());
                if time.is_some_and(|time| store.is_visible(&entry.stored_key, time)) {
                    return Ok(true);
                }
            }
        }
        self.end_segment(store)?;
        Ok(false)
    }

    /// Reads a whole segment, to hand it out by time.
    fn sort_segment(&mut self, store: &mut impl SegmentedRead) -> Result<(), StoreError> {
        let mut found = Vec::new();
        while let Some(Reading { cursor, is_empty, .. }) = &mut self.reading {
            let Some((stored_key, stored)) = store.next(cursor)? else { break };
            *is_empty = false;
            if self.query.matches(self.options.kind, stored_key) {
                found.push((stored_key.to_owned(), stored.to_owned()));
            }
        }
        let options = self.options;
        found.retain(|(stored_key, _)| {
            let time = options.time_of(&stored_key[SEGMENT_PREFIX..]);
            time.is_some_and(|time| store.is_visible(stored_key, time))
        });
        found.sort_by_cached_key(|(stored_key, _)| {
            let mut key = Vec::with_capacity(stored_key.len());
            let (times, bare) = times_and_key(options.kind, stored_key);
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
        let Some(Reading { segment, is_empty, .. }) = self.reading.take() else { return Ok(()) };
        let Some((first, last)) = self.rest else { return Ok(()) };
        if !is_empty || last - first < EMPTY_IN_TURN {
            return Ok(());
        }
        let mut range = KeyRange::inclusive(Some(&first.to_be_bytes()), None);
        range.end = SegmentedOptions::before_segment(last + 1).end;
        debug_assert!(segment < first || segment > last, "a segment is read once");
        let mut cursor = store.range(range, self.direction)?;
        let next = store.next(&mut cursor)?.and_then(|(key, _)| key.first_chunk().copied());
        self.rest = next.map(i64::from_be_bytes).map(|next| match self.direction {
            Direction::Forward => (next, last),
            Direction::Reverse => (first, next),
        });
        Ok(())
    }

    /// The stored keys of a segment among which the wanted ones are.
    fn range_in(&self, segment: i64) -> KeyRange {
        let SegmentedQuery { keys, from, to } = &self.query;
        let bound = |parts: &[&[u8]]| {
            let length: usize = parts.iter().map(|part| part.len()).sum();
            let mut bytes = Vec::with_capacity(SEGMENT_PREFIX + length);
            bytes.extend_from_slice(&segment.to_be_bytes());
            for part in parts {
                bytes.extend_from_slice(part);
            }
            bytes
        };
        match (keys, self.options.kind) {
            (QueriedKeys::One(key), SegmentedKind::Window) => {
                let lower = bound(&[key, &from.max(&0).to_be_bytes(), &[0; 4]]);
                let upper = bound(&[key, &to.to_be_bytes(), &[u8::MAX; 4]]);
                KeyRange::inclusive(Some(&lower), Some(&upper))
            }
            (QueriedKeys::One(key), SegmentedKind::Session) => {
                let lower = bound(&[key, &from.max(&0).to_be_bytes(), &[0; 8]]);
                let upper = bound(&[key, &[u8::MAX; 16]]);
                KeyRange::inclusive(Some(&lower), Some(&upper))
            }
            (QueriedKeys::Between(from, to), _) => {
                let whole = SegmentedOptions::whole_segment(segment);
                let lower = from.as_ref().map(|from| bound(&[from]));
                let upper = to.as_ref().map(|to| bound(&[not_below_times(to), &[u8::MAX; 16]]));
                let given = KeyRange::inclusive(lower.as_deref(), upper.as_deref());
                KeyRange {
                    start: if from.is_some() { given.start } else { whole.start },
                    end: if to.is_some() { given.end } else { whole.end },
                }
            }
        }
    }
}

/// As much of the highest key of a range as no shorter key of the range is above with its times behind it: these
/// begin with a byte below 0x80.
fn not_below_times(key: &[u8]) -> &[u8] {
    let low = key.iter().skip(1).position(|&byte| byte < 0x80);
    low.map_or(key, |low| &key[..=low])
}

impl SegmentedQuery {
    fn matches(&self, kind: SegmentedKind, stored_key: &[u8]) -> bool {
        if stored_key.len() < SEGMENT_PREFIX + kind.suffix() {
            return false;
        }
        let ((time, start), key) = times_and_key(kind, stored_key);
        time >= self.from && start <= self.to && self.keys.contains(key)
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
