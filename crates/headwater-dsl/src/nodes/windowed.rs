//! What the windowed aggregations have in common: the store of a windowed table.

use std::fmt;
use std::sync::Arc;

use headwater_runtime::{
    CachedUpdate, Cx, EmitKind, FetchedEntries, FlushListener, Headers, NodeIndex, OperatorSlot,
    StoreCursor, StoreSlot, TaskError,
};
use headwater_store::serde::{Payload, Window, Windowed};
use headwater_store::{Direction, SEGMENT_PREFIX, SegmentedKind, SegmentedOptions};

use super::{StepError, let_go, settle};
use crate::edge::TablesBelow;
use crate::error::DslError;
use crate::params::EmitStrategy;
use crate::record::Change;
use crate::serdes::Codec;
use crate::wiring::Wiring;

/// The store that a windowed table is kept in, by name, and what its node is told.
pub(crate) struct KeptWindows<K, A> {
    pub(crate) store: String,
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<A>>,
    pub(crate) options: SegmentedOptions,
    /// Size of the windows; of no meaning for sessions.
    pub(crate) size_ms: i64,
    pub(crate) emit: EmitStrategy,
}

/// What a windowed aggregation does with a record.
pub(crate) struct WindowAggregation<I, C> {
    /// The aggregate of a window before its first record.
    pub(crate) initial: I,
    /// The new aggregate from key, value and aggregate so far.
    pub(crate) compute: C,
}

/// A store of windows or sessions and the table nodes that get its updates.
pub(super) struct WindowTable<K, A> {
    pub(super) index: NodeIndex,
    pub(super) times: OperatorSlot,
    slot: StoreSlot,
    options: SegmentedOptions,
    /// Whether values are kept with headers.
    keeps_headers: bool,
    size_ms: i64,
    emit: EmitStrategy,
    key: Codec<K>,
    value: Codec<A>,
    pub(super) sends_old: bool,
    below: TablesBelow<Windowed<K>, A>,
}

/// An aggregate found in the store, as bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundWindow<'f> {
    pub(super) window: Window,
    pub(super) timestamp: i64,
    value: &'f [u8],
}

/// A serialized key with room for its segment in front and its times behind. Values are serialized
/// after them.
pub(super) struct WindowKey<'b> {
    buffer: &'b mut Vec<u8>,
    key_end: usize,
    end: usize,
}

impl<K: 'static, A: 'static> KeptWindows<K, A> {
    /// The table at run time.
    pub(super) fn wire(&self, wiring: &mut Wiring<'_>) -> Result<Arc<WindowTable<K, A>>, DslError> {
        let slot = wiring.store(&self.store).expect("an aggregation brings its store along");
        let on_close = self.emit == EmitStrategy::OnWindowClose;
        let table = Arc::new(WindowTable {
            index: wiring.index(),
            times: wiring.add_operator(on_close.then(|| self.store.clone())),
            slot,
            options: self.options,
            keeps_headers: wiring.is_with_headers(&self.store),
            size_ms: self.size_ms,
            emit: self.emit,
            key: wiring.key_serde(self.key.as_ref())?,
            value: wiring.value_serde(self.value.as_ref())?,
            sends_old: wiring.sends_old_values(),
            below: wiring.tables_below()?,
        });
        if !on_close {
            let listener: Arc<dyn FlushListener> = Arc::<WindowTable<K, A>>::clone(&table);
            wiring.listen(slot, listener);
        }
        Ok(table)
    }
}

impl WindowKey<'_> {
    fn set(&mut self, options: &SegmentedOptions, window: Window) {
        let segment = options.segment(options.kind.time(window));
        self.buffer[..SEGMENT_PREFIX].copy_from_slice(&segment.to_be_bytes());
        self.buffer.truncate(self.key_end);
        options.kind.push_times(window, self.buffer);
    }

    fn bare(&self) -> &[u8] {
        &self.buffer[SEGMENT_PREFIX..self.key_end]
    }
}

impl<K: 'static, A: 'static> WindowTable<K, A> {
    /// A key on its way to the store; `buffer` is empty.
    pub(super) fn key<'b>(
        &self,
        key: &K,
        buffer: &'b mut Vec<u8>,
    ) -> Result<WindowKey<'b>, StepError> {
        buffer.extend_from_slice(&[0; SEGMENT_PREFIX]);
        self.key.serialize(key, buffer)?;
        let key_end = buffer.len();
        buffer.extend_from_slice(match self.options.kind {
            SegmentedKind::Window => &[0; headwater_store::WINDOW_SUFFIX],
            SegmentedKind::Session => &[0; headwater_store::SESSION_SUFFIX],
        });
        let end = buffer.len();
        Ok(WindowKey { buffer, key_end, end })
    }

    /// The key as one of the result, for whatever window; `None` when nobody takes updates one by one.
    pub(super) fn windowed(
        &self,
        cx: &Cx<'_>,
        key: &WindowKey<'_>,
    ) -> Result<Option<Windowed<K>>, StepError> {
        let silent = self.emit == EmitStrategy::OnWindowClose
            || self.below.is_empty()
            || cx.is_cached(self.slot);
        if silent {
            return Ok(None);
        }
        let key = self.key.deserialize(cx.key_payload(key.bare()))?;
        Ok(Some(Windowed { key, window: Window { start: 0, end: 0 } }))
    }

    /// The window that begins at this time.
    pub(super) const fn window(&self, start: i64) -> Window {
        Window { start, end: start.saturating_add(self.size_ms) }
    }

    /// The aggregate of a window, with its time.
    pub(super) fn get(
        &self,
        cx: &mut Cx<'_>,
        key: &mut WindowKey<'_>,
        window: Window,
    ) -> Result<Option<(A, i64)>, StepError> {
        key.set(&self.options, window);
        let found =
            cx.get_segmented(self.slot, &key.buffer[..key.end], self.options.kind.time(window))?;
        let Some(stored) = found else { return Ok(None) };
        let value = self.value.deserialize(Payload::new(stored.value))?;
        Ok(Some((value, stored.timestamp.unwrap_or(-1))))
    }

    /// Keeps a new aggregate of a window, or removes it.
    pub(super) fn put(
        &self,
        cx: &mut Cx<'_>,
        key: &mut WindowKey<'_>,
        window: Window,
        new: Option<&A>,
        timestamp: i64,
    ) -> Result<(), StepError> {
        key.set(&self.options, window);
        let value = self.value_bytes(new, key)?;
        let (stored_key, value_bytes) = key.buffer.split_at(key.end);
        let value = value.then_some(value_bytes);
        cx.put_segmented(self.slot, stored_key, self.options.kind.time(window), value, timestamp)?;
        Ok(())
    }

    fn value_bytes(&self, new: Option<&A>, key: &mut WindowKey<'_>) -> Result<bool, StepError> {
        let Some(new) = new else { return Ok(false) };
        self.value.serialize(new, key.buffer)?;
        Ok(true)
    }

    /// Hands an update on, unless the cache does so later.
    pub(super) fn forward(
        &self,
        cx: &mut Cx<'_>,
        key: Option<&mut Windowed<K>>,
        window: Window,
        (new, old): (Option<&A>, Option<&A>),
        timestamp: i64,
    ) -> Result<(), StepError> {
        let Some(key) = key else { return Ok(()) };
        key.window = window;
        let old = old.filter(|_| self.sends_old);
        self.below.forward(cx, key, Change::new(new, old), timestamp)?;
        cx.enter(self.index);
        Ok(())
    }

    /// The windows of a key that begin from `from` to `to`, the sessions that end at `from` or later and begin at
    /// `to` or earlier, in the order of `direction`. They are to be given back.
    pub(super) fn find(
        &self,
        cx: &mut Cx<'_>,
        key: &WindowKey<'_>,
        (from, to): (i64, i64),
        direction: Direction,
    ) -> Result<FetchedEntries, TaskError> {
        cx.fetch_all(self.slot, key.bare(), (from, to.max(0)), direction)
    }

    /// What was found.
    pub(super) fn windows<'f>(
        &self,
        found: &'f FetchedEntries,
    ) -> impl Iterator<Item = FoundWindow<'f>> {
        found.iter().filter_map(|entry| {
            let (_, window) = self.read_key(entry.key)?;
            Some(FoundWindow { window, timestamp: entry.timestamp, value: entry.value })
        })
    }

    fn read_key<'k>(&self, key: &'k [u8]) -> Option<(&'k [u8], Window)> {
        self.options.kind.read_key(key, self.size_ms)
    }

    /// The aggregate that was found.
    pub(super) fn aggregate(&self, found: FoundWindow<'_>) -> Result<A, StepError> {
        Ok(self.value.deserialize(Payload::new(found.value))?)
    }

    /// Sends on what has been closed since the last time, when that is due. `spans` is told up to when windows were
    /// closed the last time, −1 before the first, and answers the first and last time of those to be sent.
    pub(super) fn emit(
        &self,
        cx: &mut Cx<'_>,
        close_time: i64,
        spans: impl FnOnce(i64) -> Option<(i64, i64)>,
    ) -> Result<(), StepError> {
        if self.emit != EmitStrategy::OnWindowClose || !cx.may_emit(self.times) {
            return Ok(());
        }
        let emitted = cx.times(self.times).emitted;
        if emitted >= 0 && emitted >= close_time {
            return Ok(());
        }
        let Some(span) = spans(emitted) else { return Ok(()) };
        self.emit_closed(cx, span)?;
        cx.times(self.times).emitted = close_time;
        Ok(())
    }

    /// Sends the results of windows on whose times are from `from` to `to`, by time (feature row D31).
    fn emit_closed(&self, cx: &mut Cx<'_>, (from, to): (i64, i64)) -> Result<(), StepError> {
        let mut cursor = cx.index_by_time(self.slot, from, to);
        let (mut key, mut stored_key) = (cx.take_buffer(), cx.take_buffer());
        let result = loop {
            key.clear();
            stored_key.clear();
            match self.emit_next(cx, &mut cursor, &mut key, &mut stored_key) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        cx.give_buffer(stored_key);
        cx.give_buffer(key);
        result
    }

    fn emit_next(
        &self,
        cx: &mut Cx<'_>,
        cursor: &mut StoreCursor,
        key: &mut Vec<u8>,
        stored_key: &mut Vec<u8>,
    ) -> Result<bool, StepError> {
        let Some((index_key, _)) = cx.next_entry(cursor)? else { return Ok(false) };
        self.options.push_indexed_key(index_key, key);
        let_go(cx, self.index, |cx| self.emit_window(cx, key, stored_key))?;
        Ok(true)
    }

    /// Sends the result of a window on, by its key.
    fn emit_window(
        &self,
        cx: &mut Cx<'_>,
        key: &[u8],
        stored_key: &mut Vec<u8>,
    ) -> Result<(), StepError> {
        let Some((bare, window)) = self.read_key(key) else { return Ok(()) };
        let time = self.options.kind.time(window);
        self.options.push_stored_key(time, key, stored_key);
        let Some(stored) = cx.get_indexed(self.slot, stored_key, time)? else { return Ok(()) };
        let value = self.value.deserialize(Payload::new(stored.value))?;
        let timestamp = stored.timestamp.unwrap_or(window.end);
        let key = Windowed { key: self.key.deserialize(Payload::new(bare))?, window };
        let change = Change::new(Some(&value), None);
        cx.count_emitted(self.index, EmitKind::FinalWindow);
        Ok(self.below.forward(cx, &key, change, timestamp)?)
    }

    fn forward_cached(&self, cx: &mut Cx<'_>, update: CachedUpdate<'_>) -> Result<(), StepError> {
        let read = |bytes: Option<&[u8]>| {
            bytes.map(|bytes| self.value.deserialize(Payload::new(bytes))).transpose()
        };
        let Some((bare, window)) = self.read_key(update.key) else { return Ok(()) };
        let key = Windowed { key: self.key.deserialize(Payload::new(bare))?, window };
        let new = read(update.new)?;
        let old = if self.sends_old { read(update.old)? } else { None };
        let timestamp = match self.options.kind {
            SegmentedKind::Window => update.timestamp,
            SegmentedKind::Session => window.end,
        };
        let change = Change::new(new.as_ref(), old.as_ref());
        Ok(self.below.forward(cx, &key, change, timestamp)?)
    }
}

impl<K: 'static, A: 'static> FlushListener for WindowTable<K, A> {
    fn forward(&self, cx: &mut Cx<'_>, update: CachedUpdate<'_>) -> Result<(), TaskError> {
        cx.enter(self.index);
        if self.keeps_headers && self.options.kind == SegmentedKind::Session {
            // As in the original a result has the headers that were stored with it, and nothing is computed with any.
            *cx.headers_mut() = Headers::new();
        }
        let result = self.forward_cached(cx, update);
        settle(cx, self.index, result)
    }
}

impl<K, A> fmt::Debug for WindowTable<K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowTable").field("slot", &self.slot).finish_non_exhaustive()
    }
}
