//! Doubly linked lists of slots: eviction order, and the order in which entries became dirty.

use crate::table::Slot;

/// An ordered set of slots with constant-time insertion at the back and removal anywhere.
#[derive(Debug)]
pub(super) struct SlotList {
    /// Neighbours by slot; meaningless for slots that are not in the list.
    links: Vec<Link>,
    first: Slot,
    last: Slot,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: Slot,
    next: Slot,
}

/// No slot. A table never grows to this many entries.
const NONE: Slot = Slot::MAX;

impl SlotList {
    pub(super) const fn new() -> Self {
        Self { links: Vec::new(), first: NONE, last: NONE, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn first(&self) -> Option<Slot> {
        (self.first != NONE).then_some(self.first)
    }

    /// Adds a slot that is not in the list.
    pub(super) fn push_back(&mut self, slot: Slot) {
        let index = slot as usize;
        if index >= self.links.len() {
            self.links.resize(index + 1, Link { previous: NONE, next: NONE });
        }
        self.links[index] = Link { previous: self.last, next: NONE };
        match self.last {
            NONE => self.first = slot,
            last => self.links[last as usize].next = slot,
        }
        self.last = slot;
        self.len += 1;
    }

    /// Removes a slot that is in the list.
    pub(super) fn remove(&mut self, slot: Slot) {
        let Link { previous, next } = self.links[slot as usize];
        match previous {
            NONE => self.first = next,
            previous => self.links[previous as usize].next = next,
        }
        match next {
            NONE => self.last = previous,
            next => self.links[next as usize].previous = previous,
        }
        self.len -= 1;
    }

    /// Moves a slot that is in the list to its back.
    pub(super) fn move_to_back(&mut self, slot: Slot) {
        if self.last != slot {
            self.remove(slot);
            self.push_back(slot);
        }
    }

    pub(super) fn clear(&mut self) {
        self.links.clear();
        (self.first, self.last, self.len) = (NONE, NONE, 0);
    }
}
