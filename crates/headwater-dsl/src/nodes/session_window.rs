//! Aggregation by sessions (feature row D30).

use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{Cx, DropReason, FetchedEntries, Headers, NullPart, TaskError, UserError};
use headwater_store::Direction;
use headwater_store::serde::{Window, Windowed};

use super::windowed::{KeptWindows, WindowAggregation, WindowKey, WindowTable};
use super::{NewValue, StepError, with_buffer};
use crate::edge::{Edge, Node};
use crate::nullity::Nullity;
use crate::record::Record;
use crate::wiring::WireInner;

/// What sessions are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionSpans {
    pub(crate) gap_ms: i64,
    pub(crate) grace_ms: i64,
}

/// Makes one aggregate of two: of what there is so far, and of a session that joins it.
pub(crate) type Merge<K, A> =
    Arc<dyn Fn(&K, Option<A>, A) -> Result<Option<A>, UserError> + Send + Sync>;

/// The making of an aggregation by sessions.
pub(crate) fn aggregate_sessions<K, V, A, N, I, C>(
    kept: KeptWindows<K, A>,
    spans: SessionSpans,
    aggregation: Arc<WindowAggregation<I, C>>,
    merge: Merge<K, A>,
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
        Ok(Edge::to_stream(AggregateSessions::<K, V, A, N, I, C> {
            table: kept.wire(wiring)?,
            spans,
            aggregation: Arc::clone(&aggregation),
            merge: Arc::clone(&merge),
            input: PhantomData,
        }))
    })
}

struct AggregateSessions<K, V, A, N, I, C> {
    table: Arc<WindowTable<K, A>>,
    spans: SessionSpans,
    aggregation: Arc<WindowAggregation<I, C>>,
    merge: Merge<K, A>,
    input: PhantomData<fn(V, N)>,
}

/// A record's key as the store and as the result have it.
type Keys<'b, K> = (WindowKey<'b>, Option<Windowed<K>>);

impl<K, V, A, N, I, C> Node<K, V> for AggregateSessions<K, V, A, N, I, C>
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
        let Some(value) = N::view(record.value) else {
            return cx.null_record(index, NullPart::Value);
        };
        let SessionSpans { gap_ms, grace_ms } = self.spans;
        let times = cx.times(self.table.times);
        times.observed = times.observed.max(record.timestamp);
        let close_time = times.observed.saturating_sub(grace_ms).saturating_sub(gap_ms);
        with_buffer(cx, index, |cx, buffer| {
            let store_key = self.table.key(key, buffer)?;
            let windowed = self.table.windowed(cx, &store_key)?;
            let mut keys = (store_key, windowed);
            self.aggregate(cx, (key, value), &mut keys, record.timestamp, close_time)?;
            self.emit(cx, close_time)
        })
    }
}

impl<K, V, A, N, I, C> AggregateSessions<K, V, A, N, I, C>
where
    K: 'static,
    V: 'static,
    A: 'static,
    N: Nullity,
    I: Fn() -> Result<Option<A>, UserError>,
    C: for<'a> Fn(&'a K, N::Ref<'a, V>, Option<A>) -> Result<NewValue<'a, A>, UserError>,
{
    fn aggregate<'r>(
        &self,
        cx: &mut Cx<'_>,
        (key, value): (&'r K, N::Ref<'r, V>),
        keys: &mut Keys<'_, K>,
        timestamp: i64,
        close_time: i64,
    ) -> Result<(), StepError> {
        let gap_ms = self.spans.gap_ms;
        let earliest_end = timestamp.saturating_sub(gap_ms);
        let latest_start = timestamp.saturating_add(gap_ms);
        let span = (earliest_end, latest_start);
        let found = self.table.find(cx, &keys.0, span, Direction::Forward)?;
        let result = self.join(cx, (key, value), keys, &found, (timestamp, close_time));
        cx.give_fetched(found);
        result
    }

    /// A record becomes a session with those that were found around it.
    fn join<'r>(
        &self,
        cx: &mut Cx<'_>,
        (key, value): (&'r K, N::Ref<'r, V>),
        keys: &mut Keys<'_, K>,
        found: &FetchedEntries,
        (timestamp, close_time): (i64, i64),
    ) -> Result<(), StepError> {
        let new = Window { start: timestamp, end: timestamp };
        let mut window = new;
        let mut so_far = (self.aggregation.initial)()?;
        for session in self.table.windows(found) {
            so_far = (self.merge)(key, so_far, self.table.aggregate(session)?)?;
            window.start = window.start.min(session.window.start);
            window.end = window.end.max(session.window.end);
        }
        if window.end < close_time {
            cx.dropped(self.table.index, DropReason::WindowClosed);
            return Ok(());
        }
        if window != new {
            self.remove(cx, keys, found, timestamp)?;
        }
        let aggregate = (self.aggregation.compute)(key, value, so_far)?;
        self.table.put(cx, &mut keys.0, window, aggregate.as_ref(), timestamp)?;
        self.forward(cx, keys, window, (aggregate.as_ref(), None))
    }

    /// Sessions that became one go, each with a deletion.
    fn remove(
        &self,
        cx: &mut Cx<'_>,
        keys: &mut Keys<'_, K>,
        found: &FetchedEntries,
        timestamp: i64,
    ) -> Result<(), StepError> {
        for session in self.table.windows(found) {
            self.table.put(cx, &mut keys.0, session.window, None, timestamp)?;
            let old = if self.table.sends_old && keys.1.is_some() {
                Some(self.table.aggregate(session)?)
            } else {
                None
            };
            self.forward(cx, keys, session.window, (None, old.as_ref()))?;
        }
        Ok(())
    }

    /// Results have the session's end as their time, and no headers (feature row D55).
    fn forward(
        &self,
        cx: &mut Cx<'_>,
        keys: &mut Keys<'_, K>,
        window: Window,
        change: (Option<&A>, Option<&A>),
    ) -> Result<(), StepError> {
        if keys.1.is_none() {
            return Ok(());
        }
        let headers = std::mem::replace(cx.headers_mut(), Headers::new());
        let forwarded = self.table.forward(cx, keys.1.as_mut(), window, change, window.end);
        *cx.headers_mut() = headers;
        forwarded
    }

    /// Emits what has been closed since the last time. Both ends belong to a session.
    fn emit(&self, cx: &mut Cx<'_>, close_time: i64) -> Result<(), StepError> {
        self.table.emit(cx, close_time, |emitted| {
            let (from, to) = (emitted.max(0), close_time.saturating_sub(1));
            (to >= from).then_some((from, to))
        })
    }
}
