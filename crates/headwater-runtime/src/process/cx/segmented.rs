//! Stores of windows and sessions: entries by time, of which old ones are hidden and then removed.

use std::ops::RangeInclusive;

use headwater_records::Record;
use headwater_store::{
    CachedChange, Direction, KeyValueRef, Overlay, OverlayCursor, SEGMENT_PREFIX, SegmentedEntry,
    SegmentedKind, SegmentedOptions, SegmentedQuery, SegmentedRead, SegmentedScan, StoreError,
    StoredValue,
};

use smallvec::SmallVec;

use super::{Cx, StoreCursor, borrow_headers};
use crate::process::store::{Keeper, RecordContext, TaskStore};
use crate::process::{DropReason, Headers, StoreSlot, TaskError};

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
    /// Segments before this one are gone.
    lowest: i64,
}

/// A place in the entries that a query of a store of windows or sessions finds, see [`Cx::find_segmented`].
#[derive(Debug)]
pub struct SegmentedCursor {
    store: StoreSlot,
    scan: SegmentedScan,
}

impl SegmentedCursor {
    /// One that finds nothing.
    pub(super) fn idle() -> Self {
        Self { store: StoreSlot(0), scan: SegmentedScan::idle() }
    }
}

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
        let SegmentedOptions { kind, in_memory, .. } = segments.options;
        if kind == SegmentedKind::Session && !in_memory && segments.is_kept(time) {
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
        self.put_entry(slot, (stored_key, time), (value, None), timestamp)
    }

    /// As [`put_segmented`](Self::put_segmented), with headers that a store with headers keeps beside the value.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_segmented_with_headers(
        &mut self,
        slot: StoreSlot,
        stored_key: &[u8],
        time: i64,
        (value, headers): (&[u8], &Headers),
        timestamp: i64,
    ) -> Result<(), TaskError> {
        self.put_entry(slot, (stored_key, time), (Some(value), Some(headers)), timestamp)
    }

    fn put_entry(
        &mut self,
        slot: StoreSlot,
        (stored_key, time): (&[u8], i64),
        (value, own_headers): (Option<&[u8]>, Option<&Headers>),
        timestamp: i64,
    ) -> Result<(), TaskError> {
        let mut index_key = self.take_buffer();
        let store = &mut self.task.stores[slot.index()];
        store.counts.wrote(value.is_some());
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
        let entry = (stored_key, value, own_headers);
        if cached {
            self.write_cached(slot, timestamp, |store, context| {
                write(store, entry, timestamp, context);
            })?;
        } else {
            if expired {
                self.dropped(self.task.watch.node(), DropReason::Expired);
            } else {
                let store = &mut self.task.stores[slot.index()];
                write(store, entry, timestamp, &RecordContext::default);
            }
            let key = Some(&stored_key[SEGMENT_PREFIX..]);
            // What operators compute has no headers; a deletion has those of the record that deletes.
            let headers = match own_headers {
                Some(headers) => borrow_headers(headers),
                None if options.with_headers && value.is_none() => {
                    borrow_headers(&self.task.headers)
                }
                None => SmallVec::new(),
            };
            let record = Record { timestamp, key, value, headers: &headers };
            let logged = self.task.stores[slot.index()].log(&mut self.thread.outputs, record);
            logged.map_err(|error| self.log_error(slot, error))?;
        }
        self.drop_segments(slot);
        Ok(())
    }

    /// Adds a value to a window of a store with duplicates. `stored_key` ends with room for the value's
    /// number, which is filled in. A value of null adds nothing, but is logged, and takes a number.
    ///
    /// What is out of the store's retention is counted and logged as by [`put_segmented`](Self::put_segmented).
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
        self.keep_duplicate(slot, stored_key, time, value, timestamp);
        let key = Some(&stored_key[SEGMENT_PREFIX..]);
        let record = Record { timestamp, key, value, headers: &[] };
        let logged = self.task.stores[slot.index()].log(&mut self.thread.outputs, record);
        logged.map_err(|error| self.log_error(slot, error))?;
        self.drop_segments(slot);
        Ok(())
    }

    /// As [`put_duplicate`](Self::put_duplicate), logged with the headers of the record being processed, as the records
    /// of a join of streams are.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_duplicate_with_headers(
        &mut self,
        slot: StoreSlot,
        stored_key: &mut [u8],
        time: i64,
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        self.keep_duplicate(slot, stored_key, time, value, timestamp);
        self.log_with_headers(slot, &stored_key[SEGMENT_PREFIX..], value, timestamp)?;
        self.drop_segments(slot);
        Ok(())
    }

    fn keep_duplicate(
        &mut self,
        slot: StoreSlot,
        stored_key: &mut [u8],
        time: i64,
        value: Option<&[u8]>,
        timestamp: i64,
    ) {
        let store = &mut self.task.stores[slot.index()];
        store.counts.wrote(value.is_some());
        let segments = store.segments_mut();
        let number = segments.next_number();
        if let Some(room) = stored_key.last_chunk_mut() {
            *room = number.to_be_bytes();
        }
        // In the original, stores in memory look at the time before they look at the value, and those on disk after.
        if value.is_none() && !segments.is_exact {
            return;
        }
        if segments.note(time) {
            self.dropped(self.task.watch.node(), DropReason::Expired);
        } else if value.is_some() {
            write(store, (stored_key, value, None), timestamp, &RecordContext::default);
        }
    }

    /// How a store of windows or sessions is kept.
    ///
    /// # Panics
    /// When it is of another kind: a bug of whoever built the program.
    pub fn segmented_options(&self, slot: StoreSlot) -> SegmentedOptions {
        self.task.stores[slot.index()].segments().options
    }

    /// Starts to look for entries, ascending or descending; what is written meanwhile may or may not be found.
    /// What is older than the store's retention is not found.
    pub fn find_segmented(
        &self,
        slot: StoreSlot,
        query: SegmentedQuery,
        direction: Direction,
    ) -> SegmentedCursor {
        let (options, all) = self.segments_with_entries(slot);
        let scan = SegmentedScan::new(options, query, direction, all);
        SegmentedCursor { store: slot, scan }
    }

    /// As [`find_segmented`](Self::find_segmented), for one key and with a cursor that is there.
    pub(super) fn restart_segmented(
        &self,
        cursor: &mut SegmentedCursor,
        slot: StoreSlot,
        wanted: (&[u8], i64, i64),
        direction: Direction,
    ) {
        let (options, all) = self.segments_with_entries(slot);
        cursor.store = slot;
        cursor.scan.restart(options, wanted, direction, all);
    }

    /// The segments in which something can be visible.
    fn segments_with_entries(&self, slot: StoreSlot) -> (SegmentedOptions, RangeInclusive<i64>) {
        let store = &self.task.stores[slot.index()];
        store.count_range();
        let segments = store.segments();
        let options = segments.options;
        // What waits in a cache can be older than what is visible without it.
        let first = if store.cache.is_some() { 0 } else { segments.visible_from().max(0) };
        (options, options.segment(first)..=options.segment(segments.newest_put))
    }

    /// Puts the next entry into `entry`, replacing what it holds; false at the end.
    ///
    /// # Errors
    /// As for [`next_entry`](Self::next_entry).
    pub fn next_segmented(
        &mut self,
        cursor: &mut SegmentedCursor,
        entry: &mut SegmentedEntry,
    ) -> Result<bool, TaskError> {
        let slot = cursor.store;
        let TaskStore { overlay, keeper, .. } = &mut self.task.stores[slot.index()];
        let Keeper::Segmented(segments) = keeper else { unreachable!("{NOT_SEGMENTED}") };
        let mut read = Visible { overlay, from: segments.visible_from() };
        let found = cursor.scan.next(&mut read, entry);
        found.map_err(|error| self.store_error(slot, error))
    }

    /// The index entries of a store with an index by time, in the order of their times.
    pub fn index_by_time(&self, slot: StoreSlot, from: i64, to: i64) -> StoreCursor {
        let options = self.task.stores[slot.index()].segments().options;
        self.range(slot, options.index_range(from, to), Direction::Forward)
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

    /// Drops the segments that are out of the retention.
    fn drop_segments(&mut self, slot: StoreSlot) {
        let TaskStore { overlay, keeper, .. } = &mut self.task.stores[slot.index()];
        let Keeper::Segmented(segments) = keeper else { return };
        let lowest = segments.options.lowest_segment(segments.newest);
        if lowest > segments.lowest {
            segments.lowest = lowest;
            overlay.drop_segments_before(lowest.cast_unsigned());
        }
    }
}

/// A store without what is older than its retention; what waits in its cache is there, however old it is.
struct Visible<'s> {
    overlay: &'s mut Overlay<RecordContext>,
    from: i64,
}

impl SegmentedRead for Visible<'_> {
    fn next<'a>(
        &'a mut self,
        cursor: &'a mut OverlayCursor,
    ) -> Result<Option<KeyValueRef<'a>>, StoreError> {
        self.overlay.next(cursor)
    }

    fn is_visible(&self, stored_key: &[u8], time: i64) -> bool {
        time >= self.from || self.overlay.is_cached(stored_key)
    }
}

/// A key, its value, and headers that somebody has given it.
type Entry<'e> = (&'e [u8], Option<&'e [u8]>, Option<&'e Headers>);

fn write(
    store: &mut TaskStore,
    (key, value, own_headers): Entry<'_>,
    timestamp: i64,
    context: &dyn Fn() -> RecordContext,
) {
    let SegmentedOptions { timestamped, with_headers, .. } = store.segments().options;
    match value {
        Some(value) if with_headers => {
            let value = (value, timestamped.then_some(timestamp));
            store.put_with_headers(key, value, own_headers, context);
        }
        Some(value) if timestamped => {
            store.overlay.put_timestamped(key, value, timestamp, context);
        }
        value => store.overlay.put(key, value, context),
    }
}

impl Segments {
    /// The earliest time that is visible.
    pub(super) const fn visible_from(&self) -> i64 {
        self.options.shown_from(self.newest)
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

    /// Whether an entry of this stored key is there for whoever reads the store: it is not one of the index of a store
    /// of windows or sessions, and not older than its retention.
    pub(crate) fn is_visible(&self, stored_key: &[u8]) -> bool {
        let Keeper::Segmented(segments) = &self.keeper else { return true };
        let key = stored_key.get(SEGMENT_PREFIX..).unwrap_or_default();
        let in_segment = SegmentedOptions::before_segment(i64::MAX).contains(stored_key);
        let time = segments.options.time_of(key).filter(|_| in_segment);
        time.is_some_and(|time| {
            time >= segments.visible_from() || self.overlay.is_cached(stored_key)
        })
    }

    fn segments_mut(&mut self) -> &mut Segments {
        match &mut self.keeper {
            Keeper::Segmented(segments) => segments,
            _ => unreachable!("{NOT_SEGMENTED}"),
        }
    }
}

const NOT_SEGMENTED: &str = "nodes of windows use stores of windows";
