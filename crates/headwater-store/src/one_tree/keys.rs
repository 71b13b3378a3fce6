//! Where everything lies in the one tree.
//!
//! | prefix | then | value |
//! |---|---|---|
//! | 0, 0 | `f` | version of this layout, 4 bytes big-endian |
//! | 0, 0 | `l` | last number given to a space, 2 bytes big-endian |
//! | 0, 0 | `s`, name | space id of the store, 2 bytes big-endian |
//! | 0, 0 | `n`, space id | number of entries, 8 bytes big-endian |
//! | 0, 0 | `c`, space id, segment | number of entries of a segment that lies elsewhere, 8 bytes big-endian |
//! | 0, 0 | `d`, space id, segment | the segment up to which, from that one on, segments are being dropped, 8 bytes big-endian |
//! | 0, 0 | `m`, key | a record of the meta space |
//! | space id | key | an entry of a store |
//!
//! The id of a space is its number. One whose segments lie elsewhere, to be dropped as a whole, has the
//! highest bit besides ([`has_segments`]).

use std::ops::Bound;

use smallvec::SmallVec;

use crate::{KeyRange, SegmentDrop, SpaceId};

/// A key of the tree; most fit on the stack, so that a read does not allocate.
pub type TreeKey = SmallVec<[u8; 64]>;

/// Key of the layout's version.
pub const FORMAT: &[u8] = &[0, 0, b'f'];

/// Key of the last number given to a space.
pub const LAST_SPACE: &[u8] = &[0, 0, b'l'];

/// What the keys of all names of stores begin with.
pub const NAMES: &[u8] = &[0, 0, b's'];

/// What the keys of all records of the meta space begin with.
pub const METAS: &[u8] = &[0, 0, b'm'];

const COUNTS: &[u8] = &[0, 0, b'n'];

const SEGMENT_COUNTS: &[u8] = &[0, 0, b'c'];

/// What the keys of all drops of segments begin with that may not be complete.
pub const SEGMENT_DROPS: &[u8] = &[0, 0, b'd'];

/// Key of an entry of a store.
pub fn entry(space: SpaceId, key: &[u8]) -> TreeKey {
    joined(&space_prefix(space), key)
}

/// The key of an entry inside its space.
pub fn entry_key(tree_key: &[u8]) -> &[u8] {
    tree_key.get(2..).unwrap_or_default()
}

/// Key of the name of a store.
pub fn name(store: &str) -> TreeKey {
    joined(NAMES, store.as_bytes())
}

/// Key of the number of entries of a store.
pub fn count(space: SpaceId) -> TreeKey {
    joined(COUNTS, &space_prefix(space))
}

/// Key of the number of entries of a segment.
pub fn segment_count(space: SpaceId, segment: u64) -> TreeKey {
    let mut key = joined(SEGMENT_COUNTS, &space_prefix(space));
    key.extend_from_slice(&segment.to_be_bytes());
    key
}

/// Key of a drop of segments. Its value is the end of their numbers.
pub fn segment_drop(gone: &SegmentDrop) -> TreeKey {
    let mut key = joined(SEGMENT_DROPS, &space_prefix(gone.space));
    key.extend_from_slice(&gone.segments.start.to_be_bytes());
    key
}

/// The drop of which this is the key, without its prefix, and the value; `None` when they are of none.
pub fn read_segment_drop(rest: &[u8], value: &[u8]) -> Option<SegmentDrop> {
    let (space, start) = rest.split_first_chunk::<2>()?;
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_be_bytes);
    let segments = number(start)?..number(value)?;
    Some(SegmentDrop { space: SpaceId::new(u16::from_be_bytes(*space)), segments })
}

/// Whether the segments of a space lie elsewhere.
pub const fn has_segments(space: SpaceId) -> bool {
    space.get() > LAST_NUMBER
}

/// The id of the space with a number whose segments lie elsewhere.
pub const fn with_segments(number: u16) -> SpaceId {
    SpaceId::new(number | !LAST_NUMBER)
}

/// The number of a space.
pub const fn number_of(space: SpaceId) -> u16 {
    space.get() & LAST_NUMBER
}

/// The highest number of a space.
pub const LAST_NUMBER: u16 = u16::MAX >> 1;

/// Key of a record of the meta space.
pub fn meta(key: &[u8]) -> TreeKey {
    joined(METAS, key)
}

/// What the keys of all entries of a store begin with.
pub fn space_prefix(space: SpaceId) -> [u8; 2] {
    space.get().to_be_bytes()
}

/// The ends of a range of a space, as keys of the tree.
pub fn range(id: SpaceId, range: &KeyRange) -> (Bound<TreeKey>, Bound<TreeKey>) {
    let start = match &range.start {
        Bound::Included(key) => Bound::Included(entry(id, key)),
        Bound::Excluded(key) => Bound::Excluded(entry(id, key)),
        Bound::Unbounded => Bound::Included(entry(id, b"")),
    };
    let end = match &range.end {
        Bound::Included(key) => Bound::Included(entry(id, key)),
        Bound::Excluded(key) => Bound::Excluded(entry(id, key)),
        Bound::Unbounded => match id.get().checked_add(1) {
            Some(next) => Bound::Excluded(entry(SpaceId::new(next), b"")),
            None => Bound::Unbounded,
        },
    };
    (start, end)
}

fn joined(prefix: &[u8], rest: &[u8]) -> TreeKey {
    let mut key = TreeKey::from_slice(prefix);
    key.extend_from_slice(rest);
    key
}
