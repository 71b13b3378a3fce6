//! What a task knows of a suppress buffer beside the store.

use std::collections::{BTreeMap, BTreeSet};

use headwater_runtime::{
    Cx, ProcessorSlot, ProcessorSupplier, StoreSlot, TaskError, TaskProcessor,
};
use headwater_store::{BufferedValueWithHeaders, Direction, KeyRange};

/// Bytes that an entry counts for beside its key and value: its time.
const TIME_BYTES: usize = 8;

/// The keys of a buffer in order of time.
#[derive(Debug)]
pub(super) struct State {
    slot: StoreSlot,
    keeps_headers: bool,
    by_time: BTreeMap<i64, BTreeSet<Box<[u8]>>>,
    records: u64,
    bytes: u64,
    /// The highest time of an update; −1 before the first.
    stream_time: i64,
    /// Keys whose changes are not logged yet.
    dirty: BTreeSet<Box<[u8]>>,
}

impl State {
    /// Takes note of an update's time; answers the highest so far.
    pub(super) fn observe(&mut self, timestamp: i64) -> i64 {
        self.stream_time = self.stream_time.max(timestamp);
        self.stream_time
    }

    /// An update was added.
    pub(super) fn added(&mut self, time: i64, key: &[u8], size: usize) {
        self.note(time, key, size);
        self.changed(key);
    }

    fn note(&mut self, time: i64, key: &[u8], size: usize) {
        self.by_time.entry(time).or_default().insert(key.into());
        self.records += 1;
        self.bytes += (TIME_BYTES + key.len() + size) as u64;
    }

    /// An update took the place of another one of the same key.
    pub(super) fn replaced(&mut self, key: &[u8], before: usize, size: usize) {
        self.bytes = self.bytes + size as u64 - before as u64;
        self.changed(key);
    }

    /// An update was taken out.
    pub(super) fn removed(&mut self, time: i64, key: &[u8], size: usize) {
        if let Some(keys) = self.by_time.get_mut(&time) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_time.remove(&time);
            }
        }
        self.records -= 1;
        self.bytes -= (TIME_BYTES + key.len() + size) as u64;
        self.changed(key);
    }

    fn changed(&mut self, key: &[u8]) {
        if !self.dirty.contains(key) {
            self.dirty.insert(key.into());
        }
    }

    /// The time and key of the first update.
    pub(super) fn first(&self) -> Option<(i64, &[u8])> {
        let (time, keys) = self.by_time.first_key_value()?;
        Some((*time, keys.first()?))
    }

    pub(super) const fn records(&self) -> u64 {
        self.records
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) const fn is_over(&self, max_records: u64, max_bytes: u64) -> bool {
        self.records > max_records || self.bytes > max_bytes
    }
}

impl TaskProcessor for State {
    fn init(&mut self, cx: &mut Cx<'_>, _slot: ProcessorSlot) -> Result<(), TaskError> {
        let mut cursor = cx.range(self.slot, KeyRange::all(), Direction::Forward);
        while let Some((key, value)) = cx.next_entry(&mut cursor)? {
            // Damage is reported when the key is next looked at.
            let Ok(buffered) = BufferedValueWithHeaders::read(value) else { continue };
            let size = super::size_of(&buffered, self.keeps_headers);
            self.note(buffered.value.buffer_time, key, size);
        }
        Ok(())
    }

    fn flush(&mut self, cx: &mut Cx<'_>) -> Result<(), TaskError> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.iter().try_for_each(|key| cx.log_buffered(self.slot, key, self.keeps_headers))
    }
}

#[derive(Debug)]
pub(super) struct NewState {
    pub(super) slot: StoreSlot,
    pub(super) keeps_headers: bool,
}

impl ProcessorSupplier for NewState {
    fn get(&self) -> Box<dyn TaskProcessor> {
        Box::new(State {
            slot: self.slot,
            keeps_headers: self.keeps_headers,
            by_time: BTreeMap::new(),
            records: 0,
            bytes: 0,
            stream_time: -1,
            dirty: BTreeSet::new(),
        })
    }
}
