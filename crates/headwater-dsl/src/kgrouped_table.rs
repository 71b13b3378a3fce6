//! Grouped tables and their aggregations.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use headwater_runtime::UserError;
use headwater_store::serde::Long;

use crate::builder::SOURCE;
use crate::graph::{
    LogicalGraph, LogicalKind, NodeKey, OnRename, Processor, Repartition, SharedGraph, Wire,
};
use crate::kstream::SINK;
use crate::ktable::KTable;
use crate::nodes::{Kept, NewValue, aggregate_table, change_sink, change_source};
use crate::nullity::{Nullity, Present, wrap};
use crate::params::{Grouped, Materialized};
use crate::record::Change;
use crate::serdes::{Codec, codec};
use crate::wiring::WireInner;

/// The values of a table, grouped by keys made of them (feature row D6).
///
/// An aggregate follows the table: when a value is changed, what it was is subtracted and what it is
/// now is added. The time of a result is the highest of the updates that went into it.
pub struct KGroupedTable<K, V, N = Present> {
    graph: SharedGraph,
    node: NodeKey,
    key_serde: Option<Codec<K>>,
    value_serde: Option<Codec<V>>,
    name: Option<String>,
    /// The repartition that aggregations share, if the group has a name.
    repartition: Rc<Cell<Option<NodeKey>>>,
    nullity: PhantomData<N>,
}

impl<K: 'static, V: 'static, N: Nullity> KGroupedTable<K, V, N> {
    pub(crate) fn new(graph: &SharedGraph, node: NodeKey, grouped: Grouped<K, V>) -> Self {
        Self {
            graph: Rc::clone(graph),
            node,
            key_serde: grouped.key,
            value_serde: grouped.value,
            name: grouped.name,
            repartition: Rc::default(),
            nullity: PhantomData,
        }
    }

    /// Counts the values of each group.
    pub fn count(&self, materialized: Materialized<K, i64>) -> KTable<K, i64, N> {
        let materialized = materialized.or_serdes(self.key_serde.as_ref(), Some(&codec(Long)));
        let fold = Fold {
            initializer: || Ok(Some(0)),
            adder: |_: &K, _: &V, count: Option<i64>| Ok(count.map(|it| it.wrapping_add(1))),
            subtractor: |_: &K, _: &V, count: Option<i64>| Ok(count.map(|it| it.wrapping_sub(1))),
        };
        self.add(AGGREGATE, materialized, |kept| {
            aggregate_table(kept, move |key, change, so_far| fold.apply(key, change, so_far))
        })
    }

    /// Combines the values of each group: `adder` takes a further value into the result so far, which
    /// is the first argument, `subtractor` takes one out again.
    pub fn reduce<F, G>(
        &self,
        adder: F,
        subtractor: G,
        materialized: Materialized<K, V>,
    ) -> KTable<K, V, N>
    where
        F: Fn(&V, &V) -> N::Owned<V> + Send + Sync + 'static,
        G: Fn(&V, &V) -> N::Owned<V> + Send + Sync + 'static,
    {
        self.try_reduce(
            move |so_far, value| Ok::<_, UserError>(adder(so_far, value)),
            move |so_far, value| Ok::<_, UserError>(subtractor(so_far, value)),
            materialized,
        )
    }

    /// [`reduce`](Self::reduce) with functions that can fail.
    pub fn try_reduce<F, G, E>(
        &self,
        adder: F,
        subtractor: G,
        materialized: Materialized<K, V>,
    ) -> KTable<K, V, N>
    where
        F: Fn(&V, &V) -> Result<N::Owned<V>, E> + Send + Sync + 'static,
        G: Fn(&V, &V) -> Result<N::Owned<V>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let materialized =
            materialized.or_serdes(self.key_serde.as_ref(), self.value_serde.as_ref());
        self.add("KTABLE-REDUCE-", materialized, |kept| {
            aggregate_table::<K, V, V, _>(kept, move |_, change, so_far| {
                reduce(
                    |so_far, value| adder(so_far, value).map(N::into_option).map_err(E::into),
                    |so_far, value| subtractor(so_far, value).map(N::into_option).map_err(E::into),
                    change,
                    so_far,
                )
            })
        })
    }

    /// Folds the values of each group into an aggregate: `adder` takes a value in, `subtractor` takes
    /// one out again.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Grouped, Materialized, StreamsBuilder};
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// let total = builder
    ///     .table("stock", Consumed::with(Utf8, Long), Materialized::new())
    ///     .group_by(|_, amount| ("all".to_owned(), *amount), Grouped::with(Utf8, Long))
    ///     .aggregate(
    ///         || 0,
    ///         |_, amount, total| total + amount,
    ///         |_, amount, total| total - amount,
    ///         Materialized::named("total").with_value_serde(Long),
    ///     );
    /// # drop(total);
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn aggregate<A: 'static, I, F, G>(
        &self,
        initializer: I,
        adder: F,
        subtractor: G,
        materialized: Materialized<K, A>,
    ) -> KTable<K, A, N>
    where
        I: Fn() -> N::Owned<A> + Send + Sync + 'static,
        F: Fn(&K, &V, N::Owned<A>) -> N::Owned<A> + Send + Sync + 'static,
        G: Fn(&K, &V, N::Owned<A>) -> N::Owned<A> + Send + Sync + 'static,
    {
        self.try_aggregate(
            move || Ok::<_, UserError>(initializer()),
            move |key, value, so_far| Ok::<_, UserError>(adder(key, value, so_far)),
            move |key, value, so_far| Ok::<_, UserError>(subtractor(key, value, so_far)),
            materialized,
        )
    }

    /// [`aggregate`](Self::aggregate) with functions that can fail.
    pub fn try_aggregate<A: 'static, I, F, G, E>(
        &self,
        initializer: I,
        adder: F,
        subtractor: G,
        materialized: Materialized<K, A>,
    ) -> KTable<K, A, N>
    where
        I: Fn() -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        F: Fn(&K, &V, N::Owned<A>) -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        G: Fn(&K, &V, N::Owned<A>) -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let materialized = materialized.or_serdes(self.key_serde.as_ref(), None);
        let fold = Fold {
            initializer: move || initializer().map(N::into_option).map_err(E::into),
            adder: move |key: &K, value: &V, so_far: Option<A>| {
                adder(key, value, wrap::<N, A>(so_far)).map(N::into_option).map_err(E::into)
            },
            subtractor: move |key: &K, value: &V, so_far: Option<A>| {
                subtractor(key, value, wrap::<N, A>(so_far)).map(N::into_option).map_err(E::into)
            },
        };
        self.add(AGGREGATE, materialized, |kept| {
            aggregate_table(kept, move |key, change, so_far| fold.apply(key, change, so_far))
        })
    }

    /// Adds the aggregation and the repartition before it.
    fn add<A: 'static>(
        &self,
        prefix: &str,
        materialized: Materialized<K, A>,
        wire: impl FnOnce(Kept<K, A>) -> WireInner,
    ) -> KTable<K, A, N> {
        let mut graph = self.graph.borrow_mut();
        let materialized = materialized.checked(&mut graph);
        let store = match &materialized.name {
            Some(name) => name.clone(),
            // The original has one prefix for the stores of all aggregations of grouped tables.
            None => graph.names.store_name(AGGREGATE),
        };
        graph.note_generated(materialized.generated_names(&store));
        let sink_name = graph.names.processor_name(SINK);
        let source_name = graph.names.processor_name(SOURCE);
        let name = graph.names.processor_name(prefix);
        let kept = Kept {
            store: store.clone(),
            key: materialized.key.clone(),
            value: materialized.value.clone(),
        };
        let shared = self.repartition.get().filter(|_| self.name.is_some());
        let repartition = shared.unwrap_or_else(|| {
            let topic = format!("{}-repartition", self.name.as_deref().unwrap_or(&store));
            let repartition = self.repartition(topic, sink_name, source_name);
            let name = repartition.source_name.clone();
            graph.add(&[], name, LogicalKind::Repartition(repartition))
        });
        self.repartition.set(Some(repartition));
        graph.add_again(self.node, repartition);
        let processor = Processor {
            on_rename: match shared {
                Some(_) => OnRename::Nothing,
                None => OnRename::TableRepartition(repartition),
            },
            ..Processor::new(wire(kept))
        };
        let processor = processor.with_stores(vec![materialized.declare(&store)]);
        let node = graph.add(&[repartition], name, LogicalKind::Processor(processor));
        drop(graph);
        let Materialized { name, key, value, .. } = materialized;
        KTable::new(&self.graph, node, key, value, name)
    }

    fn repartition(&self, topic: String, sink_name: String, source_name: String) -> Repartition {
        let (key, value) = (self.key_serde.clone(), self.value_serde.clone());
        Repartition {
            topic,
            partitions: None,
            sink_name,
            source_name,
            filter: None,
            serdes: None,
            sink: Wire(change_sink(key.clone(), value.clone())),
            source: Wire(change_source(key, value)),
        }
    }
}

const AGGREGATE: &str = "KTABLE-AGGREGATE-";

/// What an aggregation does, over values that may be null.
struct Fold<I, F, G> {
    initializer: I,
    adder: F,
    subtractor: G,
}

impl<I, F, G> Fold<I, F, G> {
    fn apply<'a, K, V, A>(
        &self,
        key: &K,
        change: Change<'_, V>,
        so_far: Option<A>,
    ) -> Result<NewValue<'a, A>, UserError>
    where
        I: Fn() -> Result<Option<A>, UserError>,
        F: Fn(&K, &V, Option<A>) -> Result<Option<A>, UserError>,
        G: Fn(&K, &V, Option<A>) -> Result<Option<A>, UserError>,
    {
        let so_far = match (change.old, so_far) {
            (Some(old), Some(so_far)) => (self.subtractor)(key, old, Some(so_far))?,
            (_, so_far) => so_far,
        };
        let Some(new) = change.new else { return Ok(NewValue::Made(so_far)) };
        let so_far = match so_far {
            Some(so_far) => Some(so_far),
            None => (self.initializer)()?,
        };
        (self.adder)(key, new, so_far).map(NewValue::Made)
    }
}

/// What a reduction does: the first value of a group is taken as it is.
fn reduce<V>(
    adder: impl Fn(&V, &V) -> Result<Option<V>, UserError>,
    subtractor: impl Fn(&V, &V) -> Result<Option<V>, UserError>,
    change: Change<'_, V>,
    so_far: Option<V>,
) -> Result<NewValue<'_, V>, UserError> {
    let so_far = match (change.old, so_far) {
        (Some(old), Some(so_far)) => subtractor(&so_far, old)?,
        (_, so_far) => so_far,
    };
    match (change.new, so_far) {
        (None, so_far) => Ok(NewValue::Made(so_far)),
        (Some(new), None) => Ok(NewValue::Given(new)),
        (Some(new), Some(so_far)) => adder(&so_far, new).map(NewValue::Made),
    }
}

impl<K, V, N> fmt::Debug for KGroupedTable<K, V, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph: &LogicalGraph = &self.graph.borrow();
        f.debug_struct("KGroupedTable")
            .field("node", &graph.name(self.node))
            .finish_non_exhaustive()
    }
}
