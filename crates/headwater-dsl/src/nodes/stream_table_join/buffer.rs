//! Records that wait for their grace period to pass, in order of time (feature row D38).
//!
//! A key in the store is 0, the record's time, its key, and a number that tells records of one time and key
//! apart: 1, 8, n and 4 bytes (feature row P11). A value is the record's with its context
//! ([`BufferedValue`]).

use std::ops::Bound;
use std::sync::Arc;

use headwater_runtime::{
    Cx, NodeIndex, ProcessorSlot, ProcessorSupplier, StoreCursor, StoreSlot, TaskError,
    TaskProcessor, UserError,
};
use headwater_store::serde::Payload;
use headwater_store::{BufferedValue, Direction, KeyRange};

use super::Grace;
use crate::error::DslError;
use crate::nodes::{StepError, let_go, settle};
use crate::serdes::Codec;
use crate::wiring::Wiring;

const TIME_FIRST: u8 = 0;
/// The 0 and the time.
const TIME_BYTES: usize = 9;
const NUMBER_BYTES: usize = 4;

pub(super) struct Buffer<K, V> {
    slot: StoreSlot,
    state: ProcessorSlot,
    grace_ms: i64,
    key: Codec<K>,
    value: Codec<V>,
}

/// A record whose time has come: its key and value in the store.
pub(super) struct Due {
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Due {
    pub(super) fn take(cx: &mut Cx<'_>) -> Self {
        Self { key: cx.take_buffer(), value: cx.take_buffer() }
    }

    /// Reads the next record that is due; false at the end.
    pub(super) fn read_next(
        &mut self,
        cx: &mut Cx<'_>,
        cursor: &mut StoreCursor,
    ) -> Result<bool, StepError> {
        let Some((key, value)) = cx.next_entry(cursor)? else { return Ok(false) };
        self.key.clear();
        self.key.extend_from_slice(key);
        self.value.clear();
        self.value.extend_from_slice(value);
        Ok(true)
    }

    pub(super) fn give(self, cx: &mut Cx<'_>) {
        cx.give_buffer(self.value);
        cx.give_buffer(self.key);
    }
}

impl<K: 'static, V: 'static> Buffer<K, V> {
    pub(super) fn wire(grace: &Grace<K, V>, wiring: &mut Wiring<'_>) -> Result<Self, DslError> {
        let slot = wiring.store(&grace.store).expect("a join with grace brings its buffer along");
        Ok(Self {
            slot,
            state: wiring.add_processor(Arc::new(NewState { slot })),
            grace_ms: grace.grace_ms,
            key: wiring.key_serde(grace.key.as_ref())?,
            value: wiring.value_serde(grace.value.as_ref())?,
        })
    }

    /// Puts a record into the buffer. Answers false if it is too late for that.
    pub(super) fn put(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        value: &V,
        timestamp: i64,
    ) -> Result<bool, StepError> {
        let mut number = None;
        cx.with_processor::<State>(self.state, |state, _| {
            number = state.number(timestamp, self.grace_ms);
            Ok(())
        })?;
        let Some(number) = number else { return Ok(false) };
        let mut due = Due::take(cx);
        let written = self.write(cx, (key, value), (timestamp, number), &mut due);
        let written = written.and_then(|()| {
            let now = cx.wall_clock_ms();
            Ok(cx.put(self.slot, &due.key, Some(&due.value), now)?)
        });
        due.give(cx);
        written.map(|()| true)
    }

    fn write(
        &self,
        cx: &mut Cx<'_>,
        (key, value): (&K, &V),
        (timestamp, number): (i64, u32),
        out: &mut Due,
    ) -> Result<(), StepError> {
        let mut bytes = cx.take_buffer();
        out.key.push(TIME_FIRST);
        out.key.extend_from_slice(&timestamp.to_be_bytes());
        let written = self.key.write(Some(key), &mut bytes).map(|written| {
            out.key.extend_from_slice(written.or_in(&bytes).unwrap_or_default());
            out.key.extend_from_slice(&number.to_be_bytes());
        });
        bytes.clear();
        cx.write_context(timestamp, &mut out.value);
        let written = written.and_then(|()| {
            let value = self.value.write(Some(value), &mut bytes)?.or_in(&bytes);
            BufferedValue::write_values(None, None, value, 0, &mut out.value);
            Ok(())
        });
        cx.give_buffer(bytes);
        Ok(written?)
    }

    /// Starts reading the records whose grace period has passed.
    pub(super) fn due(&self, cx: &mut Cx<'_>) -> Result<StoreCursor, StepError> {
        let mut until = 0;
        cx.with_processor::<State>(self.state, |state, _| {
            until = state.observed_time.saturating_sub(self.grace_ms);
            Ok(())
        })?;
        let mut end = vec![TIME_FIRST];
        end.extend_from_slice(&until.saturating_add(1).max(0).to_be_bytes());
        let range = KeyRange { start: Bound::Unbounded, end: Bound::Excluded(end) };
        Ok(cx.range(self.slot, range, Direction::Forward))
    }

    /// Has a record handled in its own context. A failure of it is its own, not that of the record it comes with.
    pub(super) fn let_go(
        &self,
        cx: &mut Cx<'_>,
        index: NodeIndex,
        due: &Due,
        handle: impl FnOnce(&mut Cx<'_>, &K, &V, i64) -> Result<(), StepError>,
    ) -> Result<(), TaskError> {
        let buffered = match BufferedValue::read(&due.value) {
            Ok(buffered) => buffered,
            Err(error) => return settle(cx, index, Err(UserError::from(error).into())),
        };
        let key = due.key.get(TIME_BYTES..due.key.len().saturating_sub(NUMBER_BYTES));
        let (key, value) = (key.unwrap_or_default(), buffered.new.unwrap_or_default());
        let handle = |cx: &mut Cx<'_>| {
            let key = self.key.deserialize(Payload::new(key))?;
            let value = self.value.deserialize(Payload::new(value))?;
            handle(cx, &key, &value, buffered.context.timestamp)
        };
        cx.in_context(&buffered.context, |cx| let_go(cx, index, handle))
    }

    pub(super) fn remove(&self, cx: &mut Cx<'_>, due: &Due) -> Result<(), TaskError> {
        let now = cx.wall_clock_ms();
        cx.put(self.slot, &due.key, None, now)
    }
}

/// What a buffer's task knows of it beside the store.
#[derive(Debug)]
struct State {
    slot: StoreSlot,
    /// The highest time of a record that was put into it; −1 before the first.
    observed_time: i64,
    last_number: u32,
}

impl State {
    /// The number of a record of this time; `None` if its grace period has passed already.
    fn number(&mut self, timestamp: i64, grace_ms: i64) -> Option<u32> {
        if self.observed_time.saturating_sub(grace_ms) > timestamp {
            return None;
        }
        self.observed_time = self.observed_time.max(timestamp);
        self.last_number = self.last_number.wrapping_add(1) & (u32::MAX >> 1);
        Some(self.last_number)
    }
}

impl TaskProcessor for State {
    /// Goes on where the buffer's records end, so that none of them is overwritten.
    fn init(&mut self, cx: &mut Cx<'_>, _slot: ProcessorSlot) -> Result<(), TaskError> {
        let mut cursor = cx.range(self.slot, KeyRange::all(), Direction::Forward);
        while let Some((key, _)) = cx.next_entry(&mut cursor)? {
            let Some((_, number)) = key.split_last_chunk::<NUMBER_BYTES>() else { continue };
            self.last_number = self.last_number.max(u32::from_be_bytes(*number));
            let time = key.get(1..TIME_BYTES).and_then(|time| time.first_chunk::<8>());
            let time = time.map_or(-1, |time| i64::from_be_bytes(*time));
            self.observed_time = self.observed_time.max(time);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct NewState {
    slot: StoreSlot,
}

impl ProcessorSupplier for NewState {
    fn get(&self) -> Box<dyn TaskProcessor> {
        Box::new(State { slot: self.slot, observed_time: -1, last_number: 0 })
    }
}
