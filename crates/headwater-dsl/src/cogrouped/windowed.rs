//! Several grouped streams in windows.

use std::fmt;
use std::sync::Arc;

use headwater_runtime::UserError;
use headwater_store::serde::Windowed;

use super::{AGGREGATE, CogroupedKStream, Initial, add_merge};
use crate::error::DslError;
use crate::graph::{LogicalKind, NodeKey, Processor};
use crate::ktable::KTable;
use crate::nodes::{Merge, SessionSpans, windowed_view};
use crate::nullity::{Nullity, Present};
use crate::params::{EmitStrategy, Materialized};
use crate::windowed::{Shape, WindowKind, WindowStore, merge_with};

/// Several grouped streams in windows of time; see [`CogroupedKStream::windowed_by`].
pub struct TimeWindowedCogroupedKStream<K, A, N = Present> {
    cogroup: CogroupedKStream<K, A, N>,
    shape: Shape,
}

/// Several grouped streams in sessions; see [`CogroupedKStream::windowed_by`].
pub struct SessionWindowedCogroupedKStream<K, A, N = Present> {
    cogroup: CogroupedKStream<K, A, N>,
    spans: SessionSpans,
}

impl<K: 'static, A: 'static, N: Nullity> CogroupedKStream<K, A, N> {
    /// Cuts the groups into windows of time: an aggregate then belongs to a key and a window.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use headwater_dsl::{Consumed, Grouped, Materialized, StreamsBuilder, TimeWindows};
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// let sales = builder.stream("sales", Consumed::with(Utf8, Long));
    /// let returns = builder.stream("returns", Consumed::with(Utf8, Long));
    /// let hour = Duration::from_secs(60 * 60);
    /// let balances = sales
    ///     .group_by_key(Grouped::new())
    ///     .cogroup(|_, amount, balance: i64| balance + amount)
    ///     .cogroup(&returns.group_by_key(Grouped::new()), |_, amount, balance| balance - amount)
    ///     .windowed_by(TimeWindows::of_size_with_no_grace(hour))
    ///     .aggregate(|| 0, Materialized::named("balances").with_value_serde(Long));
    /// # drop(balances);
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn windowed_by<W: WindowKind>(&self, windows: W) -> W::Cogrouped<K, A, N> {
        windows.of_cogroup(self.clone())
    }

    fn add_windowed(
        &self,
        shape: Shape,
        initial: &Initial<A>,
        merge: Option<&Merge<K, A>>,
        materialized: Materialized<K, A>,
    ) -> KTable<Windowed<K>, A, N> {
        let mut graph = self.graph.borrow_mut();
        let materialized = materialized
            .checked_windows(&mut graph, shape.kind())
            .or_serdes(self.key_serde.as_ref(), None);
        let emit = EmitStrategy::OnWindowUpdate;
        let store = WindowStore::new(&mut graph, materialized, shape, emit, AGGREGATE);
        let parents: Vec<NodeKey> =
            self.inputs.iter().map(|input| input.parent(&mut graph, &store.name)).collect();
        graph.copartition(&self.inputs.iter().map(|input| input.node()).collect::<Vec<_>>());
        let mut aggregates = Vec::new();
        for (input, parent) in self.inputs.iter().zip(parents) {
            let name = graph.names.processor_name(AGGREGATE);
            let wire = input.aggregate_windows(store.kept(), shape, Arc::clone(initial), merge);
            let stores = vec![Arc::clone(&store.declaration)];
            let grace_period_ms = Some(shape.grace_ms());
            let processor = Processor::new(wire).with_stores(stores);
            let view = Some(windowed_view(store.kept()));
            let kind = LogicalKind::Processor(Processor { grace_period_ms, view, ..processor });
            aggregates.push(graph.add(&[parent], name, kind));
        }
        let node = add_merge::<Windowed<K>, A>(&mut graph, &aggregates);
        drop(graph);
        store.table(&self.graph, node)
    }
}

impl<K: 'static, A: 'static, N: Nullity> TimeWindowedCogroupedKStream<K, A, N> {
    pub(crate) fn new(
        cogroup: CogroupedKStream<K, A, N>,
        shape: Shape,
        checked: Result<(), DslError>,
    ) -> Self {
        if let Err(problem) = checked {
            cogroup.graph.borrow_mut().note(problem);
        }
        Self { cogroup, shape }
    }

    /// Folds the records of all streams into one aggregate per key and window, which begins with what
    /// `initializer` makes. Each stream has its own idea of which windows are closed.
    pub fn aggregate<I>(
        &self,
        initializer: I,
        materialized: Materialized<K, A>,
    ) -> KTable<Windowed<K>, A, N>
    where
        I: Fn() -> N::Owned<A> + Send + Sync + 'static,
    {
        self.try_aggregate(move || Ok::<_, UserError>(initializer()), materialized)
    }

    /// [`aggregate`](Self::aggregate) with a function that can fail.
    pub fn try_aggregate<I, E>(
        &self,
        initializer: I,
        materialized: Materialized<K, A>,
    ) -> KTable<Windowed<K>, A, N>
    where
        I: Fn() -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let initial: Initial<A> =
            Arc::new(move || initializer().map(N::into_option).map_err(E::into));
        self.cogroup.add_windowed(self.shape, &initial, None, materialized)
    }
}

impl<K: 'static, A: 'static, N: Nullity> SessionWindowedCogroupedKStream<K, A, N> {
    pub(crate) const fn new(cogroup: CogroupedKStream<K, A, N>, spans: SessionSpans) -> Self {
        Self { cogroup, spans }
    }

    /// Folds the records of all streams into one aggregate per key and session, which begins with what
    /// `initializer` makes; `merger` makes one aggregate of those of sessions that become one.
    pub fn aggregate<I, M>(
        &self,
        initializer: I,
        merger: M,
        materialized: Materialized<K, A>,
    ) -> KTable<Windowed<K>, A, N>
    where
        I: Fn() -> N::Owned<A> + Send + Sync + 'static,
        M: Fn(&K, N::Owned<A>, A) -> N::Owned<A> + Send + Sync + 'static,
    {
        self.try_aggregate(
            move || Ok::<_, UserError>(initializer()),
            move |key, so_far, other| Ok::<_, UserError>(merger(key, so_far, other)),
            materialized,
        )
    }

    /// [`aggregate`](Self::aggregate) with functions that can fail.
    pub fn try_aggregate<I, M, E>(
        &self,
        initializer: I,
        merger: M,
        materialized: Materialized<K, A>,
    ) -> KTable<Windowed<K>, A, N>
    where
        I: Fn() -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        M: Fn(&K, N::Owned<A>, A) -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let initial: Initial<A> =
            Arc::new(move || initializer().map(N::into_option).map_err(E::into));
        let merge = merge_with::<K, A, N, _, _>(merger);
        let shape = Shape::Session(self.spans);
        self.cogroup.add_windowed(shape, &initial, Some(&merge), materialized)
    }
}

impl<K, A, N> fmt::Debug for TimeWindowedCogroupedKStream<K, A, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeWindowedCogroupedKStream")
            .field("cogroup", &self.cogroup)
            .field("windows", &self.shape)
            .finish()
    }
}

impl<K, A, N> fmt::Debug for SessionWindowedCogroupedKStream<K, A, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionWindowedCogroupedKStream")
            .field("cogroup", &self.cogroup)
            .field("windows", &self.spans)
            .finish()
    }
}
