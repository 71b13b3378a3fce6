//! Stores of a fixed number of entries, of which the least recently used go (feature row P5).

use std::collections::{BTreeMap, HashMap};

use crate::layout::LRU_PREFIX;
use crate::{Damage, Direction, KeyRange, KeyValueAccess, KeyValueRead, RecordProblem, StoreError};

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
    /// [`StoreError::DamagedRow`], and what the store reports.
    pub fn next_place(store: &mut impl KeyValueRead) -> Result<u64, StoreError> {
        let mut next = 0;
        for_each_place(store, |place, _| next = next.max(place + 1))?;
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
    /// [`StoreError::DamagedRow`], and what the store reports.
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
    /// [`StoreError::DamagedRow`], and what the store reports.
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
        for_each_place(store, |place, key| written.push((place, key.into())))?;
        written.sort();
        let next = written.last().map_or(0, |(place, _)| place + 1);
        for (_, key) in written {
            self.used(&key);
        }
        self.next = self.next.max(next);
        self.is_known = true;
        Ok(())
    }
}

/// No store comes so far. What says so is damaged, and would leave no place behind it.
const PLACES: u64 = 1 << 62;

/// Tells the place and the key of each entry.
fn for_each_place(
    store: &mut impl KeyValueRead,
    mut tell: impl FnMut(u64, &[u8]),
) -> Result<(), StoreError> {
    let mut cursor = store.range(KeyRange::all(), Direction::Forward)?;
    while let Some((key, stored)) = store.next(&mut cursor)? {
        match place(stored) {
            Ok(place) => tell(place, key),
            Err(problem) => {
                let damage = Damage::Record { record: "place of an entry", problem };
                return Err(StoreError::DamagedRow { store: store.name().to_owned(), damage });
            }
        }
    }
    Ok(())
}

/// The place of a stored value.
fn place(stored: &[u8]) -> Result<u64, RecordProblem> {
    let Some(place) = stored.first_chunk::<LRU_PREFIX>() else {
        return Err(RecordProblem::Length { expected: LRU_PREFIX, found: stored.len() });
    };
    let found = u64::from_be_bytes(*place);
    if found < PLACES {
        Ok(found)
    } else {
        Err(RecordProblem::Field { field: "place", found: found.cast_signed() })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        MemoryBackend, OpenOptions, Overlay, OverlayOptions, StoreBackend, TaskStorage, WriteBatch,
    };

    fn new_store() -> (Box<dyn TaskStorage>, Overlay) {
        let backend = MemoryBackend::new();
        let mut storage = backend.open(Path::new("0_0"), &OpenOptions::default()).unwrap();
        let space = storage.space("recent").unwrap();
        let store = Overlay::new("recent", space, storage.reader(), OverlayOptions::default());
        (storage, store)
    }

    #[track_caller]
    fn check_damage(value: &[u8], expected: &str) {
        let (_storage, mut store) = new_store();
        store.put(b"a", Some(value), || ());
        let problem = |error| match error {
            StoreError::DamagedRow { damage: Damage::Record { problem, .. }, .. } => {
                problem.to_string()
            }
            other => other.to_string(),
        };
        let told = LruLayout::new(2).get(&mut store, b"a").map(drop).map_err(problem);
        assert_eq!(told, Err(expected.to_owned()));
        assert_eq!(LruLayout::next_place(&mut store).map_err(problem), Err(expected.to_owned()));
    }

    #[test]
    fn a_place_that_no_store_comes_to_is_damage() {
        check_damage(&[0xff; 9], "place is -1");
        check_damage(&[0; 7], "7 bytes where the format has 8");
    }

    #[test]
    fn what_was_used_longest_ago_goes() {
        let (mut storage, mut store) = new_store();
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
