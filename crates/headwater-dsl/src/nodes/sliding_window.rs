//! Aggregation by sliding windows (feature row D29).
//!
//! A record makes the window that ends at it, and one that begins right behind it as soon as another
//! record is in that. So a record changes the windows around it, and may need one that begins right
//! behind an earlier record, and one that begins right behind itself.

use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{Cx, DropReason, FetchedEntries, NullPart, TaskError, UserError};
use headwater_store::Direction;
use headwater_store::serde::{Window, Windowed};

use super::windowed::{FoundWindow, KeptWindows, WindowAggregation, WindowKey, WindowTable};
use super::{NewValue, StepError, with_buffer};
use crate::edge::{Edge, Node};
use crate::nullity::Nullity;
use crate::record::Record;
use crate::wiring::WireInner;

/// The making of an aggregation by sliding windows.
pub(crate) fn aggregate_sliding_windows<K, V, A, N, I, C>(
    kept: KeptWindows<K, A>,
    grace_ms: i64,
    aggregation: Arc<WindowAggregation<I, C>>,
) -> WireInner
where
    K: 'static,
    V: 'static,
    A: 'static,
    N: Nullity,
    I: Fn() -> Result<Option<A>, UserError> + Send + Sync + 'static,
    C: for<'a> Fn(&'a K, N::Ref<'a, V>, Option<A>) -> Result<NewValue<'a, A>, UserError>
        + Send
        + Sync
        + 'static,
{
    Arc::new(move |wiring| {
        Ok(Edge::to_stream(AggregateSlidingWindows::<K, V, A, N, I, C> {
            table: kept.wire(wiring)?,
            difference_ms: kept.size_ms,
            grace_ms,
            aggregation: Arc::clone(&aggregation),
            input: PhantomData,
        }))
    })
}

struct AggregateSlidingWindows<K, V, A, N, I, C> {
    table: Arc<WindowTable<K, A>>,
    difference_ms: i64,
    grace_ms: i64,
    aggregation: Arc<WindowAggregation<I, C>>,
    input: PhantomData<fn(V, N)>,
}

/// A record on its way through the windows of its key.
struct Arrival<'r, 'b, K, V, N: Nullity>
where
    V: 'r,
{
    key: &'r K,
    value: N::Ref<'r, V>,
    timestamp: i64,
    close_time: i64,
    store_key: WindowKey<'b>,
    windowed: Option<Windowed<K>>,
}

/// What is done with a record and the windows around it.
type Join<T, K, V, N> =
    fn(&T, &mut Cx<'_>, &mut Arrival<'_, '_, K, V, N>, &FetchedEntries) -> Result<(), StepError>;

/// What a window held before a record.
#[derive(Clone, Copy)]
enum Before<'f> {
    /// Nothing: what the initializer makes, with the record's time.
    Nothing,
    /// What was found, with its time.
    Found(FoundWindow<'f>),
    /// What was found in another window, with the record's time.
    Copied(FoundWindow<'f>),
}

/// What the windows around a record say.
#[derive(Default)]
struct Around<'f> {
    /// The nearest window that ends before the record.
    left: Option<FoundWindow<'f>>,
    /// Where the record before this one is.
    previous: Option<i64>,
    left_exists: bool,
    /// A window that reaches over the record.
    right: Option<FoundWindow<'f>>,
    right_exists: bool,
}

impl<K, V, A, N, I, C> Node<K, V> for AggregateSlidingWindows<K, V, A, N, I, C>
where
    K: 'static,
    V: 'static,
    A: 'static,
    N: Nullity,
    I: Fn() -> Result<Option<A>, UserError> + Send + Sync,
    C: for<'a> Fn(&'a K, N::Ref<'a, V>, Option<A>) -> Result<NewValue<'a, A>, UserError>
        + Send
        + Sync,
{
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        let index = self.table.index;
        cx.enter(index);
        let Some(key) = record.key else { return cx.null_record(index, NullPart::Key) };
        let Some(value) = record.value.map(N::present) else {
            return cx.null_record(index, NullPart::Value);
        };
        let timestamp = record.timestamp;
        let times = cx.times(self.table.times);
        times.observed = times.observed.max(timestamp);
        let close_time = times.observed.saturating_sub(self.grace_ms);
        if timestamp.saturating_add(self.difference_ms) < close_time {
            cx.dropped(index, DropReason::WindowClosed);
            return Ok(());
        }
        with_buffer(cx, index, |cx, buffer| {
            let store_key = self.table.key(key, buffer)?;
            let windowed = self.table.windowed(cx, &store_key)?;
            let arrival =
                Arrival::<K, V, N> { key, value, timestamp, close_time, store_key, windowed };
            if timestamp < self.difference_ms {
                return self.take(cx, arrival, (0, Direction::Forward), Self::join_early);
            }
            let from = timestamp - self.difference_ms.saturating_mul(2);
            self.take(cx, arrival, (from, Direction::Reverse), Self::join)?;
            self.emit(cx, close_time)
        })
    }
}

/// Windows without length, which Kafka Streams refuses with the first record too.
#[derive(Debug, thiserror::Error)]
#[error("sliding windows of a time difference of 0 ms are empty; give them at least 1 ms")]
struct EmptyWindow;

impl<K, V, A, N, I, C> AggregateSlidingWindows<K, V, A, N, I, C>
where
    K: 'static,
    V: 'static,
    A: 'static,
    N: Nullity,
    I: Fn() -> Result<Option<A>, UserError>,
    C: for<'a> Fn(&'a K, N::Ref<'a, V>, Option<A>) -> Result<NewValue<'a, A>, UserError>,
{
    /// Does with a record and the windows around it, those that begin from `from` on, what `join` says.
    fn take(
        &self,
        cx: &mut Cx<'_>,
        mut arrival: Arrival<'_, '_, K, V, N>,
        (from, direction): (i64, Direction),
        join: Join<Self, K, V, N>,
    ) -> Result<(), StepError> {
        // One more, to see whether the record's right window is there.
        let span = (from, arrival.timestamp + 1);
        let windows = self.table.find(cx, &arrival.store_key, span, direction)?;
        let result = join(self, cx, &mut arrival, &windows);
        cx.give_fetched(windows);
        result
    }

    /// Takes a record into the windows that are there, and makes the others that it needs.
    fn join(
        &self,
        cx: &mut Cx<'_>,
        arrival: &mut Arrival<'_, '_, K, V, N>,
        windows: &FetchedEntries,
    ) -> Result<(), StepError> {
        let timestamp = arrival.timestamp;
        let mut around = Around::default();
        for found in self.table.windows(windows) {
            let Window { start, end } = found.window;
            if start == timestamp + 1 {
                around.right_exists = true;
            } else if end > timestamp {
                around.right.get_or_insert(found);
                self.update(cx, arrival, found.window, Before::Found(found))?;
            } else if end == timestamp {
                around.left_exists = true;
                self.update(cx, arrival, found.window, Before::Found(found))?;
                if found.timestamp >= timestamp {
                    return Ok(());
                }
                around.previous = Some(found.timestamp);
            } else {
                around.left = Some(found);
                around.previous = Some(found.timestamp);
                break;
            }
        }
        self.create(cx, arrival, windows, &around)
    }

    /// Makes the windows that the record needs and that are not there.
    fn create(
        &self,
        cx: &mut Cx<'_>,
        arrival: &mut Arrival<'_, '_, K, V, N>,
        windows: &FetchedEntries,
        around: &Around<'_>,
    ) -> Result<(), StepError> {
        let timestamp = arrival.timestamp;
        if let Some(previous) = around.previous {
            let start = previous + 1;
            let exists = self.table.windows(windows).any(|found| found.window.start == start);
            if !exists && start.saturating_add(self.difference_ms) >= timestamp {
                self.update(cx, arrival, self.table.window(start), Before::Nothing)?;
            }
        }
        if !around.left_exists {
            let start = timestamp - self.difference_ms;
            let before = match (around.left, around.previous) {
                (Some(left), Some(previous)) if start <= previous => Before::Copied(left),
                _ => Before::Nothing,
            };
            self.update(cx, arrival, self.table.window(start), before)?;
        }
        self.create_right(cx, arrival, around)
    }

    /// Makes the window right behind the record, if a later record is in it.
    fn create_right(
        &self,
        cx: &mut Cx<'_>,
        arrival: &mut Arrival<'_, '_, K, V, N>,
        around: &Around<'_>,
    ) -> Result<(), StepError> {
        let Some(right) = around.right else { return Ok(()) };
        if around.right_exists || right.timestamp <= arrival.timestamp {
            return Ok(());
        }
        let window = self.table.window(arrival.timestamp + 1);
        let aggregate = self.table.aggregate(right)?;
        let Arrival { store_key, windowed, .. } = arrival;
        self.table.put(cx, store_key, window, Some(&aggregate), right.timestamp)?;
        let change = (Some(&aggregate), None);
        self.table.forward(cx, windowed.as_mut(), window, change, right.timestamp)
    }

    /// As [`join`](Self::join), for records younger than the time difference: they share the window that begins with
    /// 1970, because none can begin before.
    fn join_early(
        &self,
        cx: &mut Cx<'_>,
        arrival: &mut Arrival<'_, '_, K, V, N>,
        windows: &FetchedEntries,
    ) -> Result<(), StepError> {
        let timestamp = arrival.timestamp;
        let mut around = Around::default();
        let mut combined = None;
        for found in self.table.windows(windows) {
            let start = found.window.start;
            if start == 0 {
                combined = Some(found);
                if found.timestamp < timestamp {
                    around.previous = Some(found.timestamp);
                }
            } else if start <= timestamp {
                around.right = Some(found);
                self.update(cx, arrival, found.window, Before::Found(found))?;
            } else {
                around.right_exists = true;
            }
        }
        if around.right.is_none() {
            around.right = combined.filter(|combined| combined.timestamp > timestamp);
        }
        self.create_right(cx, arrival, &around)?;
        if let Some(previous) = around.previous
            && !self.table.windows(windows).any(|found| found.window.start == previous + 1)
        {
            self.update(cx, arrival, self.table.window(previous + 1), Before::Nothing)?;
        }
        let before = combined.map_or(Before::Nothing, Before::Found);
        self.update(cx, arrival, self.table.window(0), before)
    }

    /// Takes the record into a window, unless that is closed.
    fn update(
        &self,
        cx: &mut Cx<'_>,
        arrival: &mut Arrival<'_, '_, K, V, N>,
        window: Window,
        before: Before<'_>,
    ) -> Result<(), StepError> {
        let table = &self.table;
        if window.end <= window.start {
            return Err(UserError::from(EmptyWindow).into());
        }
        if window.end < arrival.close_time {
            cx.dropped(table.index, DropReason::WindowClosed);
            return Ok(());
        }
        let so_far = self.before(before)?;
        let old = if table.sends_old { self.before(before)? } else { None };
        let timestamp = match before {
            Before::Found(found) => found.timestamp.max(arrival.timestamp),
            Before::Nothing | Before::Copied(_) => arrival.timestamp,
        };
        let new = (self.aggregation.compute)(arrival.key, arrival.value, so_far)?;
        let change = (new.as_ref(), old.as_ref());
        let logged = if change.0.is_some() { timestamp } else { arrival.timestamp };
        let Arrival { store_key, windowed, .. } = arrival;
        table.put(cx, store_key, window, change.0, logged)?;
        table.forward(cx, windowed.as_mut(), window, change, timestamp)
    }

    fn before(&self, before: Before<'_>) -> Result<Option<A>, StepError> {
        match before {
            Before::Nothing => Ok((self.aggregation.initial)()?),
            Before::Found(found) | Before::Copied(found) => self.table.aggregate(found).map(Some),
        }
    }

    /// Emits what has been closed since the last time. Both ends belong to a window.
    fn emit(&self, cx: &mut Cx<'_>, close_time: i64) -> Result<(), StepError> {
        self.table.emit(cx, close_time, |emitted| {
            let to = close_time - self.difference_ms - 1;
            (to >= 0).then_some(((emitted - self.difference_ms).max(0), to))
        })
    }
}
