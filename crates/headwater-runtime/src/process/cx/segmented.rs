//! Stores of windows and sessions: entries by time, of which old ones are hidden and then removed.

use headwater_records::Record;
use headwater_store::{
    CachedChange, Direction, KeyRange, OverlayCursor, SEGMENT_PREFIX, SegmentedKind,
    SegmentedOptions, StoreError, StoredValue,
};

use super::{Cx, StoreCursor};
use crate::process::store::{Keeper, RecordContext, TaskStore};
use crate::process::{DropReason, StoreSlot, TaskError};

/// What a store of windows or sessions knows beside its entries.
#[derive(Debug)]
pub(crate) struct Segments {
    pub(crate) options: SegmentedOptions,
    /// The newest time that was written; −1 before the first. Older entries are hidden when they are
    /// out of its retention. In a cached store, of what has left the cache.
    newest: i64,
    /// The newest time there is, in the cache or not.
    newest_put: i64,
    /// `newest` as it lies beside the store.
    stored_newest: i64,
    /// The number that a value of a window was given last, in a store with duplicates.
    number: u32,
    /// `number` as it lies beside the store.
    stored_number: u32,
    /// Whether what is out of the retention is refused at once, as in the original's stores in memory;
    /// those on disk take it as long as its segment is there. It shows in what is counted only.
    is_exact: bool,
    /// Entries of segments below this one are gone, or `expiry` is at them.
    lowest: i64,
    expiry: Option<OverlayCursor>,
}

/// An entry of a store of windows or sessions, copied out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentedEntry {
    stored_key: Vec<u8>,
    /// The value, without its timestamp.
    pub value: Vec<u8>,
    /// The timestamp, −1 in a store that keeps none.
    pub timestamp: i64,
}

impl SegmentedEntry {
    /// The key as it is logged: without its segment, with its times.
    pub fn key(&self) -> &[u8] {
        self.stored_key.get(SEGMENT_PREFIX..).unwrap_or_default()
    }

    /// The key with its segment in front.
    pub fn stored_key(&self) -> &[u8] {
        &self.stored_key
    }
}

/// So many entries that are out of their retention are removed for each one that is written.
const REMOVED_PER_PUT: usize = 8;

impl Segments {
    /// Of an empty store.
    pub(crate) const fn new(options: SegmentedOptions, persistent: bool) -> Self {
        Self {
            options,
            newest: -1,
            newest_put: -1,
            stored_newest: -1,
            number: 0,
            stored_number: 0,
            is_exact: options.duplicates && !persistent,
            lowest: 0,
            expiry: None,
        }
    }

    /// Goes on behind what the store has: its newest time and the number given last.
    pub(crate) fn with_contents(self, newest: i64, number: u32) -> Self {
        Self {
            newest,
            newest_put: newest,
            stored_newest: newest,
            number,
            stored_number: number,
            ..self
        }
    }

    /// The number given last, if it changed since this was last asked.
    pub(crate) fn take_number(&mut self) -> Option<u32> {
        let changed = self.number != self.stored_number;
        self.stored_number = self.number;
        changed.then_some(self.number)
    }

    /// The newest time that was written; −1 before the first.
    pub(crate) const fn newest(&self) -> i64 {
        self.newest
    }

    /// The next number of a value. Those of one window differ as long as it has less than 2^31 values.
    fn next_number(&mut self) -> u32 {
        self.number = (self.number + 1) & (u32::MAX >> 1);
        self.number
    }

    /// The newest time, if it changed since this was last asked.
    pub(crate) fn take_newest(&mut self) -> Option<i64> {
        let changed = self.newest != self.stored_newest;
        self.stored_newest = self.newest;
        changed.then_some(self.newest)
    }

    /// An entry of this time leaves for the store itself. Answers whether it is too old for it.
    pub(crate) fn note(&mut self, time: i64) -> bool {
        self.newest = self.newest.max(time);
        self.newest_put = self.newest_put.max(time);
        if self.is_exact {
            return time < self.options.visible_from(self.newest);
        }
        self.options.segment(time) < self.options.lowest_segment(self.newest)
    }
}

/// A change that leaves a cache.
pub(super) struct LeavingChange<'k> {
    pub(super) key: &'k [u8],
    /// The value below it, as far as it is visible.
    pub(super) old: Option<&'k [u8]>,
}

/// # Stores of windows and sessions
impl Cx<'_> {
    /// The value of an entry, taken out of the store's layout; `None` also when it is older than the
    /// store's retention. `stored_key` is the key with its segment in front, `time` its time.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_segmented(
        &mut self,
        slot: StoreSlot,
        stored_key: &[u8],
        time: i64,
    ) -> Result<Option<StoredValue<'_>>, TaskError> {
        let store = &self.task.stores[slot.index()];
        if time < store.segments().visible_from() && !store.overlay.is_cached(stored_key) {
            return Ok(None);
        }
        self.get_value(slot, stored_key)
    }

    /// As [`get_segmented`](Self::get_segmented), for one of the index by time: a session is found as
    /// long as its segment is there.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_indexed(
        &mut self,
        slot: StoreSlot,
        stored_key: &[u8],
        time: i64,
    ) -> Result<Option<StoredValue<'_>>, TaskError> {
        let segments = self.task.stores[slot.index()].segments();
        if segments.options.kind == SegmentedKind::Session && segments.is_kept(time) {
            return self.get_value(slot, stored_key);
        }
        self.get_segmented(slot, stored_key, time)
    }

    /// Gives an entry a new value or removes it. What is out of the store's retention is counted
    /// ([`DropReason::Expired`]), and logged all the same, as in Kafka Streams.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_segmented(
        &mut self,
        slot: StoreSlot,
        stored_key: &[u8],
        time: i64,
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        let mut index_key = self.take_buffer();
        let store = &mut self.task.stores[slot.index()];
        let cached = store.cache.is_some();
        let segments = store.segments_mut();
        segments.newest_put = segments.newest_put.max(time);
        let expired = !cached && segments.note(time);
        let options = segments.options;
        if options.by_time && !expired {
            options.push_index_key(&stored_key[SEGMENT_PREFIX..], &mut index_key);
            store.overlay.put_past_cache(&index_key, value.map(|_| &[][..]));
        }
        self.give_buffer(index_key);
        if cached {
            self.write_cached(slot, timestamp, |store, context| {
                write(store, stored_key, value, timestamp, context);
            })?;
        } else {
            if expired {
                self.dropped(self.task.watch.node(), DropReason::Expired);
            } else {
                let store = &mut self.task.stores[slot.index()];
                write(store, stored_key, value, timestamp, &RecordContext::default);
            }
            let key = Some(&stored_key[SEGMENT_PREFIX..]);
            let record = Record { timestamp, key, value, headers: &[] };
            let logged = self.task.stores[slot.index()].log(&mut self.thread.outputs, record);
            logged.map_err(|error| self.log_error(slot, error))?;
        }
        self.remove_expired(slot)
    }

    /// Adds a value to a window of a store with duplicates. `stored_key` ends with room for the value's
    /// number, which is filled in. A value of null adds nothing, but is logged, and takes a number.
    ///
    /// Changes are logged with the headers of the record being processed. What is out of the store's
    /// retention is counted and logged as by [`put_segmented`](Self::put_segmented).
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_duplicate(
        &mut self,
        slot: StoreSlot,
        stored_key: &mut [u8],
        time: i64,
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        let store = &mut self.task.stores[slot.index()];
        let segments = store.segments_mut();
        let number = segments.next_number();
        if let Some(room) = stored_key.last_chunk_mut() {
            *room = number.to_be_bytes();
        }
        let mut expired = false;
        if value.is_some() {
            segments.newest_put = segments.newest_put.max(time);
            expired = segments.note(time);
            if expired {
                self.dropped(self.task.watch.node(), DropReason::Expired);
            } else {
                write(store, stored_key, value, timestamp, &RecordContext::default);
            }
        }
        self.log_with_headers(slot, &stored_key[SEGMENT_PREFIX..], value, timestamp)?;
        if value.is_none() || expired { Ok(()) } else { self.remove_expired(slot) }
    }

    /// The segments, from the first that has entries of `from` or later to the last there is.
    pub fn segments_from(&self, slot: StoreSlot, from: i64) -> std::ops::RangeInclusive<i64> {
        let segments = self.task.stores[slot.index()].segments();
        let options = segments.options;
        let first = from.max(segments.options.visible_from(segments.newest));
        // What waits in a cache can be older than what is visible without it.
        let first = if self.is_cached(slot) { from } else { first };
        options.segment(first.max(0))..=options.segment(segments.newest_put.max(0))
    }

    /// As [`next_entry`](Self::next_entry), without entries that are older than the store's retention.
    /// The entry replaces what `entry` holds; false at the end.
    ///
    /// # Errors
    /// As for [`next_entry`](Self::next_entry).
    pub fn next_segmented(
        &mut self,
        cursor: &mut StoreCursor,
        entry: &mut SegmentedEntry,
    ) -> Result<bool, TaskError> {
        let slot = cursor.store;
        loop {
            let Some((stored_key, stored)) = self.next_value(cursor)? else { return Ok(false) };
            entry.stored_key.clear();
            entry.stored_key.extend_from_slice(stored_key);
            entry.value.clear();
            entry.value.extend_from_slice(stored.value);
            entry.timestamp = stored.timestamp.unwrap_or(-1);
            let store = &self.task.stores[slot.index()];
            let time = store.segments().options.time_of(entry.key());
            let visible = time.is_some_and(|it| it >= store.segments().visible_from());
            if visible || store.overlay.is_cached(&entry.stored_key) {
                return Ok(true);
            }
        }
    }

    /// The index entries of a store with an index by time, in the order of their times.
    pub fn index_by_time(&self, slot: StoreSlot, from: i64, to: i64) -> StoreCursor {
        self.range(slot, SegmentedOptions::index_range(from, to), Direction::Forward)
    }

    /// A change leaves the cache of a store. Answers its key as it is logged; `None` when the change is
    /// nothing: what is deleted is hidden already in a store whose changes somebody listens to.
    pub(super) fn leave_cache<'k>(
        &mut self,
        slot: StoreSlot,
        change: &CachedChange<'k, RecordContext>,
    ) -> Option<LeavingChange<'k>> {
        let store = &mut self.task.stores[slot.index()];
        let listened = store.cache.as_ref().is_some_and(|cache| cache.listener.is_some());
        let Keeper::Segmented(segments) = &mut store.keeper else {
            return Some(LeavingChange { key: change.key, old: change.old });
        };
        let key = change.key.get(SEGMENT_PREFIX..).unwrap_or_default();
        let time = segments.options.time_of(key).unwrap_or(-1);
        let old = change.old.filter(|_| time >= segments.visible_from());
        if listened && change.new.is_none() && old.is_none() {
            return None;
        }
        if segments.note(time) {
            self.dropped(self.task.watch.node(), DropReason::Expired);
        }
        Some(LeavingChange { key, old })
    }

    /// Removes some entries that are out of the retention, so that no single write pays for all.
    fn remove_expired(&mut self, slot: StoreSlot) -> Result<(), TaskError> {
        let store = &mut self.task.stores[slot.index()];
        let removed = store.remove_expired(&mut self.thread.value);
        removed.map_err(|error| self.store_error(slot, error))
    }
}

fn write(
    store: &mut TaskStore,
    key: &[u8],
    value: Option<&[u8]>,
    timestamp: i64,
    context: &dyn Fn() -> RecordContext,
) {
    match value {
        Some(value) if store.segments().options.timestamped => {
            store.overlay.put_timestamped(key, value, timestamp, context);
        }
        value => store.overlay.put(key, value, context),
    }
}

impl Segments {
    /// The earliest time that is visible. In the store of windows that wait to be closed one more is, so
    /// that one without grace period is there when it closes.
    pub(super) fn visible_from(&self) -> i64 {
        let visible = self.options.visible_from(self.newest);
        match self.options.kind {
            SegmentedKind::Window if self.options.by_time => visible.saturating_sub(1),
            _ => visible,
        }
    }

    /// Whether an entry of this time is still there, visible or not.
    fn is_kept(&self, time: i64) -> bool {
        self.options.segment(time) >= self.options.lowest_segment(self.newest)
    }
}

impl TaskStore {
    /// What a store of windows or sessions knows.
    ///
    /// # Panics
    /// When it is of another kind: a bug of whoever built the program.
    pub(super) fn segments(&self) -> &Segments {
        match &self.keeper {
            Keeper::Segmented(segments) => segments,
            _ => unreachable!("{NOT_SEGMENTED}"),
        }
    }

    fn segments_mut(&mut self) -> &mut Segments {
        match &mut self.keeper {
            Keeper::Segmented(segments) => segments,
            _ => unreachable!("{NOT_SEGMENTED}"),
        }
    }

    fn remove_expired(&mut self, scratch: &mut Vec<u8>) -> Result<(), StoreError> {
        let Self { overlay, keeper: Keeper::Segmented(segments), .. } = self else { return Ok(()) };
        let options = segments.options;
        let lowest = options.lowest_segment(segments.newest);
        if segments.expiry.is_none() && lowest > segments.lowest {
            segments.lowest = lowest;
            let range: KeyRange = SegmentedOptions::before_segment(lowest);
            segments.expiry = Some(overlay.range(range, Direction::Forward));
        }
        let Some(cursor) = &mut segments.expiry else { return Ok(()) };
        for _ in 0..REMOVED_PER_PUT {
            scratch.clear();
            let Some((key, _)) = overlay.next(cursor)? else {
                segments.expiry = None;
                return Ok(());
            };
            scratch.extend_from_slice(key);
            if overlay.remove_past_cache(scratch) && options.by_time {
                let mut index_key = Vec::with_capacity(scratch.len());
                options.push_index_key(&scratch[SEGMENT_PREFIX..], &mut index_key);
                overlay.put_past_cache(&index_key, None);
            }
        }
        Ok(())
    }
}

const NOT_SEGMENTED: &str = "nodes of windows use stores of windows";
