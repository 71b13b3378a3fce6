//! Grouped streams and their aggregations.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use headwater_runtime::UserError;

use headwater_store::serde::Long;
use headwater_topology::GeneratedNames;

use crate::builder::own_or_inherited;
use crate::error::DslError;
use crate::graph::{LogicalGraph, LogicalKind, NodeKey, Processor, Repartition, SharedGraph};
use crate::kstream::{RepartitionSettings, repartition};
use crate::ktable::KTable;
use crate::nodes::{Aggregation, Kept, NewValue, aggregate};
use crate::nullity::{Nullity, Present, wrap};
use crate::params::Materialized;
use crate::serdes::{Codec, codec};
use crate::wiring::WireInner;

/// Records grouped by key, to be aggregated (feature row D5).
///
/// Records without key or value are dropped and counted. The time of a result is the highest of the
/// records that went into it (feature row D24).
pub struct KGroupedStream<K, V, N = Present> {
    graph: SharedGraph,
    node: NodeKey,
    key_serde: Option<Codec<K>>,
    value_serde: Option<Codec<V>>,
    name: Option<String>,
    repartition_required: bool,
    /// The repartition that aggregations share, if the group has a name.
    repartition: Rc<Cell<Option<NodeKey>>>,
    nullity: PhantomData<N>,
}

impl<K: 'static, V: 'static, N: Nullity> KGroupedStream<K, V, N> {
    pub(crate) fn new(
        graph: &SharedGraph,
        node: NodeKey,
        key_serde: Option<Codec<K>>,
        value_serde: Option<Codec<V>>,
        name: Option<String>,
        repartition_required: bool,
    ) -> Self {
        Self {
            graph: Rc::clone(graph),
            node,
            key_serde,
            value_serde,
            name,
            repartition_required,
            repartition: Rc::default(),
            nullity: PhantomData,
        }
    }

    /// Counts the records of each key.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Grouped, Materialized, Produced, StreamsBuilder};
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// builder
    ///     .stream("visits", Consumed::with(Utf8, Utf8))
    ///     .group_by_key(Grouped::new())
    ///     .count(Materialized::named("visits-by-user"))
    ///     .to_stream()
    ///     .to("visit-counts", Produced::with(Utf8, Long));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn count(&self, materialized: Materialized<K, i64>) -> KTable<K, i64, N> {
        let materialized = self.of_count(materialized);
        self.add(AGGREGATE, materialized, |kept| {
            aggregate::<K, V, i64, _, _>(
                kept,
                Aggregation {
                    initial: || Ok(Some(0)),
                    compute: computed(|_, _, count: Option<i64>| {
                        Ok(Some(count.unwrap_or(0).wrapping_add(1)))
                    }),
                },
            )
        })
    }

    /// What a count is kept in, in windows or not.
    pub(crate) fn of_count(&self, materialized: Materialized<K, i64>) -> Materialized<K, i64> {
        if materialized.given && materialized.name.is_none() {
            // The original took a name for the store twice once, and has kept doing so.
            self.graph.borrow_mut().names.store_name(AGGREGATE);
        }
        self.of_sliding_count(materialized)
    }

    /// As [`of_count`](Self::of_count) in sliding windows, which are younger than that.
    pub(crate) fn of_sliding_count(
        &self,
        materialized: Materialized<K, i64>,
    ) -> Materialized<K, i64> {
        materialized.or_serdes(self.key_serde.as_ref(), Some(&codec(Long)))
    }

    /// Combines the values of each key: the first as it is, each further one with the result so far,
    /// which is the first argument.
    pub fn reduce<F>(&self, reducer: F, materialized: Materialized<K, V>) -> KTable<K, V, N>
    where
        F: Fn(&V, &V) -> N::Owned<V> + Send + Sync + 'static,
    {
        self.try_reduce(
            move |so_far, value| Ok::<_, UserError>(reducer(so_far, value)),
            materialized,
        )
    }

    /// [`reduce`](Self::reduce) with a function that can fail.
    pub fn try_reduce<F, E>(&self, reducer: F, materialized: Materialized<K, V>) -> KTable<K, V, N>
    where
        F: Fn(&V, &V) -> Result<N::Owned<V>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let materialized =
            materialized.or_serdes(self.key_serde.as_ref(), self.value_serde.as_ref());
        self.add(REDUCE, materialized, |kept| {
            aggregate::<K, V, V, _, _>(
                kept,
                Aggregation {
                    initial: || Ok(None),
                    compute: reduced(move |so_far: &V, value: &V| {
                        reducer(so_far, value).map(N::into_option).map_err(E::into)
                    }),
                },
            )
        })
    }

    /// Folds the records of each key into an aggregate, beginning with what `initializer` makes.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Grouped, Materialized, StreamsBuilder};
    /// use headwater_store::serde::{Json, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// let pages = builder
    ///     .stream("visits", Consumed::with(Utf8, Utf8))
    ///     .group_by_key(Grouped::new())
    ///     .aggregate(
    ///         Vec::new,
    ///         |_user, page, mut pages| {
    ///             pages.push(page.clone());
    ///             pages
    ///         },
    ///         Materialized::named("pages-by-user").with_value_serde(Json::<Vec<String>>::new()),
    ///     );
    /// # drop(pages);
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn aggregate<A: 'static, I, F>(
        &self,
        initializer: I,
        aggregator: F,
        materialized: Materialized<K, A>,
    ) -> KTable<K, A, N>
    where
        I: Fn() -> N::Owned<A> + Send + Sync + 'static,
        F: Fn(&K, &V, N::Owned<A>) -> N::Owned<A> + Send + Sync + 'static,
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
    ) -> KTable<K, A, N>
    where
        I: Fn() -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        F: Fn(&K, &V, N::Owned<A>) -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let materialized = materialized.or_serdes(self.key_serde.as_ref(), None);
        self.add(AGGREGATE, materialized, |kept| {
            aggregate::<K, V, A, _, _>(
                kept,
                Aggregation {
                    initial: move || initializer().map(N::into_option).map_err(E::into),
                    compute: computed(move |key: &K, value: &V, so_far: Option<A>| {
                        aggregator(key, value, wrap::<N, A>(so_far))
                            .map(N::into_option)
                            .map_err(E::into)
                    }),
                },
            )
        })
    }

    /// Adds the aggregation, after a repartition if one is needed.
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
            None => graph.names.store_name(prefix),
        };
        let is_generated = materialized.name.is_none() && self.makes_topic_of_store();
        graph.note_generated(GeneratedNames {
            repartition_topic: is_generated.then(|| Repartition::topic(&store)),
            ..materialized.generated_names(&store)
        });
        let name = graph.name_or_next(None, prefix);
        let kept = Kept {
            store: store.clone(),
            key: materialized.key.clone(),
            value: materialized.value.clone(),
        };
        let parent = self.parent(&mut graph, &store, materialized.name.is_some());
        let processor = Processor::new(wire(kept)).with_stores(vec![materialized.declare(&store)]);
        let node = graph.add(&[parent], name, LogicalKind::Processor(processor));
        drop(graph);
        let Materialized { name, key, value, .. } = materialized;
        KTable::new(&self.graph, node, key, value, name)
    }

    /// Whether there is a repartition topic that is called after the store.
    pub(crate) const fn makes_topic_of_store(&self) -> bool {
        self.repartition_required && self.name.is_none()
    }

    /// What operators on the group go on with: the graph, and the key serde.
    pub(crate) fn shared(&self) -> (SharedGraph, Option<Codec<K>>) {
        (Rc::clone(&self.graph), self.key_serde.clone())
    }

    pub(crate) const fn value_serde(&self) -> Option<&Codec<V>> {
        self.value_serde.as_ref()
    }

    /// Tells groups apart, as one group is one input of a cogroup however often it is given.
    pub(crate) fn identity(&self) -> *const () {
        Rc::as_ptr(&self.repartition).cast()
    }

    pub(crate) const fn node(&self) -> NodeKey {
        self.node
    }

    pub(crate) fn of_another_builder(&self) -> DslError {
        DslError::OtherBuilder { node: self.graph.borrow().name(self.node).to_owned() }
    }

    /// The node that the aggregation gets its records from.
    pub(crate) fn parent(
        &self,
        graph: &mut LogicalGraph,
        store: &str,
        store_is_named: bool,
    ) -> NodeKey {
        if !self.repartition_required {
            return self.node;
        }
        let prefix = self.name.as_deref().unwrap_or(store);
        let named = self.name.is_some() || store_is_named;
        let settings = RepartitionSettings {
            key: self.key_serde.clone(),
            value: own_or_inherited(self.value_serde.clone(), None),
            partitioner: None,
            partitions: None,
        };
        // Made even where the shared one is taken, because it takes numbers.
        let own = repartition(graph, prefix, named, settings);
        match self.repartition.get() {
            Some(shared) if self.name.is_some() => {
                graph.add_again(self.node, shared);
                shared
            }
            _ => {
                let source_name = own.source_name.clone();
                let node = graph.add(&[self.node], source_name, LogicalKind::Repartition(own));
                self.repartition.set(Some(node));
                node
            }
        }
    }
}

pub(crate) const AGGREGATE: &str = "KSTREAM-AGGREGATE-";
pub(crate) const REDUCE: &str = "KSTREAM-REDUCE-";

/// An aggregator that makes a new value.
fn computed<K, V, A, F>(
    aggregator: F,
) -> impl for<'a> Fn(&'a K, &'a V, Option<A>) -> Result<NewValue<'a, A>, UserError> + Send + Sync + 'static
where
    F: Fn(&K, &V, Option<A>) -> Result<Option<A>, UserError> + Send + Sync + 'static,
{
    move |key, value, so_far| aggregator(key, value, so_far).map(NewValue::Made)
}

/// A reducer: the first value is taken as it is.
fn reduced<K, V, F>(
    reducer: F,
) -> impl for<'a> Fn(&'a K, &'a V, Option<V>) -> Result<NewValue<'a, V>, UserError> + Send + Sync + 'static
where
    F: Fn(&V, &V) -> Result<Option<V>, UserError> + Send + Sync + 'static,
{
    move |_, value, so_far| match so_far {
        Some(so_far) => reducer(&so_far, value).map(NewValue::Made),
        None => Ok(NewValue::Given(value)),
    }
}

impl<K, V, N> Clone for KGroupedStream<K, V, N> {
    fn clone(&self) -> Self {
        Self {
            graph: Rc::clone(&self.graph),
            node: self.node,
            key_serde: self.key_serde.clone(),
            value_serde: self.value_serde.clone(),
            name: self.name.clone(),
            repartition_required: self.repartition_required,
            repartition: Rc::clone(&self.repartition),
            nullity: PhantomData,
        }
    }
}

impl<K, V, N> fmt::Debug for KGroupedStream<K, V, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph: &LogicalGraph = &self.graph.borrow();
        f.debug_struct("KGroupedStream")
            .field("node", &graph.name(self.node))
            .finish_non_exhaustive()
    }
}
