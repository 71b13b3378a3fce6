//! Changes taken out of a store's cache, to be logged and forwarded by the caller.

use std::fmt;

/// Cached changes in the order Kafka Streams forwards them, each key once.
///
/// The overlay fills it and is then free again, so that whatever the changes cause downstream may
/// read and write the same store. Reusing one `CacheFlush` reuses its buffer.
pub struct CacheFlush<C> {
    bytes: Vec<u8>,
    changes: Vec<Change<C>>,
}

struct Change<C> {
    key_end: usize,
    new_end: usize,
    old_end: usize,
    has_new: bool,
    has_old: bool,
    context: C,
}

/// One change of a [`CacheFlush`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedChange<'a, C> {
    /// The key.
    pub key: &'a [u8],
    /// The newest value, `None` when the key was deleted.
    pub new: Option<&'a [u8]>,
    /// The value that was forwarded last. `None` when there was none, and when the store's
    /// [`OldValues`](super::OldValues) did not ask for it.
    pub old: Option<&'a [u8]>,
    /// Context of the newest update.
    pub context: &'a C,
}

impl<C> CacheFlush<C> {
    /// Without changes.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), changes: Vec::new() }
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes, first to be forwarded first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = CachedChange<'_, C>> {
        let mut start = 0;
        self.changes.iter().map(move |change| {
            let key = &self.bytes[start..change.key_end];
            let new = &self.bytes[change.key_end..change.new_end];
            let old = &self.bytes[change.new_end..change.old_end];
            start = change.old_end;
            CachedChange {
                key,
                new: change.has_new.then_some(new),
                old: change.has_old.then_some(old),
                context: &change.context,
            }
        })
    }

    /// Forgets all changes and keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.changes.clear();
    }

    pub(super) fn push(&mut self, key: &[u8], new: Option<&[u8]>, old: Option<&[u8]>, context: C) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(new.unwrap_or_default());
        let new_end = self.bytes.len();
        self.bytes.extend_from_slice(old.unwrap_or_default());
        self.changes.push(Change {
            key_end,
            new_end,
            old_end: self.bytes.len(),
            has_new: new.is_some(),
            has_old: old.is_some(),
            context,
        });
    }
}

impl<C> Default for CacheFlush<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> fmt::Debug for CacheFlush<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheFlush").field("changes", &self.changes.len()).finish_non_exhaustive()
    }
}
