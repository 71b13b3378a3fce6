//! Stores of a fixed number of entries, of which the least recently used go (feature row P5).

use std::collections::{BTreeMap, HashMap};

use crate::layout::LRU_PREFIX;
use crate::{Direction, KeyRange, KeyValueAccess, KeyValueRead, StoreError};

/// The work of an LRU store over a store of bytes, and the order in which its entries were used.
///
/// Reading and writing an entry are uses of it, as in Kafka Streams' `MemoryLRUCache`. Each value has
/// 8 bytes in front, its place, that say how late it was written, so that a restored store begins with
/// the order of its changelog. Whoever writes goes on behind the [places](Self::next_place) that are there:
/// a task that changes its role keeps its store.
#[derive(Debug)]
pub struct LruLayout {
    max_entries: usize,
    /// Keys by the time of their last use, oldest first, and the other way round.
    order: BTreeMap<u64, Box<[u8]>>,
    uses: HashMap<Box<[u8]>, u64>,
    next: u64,
    /// Whether the order was read from the store.
    is_known: bool,
    value: Vec<u8>,
}

impl LruLayout {
    /// For a store of at most so many entries.
    pub fn new(max_entries: usize) -> Self {
        Self {
            max_entries,
            order: BTreeMap::new(),
            uses: HashMap::new(),
            next: 0,
            is_known: false,
            value: Vec::new(),
        }
    }

    /// A place behind those of all entries of a store.
    ///
    /// # Errors
    /// What the store reports.
    pub fn next_place(store: &mut impl KeyValueRead) -> Result<u64, StoreError> {
        let mut next = 0;
        let mut cursor = store.range(KeyRange::all(), Direction::Forward)?;
        while let Some((_, stored)) = store.next(&mut cursor)? {
            next = next.max(place(stored).saturating_add(1));
        }
        Ok(next)
    }

    /// A value as the store keeps it, with its place in the order of writing.
    pub fn push(written: u64, value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&written.to_be_bytes());
        out.extend_from_slice(value);
    }

    /// The stored value of `key`, which is now the most recently used.
    ///
    /// # Errors
    /// What the store reports.
    pub fn get<'s>(
        &mut self,
        store: &'s mut impl KeyValueAccess,
        key: &[u8],
    ) -> Result<Option<&'s [u8]>, StoreError> {
        self.know(store)?;
        if self.uses.contains_key(key) {
            self.used(key);
        }
        store.get(key)
    }

    /// Gives `key` a value, or deletes it with `None`. Answers the keys that had to go for it.
    ///
    /// # Errors
    /// What the store reports.
    pub fn put(
        &mut self,
        store: &mut impl KeyValueAccess,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Vec<Box<[u8]>>, StoreError> {
        self.know(store)?;
        let Some(value) = value else {
            if let Some(used) = self.uses.remove(key) {
                self.order.remove(&used);
            }
            store.put(key, None)?;
            return Ok(Vec::new());
        };
        let written = self.used(key);
        self.value.clear();
        Self::push(written, value, &mut self.value);
        store.put(key, Some(&self.value))?;
        let mut evicted = Vec::new();
        while self.order.len() > self.max_entries
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.uses.remove(&oldest);
            store.put(&oldest, None)?;
            evicted.push(oldest);
        }
        Ok(evicted)
    }

    /// Makes a key the most recently used, and answers its place in the order.
    fn used(&mut self, key: &[u8]) -> u64 {
        let now = self.next;
        self.next += 1;
        if let Some(use_of_key) = self.uses.get_mut(key) {
            let before = std::mem::replace(use_of_key, now);
            if let Some(key) = self.order.remove(&before) {
                self.order.insert(now, key);
            }
        } else {
            self.order.insert(now, key.into());
            self.uses.insert(key.into(), now);
        }
        now
    }

    fn know(&mut self, store: &mut impl KeyValueRead) -> Result<(), StoreError> {
        if self.is_known {
            return Ok(());
        }
        let mut written: Vec<(u64, Box<[u8]>)> = Vec::new();
        let mut cursor = store.range(KeyRange::all(), Direction::Forward)?;
        while let Some((key, stored)) = store.next(&mut cursor)? {
            written.push((place(stored), key.into()));
        }
        written.sort();
        let next = written.last().map_or(0, |(place, _)| place.saturating_add(1));
        for (_, key) in written {
            self.used(&key);
        }
        self.next = self.next.max(next);
        self.is_known = true;
        Ok(())
    }
}

/// The place of a stored value.
fn place(stored: &[u8]) -> u64 {
    stored.first_chunk::<LRU_PREFIX>().map_or(0, |place| u64::from_be_bytes(*place))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{MemoryBackend, OpenOptions, Overlay, OverlayOptions, StoreBackend, WriteBatch};

    #[test]
    fn what_was_used_longest_ago_goes() {
        let backend = MemoryBackend::new();
        let mut storage = backend.open(Path::new("0_0"), &OpenOptions::default()).unwrap();
        let space = storage.space("recent").unwrap();
        let options = OverlayOptions::default();
        let mut store: Overlay = Overlay::new("recent", space, storage.reader(), options);
        let mut lru = LruLayout::new(2);
        let put = |lru: &mut LruLayout, store: &mut Overlay, key: &[u8]| {
            let evicted = lru.put(store, key, Some(b"v")).unwrap();
            evicted.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>()
        };
        assert!(put(&mut lru, &mut store, b"a").is_empty());
        assert!(put(&mut lru, &mut store, b"b").is_empty());
        assert!(lru.get(&mut store, b"a").unwrap().is_some());
        assert_eq!(put(&mut lru, &mut store, b"c"), ["b"], "a was read since");
        assert_eq!(lru.get(&mut store, b"b").unwrap(), None);
        assert_eq!(put(&mut lru, &mut store, b"a"), [""; 0]);

        let mut batch = WriteBatch::new();
        store.seal(&mut batch).unwrap();
        storage.apply(batch.sort(), &[]).unwrap();
        store.release();
        let mut again = LruLayout::new(2);
        assert_eq!(put(&mut again, &mut store, b"d"), ["c"], "in the order of writing");
        assert_eq!(again.put(&mut store, b"a", None).unwrap(), []);
        assert!(put(&mut again, &mut store, b"e").is_empty());
    }
}
