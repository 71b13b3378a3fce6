//! Where everything lies in the one tree.
//!
//! | prefix | then | value |
//! |---|---|---|
//! | 0, 0 | `f` | version of this layout, 4 bytes big-endian |
//! | 0, 0 | `l` | last space id given out, 2 bytes big-endian |
//! | 0, 0 | `s`, name | space id of the store, 2 bytes big-endian |
//! | 0, 0 | `n`, space id | number of entries, 8 bytes big-endian |
//! | 0, 0 | `m`, key | a record of the meta space |
//! | space id | key | an entry of a store |

use std::ops::Bound;

use headwater_store::{KeyRange, SpaceId};
use smallvec::SmallVec;

/// A key of the tree; most fit on the stack, so that a read does not allocate.
pub(crate) type TreeKey = SmallVec<[u8; 64]>;

pub(crate) const FORMAT: &[u8] = &[0, 0, b'f'];
pub(crate) const LAST_SPACE: &[u8] = &[0, 0, b'l'];

const NAMES: &[u8] = &[0, 0, b's'];
const META: &[u8] = &[0, 0, b'm'];

pub(crate) fn entry(space: SpaceId, key: &[u8]) -> TreeKey {
    let mut tree_key = TreeKey::from_slice(&space.get().to_be_bytes());
    tree_key.extend_from_slice(key);
    tree_key
}

/// The key inside its space.
pub(crate) fn entry_key(tree_key: &[u8]) -> &[u8] {
    tree_key.get(2..).unwrap_or_default()
}

pub(crate) fn name(store: &str) -> TreeKey {
    joined(NAMES, store.as_bytes())
}

pub(crate) fn names() -> &'static [u8] {
    NAMES
}

pub(crate) fn count(space: SpaceId) -> TreeKey {
    joined(&[0, 0, b'n'], &space.get().to_be_bytes())
}

pub(crate) fn meta(key: &[u8]) -> TreeKey {
    joined(META, key)
}

pub(crate) fn metas() -> &'static [u8] {
    META
}

/// All of a space.
pub(crate) fn space(space: SpaceId) -> [u8; 2] {
    space.get().to_be_bytes()
}

/// The ends of a range of a space, as keys of the tree.
pub(crate) fn range(id: SpaceId, range: &KeyRange) -> (Bound<TreeKey>, Bound<TreeKey>) {
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
