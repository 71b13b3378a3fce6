//! Grouped streams in sessions.

use std::fmt;
use std::sync::Arc;

use headwater_runtime::UserError;
use headwater_store::serde::Windowed;

use super::time::{computed, reduced};
use super::{Shape, WindowKind};
use crate::cogrouped::{CogroupedKStream, SessionWindowedCogroupedKStream};
use crate::kgrouped_stream::{AGGREGATE, KGroupedStream, REDUCE};
use crate::ktable::KTable;
use crate::nodes::{Merge, NewValue, SessionSpans, WindowAggregation, aggregate_sessions};
use crate::nullity::{Nullable, Nullity, Present, wrap};
use crate::params::{EmitStrategy, Materialized, SessionWindows};

/// A grouped stream in sessions; see
/// [`KGroupedStream::windowed_by`](crate::KGroupedStream::windowed_by).
///
/// A record that comes between two sessions makes one of them: the results of both are deleted, and the
/// new one follows. Records without key are dropped and counted, and so are those whose session is closed: stream
/// time, as the operator has seen it, is past its end by the inactivity gap and the grace period. The time of
/// a result is the end of its session.
pub struct SessionWindowedKStream<K, V, N = Present> {
    group: KGroupedStream<K, V, N>,
    spans: SessionSpans,
    emit: EmitStrategy,
}

impl<K: 'static, V: 'static, N: Nullity> SessionWindowedKStream<K, V, N> {
    /// Says when results are sent on.
    #[must_use = "the windowed stream goes on from here"]
    pub fn emit_strategy(self, emit: EmitStrategy) -> Self {
        Self { emit, ..self }
    }

    /// Counts the records of each key and session, null values included.
    pub fn count(&self, materialized: Materialized<K, i64>) -> KTable<Windowed<K>, i64, N> {
        self.add::<i64, Nullable, _, _>(
            AGGREGATE,
            self.group.of_count(materialized),
            || Ok(Some(0)),
            computed::<K, V, i64, Nullable, _>(|_, _, count| {
                Ok(Some(count.unwrap_or(0).wrapping_add(1)))
            }),
            Arc::new(|_, count, other| Ok(Some(count.unwrap_or(0).wrapping_add(other)))),
        )
    }

    /// Combines the values of each key and session: the first as it is, each further one with the result
    /// so far, which is the first argument. Sessions that become one are combined in the same way.
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
        let reducer = Arc::new(move |so_far: &V, value: N::Ref<'_, V>| {
            reducer(so_far, value).map(N::into_option).map_err(E::into)
        });
        let of_sessions = Arc::clone(&reducer);
        let merge: Merge<K, V> = Arc::new(move |_, so_far, other| match so_far {
            None => Ok(Some(other)),
            Some(so_far) => of_sessions(&so_far, N::present(&other)),
        });
        self.add::<V, N, _, _>(
            REDUCE,
            materialized,
            || Ok(None),
            reduced::<K, V, N, _>(move |so_far, value| reducer(so_far, value)),
            merge,
        )
    }

    /// Folds the records of each key and session into an aggregate, beginning with what `initializer`
    /// makes. When a record joins sessions, `merger` makes one aggregate of them: of what there is so far and of
    /// a session's, one after the other, before the record itself is taken in.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use headwater_dsl::{Consumed, Grouped, Materialized, SessionWindows, StreamsBuilder};
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// let half_an_hour = Duration::from_secs(30 * 60);
    /// let spent_per_visit = builder
    ///     .stream("purchases", Consumed::with(Utf8, Long))
    ///     .group_by_key(Grouped::new())
    ///     .windowed_by(SessionWindows::of_inactivity_gap_with_no_grace(half_an_hour))
    ///     .aggregate(
    ///         || 0,
    ///         |_, amount, sum| sum + amount,
    ///         |_, sum, other| sum + other,
    ///         Materialized::named("spent-per-visit").with_value_serde(Long),
    ///     );
    /// # drop(spent_per_visit);
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn aggregate<A: 'static, I, F, M>(
        &self,
        initializer: I,
        aggregator: F,
        merger: M,
        materialized: Materialized<K, A>,
    ) -> KTable<Windowed<K>, A, N>
    where
        I: Fn() -> N::Owned<A> + Send + Sync + 'static,
        F: Fn(&K, N::Ref<'_, V>, N::Owned<A>) -> N::Owned<A> + Send + Sync + 'static,
        M: Fn(&K, N::Owned<A>, A) -> N::Owned<A> + Send + Sync + 'static,
    {
        self.try_aggregate(
            move || Ok::<_, UserError>(initializer()),
            move |key, value, so_far| Ok::<_, UserError>(aggregator(key, value, so_far)),
            move |key, so_far, other| Ok::<_, UserError>(merger(key, so_far, other)),
            materialized,
        )
    }

    /// [`aggregate`](Self::aggregate) with functions that can fail.
    pub fn try_aggregate<A: 'static, I, F, M, E>(
        &self,
        initializer: I,
        aggregator: F,
        merger: M,
        materialized: Materialized<K, A>,
    ) -> KTable<Windowed<K>, A, N>
    where
        I: Fn() -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        F: Fn(&K, N::Ref<'_, V>, N::Owned<A>) -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        M: Fn(&K, N::Owned<A>, A) -> Result<N::Owned<A>, E> + Send + Sync + 'static,
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
            merge_with::<K, A, N, _, _>(merger),
        )
    }

    fn add<A, M, I, C>(
        &self,
        prefix: &str,
        materialized: Materialized<K, A>,
        initial: I,
        compute: C,
        merge: Merge<K, A>,
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
        let shape = Shape::Session(self.spans);
        self.group.add_windowed(prefix, materialized, (shape, self.emit), |kept| {
            aggregate_sessions::<K, V, A, M, I, C>(kept, self.spans, aggregation, merge)
        })
    }
}

/// A user's merger, as the node calls it.
pub(crate) fn merge_with<K, A, N, M, E>(merger: M) -> Merge<K, A>
where
    A: 'static,
    N: Nullity,
    M: Fn(&K, N::Owned<A>, A) -> Result<N::Owned<A>, E> + Send + Sync + 'static,
    E: Into<UserError>,
{
    Arc::new(move |key, so_far, other| {
        merger(key, wrap::<N, A>(so_far), other).map(N::into_option).map_err(E::into)
    })
}

impl WindowKind for SessionWindows {
    type Stream<K: 'static, V: 'static, N: Nullity> = SessionWindowedKStream<K, V, N>;
    type Cogrouped<K: 'static, A: 'static, N: Nullity> = SessionWindowedCogroupedKStream<K, A, N>;

    fn of_group<K: 'static, V: 'static, N: Nullity>(
        self,
        group: KGroupedStream<K, V, N>,
    ) -> SessionWindowedKStream<K, V, N> {
        SessionWindowedKStream { group, spans: self.spans(), emit: EmitStrategy::OnWindowUpdate }
    }

    fn of_cogroup<K: 'static, A: 'static, N: Nullity>(
        self,
        cogroup: CogroupedKStream<K, A, N>,
    ) -> SessionWindowedCogroupedKStream<K, A, N> {
        SessionWindowedCogroupedKStream::new(cogroup, self.spans())
    }
}

impl SessionWindows {
    const fn spans(self) -> SessionSpans {
        let Self { gap_ms, grace_ms } = self;
        SessionSpans { gap_ms, grace_ms }
    }
}

impl<K, V, N> fmt::Debug for SessionWindowedKStream<K, V, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionWindowedKStream")
            .field("group", &self.group)
            .field("windows", &self.spans)
            .finish_non_exhaustive()
    }
}
