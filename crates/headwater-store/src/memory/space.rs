//! One store of the memory backend: hash tables for points, trees of keys for ranges.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use crate::table::{KeyTable, Slot, Value};
use crate::{Chunk, Direction, KeyRange, KeyValueBytes, segment_of_key};

/// Entries of a store, all together or by segment.
#[derive(Debug)]
pub(super) enum Space {
    Plain(Entries),
    /// None is empty.
    Segmented(Segments),
}

/// Entries by the numbers of their segments.
pub(super) type Segments = BTreeMap<u64, Entries>;

/// An update of an existing key, the common case, touches the hash table only.
#[derive(Debug)]
pub(super) struct Entries {
    table: KeyTable<()>,
    order: BTreeMap<Box<[u8]>, Slot>,
}

impl Space {
    pub(super) fn plain() -> Self {
        Self::Plain(Entries::new())
    }

    pub(super) const fn segmented() -> Self {
        Self::Segmented(Segments::new())
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Plain(entries) => entries.get(key),
            Self::Segmented(segments) => segments.get(&segment_of_key(key))?.get(key),
        }
    }

    pub(super) fn write(&mut self, key: &[u8], value: Option<&[u8]>) {
        match self {
            Self::Plain(entries) => entries.write(key, value),
            Self::Segmented(segments) if value.is_some() => {
                let segment = segments.entry(segment_of_key(key));
                segment.or_insert_with(Entries::new).write(key, value);
            }
            Self::Segmented(segments) => {
                let number = segment_of_key(key);
                let Some(segment) = segments.get_mut(&number) else { return };
                segment.write(key, None);
                if segment.len() == 0 {
                    segments.remove(&number);
                }
            }
        }
    }

    /// Takes segments out.
    pub(super) fn drop_segments(&mut self, numbers: Range<u64>) -> Segments {
        if numbers.is_empty() {
            return Segments::new();
        }
        match self {
            Self::Plain(entries) => {
                let whole = std::mem::replace(entries, Entries::new());
                let (mut kept, mut dropped) = (Entries::new(), Segments::new());
                for (key, value) in whole.entries() {
                    let number = segment_of_key(&key);
                    let place = if numbers.contains(&number) {
                        dropped.entry(number).or_insert_with(Entries::new)
                    } else {
                        &mut kept
                    };
                    place.write(&key, Some(&value));
                }
                *entries = kept;
                dropped
            }
            Self::Segmented(segments) => {
                let mut dropped = segments.split_off(&numbers.start);
                let mut behind = dropped.split_off(&numbers.end);
                segments.append(&mut behind);
                dropped
            }
        }
    }

    /// Puts segments back that were taken out last.
    pub(super) fn take_back(&mut self, mut dropped: Segments) {
        match self {
            Self::Plain(entries) => {
                for (key, value) in dropped.values().flat_map(Entries::entries) {
                    entries.write(&key, Some(&value));
                }
            }
            Self::Segmented(segments) => segments.append(&mut dropped),
        }
    }

    pub(super) fn scan(&self, range: &KeyRange, direction: Direction, chunk: &mut Chunk) {
        if range.is_empty() {
            return;
        }
        let segments = match self {
            Self::Plain(entries) => return entries.scan(range, direction, chunk),
            Self::Segmented(segments) => segments.range(segments_of(range)),
        };
        let mut scan = |entries: &Entries| {
            entries.scan(range, direction, chunk);
            chunk.is_full()
        };
        match direction {
            Direction::Forward => segments.map(|(_, entries)| entries).any(&mut scan),
            Direction::Reverse => segments.rev().map(|(_, entries)| entries).any(&mut scan),
        };
    }

    pub(super) fn entries(&self) -> Vec<KeyValueBytes> {
        match self {
            Self::Plain(entries) => entries.entries(),
            Self::Segmented(segments) => segments.values().flat_map(Entries::entries).collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Plain(entries) => entries.len(),
            Self::Segmented(segments) => segments.values().map(Entries::len).sum(),
        }
    }
}

/// The segments in which keys of a range, which is not empty, can lie.
fn segments_of(range: &KeyRange) -> (Bound<u64>, Bound<u64>) {
    let number = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Bound::Included(segment_of_key(key)),
        Bound::Unbounded => Bound::Unbounded,
    };
    (number(&range.start), number(&range.end))
}

impl Entries {
    fn new() -> Self {
        Self { table: KeyTable::new(), order: BTreeMap::new() }
    }

    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let slot = self.table.find(self.table.hash(key), key)?;
        self.table.get(slot).value()
    }

    fn write(&mut self, key: &[u8], value: Option<&[u8]>) {
        let hash = self.table.hash(key);
        match (self.table.find(hash, key), value.map(Value::plain)) {
            (Some(slot), value @ Some(_)) => self.table.get_mut(slot).set_value(value),
            (Some(slot), None) => {
                self.table.remove(slot);
                self.order.remove(key);
            }
            (None, value @ Some(_)) => {
                let slot = self.table.insert(hash, key, value, ());
                self.order.insert(key.into(), slot);
            }
            (None, None) => {}
        }
    }

    fn scan(&self, range: &KeyRange, direction: Direction, chunk: &mut Chunk) {
        let bounds = (as_slice(&range.start), as_slice(&range.end));
        let mut entries = self.order.range::<[u8], _>(bounds);
        while !chunk.is_full() {
            let next = match direction {
                Direction::Forward => entries.next(),
                Direction::Reverse => entries.next_back(),
            };
            let Some((key, &slot)) = next else { return };
            let value = self.table.get(slot).value();
            chunk.push(key, value.expect("the table holds no deleted keys"));
        }
    }

    fn entries(&self) -> Vec<KeyValueBytes> {
        let value = |slot: Slot| self.table.get(slot).value().unwrap_or_default().to_vec();
        self.order.iter().map(|(key, &slot)| (key.to_vec(), value(slot))).collect()
    }

    fn len(&self) -> usize {
        self.table.len()
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}
