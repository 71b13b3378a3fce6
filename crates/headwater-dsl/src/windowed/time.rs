//! Grouped streams in time windows and sliding windows.

use std::fmt;
use std::sync::Arc;

use headwater_runtime::UserError;
use headwater_store::serde::Windowed;

use super::{Shape, WindowKind};
use crate::cogrouped::{CogroupedKStream, TimeWindowedCogroupedKStream};
use crate::error::DslError;
use crate::kgrouped_stream::{AGGREGATE, KGroupedStream, REDUCE};
use crate::ktable::KTable;
use crate::nodes::{
    KeptWindows, NewValue, TimeSpans, WindowAggregation, aggregate_sliding_windows,
    aggregate_time_windows,
};
use crate::nullity::{Nullable, Nullity, Present, wrap};
use crate::params::{
    EmitStrategy, Materialized, SlidingWindows, TimeWindows, UnlimitedWindows, wrong,
};
use crate::wiring::WireInner;

/// A grouped stream in windows of time; see
/// [`KGroupedStream::windowed_by`](crate::KGroupedStream::windowed_by).
///
/// Records without key are dropped and counted. So are, once for each window, records that fall into
/// windows that are closed: stream time, as the operator has seen it, is past their end by the grace
/// period (feature row D27). The time of a result is the highest of the records that went into it.
pub struct TimeWindowedKStream<K, V, N = Present> {
    group: KGroupedStream<K, V, N>,
    shape: Shape,
    emit: EmitStrategy,
}

impl<K: 'static, V: 'static, N: Nullity> TimeWindowedKStream<K, V, N> {
    fn new(group: KGroupedStream<K, V, N>, shape: Shape, checked: Result<(), DslError>) -> Self {
        if let Err(problem) = checked {
            group.shared().0.borrow_mut().note(problem);
        }
        Self { group, shape, emit: EmitStrategy::OnWindowUpdate }
    }

    /// Says when results are sent on. Unlimited windows never close.
    #[must_use = "the windowed stream goes on from here"]
    pub fn emit_strategy(self, emit: EmitStrategy) -> Self {
        let unlimited = matches!(self.shape, Shape::Time(TimeSpans::Unlimited { .. }));
        if unlimited && emit == EmitStrategy::OnWindowClose {
            let problem = "unlimited windows never close, so nothing can be emitted then";
            self.group.shared().0.borrow_mut().note(wrong(problem.to_owned()));
        }
        Self { emit, ..self }
    }

    /// Counts the records of each key and window, null values included; sliding windows drop those.
    pub fn count(&self, materialized: Materialized<K, i64>) -> KTable<Windowed<K>, i64, N> {
        let materialized = match self.shape {
            Shape::Sliding(_) => self.group.of_sliding_count(materialized),
            Shape::Time(_) | Shape::Session(_) => self.group.of_count(materialized),
        };
        self.add::<i64, Nullable, _, _>(
            AGGREGATE,
            materialized,
            || Ok(Some(0)),
            computed::<K, V, i64, Nullable, _>(|_, _, count| {
                Ok(Some(count.unwrap_or(0).wrapping_add(1)))
            }),
        )
    }

    /// Combines the values of each key and window: the first as it is, each further one with the result
    /// so far, which is the first argument.
    pub fn reduce<F>(
        &self,
        reducer: F,
        materialized: Materialized<K, V>,
    ) -> KTable<Windowed<K>, V, N>
    where
        F: Fn(&V, N::Ref<'_, V>) -> N::Owned<V> + Send + Sync + 'static,
    {
        self.try_reduce(
            move |so_far, value| Ok::<_, UserError>(reducer(so_far, value)),
            materialized,
        )
    }

    /// [`reduce`](Self::reduce) with a function that can fail.
    pub fn try_reduce<F, E>(
        &self,
        reducer: F,
        materialized: Materialized<K, V>,
    ) -> KTable<Windowed<K>, V, N>
    where
        F: Fn(&V, N::Ref<'_, V>) -> Result<N::Owned<V>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let (_, key_serde) = self.group.shared();
        let materialized = materialized.or_serdes(key_serde.as_ref(), self.group.value_serde());
        let reducer = move |so_far: &V, value: N::Ref<'_, V>| {
            reducer(so_far, value).map(N::into_option).map_err(E::into)
        };
        self.add::<V, N, _, _>(REDUCE, materialized, || Ok(None), reduced::<K, V, N, _>(reducer))
    }

    /// Folds the records of each key and window into an aggregate, beginning with what `initializer`
    /// makes.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use headwater_dsl::{
    ///     Consumed, EmitStrategy, Grouped, Materialized, SlidingWindows, StreamsBuilder,
    /// };
    /// use headwater_store::serde::{Double, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// let ten_seconds = Duration::from_secs(10);
    /// // The largest temperature of any ten seconds, once no more can come.
    /// let peaks = builder
    ///     .stream("temperatures", Consumed::with(Utf8, Double))
    ///     .group_by_key(Grouped::new())
    ///     .windowed_by(SlidingWindows::of_time_difference_and_grace(ten_seconds, ten_seconds))
    ///     .emit_strategy(EmitStrategy::OnWindowClose)
    ///     .aggregate(
    ///         || f64::MIN,
    ///         |_, degrees, peak| degrees.max(peak),
    ///         Materialized::named("peaks").with_value_serde(Double),
    ///     );
    /// # drop(peaks);
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn aggregate<A: 'static, I, F>(
        &self,
        initializer: I,
        aggregator: F,
        materialized: Materialized<K, A>,
    ) -> KTable<Windowed<K>, A, N>
    where
        I: Fn() -> N::Owned<A> + Send + Sync + 'static,
        F: Fn(&K, N::Ref<'_, V>, N::Owned<A>) -> N::Owned<A> + Send + Sync + 'static,
    {
        self.try_aggregate(
            move || Ok::<_, UserError>(initializer()),
            move |key, value, so_far| Ok::<_, UserError>(aggregator(key, value, so_far)),
            materialized,
        )
    }

    /// [`aggregate`](Self::aggregate) with functions that can fail.
    pub fn try_aggregate<A: 'static, I, F, E>(
        &self,
        initializer: I,
        aggregator: F,
        materialized: Materialized<K, A>,
    ) -> KTable<Windowed<K>, A, N>
    where
        I: Fn() -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        F: Fn(&K, N::Ref<'_, V>, N::Owned<A>) -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let (_, key_serde) = self.group.shared();
        let materialized = materialized.or_serdes(key_serde.as_ref(), None);
        self.add::<A, N, _, _>(
            AGGREGATE,
            materialized,
            move || initializer().map(N::into_option).map_err(E::into),
            computed::<K, V, A, N, _>(move |key, value, so_far| {
                aggregator(key, value, wrap::<N, A>(so_far)).map(N::into_option).map_err(E::into)
            }),
        )
    }

    fn add<A, M, I, C>(
        &self,
        prefix: &str,
        materialized: Materialized<K, A>,
        initial: I,
        compute: C,
    ) -> KTable<Windowed<K>, A, N>
    where
        A: 'static,
        M: Nullity,
        I: Fn() -> Result<Option<A>, UserError> + Send + Sync + 'static,
        C: for<'a> Fn(&'a K, M::Ref<'a, V>, Option<A>) -> Result<NewValue<'a, A>, UserError>
            + Send
            + Sync
            + 'static,
    {
        let aggregation = Arc::new(WindowAggregation { initial, compute });
        self.group.add_windowed(prefix, materialized, (self.shape, self.emit), |kept| {
            wire_windows::<K, V, A, M, I, C>(kept, self.shape, aggregation)
        })
    }
}

/// The making of an aggregation by time windows or sliding windows.
pub(crate) fn wire_windows<K, V, A, N, I, C>(
    kept: KeptWindows<K, A>,
    shape: Shape,
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
    match shape {
        Shape::Time(spans) => aggregate_time_windows::<K, V, A, N, I, C>(kept, spans, aggregation),
        Shape::Sliding(windows) => {
            aggregate_sliding_windows::<K, V, A, N, I, C>(kept, windows.grace_ms, aggregation)
        }
        Shape::Session(_) => unreachable!("sessions have streams of their own"),
    }
}

/// What an aggregator answers.
type Computed<'a, A> = Result<NewValue<'a, A>, UserError>;

/// An aggregator that makes a new value.
pub(crate) fn computed<K, V, A, N, F>(
    aggregator: F,
) -> impl for<'a> Fn(&'a K, N::Ref<'a, V>, Option<A>) -> Computed<'a, A> + Send + Sync + 'static
where
    K: 'static,
    V: 'static,
    A: 'static,
    N: Nullity,
    F: Fn(&K, N::Ref<'_, V>, Option<A>) -> Result<Option<A>, UserError> + Send + Sync + 'static,
{
    move |key, value, so_far| aggregator(key, value, so_far).map(NewValue::Made)
}

/// A reducer: the first value is taken as it is.
pub(crate) fn reduced<K, V, N, F>(
    reducer: F,
) -> impl for<'a> Fn(&'a K, N::Ref<'a, V>, Option<V>) -> Computed<'a, V> + Send + Sync + 'static
where
    K: 'static,
    V: 'static,
    N: Nullity,
    F: Fn(&V, N::Ref<'_, V>) -> Result<Option<V>, UserError> + Send + Sync + 'static,
{
    move |_, value, so_far| match (so_far, N::given(value)) {
        (Some(so_far), _) => reducer(&so_far, value).map(NewValue::Made),
        (None, Some(value)) => Ok(NewValue::Given(value)),
        (None, None) => Ok(NewValue::Made(None)),
    }
}

macro_rules! time_kind {
    ($windows:ident, $self:ident, $shape:expr, $checked:expr) => {
        impl WindowKind for $windows {
            type Stream<K: 'static, V: 'static, N: Nullity> = TimeWindowedKStream<K, V, N>;
            type Cogrouped<K: 'static, A: 'static, N: Nullity> =
                TimeWindowedCogroupedKStream<K, A, N>;

            fn of_group<K: 'static, V: 'static, N: Nullity>(
                $self,
                group: KGroupedStream<K, V, N>,
            ) -> TimeWindowedKStream<K, V, N> {
                TimeWindowedKStream::new(group, $shape, $checked)
            }

            fn of_cogroup<K: 'static, A: 'static, N: Nullity>(
                $self,
                cogroup: CogroupedKStream<K, A, N>,
            ) -> TimeWindowedCogroupedKStream<K, A, N> {
                TimeWindowedCogroupedKStream::new(cogroup, $shape, $checked)
            }
        }
    };
}

time_kind!(TimeWindows, self, Shape::Time(self.spans()), self.check());
time_kind!(UnlimitedWindows, self, Shape::Time(self.spans()), self.check());
time_kind!(SlidingWindows, self, Shape::Sliding(self), Ok(()));

impl TimeWindows {
    const fn spans(self) -> TimeSpans {
        let Self { size_ms, advance_ms, grace_ms } = self;
        TimeSpans::Regular { size_ms, advance_ms, grace_ms }
    }
}

impl UnlimitedWindows {
    const fn spans(self) -> TimeSpans {
        TimeSpans::Unlimited { start_ms: self.start_ms }
    }
}

impl<K, V, N> fmt::Debug for TimeWindowedKStream<K, V, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeWindowedKStream")
            .field("group", &self.group)
            .field("windows", &self.shape)
            .finish_non_exhaustive()
    }
}
