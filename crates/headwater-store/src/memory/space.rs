//! One store of the memory backend: a hash table for points, a tree of keys for ranges.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::table::{KeyTable, Slot, Value};
use crate::{Chunk, Direction, KeyRange, KeyValueBytes};

/// An update of an existing key, the common case, touches the hash table only.
#[derive(Debug)]
pub(super) struct Space {
    table: KeyTable<()>,
    order: BTreeMap<Box<[u8]>, Slot>,
}

impl Space {
    pub(super) fn new() -> Self {
        Self { table: KeyTable::new(), order: BTreeMap::new() }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let slot = self.table.find(self.table.hash(key), key)?;
        self.table.get(slot).value()
    }

    pub(super) fn write(&mut self, key: &[u8], value: Option<&[u8]>) {
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

    pub(super) fn scan(&self, range: &KeyRange, direction: Direction, chunk: &mut Chunk) {
        if range.is_empty() {
            return;
        }
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

    pub(super) fn entries(&self) -> Vec<KeyValueBytes> {
        let value = |slot: Slot| self.table.get(slot).value().unwrap_or_default().to_vec();
        self.order.iter().map(|(key, &slot)| (key.to_vec(), value(slot))).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}
