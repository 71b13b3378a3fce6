//! Slots in the order of their keys, for ranges.

use crate::table::Slot;

/// A sorted list of slots in blocks, so that one more costs little however many there are: between two ranges there
/// is often one new entry.
#[derive(Debug, Default)]
pub(super) struct SlotOrder {
    /// None is empty.
    blocks: Vec<Vec<Slot>>,
    len: usize,
}

/// A place between two slots of a [`SlotOrder`], valid until it changes. Of two ways to say the same place, behind a block
/// or in front of the next, the last one is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    block: usize,
    at: usize,
}

/// A block that would have more slots is split.
const BLOCK_MAX: usize = 512;

impl SlotOrder {
    pub(super) const fn new() -> Self {
        Self { blocks: Vec::new(), len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        self.blocks.iter().flatten().copied()
    }

    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.len = 0;
    }

    /// Keeps the slots for which this holds.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(Slot) -> bool) {
        for block in &mut self.blocks {
            block.retain(|&slot| keep(slot));
        }
        self.blocks.retain(|block| !block.is_empty());
        self.len = self.blocks.iter().map(Vec::len).sum();
    }

    /// Adds slots, which are sorted.
    pub(super) fn add<'k>(&mut self, new: &[Slot], key: impl Fn(Slot) -> &'k [u8]) {
        // Many are merged with what is there, few are put in their places.
        if new.len() > self.len / 8 {
            self.merge(new, key);
            return;
        }
        for &slot in new {
            let place = self.partition_point(|other| key(other) < key(slot));
            self.insert(place, slot);
        }
    }

    fn merge<'k>(&mut self, new: &[Slot], key: impl Fn(Slot) -> &'k [u8]) {
        let mut new = new.iter().copied().peekable();
        let mut merged = Vec::with_capacity(self.len + new.len());
        for slot in self.blocks.drain(..).flatten() {
            while let Some(earlier) = new.next_if(|&other| key(other) < key(slot)) {
                merged.push(earlier);
            }
            merged.push(slot);
        }
        merged.extend(new);
        self.len = merged.len();
        self.blocks.extend(merged.chunks(BLOCK_MAX / 2).map(<[Slot]>::to_vec));
    }

    fn insert(&mut self, place: Place, slot: Slot) {
        self.len += 1;
        let Place { mut block, mut at } = place;
        if block == self.blocks.len() {
            // Behind all: at the end of the last block rather than in one of its own.
            let Some(last) = block.checked_sub(1) else {
                self.blocks.push(vec![slot]);
                return;
            };
            (block, at) = (last, self.blocks[last].len());
        }
        self.blocks[block].insert(at, slot);
        if self.blocks[block].len() > BLOCK_MAX {
            let upper = self.blocks[block].split_off(BLOCK_MAX / 2);
            self.blocks.insert(block + 1, upper);
        }
    }

    /// The first place behind all slots for which this holds: as it does for a slot, it does for all before it.
    pub(super) fn partition_point(&self, holds: impl Fn(Slot) -> bool) -> Place {
        let block = self.blocks.partition_point(|block| block.last().is_some_and(|&it| holds(it)));
        let at = self.blocks.get(block).map_or(0, |it| it.partition_point(|&slot| holds(slot)));
        Place { block, at }
    }

    /// The slot behind a place.
    pub(super) fn after(&self, place: Place) -> Option<Slot> {
        self.blocks.get(place.block)?.get(place.at).copied()
    }

    /// The slot before a place.
    pub(super) fn before(&self, place: Place) -> Option<Slot> {
        match place.at.checked_sub(1) {
            Some(at) => self.blocks.get(place.block)?.get(at).copied(),
            None => self.blocks.get(place.block.checked_sub(1)?)?.last().copied(),
        }
    }

    /// One slot on.
    pub(super) fn forward(&self, place: Place) -> Place {
        let Place { block, at } = place;
        if self.blocks.get(block).is_some_and(|it| at + 1 < it.len()) {
            Place { block, at: at + 1 }
        } else {
            Place { block: block + 1, at: 0 }
        }
    }

    /// One slot back.
    pub(super) fn back(&self, place: Place) -> Place {
        match (place.at.checked_sub(1), place.block.checked_sub(1)) {
            (Some(at), _) => Place { at, ..place },
            (None, Some(block)) => Place { block, at: self.blocks[block].len() - 1 },
            (None, None) => place,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(keys: &[[u8; 2]], slot: Slot) -> &[u8] {
        &keys[slot as usize]
    }

    proptest! {
        /// Whatever comes in whichever portions, it is a sorted list; also of more than one block.
        #[test]
        fn is_a_sorted_list(
            portions in proptest::collection::vec(1..700_u16, 1..12), shuffle in any::<u16>(),
            kept in 1..5_u32,
        ) {
            let total: u16 = portions.iter().sum();
            // An odd factor scatters the keys and keeps them apart.
            let keys: Vec<[u8; 2]> =
                (0..total).map(|at| at.wrapping_mul(shuffle | 1).to_be_bytes()).collect();
            let mut order = SlotOrder::new();
            let mut slots = 0..Slot::try_from(keys.len()).unwrap();
            for portion in portions {
                let mut new: Vec<Slot> = slots.by_ref().take(portion.into()).collect();
                new.sort_by_key(|&slot| keys[slot as usize]);
                order.add(&new, |slot| key(&keys, slot));
            }
            order.retain(|slot| slot % kept == 0);
            let mut expected: Vec<Slot> =
                (0..Slot::try_from(keys.len()).unwrap()).filter(|slot| slot % kept == 0).collect();
            expected.sort_by_key(|&slot| keys[slot as usize]);
            let by_key = |slots: &[Slot]| -> Vec<[u8; 2]> {
                slots.iter().map(|&slot| keys[slot as usize]).collect()
            };
            let found: Vec<Slot> = order.iter().collect();
            prop_assert_eq!(by_key(&found), by_key(&expected));
            prop_assert_eq!(order.len(), expected.len());

            let middle = keys[0];
            let split = expected.partition_point(|&slot| keys[slot as usize] < middle);
            let place = order.partition_point(|slot| keys[slot as usize] < middle);
            let (mut at, mut after) = (place, Vec::new());
            while let Some(slot) = order.after(at) {
                after.push(slot);
                at = order.forward(at);
            }
            prop_assert_eq!(by_key(&after), by_key(&expected[split..]));
            let (mut at, mut before) = (place, Vec::new());
            while let Some(slot) = order.before(at) {
                before.push(slot);
                at = order.back(at);
            }
            before.reverse();
            prop_assert_eq!(by_key(&before), by_key(&expected[..split]));
        }
    }
}
