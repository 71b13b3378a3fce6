//! A hash table of byte keys and values whose entries have stable numbers: the structure under the
//! overlay and under the memory backend.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use smallvec::SmallVec;

/// Number of an entry in a [`KeyTable`], valid until the entry is removed.
pub(crate) type Slot = u32;

/// Keys and values, each pair in one buffer, with a state `S` of the user's own beside it.
///
/// A point lookup costs one hash, one probe and one comparison, and touches two cache lines when key
/// and value are short. A new value of the same size or smaller goes into the room of the old one, and
/// a removed entry leaves its room to the next new one, so a table in steady state does not allocate.
#[derive(Debug)]
pub(crate) struct KeyTable<S> {
    index: HashTable<Slot>,
    entries: Vec<Entry<S>>,
    vacant: Vec<Slot>,
    hasher: RandomState,
}

/// Key and value together that fit into an entry's own cache line.
const INLINE_BYTES: usize = 40;

#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Entry<S> {
    /// Key, then value.
    bytes: SmallVec<[u8; INLINE_BYTES]>,
    key_len: u32,
    hash: KeyHash,
    /// Whether there is a value; an entry without one knows that its key is deleted.
    present: bool,
    /// The user's own.
    pub(crate) state: S,
}

impl<S> Entry<S> {
    pub(crate) fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len as usize]
    }

    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.present.then(|| &self.bytes[self.key_len as usize..])
    }

    /// Bytes of key and value.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn set_value(&mut self, value: Option<&[u8]>) {
        self.bytes.truncate(self.key_len as usize);
        self.present = value.is_some();
        self.bytes.extend_from_slice(value.unwrap_or_default());
    }
}

/// The hash of a key, to look it up several times for the price of once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHash(u32);

impl KeyHash {
    /// For the hash table, which looks at the highest bits and at the lowest.
    fn spread(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

impl<S> KeyTable<S> {
    /// Removed entries that keep their buffers for their successors, and the largest buffer kept. The
    /// rest is given back, so that a table shrinks with what it holds.
    const KEPT_BUFFERS: usize = 1024;
    const KEPT_ROOM: usize = 1024;

    pub(crate) fn new() -> Self {
        Self {
            index: HashTable::new(),
            entries: Vec::new(),
            vacant: Vec::new(),
            hasher: RandomState::default(),
        }
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        KeyHash((hasher.finish() >> 32) as u32)
    }

    pub(crate) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<Slot> {
        self.index.find(hash.spread(), |&slot| self.entries[slot as usize].key() == key).copied()
    }

    pub(crate) fn get(&self, slot: Slot) -> &Entry<S> {
        &self.entries[slot as usize]
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Entry<S> {
        &mut self.entries[slot as usize]
    }

    /// Adds an entry whose key is not in the table.
    ///
    /// # Panics
    /// If the table has 2^32 entries or the key is longer than 4 GiB.
    pub(crate) fn insert(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        value: Option<&[u8]>,
        state: S,
    ) -> Slot {
        let key_len = u32::try_from(key.len()).expect("a key is below 4 GiB");
        let vacated = self.vacant.pop();
        let mut bytes = vacated.map_or_else(SmallVec::new, |slot| {
            std::mem::take(&mut self.entries[slot as usize].bytes)
        });
        bytes.clear();
        bytes.reserve_exact(key.len() + value.map_or(0, <[u8]>::len));
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.unwrap_or_default());
        let entry = Entry { bytes, key_len, hash, present: value.is_some(), state };
        let slot = if let Some(slot) = vacated {
            self.entries[slot as usize] = entry;
            slot
        } else {
            self.entries.push(entry);
            Slot::try_from(self.entries.len() - 1).expect("below 2^32 entries")
        };
        let entries = &self.entries;
        self.index.insert_unique(hash.spread(), slot, |&slot| entries[slot as usize].hash.spread());
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot as usize];
        if self.vacant.len() >= Self::KEPT_BUFFERS || entry.bytes.capacity() > Self::KEPT_ROOM {
            entry.bytes = SmallVec::new();
        }
        let hash = entry.hash.spread();
        self.index
            .find_entry(hash, |&other| other == slot)
            .expect("every entry is indexed")
            .remove();
        self.vacant.push(slot);
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn clear(&mut self) {
        self.index.clear();
        self.entries.clear();
        self.vacant.clear();
    }
}
