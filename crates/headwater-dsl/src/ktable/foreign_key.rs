//! Joins of two tables by a key that is made of the left one's values.

use std::rc::Rc;
use std::sync::Arc;

use headwater_runtime::UserError;
use headwater_topology::{StoreKind, StoreSpec};

use super::KTable;
use crate::error::DslError;
use crate::graph::{
    LogicalGraph, LogicalKind, NodeKey, Processor, Repartition, StreamToTable, Wire,
};
use crate::nodes::{
    ForeignKeyResult, Kept, SubscriptionOf, foreign_table_join, response_join, response_sink,
    response_source, subscription_join, subscription_receive, subscription_send, subscription_sink,
    subscription_source, table_source,
};
use crate::nullity::Nullity;
use crate::params::{Materialized, TableJoined};
use crate::store::StoreDeclaration;

impl<K: 'static, V: 'static, N: Nullity> KTable<K, V, N> {
    /// Joins this table with another one whose key is made of this one's values, as that of an order
    /// names its customer (KIP-213, feature rows D41 to D44).
    ///
    /// The result has this table's keys. It follows both tables: a change of a right value reaches all
    /// keys that refer to it. Tables need not be partitioned alike: subscriptions and answers travel through
    /// two internal topics, so a result comes later than the change it follows, and an answer that a newer
    /// value has overtaken is dropped and counted. A value for which the extractor makes no key has no
    /// result.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Materialized, Produced, StreamsBuilder, TableJoined};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// // Orders are "customer:article".
    /// let orders = builder.table("orders", Consumed::with(Utf8, Utf8), Materialized::new());
    /// let customers = builder.table("customers", Consumed::with(Utf8, Utf8), Materialized::new());
    /// orders
    ///     .join_on_foreign_key(
    ///         &customers,
    ///         |_, order| order.split(':').next().unwrap_or_default().to_owned(),
    ///         |order, customer| format!("{order} for {customer}"),
    ///         TableJoined::named("order-customer"),
    ///     )
    ///     .to_stream()
    ///     .to("orders-of-customers", Produced::with(Utf8, Utf8));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn join_on_foreign_key<KO, VO, M, R, X, F>(
        &self,
        other: &KTable<KO, VO, M>,
        extractor: X,
        joiner: F,
        joined: TableJoined<K, KO>,
    ) -> KTable<K, R, N>
    where
        KO: 'static,
        VO: 'static,
        M: Nullity,
        R: 'static,
        X: Fn(&K, &V) -> N::Owned<KO> + Send + Sync + 'static,
        F: Fn(&V, &VO) -> N::Owned<R> + Send + Sync + 'static,
    {
        self.join_on_foreign_key_materialized(other, extractor, joiner, joined, Materialized::new())
    }

    /// [`join_on_foreign_key`](Self::join_on_foreign_key), with the result kept in a store if that is
    /// named.
    pub fn join_on_foreign_key_materialized<KO, VO, M, R, X, F>(
        &self,
        other: &KTable<KO, VO, M>,
        extractor: X,
        joiner: F,
        joined: TableJoined<K, KO>,
        materialized: Materialized<K, R>,
    ) -> KTable<K, R, N>
    where
        KO: 'static,
        VO: 'static,
        M: Nullity,
        R: 'static,
        X: Fn(&K, &V) -> N::Owned<KO> + Send + Sync + 'static,
        F: Fn(&V, &VO) -> N::Owned<R> + Send + Sync + 'static,
    {
        self.try_join_on_foreign_key(
            other,
            move |key, value| Ok::<_, UserError>(extractor(key, value)),
            move |left, right| Ok::<_, UserError>(joiner(left, right)),
            joined,
            materialized,
        )
    }

    /// [`join_on_foreign_key_materialized`](Self::join_on_foreign_key_materialized) with functions that
    /// can fail.
    pub fn try_join_on_foreign_key<KO, VO, M, R, X, F, E>(
        &self,
        other: &KTable<KO, VO, M>,
        extractor: X,
        joiner: F,
        joined: TableJoined<K, KO>,
        materialized: Materialized<K, R>,
    ) -> KTable<K, R, N>
    where
        KO: 'static,
        VO: 'static,
        M: Nullity,
        R: 'static,
        X: Fn(&K, &V) -> Result<N::Owned<KO>, E> + Send + Sync + 'static,
        F: Fn(&V, &VO) -> Result<N::Owned<R>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let extractor =
            move |key: &K, value: &V| extractor(key, value).map(N::into_option).map_err(E::into);
        let joiner = move |left: &V, right: Option<&VO>| match right {
            Some(right) => joiner(left, right).map(N::into_option).map_err(E::into),
            None => Ok(None),
        };
        self.add_foreign_key_join(other, (extractor, joiner, false), joined, materialized)
    }

    /// [`join_on_foreign_key`](Self::join_on_foreign_key) with all keys of this table: where the other one
    /// has no value, or the extractor makes no key, the joiner gets `None`.
    pub fn left_join_on_foreign_key<KO, VO, M, R, X, F>(
        &self,
        other: &KTable<KO, VO, M>,
        extractor: X,
        joiner: F,
        joined: TableJoined<K, KO>,
    ) -> KTable<K, R, N>
    where
        KO: 'static,
        VO: 'static,
        M: Nullity,
        R: 'static,
        X: Fn(&K, &V) -> N::Owned<KO> + Send + Sync + 'static,
        F: Fn(&V, Option<&VO>) -> N::Owned<R> + Send + Sync + 'static,
    {
        let materialized = Materialized::new();
        self.left_join_on_foreign_key_materialized(other, extractor, joiner, joined, materialized)
    }

    /// [`left_join_on_foreign_key`](Self::left_join_on_foreign_key), with the result kept in a store if
    /// that is named.
    pub fn left_join_on_foreign_key_materialized<KO, VO, M, R, X, F>(
        &self,
        other: &KTable<KO, VO, M>,
        extractor: X,
        joiner: F,
        joined: TableJoined<K, KO>,
        materialized: Materialized<K, R>,
    ) -> KTable<K, R, N>
    where
        KO: 'static,
        VO: 'static,
        M: Nullity,
        R: 'static,
        X: Fn(&K, &V) -> N::Owned<KO> + Send + Sync + 'static,
        F: Fn(&V, Option<&VO>) -> N::Owned<R> + Send + Sync + 'static,
    {
        self.try_left_join_on_foreign_key(
            other,
            move |key, value| Ok::<_, UserError>(extractor(key, value)),
            move |left, right| Ok::<_, UserError>(joiner(left, right)),
            joined,
            materialized,
        )
    }

    /// [`left_join_on_foreign_key_materialized`](Self::left_join_on_foreign_key_materialized) with
    /// functions that can fail.
    pub fn try_left_join_on_foreign_key<KO, VO, M, R, X, F, E>(
        &self,
        other: &KTable<KO, VO, M>,
        extractor: X,
        joiner: F,
        joined: TableJoined<K, KO>,
        materialized: Materialized<K, R>,
    ) -> KTable<K, R, N>
    where
        KO: 'static,
        VO: 'static,
        M: Nullity,
        R: 'static,
        X: Fn(&K, &V) -> Result<N::Owned<KO>, E> + Send + Sync + 'static,
        F: Fn(&V, Option<&VO>) -> Result<N::Owned<R>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let extractor =
            move |key: &K, value: &V| extractor(key, value).map(N::into_option).map_err(E::into);
        let joiner = move |left: &V, right: Option<&VO>| {
            joiner(left, right).map(N::into_option).map_err(E::into)
        };
        self.add_foreign_key_join(other, (extractor, joiner, true), joined, materialized)
    }

    fn add_foreign_key_join<KO, VO, M, R, X, F>(
        &self,
        other: &KTable<KO, VO, M>,
        (extractor, joiner, is_left_join): (X, F, bool),
        joined: TableJoined<K, KO>,
        materialized: Materialized<K, R>,
    ) -> KTable<K, R, N>
    where
        KO: 'static,
        VO: 'static,
        M: Nullity,
        R: 'static,
        X: Fn(&K, &V) -> Result<Option<KO>, UserError> + Send + Sync + 'static,
        F: Fn(&V, Option<&VO>) -> Result<Option<R>, UserError> + Send + Sync + 'static,
    {
        let graph = &mut *self.graph.borrow_mut();
        if !Rc::ptr_eq(&self.graph, &other.graph) {
            let node = other.graph.borrow().name(other.node).to_owned();
            graph.note(DslError::OtherBuilder { node });
            return KTable::new(&self.graph, self.node, None, None, None);
        }
        graph.send_old_values(other.node, true);
        graph.send_old_values(self.node, true);
        let TableJoined { name, partitioner, other_partitioner } = joined;
        let names = Names::of(graph, name.as_deref());
        let send = subscription_send(SubscriptionOf {
            extractor,
            is_left_join,
            key: self.key_serde.clone(),
            value: self.value_serde.clone(),
            foreign_key: other.key_serde.clone(),
        });
        let send =
            graph.add(&[self.node], names.send, LogicalKind::Processor(Processor::new(send)));
        let ko = other.key_serde.clone();
        let topic = names.subscription_topic;
        let sink = subscription_sink(ko.clone(), other_partitioner, topic.clone());
        let source = subscription_source(ko.clone());
        let through = through(topic, names.subscription_ends, Wire(sink), Wire(source));
        let subscriptions =
            graph.add(&[send], through.source_name.clone(), LogicalKind::Repartition(through));
        graph.copartition(&[other.node, subscriptions]);

        let answers = add_right_side(graph, other, subscriptions, names.right);
        let topic = names.response_topic;
        let sink = response_sink(self.key_serde.clone(), partitioner, topic.clone());
        let source = response_source::<K, VO>(self.key_serde.clone(), other.value_serde.clone());
        let through = self::through(topic, names.response_ends, Wire(sink), Wire(source));
        let responses =
            graph.add(&answers, through.source_name.clone(), LogicalKind::Repartition(through));
        graph.copartition(&[self.node, responses]);

        let result = ForeignKeyResult {
            table: self.node,
            value: self.value_serde.clone(),
            is_left_join,
            joiner,
        };
        let mut resolver = Processor::new(response_join::<K, V, VO, R, F>(result));
        resolver.connected = graph.make_readable(self.node);
        let resolver = graph.add(&[responses], names.resolver, LogicalKind::Processor(resolver));
        let (node, store, materialized) =
            self.add_foreign_key_result(graph, resolver, names.result, materialized);
        let Materialized { key, value, .. } = materialized;
        KTable::new(&self.graph, node, key, value, Some(store))
    }

    /// Adds the node of the result, which is kept if it is queried or looked up.
    fn add_foreign_key_result<R: 'static>(
        &self,
        graph: &mut LogicalGraph,
        resolver: NodeKey,
        name: String,
        materialized: Materialized<K, R>,
    ) -> (NodeKey, String, Materialized<K, R>) {
        let materialized = materialized.checked(graph).or_serdes(self.key_serde.as_ref(), None);
        let store = match &materialized.name {
            Some(name) => name.clone(),
            None => graph.names.store_name(OUTPUT),
        };
        graph.note_generated(materialized.generated_names(&store));
        let kept = Kept {
            store: store.clone(),
            key: materialized.key.clone(),
            value: materialized.value.clone(),
        };
        let kind = LogicalKind::StreamToTable(StreamToTable {
            wire: Wire(table_source(kept)),
            store: materialized.declare(&store),
            materialized: materialized.name.is_some(),
            repartition: None,
        });
        let node = graph.add(&[resolver], name, kind);
        graph.partitioned_as(node, self.node);
        (node, store, materialized)
    }
}

/// Adds the nodes that are where the right table is; answers those that make answers.
fn add_right_side<KO: 'static, VO: 'static, M: Nullity>(
    graph: &mut LogicalGraph,
    other: &KTable<KO, VO, M>,
    subscriptions: NodeKey,
    names: RightNames,
) -> [NodeKey; 2] {
    let spec = StoreSpec::new(names.store.as_str(), StoreKind::ForeignKeySubscription);
    let store = StoreDeclaration::of_bytes(spec);
    let ko = other.key_serde.clone();
    let receive = subscription_receive(names.store.clone(), ko.clone());
    let receive = Processor::new(receive).with_stores(vec![Arc::clone(&store)]);
    let receive = graph.add(&[subscriptions], names.receive, LogicalKind::Processor(receive));
    let mut join =
        Processor::new(subscription_join::<KO, VO>(other.node, other.value_serde.clone()));
    join.connected = graph.make_readable(other.node);
    let join = graph.add(&[receive], names.join, LogicalKind::Processor(join));
    let right = foreign_table_join::<KO, VO>(names.store, ko, other.value_serde.clone());
    let right = Processor::new(right).with_stores(vec![store]);
    let right = graph.add(&[other.node], names.table_join, LogicalKind::Processor(right));
    [join, right]
}

const OUTPUT: &str = "KTABLE-FK-JOIN-OUTPUT-";

/// The names of a foreign-key join, with numbers taken in the original's order (feature rows T3, D12).
struct Names {
    subscription_topic: String,
    send: String,
    subscription_ends: Ends,
    right: RightNames,
    response_topic: String,
    response_ends: Ends,
    resolver: String,
    result: String,
}

struct RightNames {
    store: String,
    receive: String,
    join: String,
    table_join: String,
}

/// The names of the nodes before and after an internal topic.
struct Ends {
    sink: String,
    source: String,
}

impl Names {
    fn of(graph: &mut LogicalGraph, given: Option<&str>) -> Self {
        const REGISTRATION: &str = "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-";
        const PROCESSOR: &str = "KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-";
        const RESOLVER: &str = "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-";
        let given = graph.valid_name(given);
        let mut next = |suffix: &str, prefix: &str| {
            let generated = graph.names.processor_name(prefix);
            given.as_ref().map_or(generated, |name| format!("{name}{suffix}"))
        };
        Self {
            subscription_topic: next("-subscription-registration", REGISTRATION) + "-topic",
            send: next("-subscription-registration-processor", REGISTRATION),
            subscription_ends: Ends {
                sink: next("-subscription-registration-sink", "KTABLE-SINK-"),
                source: next("-subscription-registration-source", "KTABLE-SOURCE-"),
            },
            right: RightNames {
                store: next("-subscription-store", "KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-"),
                receive: next("-subscription-receive", PROCESSOR),
                join: next("-subscription-join-foreign", PROCESSOR),
                table_join: next("-foreign-join-subscription", PROCESSOR),
            },
            response_topic: next("-subscription-response", "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-")
                + "-topic",
            response_ends: Ends {
                sink: next("-subscription-response-sink", "KTABLE-SINK-"),
                source: next("-subscription-response-source", "KTABLE-SOURCE-"),
            },
            resolver: next("-subscription-response-resolver", RESOLVER),
            result: next("-result", OUTPUT),
        }
    }
}

/// Through an internal topic.
fn through(
    topic: String,
    ends: Ends,
    sink: Wire<crate::wiring::WireInner>,
    source: Wire<crate::wiring::WireSource>,
) -> Repartition {
    let Ends { sink: sink_name, source: source_name } = ends;
    Repartition {
        topic,
        partitions: None,
        sink_name,
        source_name,
        filter: None,
        sink,
        source,
        serdes: None,
    }
}
