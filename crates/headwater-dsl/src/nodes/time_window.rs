//! Aggregation by time windows (feature rows D25 to D28, D31).

use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{Cx, DropReason, NullPart, TaskError, UserError};
use headwater_store::serde::Window;

use super::windowed::{KeptWindows, WindowAggregation, WindowKey, WindowTable};
use super::{NewValue, StepError, with_buffer};
use crate::edge::{Edge, Node};
use crate::nullity::Nullity;
use crate::record::Record;
use crate::wiring::WireInner;

/// Which windows there are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TimeSpans {
    /// Of one size, at multiples of an interval.
    Regular { size_ms: i64, advance_ms: i64, grace_ms: i64 },
    /// One that begins at a time and never ends.
    Unlimited { start_ms: i64 },
}

impl TimeSpans {
    /// How large a window is.
    pub(crate) const fn size_ms(self) -> i64 {
        match self {
            Self::Regular { size_ms, .. } => size_ms,
            Self::Unlimited { .. } => i64::MAX,
        }
    }

    /// How long after its end a window takes records.
    pub(crate) const fn grace_ms(self) -> i64 {
        match self {
            Self::Regular { grace_ms, .. } => grace_ms,
            Self::Unlimited { .. } => 0,
        }
    }

    /// The starts of the windows that a time is in, ascending (feature row D26).
    fn starts(self, time: i64) -> impl Iterator<Item = i64> {
        let (first, step) = match self {
            Self::Regular { size_ms, advance_ms, .. } => {
                let earliest = time.saturating_sub(size_ms).saturating_add(advance_ms).max(0);
                (earliest / advance_ms * advance_ms, advance_ms)
            }
            Self::Unlimited { start_ms } => (start_ms, i64::MAX),
        };
        let next = move |start: &i64| start.checked_add(step);
        std::iter::successors(Some(first), next).take_while(move |start| *start <= time)
    }

    fn end(self, start: i64) -> i64 {
        match self {
            Self::Regular { size_ms, .. } => start.saturating_add(size_ms),
            Self::Unlimited { .. } => i64::MAX,
        }
    }
}

/// The making of an aggregation by time windows.
pub(crate) fn aggregate_time_windows<K, V, A, N, I, C>(
    kept: KeptWindows<K, A>,
    spans: TimeSpans,
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
        Ok(Edge::to_stream(AggregateTimeWindows::<K, V, A, N, I, C> {
            table: kept.wire(wiring)?,
            spans,
            aggregation: Arc::clone(&aggregation),
            input: PhantomData,
        }))
    })
}

struct AggregateTimeWindows<K, V, A, N, I, C> {
    table: Arc<WindowTable<K, A>>,
    spans: TimeSpans,
    aggregation: Arc<WindowAggregation<I, C>>,
    input: PhantomData<fn(V, N)>,
}

impl<K, V, A, N, I, C> Node<K, V> for AggregateTimeWindows<K, V, A, N, I, C>
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
        let times = cx.times(self.table.times);
        times.observed = times.observed.max(record.timestamp);
        let close_time = times.observed.saturating_sub(self.spans.grace_ms());
        with_buffer(cx, index, |cx, buffer| {
            let mut store_key = self.table.key(key, buffer)?;
            self.aggregate(cx, (key, &mut store_key), value, record.timestamp, close_time)?;
            self.emit(cx, close_time)
        })
    }
}

impl<K, V, A, N, I, C> AggregateTimeWindows<K, V, A, N, I, C>
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
        (key, store_key): (&'r K, &mut WindowKey<'_>),
        value: N::Ref<'r, V>,
        timestamp: i64,
        close_time: i64,
    ) -> Result<(), StepError> {
        let Self { table, spans, aggregation, .. } = self;
        let WindowAggregation { initial, compute } = &**aggregation;
        let mut windowed = table.windowed(cx, store_key)?;
        for start in spans.starts(timestamp) {
            let window = Window { start, end: spans.end(start) };
            if window.end <= close_time {
                cx.dropped(table.index, DropReason::WindowClosed);
                continue;
            }
            let so_far = table.get(cx, store_key, window)?;
            let (so_far, time) = match so_far {
                Some((so_far, earlier)) => (Some(so_far), earlier.max(timestamp)),
                None => (initial()?, timestamp),
            };
            // The aggregator takes the aggregate away; what nodes below need of it is read again.
            let old = if table.sends_old && windowed.is_some() {
                match table.get(cx, store_key, window)? {
                    Some((so_far, _)) => Some(so_far),
                    None => initial()?,
                }
            } else {
                None
            };
            let new = compute(key, value, so_far)?;
            let change = (new.as_ref(), old.as_ref());
            let logged = if change.0.is_some() { time } else { timestamp };
            table.put(cx, store_key, window, change.0, logged)?;
            table.forward(cx, windowed.as_mut(), window, change, time)?;
        }
        Ok(())
    }

    /// Emits what has been closed since the last time.
    fn emit(&self, cx: &mut Cx<'_>, close_time: i64) -> Result<(), StepError> {
        let spans = self.spans;
        self.table.emit(cx, close_time, |emitted| {
            let to = close_time.saturating_sub(spans.size_ms());
            let from = if emitted < 0 { 0 } else { (emitted - spans.size_ms()).max(0) + 1 };
            let nothing_new = emitted >= 0 && spans.starts(to).eq(spans.starts(from - 1));
            (to >= 0 && !nothing_new).then_some((from, to))
        })
    }
}
