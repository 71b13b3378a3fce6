//! Updates of a table that are held back for a time, until their window is closed, or until there are too many
//! (feature rows D50, D51).
//!
//! What is held back lies in the store, under its key and in the form of the original's changelog
//! ([`BufferedValue`]). What the task knows of it beside the store are the keys in order of time.

use std::sync::Arc;

use headwater_runtime::{Cx, EmitKind, NodeIndex, ProcessorSlot, StoreSlot, TaskError, UserError};
use headwater_store::serde::Payload;
use headwater_store::{BufferedValue, BufferedValueWithHeaders};

use super::{StepError, let_go, settle};
use crate::edge::{Edge, TableNode, TablesBelow};
use crate::record::Change;
use crate::serdes::Codec;
use crate::wiring::WireInner;

mod state;
mod view;

use state::{NewState, State};

pub(crate) use view::suppress_view;

/// What a suppression does.
pub(crate) struct Suppression<K, V> {
    pub(crate) store: String,
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
    /// How much later than its buffer time stream time is when an update is sent on.
    pub(crate) wait_ms: i64,
    /// The buffer time of an update's key: the end of its window. `None`: it is the update's own time.
    pub(crate) end_of: Option<fn(&K) -> i64>,
    pub(crate) max_records: u64,
    pub(crate) max_bytes: u64,
    /// Whether updates are sent on early when there are too many; else the record fails.
    pub(crate) emits_early: bool,
}

/// The making of a node that holds updates back.
pub(crate) fn suppress<K: 'static, V: 'static>(suppression: Suppression<K, V>) -> WireInner {
    let suppression = Arc::new(suppression);
    Arc::new(move |wiring| {
        let slot = wiring.store(&suppression.store).expect(OWN_STORE);
        let keeps_headers = wiring.is_with_headers(&suppression.store);
        Ok(Edge::to_table(Suppress {
            index: wiring.index(),
            slot,
            keeps_headers,
            state: wiring.add_processor(Arc::new(NewState { slot, keeps_headers })),
            key: wiring.key_serde(suppression.key.as_ref())?,
            value: wiring.value_serde(suppression.value.as_ref())?,
            suppression: Arc::clone(&suppression),
            below: wiring.tables_below::<K, V>()?,
        }))
    })
}

const OWN_STORE: &str = "a suppression brings its store along";

struct Suppress<K, V> {
    index: NodeIndex,
    slot: StoreSlot,
    /// Whether values are buffered with their headers (`dsl.store.format`).
    keeps_headers: bool,
    state: ProcessorSlot,
    key: Codec<K>,
    value: Codec<V>,
    suppression: Arc<Suppression<K, V>>,
    below: TablesBelow<K, V>,
}

/// Bytes of an update on its way into the buffer or out of it.
struct Buffers {
    key: Vec<u8>,
    value: Vec<u8>,
    scratch: Vec<u8>,
}

impl Buffers {
    fn take(cx: &mut Cx<'_>) -> Self {
        Self { key: cx.take_buffer(), value: cx.take_buffer(), scratch: cx.take_buffer() }
    }

    fn give(self, cx: &mut Cx<'_>) {
        cx.give_buffer(self.scratch);
        cx.give_buffer(self.value);
        cx.give_buffer(self.key);
    }
}

impl<K: 'static, V: 'static> TableNode<K, V> for Suppress<K, V> {
    fn update(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        let mut buffers = Buffers::take(cx);
        let result = self
            .put(cx, key, change, timestamp, &mut buffers)
            .and_then(|()| self.send_on(cx, timestamp, &mut buffers));
        buffers.give(cx);
        settle(cx, self.index, result)
    }
}

impl<K: 'static, V: 'static> Suppress<K, V> {
    /// Puts an update into the buffer. One that waits for the same key is replaced and keeps its place.
    fn put(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V>,
        timestamp: i64,
        buffers: &mut Buffers,
    ) -> Result<(), StepError> {
        let Buffers { key: key_bytes, value, scratch } = buffers;
        let mut old_bytes = cx.take_buffer();
        let written = self.write(change, scratch, &mut old_bytes);
        let result = written.and_then(|(new, old)| {
            self.key.serialize(key, key_bytes)?;
            let new = new.then_some(scratch.as_slice());
            let old = old.then_some(old_bytes.as_slice());
            cx.write_context(timestamp, value);
            let mut waiting = None;
            let buffer_time = self.suppression.end_of.map_or(timestamp, |end_of| end_of(key));
            if let Some(before) = cx.get(self.slot, key_bytes)? {
                let with_headers =
                    BufferedValueWithHeaders::read(before).map_err(UserError::from)?;
                waiting = Some(size_of(&with_headers, self.keeps_headers));
                let BufferedValue { prior, buffer_time, .. } = with_headers.value;
                BufferedValue::write_values(prior, old, new, buffer_time, value);
                if self.keeps_headers {
                    with_headers.push_behind(value);
                }
            } else {
                BufferedValue::write_values(old, old, new, buffer_time, value);
            }
            let written = BufferedValueWithHeaders::read(value).map_err(UserError::from)?;
            let size = size_of(&written, self.keeps_headers);
            cx.put_unlogged(self.slot, key_bytes, Some(value));
            cx.with_processor::<State>(self.state, |state, _| {
                match waiting {
                    Some(before) => state.replaced(key_bytes, before, size),
                    None => state.added(buffer_time, key_bytes, size),
                }
                Ok(())
            })?;
            Ok(())
        });
        cx.give_buffer(old_bytes);
        result
    }

    /// Serializes the values of a change; answers which of them there are.
    fn write(
        &self,
        change: Change<'_, V>,
        new: &mut Vec<u8>,
        old: &mut Vec<u8>,
    ) -> Result<(bool, bool), StepError> {
        if let Some(value) = change.new {
            self.value.serialize(value, new)?;
        }
        if let Some(value) = change.old {
            self.value.serialize(value, old)?;
        }
        Ok((change.new.is_some(), change.old.is_some()))
    }

    /// Sends on what has waited long enough, and what there is too much of.
    fn send_on(
        &self,
        cx: &mut Cx<'_>,
        timestamp: i64,
        buffers: &mut Buffers,
    ) -> Result<(), StepError> {
        let Suppression { wait_ms, max_records, max_bytes, emits_early, .. } = *self.suppression;
        let mut due = i64::MIN;
        cx.with_processor::<State>(self.state, |state, _| {
            due = state.observe(timestamp).saturating_sub(wait_ms);
            Ok(())
        })?;
        loop {
            let mut found = Next::Nothing;
            cx.with_processor::<State>(self.state, |state, _| {
                found = match state.first() {
                    Some((time, key)) => {
                        buffers.key.clear();
                        buffers.key.extend_from_slice(key);
                        if time <= due { Next::Due(time) } else { Next::Waiting(time) }
                    }
                    None => Next::Nothing,
                };
                if let Next::Waiting(time) = found
                    && state.is_over(max_records, max_bytes)
                {
                    let (records, bytes) = (state.records(), state.bytes());
                    let full = Full { records, max_records, bytes, max_bytes };
                    found = if emits_early { Next::Due(time) } else { Next::Full(full) };
                }
                Ok(())
            })?;
            match found {
                Next::Nothing | Next::Waiting(_) => return Ok(()),
                Next::Full(full) => return Err(UserError::from(full).into()),
                Next::Due(time) => self.emit(cx, time, buffers)?,
            }
        }
    }

    /// Sends the update of the key in `buffers` on, and takes it out of the buffer. A deletion says nothing to
    /// those who see the last result only.
    fn emit(&self, cx: &mut Cx<'_>, time: i64, buffers: &mut Buffers) -> Result<(), StepError> {
        let Buffers { key, value, .. } = buffers;
        value.clear();
        value.extend_from_slice(cx.get(self.slot, key)?.unwrap_or_default());
        let buffered = BufferedValueWithHeaders::read(value).map_err(UserError::from)?;
        if buffered.value.new.is_some() || self.suppression.end_of.is_none() {
            cx.count_emitted(self.index, EmitKind::Suppression);
            let forward = |cx: &mut Cx<'_>| self.forward(cx, key, &buffered.value);
            cx.in_context(&buffered.value.context, |cx| let_go(cx, self.index, forward))?;
        }
        let size = size_of(&buffered, self.keeps_headers);
        cx.put_unlogged(self.slot, key, None);
        Ok(cx.with_processor::<State>(self.state, |state, _| {
            state.removed(time, key, size);
            Ok(())
        })?)
    }

    fn forward(
        &self,
        cx: &mut Cx<'_>,
        key: &[u8],
        buffered: &BufferedValue<'_>,
    ) -> Result<(), StepError> {
        let read = |bytes: Option<&[u8]>| {
            bytes.map(|bytes| self.value.deserialize(Payload::new(bytes))).transpose()
        };
        let (new, old) = (read(buffered.new)?, read(buffered.old)?);
        let key = self.key.deserialize(Payload::new(key))?;
        let change = Change::new(new.as_ref(), old.as_ref());
        Ok(self.below.forward(cx, &key, change, buffered.context.timestamp)?)
    }
}

/// How many bytes an update counts for, without its key.
fn size_of(buffered: &BufferedValueWithHeaders<'_>, keeps_headers: bool) -> usize {
    if keeps_headers { buffered.resident_bytes() } else { buffered.value.resident_bytes() }
}

/// What is first in the buffer.
enum Next {
    Nothing,
    Waiting(i64),
    Due(i64),
    Full(Full),
}

/// A buffer that holds more than it may, and must not emit anything early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the suppress buffer is full: {records} of at most {max_records} records, {bytes} of at most {max_bytes} bytes; give it more room, or let it emit early"
)]
struct Full {
    records: u64,
    max_records: u64,
    bytes: u64,
    max_bytes: u64,
}
