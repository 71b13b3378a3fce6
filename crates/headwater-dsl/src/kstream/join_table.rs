//! Joins of a stream with a table.

use std::rc::Rc;
use std::sync::Arc;

use headwater_runtime::UserError;
use headwater_topology::{GeneratedNames, StoreKind, StoreSpec};

use super::KStream;
use super::repartition::{Settings, repartition};
use crate::builder::own_or_inherited;
use crate::error::DslError;
use crate::graph::{JoinInput, LogicalGraph, LogicalKind, Processor, is_generated};
use crate::ktable::KTable;
use crate::nodes::{Grace, StreamTableJoin, stream_table_join};
use crate::nullity::Nullity;
use crate::params::Joined;
use crate::serdes::Codec;
use crate::store::StoreDeclaration;

impl<K: 'static, V: 'static, N: Nullity> KStream<K, V, N> {
    /// Joins each record with what the table has for its key at that moment (feature row D37). Records
    /// for whose key it has nothing have no result; later updates of the table change no earlier result.
    ///
    /// The result has the time of the stream's record. A versioned table is asked for the value that was
    /// valid then; with a [grace period](Joined::with_grace_period) records wait for late updates.
    /// Records without key or value are dropped and counted. If keys may have changed before, the stream goes
    /// through a repartition topic; otherwise both topics need equal numbers of partitions.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Joined, Materialized, Produced, StreamsBuilder};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// let users = builder.table("users", Consumed::with(Utf8, Utf8), Materialized::new());
    /// builder
    ///     .stream("clicks", Consumed::with(Utf8, Utf8))
    ///     .join_table(&users, |click, user| format!("{user} clicked {click}"), Joined::new())
    ///     .to("clicks-of-users", Produced::with(Utf8, Utf8));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn join_table<V2, M, R, F>(
        &self,
        table: &KTable<K, V2, M>,
        joiner: F,
        joined: Joined<K, V>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&V, &V2) -> N::Owned<R> + Send + Sync + 'static,
    {
        let joiner = move |_: &K, left: &V, right: &V2| Ok::<_, UserError>(joiner(left, right));
        self.try_join_table_with_key(table, joiner, joined)
    }

    /// [`join_table`](Self::join_table) with a function that sees the key too.
    pub fn join_table_with_key<V2, M, R, F>(
        &self,
        table: &KTable<K, V2, M>,
        joiner: F,
        joined: Joined<K, V>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&K, &V, &V2) -> N::Owned<R> + Send + Sync + 'static,
    {
        let joiner =
            move |key: &K, left: &V, right: &V2| Ok::<_, UserError>(joiner(key, left, right));
        self.try_join_table_with_key(table, joiner, joined)
    }

    /// [`join_table_with_key`](Self::join_table_with_key) with a function that can fail.
    pub fn try_join_table_with_key<V2, M, R, F, E>(
        &self,
        table: &KTable<K, V2, M>,
        joiner: F,
        joined: Joined<K, V>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&K, &V, &V2) -> Result<N::Owned<R>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let joiner = move |key: Option<&K>, left: &V, right: Option<&V2>| match (key, right) {
            (Some(key), Some(right)) => {
                joiner(key, left, right).map(N::into_option).map_err(E::into)
            }
            _ => Ok(None),
        };
        self.add_table_join(table, (joiner, false), joined)
    }

    /// [`join_table`](Self::join_table) with all records of the stream: where the table has nothing, the
    /// joiner gets `None`. That includes records without key (KIP-962).
    pub fn left_join_table<V2, M, R, F>(
        &self,
        table: &KTable<K, V2, M>,
        joiner: F,
        joined: Joined<K, V>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&V, Option<&V2>) -> N::Owned<R> + Send + Sync + 'static,
    {
        let joiner = move |_: Option<&K>, left: &V, right: Option<&V2>| {
            Ok::<_, UserError>(joiner(left, right))
        };
        self.try_left_join_table_with_key(table, joiner, joined)
    }

    /// [`left_join_table`](Self::left_join_table) with a function that sees the key too.
    pub fn left_join_table_with_key<V2, M, R, F>(
        &self,
        table: &KTable<K, V2, M>,
        joiner: F,
        joined: Joined<K, V>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(Option<&K>, &V, Option<&V2>) -> N::Owned<R> + Send + Sync + 'static,
    {
        let joiner = move |key: Option<&K>, left: &V, right: Option<&V2>| {
            Ok::<_, UserError>(joiner(key, left, right))
        };
        self.try_left_join_table_with_key(table, joiner, joined)
    }

    /// [`left_join_table_with_key`](Self::left_join_table_with_key) with a function that can fail.
    pub fn try_left_join_table_with_key<V2, M, R, F, E>(
        &self,
        table: &KTable<K, V2, M>,
        joiner: F,
        joined: Joined<K, V>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(Option<&K>, &V, Option<&V2>) -> Result<N::Owned<R>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let joiner = move |key: Option<&K>, left: &V, right: Option<&V2>| {
            joiner(key, left, right).map(N::into_option).map_err(E::into)
        };
        self.add_table_join(table, (joiner, true), joined)
    }

    fn add_table_join<V2, M, R, F>(
        &self,
        table: &KTable<K, V2, M>,
        (joiner, is_left_join): (F, bool),
        joined: Joined<K, V>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(Option<&K>, &V, Option<&V2>) -> Result<Option<R>, UserError> + Send + Sync + 'static,
    {
        let graph = &mut *self.graph.borrow_mut();
        if !Rc::ptr_eq(&self.graph, table.graph()) {
            let node = table.graph().borrow().name(table.node()).to_owned();
            graph.note(DslError::OtherBuilder { node });
            return KStream::new(&self.graph, self.node, None, None, false);
        }
        let Joined { key, value, name, grace_ms } = joined;
        let name = graph.valid_name(name.as_deref());
        let key = own_or_inherited(key, self.key_serde.as_ref());
        let value = own_or_inherited(value, self.value_serde.as_ref());
        let parent = if self.repartition_required {
            self.repartition_for_join(graph, name.as_deref(), key.clone(), value.clone())
        } else {
            JoinInput::of(self.node)
        };
        graph.copartition_inputs(&[parent, JoinInput::of(table.node())]);
        let prefix = if is_left_join { "KSTREAM-LEFTJOIN-" } else { "KSTREAM-JOIN-" };
        let name = graph.name_or_next(name.as_deref(), prefix);
        if grace_ms.is_some() && !graph.is_versioned(table.node()) {
            graph.note(DslError::GraceWithoutHistory { node: name.clone() });
        }
        let buffer = grace_ms.map(|grace_ms| (buffer_of(&name), grace_ms));
        let join = StreamTableJoin { table: table.node(), is_left_join, joiner };
        let grace = buffer.as_ref().map(|(store, grace_ms)| Grace {
            store: store.spec.name.clone(),
            grace_ms: *grace_ms,
            key: key.clone(),
            value,
        });
        let wire = stream_table_join::<K, V, V2, R, F>(join, grace);
        let mut processor = Processor::new(wire);
        processor.connected = graph.make_readable(table.node());
        processor.takes_null_keys = is_left_join;
        processor.needed_history_ms = grace_ms;
        processor.stores.extend(buffer.map(|(store, _)| store));
        let node = graph.add(&[parent.node], name, LogicalKind::Processor(processor));
        graph.forget_inputs(node, &[parent]);
        KStream::new(&self.graph, node, key, None, false)
    }

    /// The repartition before a join, called after the given name or else the stream's node. Several joins
    /// of a stream share it (feature row D15).
    pub(super) fn repartition_for_join(
        &self,
        graph: &mut LogicalGraph,
        given: Option<&str>,
        key: Option<Codec<K>>,
        value: Option<Codec<V>>,
    ) -> JoinInput {
        let own_name = graph.name(self.node).to_owned();
        let prefix = given.unwrap_or(&own_name);
        let settings = Settings { key, value, partitioner: None, partitions: None };
        let named = !is_generated(prefix);
        // Its numbers are taken in any case.
        let repartition = repartition(graph, prefix, named, settings);
        if prefix == own_name
            && let Some(shared) = graph.join_repartition(self.node)
        {
            let is_forgotten = graph.name(shared) != repartition.source_name;
            return JoinInput { node: shared, is_forgotten };
        }
        if given.is_none() {
            let repartition_topic = Some(repartition.topic.clone());
            graph.note_generated(GeneratedNames { repartition_topic, ..GeneratedNames::default() });
        }
        let name = repartition.source_name.clone();
        let node = graph.add(&[self.node], name, LogicalKind::Repartition(repartition));
        graph.set_join_repartition(self.node, node);
        JoinInput::of(node)
    }
}

/// The store in which records of a join wait.
fn buffer_of(join: &str) -> Arc<StoreDeclaration> {
    let spec = StoreSpec::new(format!("{join}-Buffer"), StoreKind::StreamTableJoinBuffer);
    StoreDeclaration::of_bytes(spec)
}
