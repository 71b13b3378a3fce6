//! The writes of one commit, or of one stretch of a changelog, in one growing buffer.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Bound, Range};

use crate::{KeyRange, SpaceId};

/// Writes to a task's storage, collected in any order, applied in the order of space and key.
///
/// Keys and values are copied into one buffer, so collecting a write costs two short copies and no
/// allocation of its own, and a cleared batch keeps its room for the next commit.
///
/// ```
/// use headwater_store::{SpaceId, WriteBatch};
///
/// let counts = SpaceId::new(1);
/// let mut batch = WriteBatch::new();
/// batch.push(counts, b"b", Some(b"1"));
/// batch.push(counts, b"a", Some(b"7"));
/// batch.push(counts, b"b", None);
///
/// let writes: Vec<_> = batch.sort().iter().map(|write| (write.key, write.value)).collect();
/// assert_eq!(writes, [(&b"a"[..], Some(&b"7"[..])), (b"b", None)]);
/// ```
#[derive(Clone, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    writes: Vec<Write>,
    drops: Vec<SegmentDrop>,
}

#[derive(Clone, Copy)]
struct Write {
    space: SpaceId,
    /// The number of its segment: decides most comparisons without touching the buffer.
    head: u64,
    start: usize,
    key_len: u32,
    /// `None` deletes the key.
    value_len: Option<u32>,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a write: a new value, or `None` to delete the key. Of several writes to one key the last
    /// one counts.
    ///
    /// # Panics
    /// If key or value is longer than 4 GiB, which no Kafka record can be.
    pub fn push(&mut self, space: SpaceId, key: &[u8], value: Option<&[u8]>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a record is below 4 GiB");
        self.writes.push(Write {
            space,
            head: segment_of_key(key),
            start,
            key_len: length(key),
            value_len: value.map(length),
        });
    }

    /// Drops the segments of a space with these numbers: all keys of which the [`segment_of_key`] is one of
    /// them, those that the same batch writes too.
    pub fn drop_segments(&mut self, space: SpaceId, segments: Range<u64>) {
        self.drops.push(SegmentDrop { space, segments });
    }

    /// Whether nothing has been added since the last [`clear`](Self::clear).
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.drops.is_empty()
    }

    /// Number of writes.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets all writes and keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.writes.clear();
        self.drops.clear();
    }

    /// Brings the writes into the order of space and key, and keeps of each key only the last one.
    pub fn sort(&mut self) -> SortedBatch<'_> {
        let Self { bytes, writes, .. } = self;
        let compare = |a: &Write, b: &Write| {
            (a.space, a.head).cmp(&(b.space, b.head)).then_with(|| a.key(bytes).cmp(b.key(bytes)))
        };
        if !writes.is_sorted_by(|a, b| compare(a, b) == Ordering::Less) {
            writes.sort_by(compare);
            writes.dedup_by(|later, kept| {
                let same = compare(later, kept) == Ordering::Equal;
                if same {
                    *kept = *later;
                }
                same
            });
        }
        SortedBatch(self)
    }
}

impl fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBatch")
            .field("writes", &self.writes.len())
            .field("bytes", &self.bytes.len())
            .field("drops", &self.drops)
            .finish()
    }
}

impl Write {
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start..self.start + self.key_len as usize]
    }

    fn value<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let start = self.start + self.key_len as usize;
        self.value_len.map(|length| &bytes[start..start + length as usize])
    }
}

/// The number of the segment that a key lies in: its first 8 bytes, big-endian, a shorter key filled with zeros. Keys in
/// ascending order lie in ascending segments.
pub fn segment_of_key(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let length = key.len().min(8);
    head[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(head)
}

/// A batch whose writes are in ascending order of space and key, each key once.
#[derive(Clone, Copy, Debug)]
pub struct SortedBatch<'a>(&'a WriteBatch);

impl<'a> SortedBatch<'a> {
    /// The writes in ascending order of space and key.
    pub fn iter(self) -> impl ExactSizeIterator<Item = BatchWrite<'a>> {
        let bytes = &self.0.bytes;
        self.0.writes.iter().map(move |write| BatchWrite {
            space: write.space,
            key: write.key(bytes),
            value: write.value(bytes),
        })
    }

    /// The segments to be dropped, once everything is written.
    pub fn drops(self) -> impl ExactSizeIterator<Item = &'a SegmentDrop> + Clone {
        self.0.drops.iter()
    }

    /// Number of writes.
    pub fn len(self) -> usize {
        self.0.writes.len()
    }

    /// Whether there is nothing to write and nothing to drop.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// Segments that go as a whole; see [`WriteBatch::drop_segments`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDrop {
    /// The store.
    pub space: SpaceId,
    /// The numbers of the segments.
    pub segments: Range<u64>,
}

impl SegmentDrop {
    /// The keys that go, for a backend that has no better way than to delete them one by one.
    pub fn keys(&self) -> KeyRange {
        let Range { start, end } = &self.segments;
        KeyRange {
            start: Bound::Included(first_key(*start)),
            end: Bound::Excluded(first_key(*end)),
        }
    }
}

/// The first key of a segment: its number without the zeros at the end.
fn first_key(segment: u64) -> Vec<u8> {
    let number = segment.to_be_bytes();
    let length = number.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    number[..length].to_vec()
}

/// One write of a [`SortedBatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchWrite<'a> {
    /// The store.
    pub space: SpaceId,
    /// The key.
    pub key: &'a [u8],
    /// The new value, `None` to delete the key.
    pub value: Option<&'a [u8]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pair<'a> = (&'a [u8], Option<&'a [u8]>);

    const SPACE: SpaceId = SpaceId::new(1);

    /// Collects and sorts `writes`, all to one space.
    fn check(writes: &[Pair<'_>], expected: &[Pair<'_>]) {
        let mut batch = WriteBatch::new();
        for (key, value) in writes {
            batch.push(SPACE, key, *value);
        }
        let sorted: Vec<_> = batch.sort().iter().map(|write| (write.key, write.value)).collect();
        assert_eq!(sorted, expected);
    }

    #[test]
    fn of_several_writes_to_a_key_the_last_one_counts() {
        check(&[(b"a", Some(b"1")), (b"a", None)], &[(b"a", None)]);
        check(
            &[(b"a", None), (b"b", None), (b"a", Some(b"2"))],
            &[(b"a", Some(b"2")), (b"b", None)],
        );
        // Writes without any bytes start at the same place of the buffer.
        check(&[(b"", None), (b"", Some(b""))], &[(b"", Some(b""))]);
        check(&[(b"", Some(b"")), (b"", None)], &[(b"", None)]);
    }

    #[test]
    fn keys_are_ordered_by_all_their_bytes() {
        let long: [&[u8]; 5] = [b"", b"12345678", b"12345678\0", b"123456789", b"9"];
        let ordered: Vec<_> = long.iter().map(|&key| (key, Some(key))).collect();
        let reversed: Vec<_> = ordered.iter().rev().copied().collect();
        check(&reversed, &ordered);
        // A short key is zero-filled for the first comparison, not equal to one with zeros.
        check(&[(b"\0", None), (b"", None)], &[(b"", None), (b"\0", None)]);
    }

    #[test]
    fn segments_of_keys_are_ranges_of_keys() {
        let keys: [&[u8]; 8] = [
            b"",
            b"\0",
            b"\0\0\0\0\0\0\0\0\xff",
            b"\0\0\0\0\0\0\0\x01",
            b"\0\0\0\0\0\0\0\x02x",
            b"\x01",
            b"\x01\0\0\0\0\0\0\x01",
            b"\xff",
        ];
        let first = 1 << 56;
        for segments in [0..1, 0..2, 1..3, 2..first, first..first + 1, 3..u64::MAX, 5..5, 0..0] {
            let drop = SegmentDrop { space: SPACE, segments: segments.clone() };
            for key in keys {
                let expected = segments.contains(&segment_of_key(key));
                assert_eq!(drop.keys().contains(key), expected, "{segments:?} {key:?}");
            }
        }
    }

    #[test]
    fn spaces_come_one_after_the_other() {
        let mut batch = WriteBatch::new();
        batch.push(SpaceId::new(300), b"a", None);
        batch.push(SpaceId::new(2), b"b", None);
        batch.push(SpaceId::new(300), b"a", Some(b"1"));
        let spaces: Vec<_> = batch.sort().iter().map(|write| write.space.get()).collect();
        assert_eq!(spaces, [2, 300]);
        assert_eq!((batch.len(), batch.bytes()), (2, 4));
        batch.clear();
        assert!(batch.is_empty() && batch.sort().is_empty());
    }
}
