//! Joins of two tables by their keys.

use std::rc::Rc;
use std::sync::Arc;

use headwater_runtime::UserError;

use super::KTable;
use crate::error::DslError;
use crate::graph::{JoinSide, LogicalKind, TableJoin, Wire};
use crate::nodes::{Kept, Optional, join_left, join_merge, join_right, join_view};
use crate::nullity::Nullity;
use crate::params::Materialized;

const MERGE: &str = "KTABLE-MERGE-";

impl<K: 'static, V: 'static, N: Nullity> KTable<K, V, N> {
    /// The keys that both tables have, with what the joiner makes of their values (feature row D40).
    ///
    /// The result follows both tables: whenever one of them changes, the value of that key is joined
    /// anew, and deleted when one side is. Its time is the later one of the two values. Equal keys have
    /// to be in equal partitions, so both tables need equal numbers of them.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Materialized, Produced, StreamsBuilder};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// let names = builder.table("names", Consumed::with(Utf8, Utf8), Materialized::new());
    /// let cities = builder.table("cities", Consumed::with(Utf8, Utf8), Materialized::new());
    /// names
    ///     .join(&cities, |name, city| format!("{name} of {city}"))
    ///     .to_stream()
    ///     .to("people", Produced::with(Utf8, Utf8));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn join<V2, M, R, F>(&self, other: &KTable<K, V2, M>, joiner: F) -> KTable<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&V, &V2) -> N::Owned<R> + Send + Sync + 'static,
    {
        self.try_join(other, move |left, right| Ok::<_, UserError>(joiner(left, right)))
    }

    /// [`join`](Self::join) with a function that can fail.
    pub fn try_join<V2, M, R, F, E>(&self, other: &KTable<K, V2, M>, joiner: F) -> KTable<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&V, &V2) -> Result<N::Owned<R>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.add_join(
            other,
            INNER,
            both::<V, V2, R, _>(move |left, right| {
                joiner(left, right).map(N::into_option).map_err(E::into)
            }),
            None,
        )
    }

    /// [`join`](Self::join), with the result kept in a store.
    pub fn join_materialized<V2, M, R, F>(
        &self,
        other: &KTable<K, V2, M>,
        joiner: F,
        materialized: Materialized<K, R>,
    ) -> KTable<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&V, &V2) -> N::Owned<R> + Send + Sync + 'static,
    {
        let joiner = move |left: &V, right: &V2| Ok::<_, UserError>(joiner(left, right));
        self.try_join_materialized(other, joiner, materialized)
    }

    /// [`join_materialized`](Self::join_materialized) with a function that can fail.
    pub fn try_join_materialized<V2, M, R, F, E>(
        &self,
        other: &KTable<K, V2, M>,
        joiner: F,
        materialized: Materialized<K, R>,
    ) -> KTable<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&V, &V2) -> Result<N::Owned<R>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.add_join(
            other,
            INNER,
            both::<V, V2, R, _>(move |left, right| {
                joiner(left, right).map(N::into_option).map_err(E::into)
            }),
            Some(materialized),
        )
    }

    /// [`join`](Self::join) with all keys of this table: where the other one has no value, the joiner
    /// gets `None` for it.
    pub fn left_join<V2, M, R, F>(&self, other: &KTable<K, V2, M>, joiner: F) -> KTable<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&V, Option<&V2>) -> N::Owned<R> + Send + Sync + 'static,
    {
        self.try_left_join(other, move |left, right| Ok::<_, UserError>(joiner(left, right)))
    }

    /// [`left_join`](Self::left_join) with a function that can fail.
    pub fn try_left_join<V2, M, R, F, E>(
        &self,
        other: &KTable<K, V2, M>,
        joiner: F,
    ) -> KTable<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&V, Option<&V2>) -> Result<N::Owned<R>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.add_join(
            other,
            LEFT,
            left::<V, V2, R, _>(move |left, right| {
                joiner(left, right).map(N::into_option).map_err(E::into)
            }),
            None,
        )
    }

    /// [`left_join`](Self::left_join), with the result kept in a store.
    pub fn left_join_materialized<V2, M, R, F>(
        &self,
        other: &KTable<K, V2, M>,
        joiner: F,
        materialized: Materialized<K, R>,
    ) -> KTable<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&V, Option<&V2>) -> N::Owned<R> + Send + Sync + 'static,
    {
        let joiner = move |left: &V, right: Option<&V2>| Ok::<_, UserError>(joiner(left, right));
        self.try_left_join_materialized(other, joiner, materialized)
    }

    /// [`left_join_materialized`](Self::left_join_materialized) with a function that can fail.
    pub fn try_left_join_materialized<V2, M, R, F, E>(
        &self,
        other: &KTable<K, V2, M>,
        joiner: F,
        materialized: Materialized<K, R>,
    ) -> KTable<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&V, Option<&V2>) -> Result<N::Owned<R>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.add_join(
            other,
            LEFT,
            left::<V, V2, R, _>(move |left, right| {
                joiner(left, right).map(N::into_option).map_err(E::into)
            }),
            Some(materialized),
        )
    }

    /// [`join`](Self::join) with all keys of both tables: where one of them has no value, the joiner
    /// gets `None` for it. It never gets `None` for both.
    pub fn outer_join<V2, M, R, F>(&self, other: &KTable<K, V2, M>, joiner: F) -> KTable<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(Option<&V>, Option<&V2>) -> N::Owned<R> + Send + Sync + 'static,
    {
        self.try_outer_join(other, move |left, right| Ok::<_, UserError>(joiner(left, right)))
    }

    /// [`outer_join`](Self::outer_join) with a function that can fail.
    pub fn try_outer_join<V2, M, R, F, E>(
        &self,
        other: &KTable<K, V2, M>,
        joiner: F,
    ) -> KTable<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(Option<&V>, Option<&V2>) -> Result<N::Owned<R>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.add_join(
            other,
            OUTER,
            outer::<V, V2, R, _>(move |left, right| {
                joiner(left, right).map(N::into_option).map_err(E::into)
            }),
            None,
        )
    }

    /// [`outer_join`](Self::outer_join), with the result kept in a store.
    pub fn outer_join_materialized<V2, M, R, F>(
        &self,
        other: &KTable<K, V2, M>,
        joiner: F,
        materialized: Materialized<K, R>,
    ) -> KTable<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(Option<&V>, Option<&V2>) -> N::Owned<R> + Send + Sync + 'static,
    {
        let joiner =
            move |left: Option<&V>, right: Option<&V2>| Ok::<_, UserError>(joiner(left, right));
        self.try_outer_join_materialized(other, joiner, materialized)
    }

    /// [`outer_join_materialized`](Self::outer_join_materialized) with a function that can fail.
    pub fn try_outer_join_materialized<V2, M, R, F, E>(
        &self,
        other: &KTable<K, V2, M>,
        joiner: F,
        materialized: Materialized<K, R>,
    ) -> KTable<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(Option<&V>, Option<&V2>) -> Result<N::Owned<R>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.add_join(
            other,
            OUTER,
            outer::<V, V2, R, _>(move |left, right| {
                joiner(left, right).map(N::into_option).map_err(E::into)
            }),
            Some(materialized),
        )
    }

    fn add_join<V2, M, R, F>(
        &self,
        other: &KTable<K, V2, M>,
        optional: Optional,
        joiner: F,
        materialized: Option<Materialized<K, R>>,
    ) -> KTable<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(Option<&V>, Option<&V2>) -> Result<Option<R>, UserError> + Send + Sync + 'static,
    {
        let mut graph = self.graph.borrow_mut();
        if !Rc::ptr_eq(&self.graph, &other.graph) {
            let node = other.graph.borrow().name(other.node).to_owned();
            graph.note(DslError::OtherBuilder { node });
            return KTable::new(&self.graph, self.node, None, None, None);
        }
        let materialized =
            materialized.map(|it| it.checked(&mut graph).or_serdes(self.key_serde.as_ref(), None));
        let store = materialized.as_ref().map(|it| {
            it.name.clone().unwrap_or_else(|| {
                let store = graph.names.store_name(MERGE);
                graph.note_generated(it.generated_names(&store));
                store
            })
        });
        let name = graph.names.processor_name(MERGE);
        graph.copartition(&[self.node, other.node]);
        if optional.right {
            graph.send_old_values(self.node, true);
        }
        if optional.left {
            graph.send_old_values(other.node, true);
        }
        let joiner = Arc::new(joiner);
        let kept = materialized.as_ref().zip(store.clone()).map(|(it, store)| Kept {
            store,
            key: it.key.clone(),
            value: it.value.clone(),
        });
        let left_wire = join_left::<K, V, V2, R, F>(other.node, optional, Arc::clone(&joiner));
        let right_wire = join_right::<K, V, V2, R, F>(self.node, optional, Arc::clone(&joiner));
        let join = TableJoin {
            left: JoinSide {
                name: graph.names.processor_name("KTABLE-JOINTHIS-"),
                parent: self.node,
                wire: Wire(left_wire),
                reads: graph.make_readable(other.node),
            },
            right: JoinSide {
                name: graph.names.processor_name("KTABLE-JOINOTHER-"),
                parent: other.node,
                wire: Wire(right_wire),
                reads: graph.make_readable(self.node),
            },
            merge: Wire(join_merge(kept)),
            store: materialized.as_ref().zip(store.as_ref()).map(|(it, name)| it.declare(name)),
            view: join_view::<K, V, V2, R, F>((self.node, other.node), optional, joiner),
        };
        let node = graph.add(&[self.node, other.node], name, LogicalKind::TableJoin(join));
        drop(graph);
        let (key, value) =
            materialized.map_or((self.key_serde.clone(), None), |it| (it.key, it.value));
        KTable::new(&self.graph, node, key, value, store)
    }
}

const INNER: Optional = Optional { left: false, right: false };
const LEFT: Optional = Optional { left: false, right: true };
const OUTER: Optional = Optional { left: true, right: true };

/// A joiner that is called with both values only.
fn both<L, R, V, F>(
    joiner: F,
) -> impl Fn(Option<&L>, Option<&R>) -> Result<Option<V>, UserError> + Send + Sync
where
    F: Fn(&L, &R) -> Result<Option<V>, UserError> + Send + Sync,
{
    move |left, right| match (left, right) {
        (Some(left), Some(right)) => joiner(left, right),
        _ => Ok(None),
    }
}

/// A joiner that is called with a left value only.
fn left<L, R, V, F>(
    joiner: F,
) -> impl Fn(Option<&L>, Option<&R>) -> Result<Option<V>, UserError> + Send + Sync
where
    F: Fn(&L, Option<&R>) -> Result<Option<V>, UserError> + Send + Sync,
{
    move |left, right| left.map_or(Ok(None), |left| joiner(left, right))
}

fn outer<L, R, V, F>(joiner: F) -> F
where
    F: Fn(Option<&L>, Option<&R>) -> Result<Option<V>, UserError> + Send + Sync,
{
    joiner
}
