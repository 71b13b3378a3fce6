//! A hash table of byte keys and values whose entries have stable numbers: the structure under the
//! overlay and under the memory backend.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::TIMESTAMP_BYTES;

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
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len as usize]
    }

    #[inline]
    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.present.then(|| &self.bytes[self.key_len as usize..])
    }

    /// Bytes of key and value.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(crate) fn set_value(&mut self, value: Option<Value<'_>>) {
        let key_len = self.key_len as usize;
        self.present = value.is_some();
        match value {
            Some(value) if key_len + value.len() == self.bytes.len() => {
                value.copy_to(&mut self.bytes[key_len..]);
            }
            value => {
                self.bytes.truncate(key_len);
                if let Some(value) = value {
                    value.append_to(&mut self.bytes);
                }
            }
        }
    }
}

/// A value to be stored: its bytes, in a timestamped store those of its timestamp before them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a> {
    pub(crate) timestamp: Option<[u8; TIMESTAMP_BYTES]>,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Value<'a> {
    pub(crate) const fn plain(bytes: &'a [u8]) -> Self {
        Self { timestamp: None, bytes }
    }

    #[inline]
    fn len(self) -> usize {
        self.timestamp.map_or(0, |timestamp| timestamp.len()) + self.bytes.len()
    }

    /// Fills `room`, which is of its length.
    #[inline]
    fn copy_to(self, room: &mut [u8]) {
        match (self.timestamp, room.split_first_chunk_mut()) {
            (Some(timestamp), Some((front, back))) => {
                *front = timestamp;
                back.copy_from_slice(self.bytes);
            }
            _ => room.copy_from_slice(self.bytes),
        }
    }

    fn append_to(self, bytes: &mut SmallVec<[u8; INLINE_BYTES]>) {
        bytes.extend_from_slice(self.timestamp.as_ref().map_or(&[], |timestamp| &timestamp[..]));
        bytes.extend_from_slice(self.bytes);
    }
}

/// The hash of a key, to look it up several times for the price of once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHash(u32);

impl KeyHash {
    /// For the hash table, which looks at the highest bits and at the lowest.
    #[inline]
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

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        KeyHash((hasher.finish() >> 32) as u32)
    }

    #[inline]
    pub(crate) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<Slot> {
        self.index.find(hash.spread(), |&slot| self.entries[slot as usize].key() == key).copied()
    }

    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> &Entry<S> {
        &self.entries[slot as usize]
    }

    #[inline]
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
        value: Option<Value<'_>>,
        state: S,
    ) -> Slot {
        let key_len = u32::try_from(key.len()).expect("a key is below 4 GiB");
        let vacated = self.vacant.pop();
        let mut bytes = vacated.map_or_else(SmallVec::new, |slot| {
            std::mem::take(&mut self.entries[slot as usize].bytes)
        });
        bytes.clear();
        bytes.reserve_exact(key.len() + value.map_or(0, Value::len));
        bytes.extend_from_slice(key);
        if let Some(value) = value {
            value.append_to(&mut bytes);
        }
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

    /// All entries, in no order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.index.iter().copied()
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
