//! Tables.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use headwater_runtime::UserError;

use crate::graph::{LogicalGraph, LogicalKind, NodeKey, Processor, SharedGraph};
use crate::kgrouped_table::KGroupedTable;
use crate::kstream::KStream;
use crate::nodes::{
    Kept, MapTable, NewValue, filter_view, map_table, map_view, regroup, table_to_stream,
};
use crate::nullity::{Nullable, Nullity, Present};
use crate::params::{Grouped, Materialized, Processed};
use crate::serdes::Codec;

mod foreign_key;
mod join;
mod suppress;
mod transform;

/// A table: for each key its latest value (feature row D3).
///
/// Its functions see values only: a deleted key stays deleted. What `N` says is whether a function may
/// delete a key by returning `None`, see [`Nullity`].
pub struct KTable<K, V, N = Present> {
    graph: SharedGraph,
    node: NodeKey,
    key_serde: Option<Codec<K>>,
    value_serde: Option<Codec<V>>,
    queryable: Option<String>,
    nullity: PhantomData<N>,
}

impl<K: 'static, V: 'static, N: Nullity> KTable<K, V, N> {
    pub(crate) fn new(
        graph: &SharedGraph,
        node: NodeKey,
        key_serde: Option<Codec<K>>,
        value_serde: Option<Codec<V>>,
        queryable: Option<String>,
    ) -> Self {
        Self {
            graph: Rc::clone(graph),
            node,
            key_serde,
            value_serde,
            queryable,
            nullity: PhantomData,
        }
    }

    pub(crate) const fn graph(&self) -> &SharedGraph {
        &self.graph
    }

    pub(crate) const fn node(&self) -> NodeKey {
        self.node
    }

    /// The name under which the table can be queried, if it has one.
    pub fn queryable_store_name(&self) -> Option<&str> {
        self.queryable.as_deref()
    }

    /// The table whose functions may return `None` to delete a key.
    pub fn nullable(&self) -> KTable<K, V, Nullable> {
        self.with_nullity()
    }

    /// The table whose functions return values.
    pub fn present(&self) -> KTable<K, V, Present> {
        self.with_nullity()
    }

    /// Names the node of the operator that made this table.
    #[doc(alias = "Named")]
    #[must_use = "the table goes on from here"]
    pub fn named(self, name: impl AsRef<str>) -> Self {
        self.graph.borrow_mut().rename(self.node, name.as_ref());
        self
    }

    /// The updates of the table as a stream: a deletion is a record with a null value.
    pub fn to_stream(&self) -> KStream<K, V, Nullable> {
        let mut graph = self.graph.borrow_mut();
        let name = graph.name_or_next(None, "KTABLE-TOSTREAM-");
        let kind = LogicalKind::Processor(Processor::new(table_to_stream::<K, V>()));
        let node = graph.add(&[self.node], name, kind);
        drop(graph);
        KStream::new(&self.graph, node, self.key_serde.clone(), self.value_serde.clone(), false)
    }

    /// The part of the table that the predicate holds for; other keys are deleted (feature row D47).
    pub fn filter<F>(&self, predicate: F) -> Self
    where
        F: Fn(&K, &V) -> bool + Send + Sync + 'static,
    {
        self.try_filter(move |key, value| Ok::<_, UserError>(predicate(key, value)))
    }

    /// [`filter`](Self::filter) with a predicate that can fail.
    pub fn try_filter<F, E>(&self, predicate: F) -> Self
    where
        F: Fn(&K, &V) -> Result<bool, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.add_filter(predicate, None)
    }

    /// [`filter`](Self::filter), with the result kept in a store.
    pub fn filter_materialized<F>(&self, predicate: F, materialized: Materialized<K, V>) -> Self
    where
        F: Fn(&K, &V) -> bool + Send + Sync + 'static,
    {
        self.try_filter_materialized(
            move |key, value| Ok::<_, UserError>(predicate(key, value)),
            materialized,
        )
    }

    /// [`filter_materialized`](Self::filter_materialized) with a predicate that can fail.
    pub fn try_filter_materialized<F, E>(
        &self,
        predicate: F,
        materialized: Materialized<K, V>,
    ) -> Self
    where
        F: Fn(&K, &V) -> Result<bool, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.add_filter(predicate, Some(materialized))
    }

    /// The part of the table that the predicate does not hold for.
    pub fn filter_not<F>(&self, predicate: F) -> Self
    where
        F: Fn(&K, &V) -> bool + Send + Sync + 'static,
    {
        self.filter(move |key, value| !predicate(key, value))
    }

    /// [`filter_not`](Self::filter_not) with a predicate that can fail.
    pub fn try_filter_not<F, E>(&self, predicate: F) -> Self
    where
        F: Fn(&K, &V) -> Result<bool, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.try_filter(move |key, value| predicate(key, value).map(|holds| !holds))
    }

    /// [`filter_not`](Self::filter_not), with the result kept in a store.
    pub fn filter_not_materialized<F>(&self, predicate: F, materialized: Materialized<K, V>) -> Self
    where
        F: Fn(&K, &V) -> bool + Send + Sync + 'static,
    {
        self.filter_materialized(move |key, value| !predicate(key, value), materialized)
    }

    /// [`filter_not_materialized`](Self::filter_not_materialized) with a predicate that can fail.
    pub fn try_filter_not_materialized<F, E>(
        &self,
        predicate: F,
        materialized: Materialized<K, V>,
    ) -> Self
    where
        F: Fn(&K, &V) -> Result<bool, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.try_filter_materialized(
            move |key, value| predicate(key, value).map(|holds| !holds),
            materialized,
        )
    }

    /// The table with other values.
    pub fn map_values<V2: 'static, F>(&self, mapper: F) -> KTable<K, V2, N>
    where
        F: Fn(&V) -> N::Owned<V2> + Send + Sync + 'static,
    {
        self.try_map_values_with_key(move |_, value| Ok::<_, UserError>(mapper(value)))
    }

    /// [`map_values`](Self::map_values) with a function that can fail.
    pub fn try_map_values<V2: 'static, F, E>(&self, mapper: F) -> KTable<K, V2, N>
    where
        F: Fn(&V) -> Result<N::Owned<V2>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.try_map_values_with_key(move |_, value| mapper(value))
    }

    /// [`map_values`](Self::map_values) with a function that sees the key too.
    pub fn map_values_with_key<V2: 'static, F>(&self, mapper: F) -> KTable<K, V2, N>
    where
        F: Fn(&K, &V) -> N::Owned<V2> + Send + Sync + 'static,
    {
        self.try_map_values_with_key(move |key, value| Ok::<_, UserError>(mapper(key, value)))
    }

    /// [`map_values_with_key`](Self::map_values_with_key) with a function that can fail.
    pub fn try_map_values_with_key<V2: 'static, F, E>(&self, mapper: F) -> KTable<K, V2, N>
    where
        F: Fn(&K, &V) -> Result<N::Owned<V2>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.add_map(mapper, None)
    }

    /// [`map_values`](Self::map_values), with the result kept in a store.
    pub fn map_values_materialized<V2: 'static, F>(
        &self,
        mapper: F,
        materialized: Materialized<K, V2>,
    ) -> KTable<K, V2, N>
    where
        F: Fn(&K, &V) -> N::Owned<V2> + Send + Sync + 'static,
    {
        self.try_map_values_materialized(
            move |key, value| Ok::<_, UserError>(mapper(key, value)),
            materialized,
        )
    }

    /// [`map_values_materialized`](Self::map_values_materialized) with a function that can fail.
    pub fn try_map_values_materialized<V2: 'static, F, E>(
        &self,
        mapper: F,
        materialized: Materialized<K, V2>,
    ) -> KTable<K, V2, N>
    where
        F: Fn(&K, &V) -> Result<N::Owned<V2>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.add_map(mapper, Some(materialized))
    }

    /// Groups the values of the table by keys made of them, for an aggregation that follows every
    /// update (feature row D48). The updates go through a repartition topic; a value for which the
    /// function makes no key or no value belongs to no group.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Grouped, Materialized, StreamsBuilder};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// // From users with their cities to cities with their numbers of users.
    /// let population = builder
    ///     .table("cities-of-users", Consumed::with(Utf8, Utf8), Materialized::new())
    ///     .group_by(|user, city| (city.clone(), user.clone()), Grouped::with(Utf8, Utf8))
    ///     .count(Materialized::named("population"));
    /// # drop(population);
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn group_by<K2, V2, F>(
        &self,
        selector: F,
        grouped: Grouped<K2, V2>,
    ) -> KGroupedTable<K2, V2, N>
    where
        K2: PartialEq + 'static,
        V2: 'static,
        F: Fn(&K, &V) -> (N::Owned<K2>, N::Owned<V2>) + Send + Sync + 'static,
    {
        self.try_group_by(move |key, value| Ok::<_, UserError>(selector(key, value)), grouped)
    }

    /// [`group_by`](Self::group_by) with a function that can fail.
    pub fn try_group_by<K2, V2, F, E>(
        &self,
        selector: F,
        grouped: Grouped<K2, V2>,
    ) -> KGroupedTable<K2, V2, N>
    where
        K2: PartialEq + 'static,
        V2: 'static,
        F: Fn(&K, &V) -> Result<(N::Owned<K2>, N::Owned<V2>), E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let mut graph = self.graph.borrow_mut();
        let name = graph.name_or_next(grouped.name.as_deref(), "KTABLE-SELECT-");
        let wire = regroup::<K, V, K2, V2, _>(move |key, value| {
            let (key, value) = selector(key, value).map_err(E::into)?;
            Ok((N::into_option(key), N::into_option(value)))
        });
        let node = graph.add(&[self.node], name, LogicalKind::Processor(Processor::new(wire)));
        graph.send_old_values(self.node, true);
        drop(graph);
        KGroupedTable::new(&self.graph, node, grouped)
    }

    fn with_nullity<M: Nullity>(&self) -> KTable<K, V, M> {
        KTable::new(
            &self.graph,
            self.node,
            self.key_serde.clone(),
            self.value_serde.clone(),
            self.queryable.clone(),
        )
    }

    fn add_filter<F, E>(&self, predicate: F, materialized: Option<Materialized<K, V>>) -> Self
    where
        F: Fn(&K, &V) -> Result<bool, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.take_store_number(FILTER, materialized.as_ref());
        let materialized =
            materialized.map(|it| it.or_serdes(self.key_serde.as_ref(), self.value_serde.as_ref()));
        let predicate = Arc::new(move |key: &K, value: &V| predicate(key, value).map_err(E::into));
        let view = filter_view(self.node, Arc::clone(&predicate));
        let filtered = self.derive(
            FILTER,
            self.value_serde.clone(),
            materialized,
            Processed::new(),
            move |kept| {
                map_table(MapTable { compute: keep_if(predicate), kept, swallows_nothing: true })
            },
        );
        let mut graph = self.graph.borrow_mut();
        graph.set_view(filtered.node, view);
        graph.use_old_values_of_parent(filtered.node);
        filtered
    }

    fn add_map<V2: 'static, F, E>(
        &self,
        mapper: F,
        materialized: Option<Materialized<K, V2>>,
    ) -> KTable<K, V2, N>
    where
        F: Fn(&K, &V) -> Result<N::Owned<V2>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.take_store_number(MAP_VALUES, materialized.as_ref());
        let materialized = materialized.map(|it| it.or_serdes(self.key_serde.as_ref(), None));
        let mapper = Arc::new(move |key: &K, value: &V| {
            mapper(key, value).map(N::into_option).map_err(E::into)
        });
        let view = map_view::<K, V, V2, _>(self.node, Arc::clone(&mapper));
        let compute = make_new(mapper);
        let mapped = self.derive(MAP_VALUES, None, materialized, Processed::new(), move |kept| {
            map_table::<K, V, V2, _>(MapTable { compute, kept, swallows_nothing: false })
        });
        self.graph.borrow_mut().set_view(mapped.node, view);
        mapped
    }

    /// Takes the number of a store that the original then does without: filters and maps do so.
    fn take_store_number<V2>(&self, prefix: &str, materialized: Option<&Materialized<K, V2>>) {
        if materialized.is_some_and(|it| it.name.is_none()) {
            self.graph.borrow_mut().names.store_name(prefix);
        }
    }

    /// Adds an operator that makes a table of this one. `value_serde` is what the result inherits.
    fn derive<V2: 'static>(
        &self,
        prefix: &str,
        value_serde: Option<Codec<V2>>,
        materialized: Option<Materialized<K, V2>>,
        processed: Processed,
        wire: impl FnOnce(Option<Kept<K, V2>>) -> crate::wiring::WireInner,
    ) -> KTable<K, V2, N> {
        let mut graph = self.graph.borrow_mut();
        let materialized = materialized.map(|it| it.checked(&mut graph));
        let store_name = materialized.as_ref().and_then(|it| it.name.clone());
        let Processed { name, connected, provided } = processed;
        let name = graph.name_or_next(name.as_deref(), prefix);
        let kept = materialized.as_ref().zip(store_name.clone()).map(|(it, store)| Kept {
            store,
            key: it.key.clone(),
            value: it.value.clone(),
        });
        let own = materialized.as_ref().zip(store_name.as_ref());
        let stores = own.map(|(it, store)| it.declare(store)).into_iter().chain(provided);
        let mut processor = Processor::new(wire(kept)).with_stores(stores.collect());
        processor.connected = connected;
        processor.old_values_from_parent = store_name.is_none();
        processor.is_versioned_as_parent = materialized.is_none();
        let node = graph.add(&[self.node], name, LogicalKind::Processor(processor));
        drop(graph);
        let (key_serde, own_value_serde) =
            materialized.map_or((self.key_serde.clone(), None), |it| (it.key, it.value));
        KTable::new(&self.graph, node, key_serde, own_value_serde.or(value_serde), store_name)
    }
}

const FILTER: &str = "KTABLE-FILTER-";
const MAP_VALUES: &str = "KTABLE-MAPVALUES-";

fn keep_if<K, V, P>(
    predicate: Arc<P>,
) -> impl for<'a> Fn(&'a K, &'a V) -> Result<NewValue<'a, V>, UserError> + Send + Sync + 'static
where
    P: Fn(&K, &V) -> Result<bool, UserError> + Send + Sync + 'static,
{
    move |key, value| {
        let holds = predicate(key, value)?;
        Ok(if holds { NewValue::Given(value) } else { NewValue::Made(None) })
    }
}

fn make_new<K, V, V2, F>(
    mapper: Arc<F>,
) -> impl for<'a> Fn(&'a K, &'a V) -> Result<NewValue<'a, V2>, UserError> + Send + Sync + 'static
where
    F: Fn(&K, &V) -> Result<Option<V2>, UserError> + Send + Sync + 'static,
{
    move |key, value| mapper(key, value).map(NewValue::Made)
}

impl<K, V, N> Clone for KTable<K, V, N> {
    fn clone(&self) -> Self {
        Self {
            graph: Rc::clone(&self.graph),
            node: self.node,
            key_serde: self.key_serde.clone(),
            value_serde: self.value_serde.clone(),
            queryable: self.queryable.clone(),
            nullity: PhantomData,
        }
    }
}

impl<K, V, N> fmt::Debug for KTable<K, V, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph: &LogicalGraph = &self.graph.borrow();
        f.debug_struct("KTable").field("node", &graph.name(self.node)).finish_non_exhaustive()
    }
}
