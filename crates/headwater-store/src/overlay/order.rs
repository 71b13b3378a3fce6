//! Slots in the order of their keys, for ranges.

use std::cmp::Ordering;

use crate::table::Slot;

/// A sorted list of slots in blocks, so that one more costs little however many there are: between two ranges there
/// is often one new entry. The front of its key is beside each slot: a search reads keys, which are scattered over
/// memory, only where fronts are equal.
#[derive(Debug, Default)]
pub(super) struct SlotOrder {
    blocks: Vec<Block>,
    len: usize,
    /// Room for what is added, to be sorted.
    new: Vec<Sorted>,
}

/// Slots one after the other.
#[derive(Debug)]
struct Block {
    /// The last of them, so that a search for the block reads nothing else.
    last: Sorted,
    slots: Vec<Sorted>,
}

/// A slot, and the front of its key.
#[derive(Clone, Copy, Debug)]
struct Sorted {
    front: Front,
    slot: Slot,
}

/// The first 24 bytes of a key, filled up with zeros: the segment in front of the keys of windows, and of most keys so
/// much that few have it in common. Where two differ the keys are in the same order; where not, the keys decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Front([u64; 3]);

impl Front {
    fn of(key: &[u8]) -> Self {
        let word = |at: usize| {
            let rest = key.get(at..).unwrap_or_default();
            let bytes = rest.first_chunk().copied().unwrap_or_else(|| {
                let mut bytes = [0; 8];
                bytes[..rest.len()].copy_from_slice(rest);
                bytes
            });
            u64::from_be_bytes(bytes)
        };
        Self([word(0), word(8), word(16)])
    }
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

impl Block {
    fn new(slots: Vec<Sorted>) -> Option<Self> {
        Some(Self { last: *slots.last()?, slots })
    }
}

impl SlotOrder {
    pub(super) const fn new() -> Self {
        Self { blocks: Vec::new(), len: 0, new: Vec::new() }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        self.blocks.iter().flat_map(|block| &block.slots).map(|it| it.slot)
    }

    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.len = 0;
    }

    /// Keeps the slots for which this holds.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(Slot) -> bool) {
        let mut len = 0;
        self.blocks.retain_mut(|block| {
            block.slots.retain(|it| keep(it.slot));
            len += block.slots.len();
            match block.slots.last() {
                Some(&last) => block.last = last,
                None => return false,
            }
            true
        });
        self.len = len;
    }

    /// Adds slots.
    pub(super) fn add<'k>(&mut self, slots: &[Slot], key: impl Fn(Slot) -> &'k [u8]) {
        let mut new = std::mem::take(&mut self.new);
        new.extend(slots.iter().map(|&slot| Sorted { front: Front::of(key(slot)), slot }));
        new.sort_unstable_by(|a, b| compare(a, b, &key));
        // Many are merged with what is there, few are put in their places.
        if new.len() > self.len / 8 {
            self.merge(&new, &key);
        } else {
            for it in &new {
                let place = self.partition_point(it.front, |other| key(other) < key(it.slot));
                self.insert(place, *it);
            }
        }
        new.clear();
        self.new = new;
    }

    fn merge<'k>(&mut self, new: &[Sorted], key: &impl Fn(Slot) -> &'k [u8]) {
        let mut new = new.iter().copied().peekable();
        let mut merged = Vec::with_capacity(self.len + new.len());
        for it in self.blocks.drain(..).flat_map(|block| block.slots) {
            while let Some(earlier) = new.next_if(|other| compare(other, &it, key).is_lt()) {
                merged.push(earlier);
            }
            merged.push(it);
        }
        merged.extend(new);
        self.len = merged.len();
        let blocks = merged.chunks(BLOCK_MAX / 2).map(<[Sorted]>::to_vec);
        self.blocks.extend(blocks.filter_map(Block::new));
    }

    fn insert(&mut self, place: Place, new: Sorted) {
        self.len += 1;
        let Place { mut block, mut at } = place;
        if block == self.blocks.len() {
            // Behind all: at the end of the last block rather than in one of its own.
            let Some(last) = block.checked_sub(1) else {
                self.blocks.push(Block { last: new, slots: vec![new] });
                return;
            };
            (block, at) = (last, self.blocks[last].slots.len());
        }
        let into = &mut self.blocks[block];
        into.slots.insert(at, new);
        if at + 1 == into.slots.len() {
            into.last = new;
        }
        if into.slots.len() > BLOCK_MAX {
            let upper = into.slots.split_off(BLOCK_MAX / 2);
            let upper = Block {
                last: std::mem::replace(&mut into.last, into.slots[BLOCK_MAX / 2 - 1]),
                slots: upper,
            };
            self.blocks.insert(block + 1, upper);
        }
    }

    /// The first place behind all slots that are before a key. `is_before` says it of a slot whose key has the same
    /// front as that key: as it does for a slot, it does for all before it.
    pub(super) fn place(&self, key: &[u8], is_before: impl Fn(Slot) -> bool) -> Place {
        self.partition_point(Front::of(key), is_before)
    }

    fn partition_point(&self, front: Front, is_before: impl Fn(Slot) -> bool) -> Place {
        let is_before = |other: &Sorted| match other.front.cmp(&front) {
            Ordering::Less => true,
            Ordering::Equal => is_before(other.slot),
            Ordering::Greater => false,
        };
        let block = self.blocks.partition_point(|block| is_before(&block.last));
        let at = self.blocks.get(block).map_or(0, |it| it.slots.partition_point(&is_before));
        Place { block, at }
    }

    /// The place in front of all slots.
    pub(super) const fn start() -> Place {
        Place { block: 0, at: 0 }
    }

    /// The place behind all slots.
    pub(super) fn end(&self) -> Place {
        Place { block: self.blocks.len(), at: 0 }
    }

    /// The slot behind a place.
    pub(super) fn after(&self, place: Place) -> Option<Slot> {
        Some(self.blocks.get(place.block)?.slots.get(place.at)?.slot)
    }

    /// The slot before a place.
    pub(super) fn before(&self, place: Place) -> Option<Slot> {
        let found = match place.at.checked_sub(1) {
            Some(at) => self.blocks.get(place.block)?.slots.get(at),
            None => self.blocks.get(place.block.checked_sub(1)?)?.slots.last(),
        };
        found.map(|it| it.slot)
    }

    /// One slot on.
    pub(super) fn forward(&self, place: Place) -> Place {
        let Place { block, at } = place;
        if self.blocks.get(block).is_some_and(|it| at + 1 < it.slots.len()) {
            Place { block, at: at + 1 }
        } else {
            Place { block: block + 1, at: 0 }
        }
    }

    /// One slot back.
    pub(super) fn back(&self, place: Place) -> Place {
        match (place.at.checked_sub(1), place.block.checked_sub(1)) {
            (Some(at), _) => Place { at, ..place },
            (None, Some(block)) => Place { block, at: self.blocks[block].slots.len() - 1 },
            (None, None) => place,
        }
    }
}

fn compare<'k>(a: &Sorted, b: &Sorted, key: &impl Fn(Slot) -> &'k [u8]) -> Ordering {
    a.front.cmp(&b.front).then_with(|| key(a.slot).cmp(key(b.slot)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(keys: &[Vec<u8>], slot: Slot) -> &[u8] {
        &keys[slot as usize]
    }

    proptest! {
        /// Whatever comes in whichever portions, it is a sorted list; also of more than one block, and of keys that
        /// differ behind their fronts only or in their lengths.
        #[test]
        fn is_a_sorted_list(
            portions in proptest::collection::vec(1..700_u16, 1..12), shuffle in any::<u16>(),
            kept in 1..5_u32, zeros in 0..28_usize,
        ) {
            let total: u16 = portions.iter().sum();
            // An odd factor scatters the keys and keeps them apart.
            let keys: Vec<Vec<u8>> = (0..total)
                .map(|at| {
                    let zeros = zeros + usize::from(at % 3);
                    [vec![0; zeros].as_slice(), &at.wrapping_mul(shuffle | 1).to_be_bytes()].concat()
                })
                .collect();
            let mut order = SlotOrder::new();
            let mut slots = 0..Slot::try_from(keys.len()).unwrap();
            for portion in portions {
                let new: Vec<Slot> = slots.by_ref().take(portion.into()).collect();
                order.add(&new, |slot| key(&keys, slot));
            }
            order.retain(|slot| slot % kept == 0);
            let mut expected: Vec<Slot> =
                (0..Slot::try_from(keys.len()).unwrap()).filter(|slot| slot % kept == 0).collect();
            expected.sort_by_key(|&slot| key(&keys, slot));
            let by_key = |slots: &[Slot]| -> Vec<Vec<u8>> {
                slots.iter().map(|&slot| key(&keys, slot).to_vec()).collect()
            };
            let found: Vec<Slot> = order.iter().collect();
            prop_assert_eq!(by_key(&found), by_key(&expected));
            prop_assert_eq!(order.len(), expected.len());

            let middle = keys[0].as_slice();
            let split = expected.partition_point(|&slot| key(&keys, slot) < middle);
            let place = order.place(middle, |slot| key(&keys, slot) < middle);
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
