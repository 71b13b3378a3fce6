//! Joins of a stream with a global table.

use std::rc::Rc;

use headwater_runtime::UserError;

use super::KStream;
use crate::builder::GlobalKTable;
use crate::error::DslError;
use crate::graph::{LogicalKind, Processor};
use crate::nodes::{StreamGlobalJoin, stream_global_join};
use crate::nullity::Nullity;

impl<K: 'static, V: 'static, N: Nullity> KStream<K, V, N> {
    /// Joins each record with what a global table has, at that moment, for a key that `mapper` makes of the
    /// record (feature row D39). Records for whose key it has nothing have no result; the result has the
    /// record's key and time. There is no repartition, and the topics may have any numbers of partitions.
    ///
    /// Records without value, and those for which the mapper makes no key, are dropped and counted.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Materialized, Produced, StreamsBuilder};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// let shops = builder.global_table("shops", Consumed::with(Utf8, Utf8), Materialized::new());
    /// builder
    ///     .stream("orders", Consumed::with(Utf8, Utf8))
    ///     .join_global_table(
    ///         &shops,
    ///         |_, order| order.split(':').next().unwrap_or_default().to_owned(),
    ///         |order, shop| format!("{order} from {shop}"),
    ///     )
    ///     .to("orders-with-shops", Produced::with(Utf8, Utf8));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn join_global_table<K2, V2, R, M, F>(
        &self,
        table: &GlobalKTable<K2, V2>,
        mapper: M,
        joiner: F,
    ) -> KStream<K, R, N>
    where
        K2: 'static,
        V2: 'static,
        R: 'static,
        M: Fn(Option<&K>, &V) -> N::Owned<K2> + Send + Sync + 'static,
        F: Fn(&V, &V2) -> N::Owned<R> + Send + Sync + 'static,
    {
        self.try_join_global_table_with_key(
            table,
            move |key, value| Ok::<_, UserError>(mapper(key, value)),
            move |_, left, right| Ok::<_, UserError>(joiner(left, right)),
        )
    }

    /// [`join_global_table`](Self::join_global_table) with a joiner that sees the record's key too.
    pub fn join_global_table_with_key<K2, V2, R, M, F>(
        &self,
        table: &GlobalKTable<K2, V2>,
        mapper: M,
        joiner: F,
    ) -> KStream<K, R, N>
    where
        K2: 'static,
        V2: 'static,
        R: 'static,
        M: Fn(Option<&K>, &V) -> N::Owned<K2> + Send + Sync + 'static,
        F: Fn(Option<&K>, &V, &V2) -> N::Owned<R> + Send + Sync + 'static,
    {
        self.try_join_global_table_with_key(
            table,
            move |key, value| Ok::<_, UserError>(mapper(key, value)),
            move |key, left, right| Ok::<_, UserError>(joiner(key, left, right)),
        )
    }

    /// [`join_global_table_with_key`](Self::join_global_table_with_key) with functions that can fail.
    pub fn try_join_global_table_with_key<K2, V2, R, M, F, E, E2>(
        &self,
        table: &GlobalKTable<K2, V2>,
        mapper: M,
        joiner: F,
    ) -> KStream<K, R, N>
    where
        K2: 'static,
        V2: 'static,
        R: 'static,
        M: Fn(Option<&K>, &V) -> Result<N::Owned<K2>, E> + Send + Sync + 'static,
        F: Fn(Option<&K>, &V, &V2) -> Result<N::Owned<R>, E2> + Send + Sync + 'static,
        E: Into<UserError>,
        E2: Into<UserError>,
    {
        let joiner = move |key: Option<&K>, left: &V, right: Option<&V2>| match right {
            Some(right) => joiner(key, left, right).map(N::into_option).map_err(E2::into),
            None => Ok(None),
        };
        self.add_global_join(table, mapper, joiner, false)
    }

    /// [`join_global_table`](Self::join_global_table) with all records that have a value: where the table
    /// has nothing, or the mapper makes no key, the joiner gets `None`.
    pub fn left_join_global_table<K2, V2, R, M, F>(
        &self,
        table: &GlobalKTable<K2, V2>,
        mapper: M,
        joiner: F,
    ) -> KStream<K, R, N>
    where
        K2: 'static,
        V2: 'static,
        R: 'static,
        M: Fn(Option<&K>, &V) -> N::Owned<K2> + Send + Sync + 'static,
        F: Fn(&V, Option<&V2>) -> N::Owned<R> + Send + Sync + 'static,
    {
        self.try_left_join_global_table_with_key(
            table,
            move |key, value| Ok::<_, UserError>(mapper(key, value)),
            move |_, left, right| Ok::<_, UserError>(joiner(left, right)),
        )
    }

    /// [`left_join_global_table`](Self::left_join_global_table) with a joiner that sees the record's key
    /// too.
    pub fn left_join_global_table_with_key<K2, V2, R, M, F>(
        &self,
        table: &GlobalKTable<K2, V2>,
        mapper: M,
        joiner: F,
    ) -> KStream<K, R, N>
    where
        K2: 'static,
        V2: 'static,
        R: 'static,
        M: Fn(Option<&K>, &V) -> N::Owned<K2> + Send + Sync + 'static,
        F: Fn(Option<&K>, &V, Option<&V2>) -> N::Owned<R> + Send + Sync + 'static,
    {
        self.try_left_join_global_table_with_key(
            table,
            move |key, value| Ok::<_, UserError>(mapper(key, value)),
            move |key, left, right| Ok::<_, UserError>(joiner(key, left, right)),
        )
    }

    /// [`left_join_global_table_with_key`](Self::left_join_global_table_with_key) with functions that can
    /// fail.
    pub fn try_left_join_global_table_with_key<K2, V2, R, M, F, E, E2>(
        &self,
        table: &GlobalKTable<K2, V2>,
        mapper: M,
        joiner: F,
    ) -> KStream<K, R, N>
    where
        K2: 'static,
        V2: 'static,
        R: 'static,
        M: Fn(Option<&K>, &V) -> Result<N::Owned<K2>, E> + Send + Sync + 'static,
        F: Fn(Option<&K>, &V, Option<&V2>) -> Result<N::Owned<R>, E2> + Send + Sync + 'static,
        E: Into<UserError>,
        E2: Into<UserError>,
    {
        let joiner = move |key: Option<&K>, left: &V, right: Option<&V2>| {
            joiner(key, left, right).map(N::into_option).map_err(E2::into)
        };
        self.add_global_join(table, mapper, joiner, true)
    }

    fn add_global_join<K2, V2, R, M, F, E>(
        &self,
        table: &GlobalKTable<K2, V2>,
        mapper: M,
        joiner: F,
        is_left_join: bool,
    ) -> KStream<K, R, N>
    where
        K2: 'static,
        V2: 'static,
        R: 'static,
        M: Fn(Option<&K>, &V) -> Result<N::Owned<K2>, E> + Send + Sync + 'static,
        F: Fn(Option<&K>, &V, Option<&V2>) -> Result<Option<R>, UserError> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let graph = &mut *self.graph.borrow_mut();
        if !Rc::ptr_eq(&self.graph, table.graph()) {
            let node = table.graph().borrow().name(table.node()).to_owned();
            graph.note(DslError::OtherBuilder { node });
            return KStream::new(&self.graph, self.node, None, None, false);
        }
        let mapper = move |key: Option<&K>, value: &V| {
            mapper(key, value).map(N::into_option).map_err(E::into)
        };
        // Both joins are called so, as in the original.
        let name = graph.name_or_next(None, "KSTREAM-LEFTJOIN-");
        let join = StreamGlobalJoin { table: table.node(), is_left_join, mapper, joiner };
        let mut processor = Processor::new(stream_global_join::<K, V, K2, V2, R, _, _>(join));
        processor.takes_null_keys = is_left_join;
        let node = graph.add(&[self.node], name, LogicalKind::Processor(processor));
        let key = self.key_serde.clone();
        KStream::new(&self.graph, node, key, None, self.repartition_required)
    }
}
