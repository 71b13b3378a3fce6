//! Stores of windows and of sessions: their keys, and how they are kept in segments of time (feature rows
//! P9, P10, P14).
//!
//! | | key in changelog and on the wire |
//! |---|---|
//! | window | key, start (8 bytes, big-endian), number among equal ones (4 bytes) |
//! | session | key, end (8 bytes), start (8 bytes) |
//!
//! In its space an entry has the number of its segment in front (8 bytes), so that entries lie by
//! segment and then by key, as in Kafka Streams: a scan over one key touches the few segments it needs,
//! and a segment that is too old is dropped as a whole. A store of an operator that waits for windows to close has,
//! besides, an index of its entries by time, above all segments and in segments too.

use std::ops::Range;

use crate::serde::Window;
use crate::{KeyRange, segment_of_key};

mod scan;

pub use scan::{QueriedKeys, SegmentedEntry, SegmentedQuery, SegmentedRead, SegmentedScan};

/// Bytes behind the key in the key of a window.
pub const WINDOW_SUFFIX: usize = 8 + 4;

/// Bytes behind the key in the key of a session.
pub const SESSION_SUFFIX: usize = 8 + 8;

/// Bytes of the segment's number in front of a stored key.
pub const SEGMENT_PREFIX: usize = 8;

/// The bit that the number of a segment's index has beside that of the segment, which is not negative.
const INDEX: u64 = 1 << 63;

/// A segment is at least so wide, in milliseconds.
const SEGMENT_INTERVAL_MIN: i64 = 60_000;

/// What the entries of a segmented store are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentedKind {
    /// Windows; their time is their start.
    Window,
    /// Sessions; their time is their end.
    Session,
}

impl SegmentedKind {
    /// Bytes behind the key.
    pub(crate) const fn suffix(self) -> usize {
        match self {
            Self::Window => WINDOW_SUFFIX,
            Self::Session => SESSION_SUFFIX,
        }
    }

    /// The time by which an entry is kept, in milliseconds: the start of a window, the end of a session.
    pub const fn time(self, window: Window) -> i64 {
        match self {
            Self::Window => window.start,
            Self::Session => window.end,
        }
    }

    /// Appends what stands behind a key: the times of its window or session, and the number 0 of a window.
    pub fn push_times(self, window: Window, out: &mut Vec<u8>) {
        match self {
            Self::Window => push_window_key(&[], window.start, 0, out),
            Self::Session => push_session_key(&[], window.start, window.end, out),
        }
    }

    /// Takes the times off a key: what is in front of them, and its window or session. A window ends `window_size_ms`
    /// after its start. `None` when the bytes are too short.
    pub fn read_key(self, key: &[u8], window_size_ms: i64) -> Option<(&[u8], Window)> {
        match self {
            Self::Window => read_window_key(key).map(|(key, start, _)| {
                (key, Window { start, end: start.saturating_add(window_size_ms) })
            }),
            Self::Session => {
                read_session_key(key).map(|(key, start, end)| (key, Window { start, end }))
            }
        }
    }
}

/// How a store of windows or sessions is kept.
#[expect(
    clippy::struct_excessive_bools,
    reason = "properties of their own, which go together in any way"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentedOptions {
    /// What the entries are.
    pub kind: SegmentedKind,
    /// How long entries are kept, in milliseconds of the time of the newest one.
    pub retention_ms: i64,
    /// Whether 8 bytes of timestamp stand in front of each value.
    pub timestamped: bool,
    /// Whether there is an index by time.
    pub by_time: bool,
    /// Whether a window can have several values, told apart by their numbers (feature row D32).
    pub duplicates: bool,
    /// Whether each value has headers in front, also of the timestamp (KIP-1271).
    pub with_headers: bool,
    /// Whether the store is one in memory: entries of several keys are found by time, and what is out of the
    /// retention is never emitted when it closes, as in Kafka Streams.
    pub in_memory: bool,
}

impl SegmentedOptions {
    /// On disk, one value for each window, alone, and without index.
    pub const fn new(kind: SegmentedKind, retention_ms: i64) -> Self {
        Self {
            kind,
            retention_ms,
            timestamped: false,
            by_time: false,
            duplicates: false,
            with_headers: false,
            in_memory: false,
        }
    }

    /// The number of the segment of a time.
    pub fn segment(&self, time: i64) -> i64 {
        (time / (self.retention_ms / 2).max(SEGMENT_INTERVAL_MIN)).max(0)
    }

    /// The earliest time that is still visible when `newest` is the newest.
    pub const fn visible_from(&self, newest: i64) -> i64 {
        newest.saturating_sub(self.retention_ms).saturating_add(1)
    }

    /// As [`visible_from`](Self::visible_from) for who reads the store. In that of windows that wait to be closed one
    /// more is shown, so that one without grace period is there when it closes.
    pub const fn shown_from(&self, newest: i64) -> i64 {
        let visible = self.visible_from(newest);
        match self.kind {
            SegmentedKind::Window if self.by_time && !self.in_memory => visible.saturating_sub(1),
            _ => visible,
        }
    }

    /// The lowest segment that is still kept when `newest` is the newest time.
    pub fn lowest_segment(&self, newest: i64) -> i64 {
        self.segment(newest.saturating_sub(self.retention_ms))
    }

    /// The time of a key: the start of a window, the end of a session. `None` when it is too short.
    pub fn time_of(&self, key: &[u8]) -> Option<i64> {
        match self.kind {
            SegmentedKind::Window => read_window_key(key).map(|(_, start, _)| start),
            SegmentedKind::Session => read_session_key(key).map(|(_, _, end)| end),
        }
    }

    /// The number that tells a value of a window apart from others of the same key and start; `None` where
    /// there is only one.
    pub fn number_of(&self, key: &[u8]) -> Option<u32> {
        let numbered = read_window_key(key).filter(|_| self.duplicates);
        numbered.map(|(_, _, number)| number)
    }

    /// Appends the key under which the entry of this key lies in the space.
    pub fn push_stored_key(&self, time: i64, key: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.segment(time).to_be_bytes());
        out.extend_from_slice(key);
    }

    /// Appends the index entry of a key.
    pub fn push_index_key(&self, key: &[u8], out: &mut Vec<u8>) {
        self.push_index_segment(self.time_of(key).unwrap_or(0), out);
        let key_length = key.len().saturating_sub(self.kind.suffix());
        let (front, suffix) = key.split_at(key_length);
        match self.kind {
            SegmentedKind::Window => {
                let (start, number) = suffix.split_at(suffix.len().min(8));
                out.extend_from_slice(start);
                out.extend_from_slice(front);
                out.extend_from_slice(number);
            }
            SegmentedKind::Session => {
                out.extend_from_slice(suffix);
                out.extend_from_slice(front);
            }
        }
    }

    /// Appends the key that an index entry stands for.
    pub fn push_indexed_key(&self, index_key: &[u8], out: &mut Vec<u8>) {
        let index_key = index_key.get(SEGMENT_PREFIX..).unwrap_or_default();
        match self.kind {
            SegmentedKind::Window => {
                let (start, rest) = index_key.split_at(index_key.len().min(8));
                let (key, number) = rest.split_at(rest.len().saturating_sub(4));
                out.extend_from_slice(key);
                out.extend_from_slice(start);
                out.extend_from_slice(number);
            }
            SegmentedKind::Session => {
                let (times, key) = index_key.split_at(index_key.len().min(SESSION_SUFFIX));
                out.extend_from_slice(key);
                out.extend_from_slice(times);
            }
        }
    }

    fn push_index_segment(&self, time: i64, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.segment(time).cast_unsigned() | INDEX).to_be_bytes());
    }

    /// The index entries of all times from `from` to `to`, both included.
    pub fn index_range(&self, from: i64, to: i64) -> KeyRange {
        let bound = |time: i64| {
            let mut bound = Vec::with_capacity(SEGMENT_PREFIX + size_of::<i64>());
            self.push_index_segment(time.max(0), &mut bound);
            bound.extend_from_slice(&time.max(0).to_be_bytes());
            bound
        };
        let mut range = KeyRange::inclusive(Some(&bound(from)), None);
        range.end = KeyRange::prefix(&bound(to)).end;
        range
    }

    /// All entries of the segments before this one.
    pub fn before_segment(segment: i64) -> KeyRange {
        let mut range = KeyRange::all();
        range.end = std::ops::Bound::Excluded(segment.to_be_bytes().to_vec());
        range
    }

    /// All entries of a segment.
    pub fn whole_segment(segment: i64) -> KeyRange {
        KeyRange::prefix(&segment.to_be_bytes())
    }

    /// The key in front of the times.
    pub fn bare_key<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        &key[..key.len().saturating_sub(self.kind.suffix())]
    }
}

/// The segments of a store with these numbers, those of its index included.
pub(crate) const fn with_index(segments: Range<u64>) -> [Range<u64>; 2] {
    [segments.start..segments.end, INDEX | segments.start..INDEX | segments.end]
}

/// Whether a stored key, or one of an index, is in a segment before this one.
pub(crate) fn is_before_segment(stored_key: &[u8], lowest: u64) -> bool {
    segment_of_key(stored_key) & !INDEX < lowest
}

/// Appends the key of a window: `number` tells several values of one key and start apart.
pub fn push_window_key(key: &[u8], start: i64, number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(key);
    out.extend_from_slice(&start.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
}

/// Key, start and number of a window; `None` when the bytes are too short.
pub fn read_window_key(bytes: &[u8]) -> Option<(&[u8], i64, u32)> {
    let (rest, number) = bytes.split_last_chunk::<4>()?;
    let (key, start) = rest.split_last_chunk::<8>()?;
    Some((key, i64::from_be_bytes(*start), u32::from_be_bytes(*number)))
}

/// Appends the key of a session.
pub fn push_session_key(key: &[u8], start: i64, end: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(key);
    out.extend_from_slice(&end.to_be_bytes());
    out.extend_from_slice(&start.to_be_bytes());
}

/// Key, start and end of a session; `None` when the bytes are too short.
pub fn read_session_key(bytes: &[u8]) -> Option<(&[u8], i64, i64)> {
    let (rest, start) = bytes.split_last_chunk::<8>()?;
    let (key, end) = rest.split_last_chunk::<8>()?;
    Some((key, i64::from_be_bytes(*start), i64::from_be_bytes(*end)))
}

#[cfg(test)]
mod tests {
    use super::{
        SEGMENT_PREFIX, SegmentedKind, SegmentedOptions, is_before_segment, push_session_key,
        push_window_key, read_session_key, read_window_key, with_index,
    };
    use crate::segment_of_key;

    fn options(kind: SegmentedKind, retention_ms: i64) -> SegmentedOptions {
        let options = SegmentedOptions::new(kind, retention_ms);
        SegmentedOptions { timestamped: true, by_time: true, ..options }
    }

    /// Vectors of group `window_store_key`, made by Kafka Streams 4.4.0; its time-first keys have another
    /// first byte.
    #[test]
    fn keys_of_windows_are_those_of_the_original() {
        let vectors: [(&str, i64, u32, &str, &str); 4] = [
            ("a", 0, 0, "61000000000000000000000000", "0000000000000000 61 00000000"),
            ("a", 0, 1, "61000000000000000000000001", "0000000000000000 61 00000001"),
            ("a", 10, 0, "61000000000000000a00000000", "000000000000000a 61 00000000"),
            ("a", 0, i32::MAX as u32, "6100000000000000007fffffff", "0000000000000000 61 7fffffff"),
        ];
        for (key, start, number, bytes, by_time) in vectors {
            let mut found = Vec::new();
            push_window_key(key.as_bytes(), start, number, &mut found);
            assert_eq!(hex(&found), bytes);
            assert_eq!(read_window_key(&found), Some((key.as_bytes(), start, number)));
            check_index(options(SegmentedKind::Window, 0), &found, by_time);
        }
    }

    #[test]
    fn keys_of_sessions_are_those_of_the_original() {
        let vectors: [(&str, i64, i64, &str, &str); 3] = [
            (
                "a",
                0,
                0,
                "6100000000000000000000000000000000",
                "00000000000000000000000000000000 61",
            ),
            (
                "a",
                5,
                10,
                "61000000000000000a0000000000000005",
                "000000000000000a0000000000000005 61",
            ),
            (
                "a",
                1_700_000_000_000,
                1_700_000_060_000,
                "610000018bcfe652600000018bcfe56800",
                "0000018bcfe652600000018bcfe56800 61",
            ),
        ];
        for (key, start, end, bytes, by_time) in vectors {
            let mut found = Vec::new();
            push_session_key(key.as_bytes(), start, end, &mut found);
            assert_eq!(hex(&found), bytes);
            assert_eq!(read_session_key(&found), Some((key.as_bytes(), start, end)));
            check_index(options(SegmentedKind::Session, 0), &found, by_time);
        }
    }

    #[track_caller]
    fn check_index(options: SegmentedOptions, key: &[u8], by_time: &str) {
        let mut index = Vec::new();
        options.push_index_key(key, &mut index);
        assert_eq!(hex(&index[SEGMENT_PREFIX..]), by_time.replace(' ', ""));
        let mut back = Vec::new();
        options.push_indexed_key(&index, &mut back);
        assert_eq!(back, key);
        let time = options.time_of(key).unwrap();
        assert!(options.index_range(time, time).contains(&index));
        assert!(!options.index_range(time + 1, i64::MAX).contains(&index));
        assert!(!SegmentedOptions::before_segment(i64::MAX).contains(&index));
        let mut stored = Vec::new();
        options.push_stored_key(time, key, &mut stored);
        let segment = options.segment(time).cast_unsigned();
        for key in [&stored, &index] {
            assert!(is_before_segment(key, segment + 1) && !is_before_segment(key, segment));
            let number = segment_of_key(key);
            assert!(with_index(0..segment + 1).iter().any(|range| range.contains(&number)));
            assert!(!with_index(0..segment).iter().any(|range| range.contains(&number)));
        }
    }

    #[test]
    fn only_windows_with_duplicates_have_numbers() {
        let mut key = Vec::new();
        push_window_key(b"a", 10, 7, &mut key);
        let single = options(SegmentedKind::Window, 0);
        let several = SegmentedOptions { duplicates: true, ..single };
        assert_eq!((single.number_of(&key), several.number_of(&key)), (None, Some(7)));
        assert_eq!(several.number_of(b"short"), None);
    }

    #[test]
    fn segments_are_half_the_retention_and_at_least_a_minute() {
        let short = options(SegmentedKind::Window, 10);
        assert_eq!((short.segment(59_999), short.segment(60_000)), (0, 1));
        let long = options(SegmentedKind::Window, 200_000);
        assert_eq!((long.segment(99_999), long.segment(100_000)), (0, 1));
        assert_eq!(long.lowest_segment(299_999), 0);
        assert_eq!(long.lowest_segment(300_000), 1);
        assert_eq!(long.visible_from(300_000), 100_001);
        assert_eq!(short.lowest_segment(-1), 0, "nothing has come yet");
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }
}
