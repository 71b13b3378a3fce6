//! Which entries of an overlay Kafka Streams' record cache would hold, and which of them wait to be
//! forwarded (feature row P17: `ThreadCache`, `NamedCache`, `CachingKeyValueStore`).
//!
//! The values live in the overlay's table; here is only the bookkeeping, by slot.

use super::list::SlotList;
use crate::table::{Entry, Slot};

/// What the caller wants to have back with a cached change: at least the record context.
pub trait CacheContext {
    /// Bytes that the context adds to the size of its cache entry. Kafka Streams counts timestamp,
    /// offset and partition (20), the topic's characters, and names and values of the headers.
    fn resident_bytes(&self) -> usize;
}

/// No context but the timestamp, offset and partition that every entry is charged for.
impl CacheContext for () {
    fn resident_bytes(&self) -> usize {
        BARE_CONTEXT_BYTES
    }
}

/// Size of a context without topic and headers: that of a clean entry.
const BARE_CONTEXT_BYTES: usize = 8 + 8 + 4;

/// Size of an entry beside key, value and context: three references of 8 bytes and a flag.
const CACHE_ENTRY_BYTES: usize = 3 * 8 + 1;

/// The value below a dirty entry, that is, the one forwarded last.
#[derive(Debug, Default)]
pub(super) enum Forwarded {
    /// What the backend holds.
    #[default]
    InBackend,
    /// There was none.
    Nothing,
    /// This one.
    Value,
}

#[derive(Debug)]
struct Node<C> {
    in_cache: bool,
    dirty: bool,
    cost: usize,
    forwarded: Forwarded,
    /// The value of [`Forwarded::Value`]; kept for its room otherwise.
    forwarded_value: Vec<u8>,
    context: Option<C>,
}

#[derive(Debug)]
pub(super) struct RecordCache<C> {
    nodes: Vec<Node<C>>,
    /// All entries of the cache, the least recently used first.
    by_use: SlotList,
    /// Dirty entries by their last update, the oldest first (a `LinkedHashSet` from which a key is
    /// removed before it is added again).
    dirty: SlotList,
    bytes: usize,
    dirty_bytes: usize,
}

impl<C: CacheContext> RecordCache<C> {
    pub(super) const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            by_use: SlotList::new(),
            dirty: SlotList::new(),
            bytes: 0,
            dirty_bytes: 0,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn dirty_bytes(&self) -> usize {
        self.dirty_bytes
    }

    pub(super) fn dirty_len(&self) -> usize {
        self.dirty.len()
    }

    pub(super) fn contains(&self, slot: Slot) -> bool {
        self.nodes.get(slot as usize).is_some_and(|node| node.in_cache)
    }

    pub(super) fn oldest(&self) -> Option<Slot> {
        self.by_use.first()
    }

    pub(super) fn oldest_dirty(&self) -> Option<Slot> {
        self.dirty.first()
    }

    pub(super) fn is_dirty(&self, slot: Slot) -> bool {
        self.nodes.get(slot as usize).is_some_and(|node| node.dirty)
    }

    /// The entry was read: it becomes the most recently used, and joins the cache if it was not in
    /// it and has a value.
    pub(super) fn read<S>(&mut self, slot: Slot, entry: &Entry<S>) {
        if self.contains(slot) {
            self.by_use.move_to_back(slot);
        } else if entry.value().is_some() {
            let node = self.node(slot);
            node.in_cache = true;
            node.cost = entry.len() + CACHE_ENTRY_BYTES + BARE_CONTEXT_BYTES;
            self.bytes += self.nodes[slot as usize].cost;
            self.by_use.push_back(slot);
        }
    }

    /// An iterator came across the entry: a use, if it is in the cache.
    pub(super) fn visited(&mut self, slot: Slot) {
        if self.contains(slot) {
            self.by_use.move_to_back(slot);
        }
    }

    /// Tells what lies below the coming update of an entry that has been clean so far.
    pub(super) fn note_forwarded(&mut self, slot: Slot, value: Option<&[u8]>) {
        let node = self.node(slot);
        node.forwarded_value.clear();
        node.forwarded = match value {
            Some(value) => {
                node.forwarded_value.extend_from_slice(value);
                Forwarded::Value
            }
            None => Forwarded::Nothing,
        };
    }

    /// The entry was written: it is dirty, the most recently used and the last to be forwarded.
    pub(super) fn written<S>(&mut self, slot: Slot, entry: &Entry<S>, context: C) {
        let cost = entry.len() + CACHE_ENTRY_BYTES + context.resident_bytes();
        let node = self.node(slot);
        let was = if node.in_cache { node.cost } else { 0 };
        let was_dirty = node.dirty;
        let was_in_cache = node.in_cache;
        (node.in_cache, node.dirty, node.cost) = (true, true, cost);
        node.context = Some(context);
        self.bytes = self.bytes - was + cost;
        if was_in_cache {
            self.by_use.move_to_back(slot);
        } else {
            self.by_use.push_back(slot);
        }
        if was_dirty {
            self.dirty_bytes = self.dirty_bytes - was + cost;
            self.dirty.move_to_back(slot);
        } else {
            self.dirty_bytes += cost;
            self.dirty.push_back(slot);
        }
    }

    /// Takes the entry out of the cache. A dirty one stays dirty.
    pub(super) fn leave(&mut self, slot: Slot) {
        let node = &mut self.nodes[slot as usize];
        node.in_cache = false;
        self.bytes -= node.cost;
        self.by_use.remove(slot);
    }

    /// Makes a dirty entry clean; gives its context and the value forwarded last.
    pub(super) fn take_dirty(&mut self, slot: Slot) -> (C, Forwarded, &mut Vec<u8>) {
        self.dirty.remove(slot);
        let node = &mut self.nodes[slot as usize];
        node.dirty = false;
        self.dirty_bytes -= node.cost;
        let context = node.context.take().expect("a dirty entry has a context");
        (context, std::mem::take(&mut node.forwarded), &mut node.forwarded_value)
    }

    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.by_use.clear();
        self.dirty.clear();
        (self.bytes, self.dirty_bytes) = (0, 0);
    }

    fn node(&mut self, slot: Slot) -> &mut Node<C> {
        let index = slot as usize;
        if index >= self.nodes.len() {
            self.nodes.resize_with(index + 1, || Node {
                in_cache: false,
                dirty: false,
                cost: 0,
                forwarded: Forwarded::InBackend,
                forwarded_value: Vec::new(),
                context: None,
            });
        }
        &mut self.nodes[index]
    }
}
