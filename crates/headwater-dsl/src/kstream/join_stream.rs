//! Joins of two streams.

use std::rc::Rc;

use headwater_runtime::UserError;

use super::KStream;
use crate::builder::own_or_inherited;
use crate::error::DslError;
use crate::graph::{JoinInput, LogicalGraph};
use crate::nullity::Nullity;
use crate::params::{JoinWindows, StreamJoined};
use crate::serdes::Codec;

mod nodes;
mod stores;

use nodes::add_nodes;

/// Which sides of a join have results without partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Inner,
    Left,
    Outer,
}

impl<K: 'static, V: 'static, N: Nullity> KStream<K, V, N> {
    /// Joins each record with those of the other stream that have its key and are close to it in time (feature rows
    /// D32 to D35): each pair has one result, with the later one's time, as soon as the second of them comes.
    ///
    /// Records without key or value are dropped and counted. A stream whose keys may have changed goes through a
    /// repartition topic; otherwise both topics need equal numbers of partitions.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use headwater_dsl::{Consumed, JoinWindows, Produced, StreamJoined, StreamsBuilder};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// let searches = builder.stream("searches", Consumed::with(Utf8, Utf8));
    /// let clicks = builder.stream("clicks", Consumed::with(Utf8, Utf8));
    /// searches
    ///     .join(
    ///         &clicks,
    ///         |search, click| format!("{search} led to {click}"),
    ///         JoinWindows::of_time_difference_with_no_grace(Duration::from_secs(60))
    ///             .before(Duration::ZERO),
    ///         StreamJoined::new(),
    ///     )
    ///     .to("followed-searches", Produced::with(Utf8, Utf8));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn join<V2, M, R, F>(
        &self,
        other: &KStream<K, V2, M>,
        joiner: F,
        windows: JoinWindows,
        joined: StreamJoined<K, V, V2>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&V, &V2) -> N::Owned<R> + Send + Sync + 'static,
    {
        let joiner = move |_: &K, left: &V, right: &V2| Ok::<_, UserError>(joiner(left, right));
        self.try_join_with_key(other, joiner, windows, joined)
    }

    /// [`join`](Self::join) with a function that sees the key too.
    pub fn join_with_key<V2, M, R, F>(
        &self,
        other: &KStream<K, V2, M>,
        joiner: F,
        windows: JoinWindows,
        joined: StreamJoined<K, V, V2>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&K, &V, &V2) -> N::Owned<R> + Send + Sync + 'static,
    {
        let joiner =
            move |key: &K, left: &V, right: &V2| Ok::<_, UserError>(joiner(key, left, right));
        self.try_join_with_key(other, joiner, windows, joined)
    }

    /// [`join_with_key`](Self::join_with_key) with a function that can fail.
    pub fn try_join_with_key<V2, M, R, F, E>(
        &self,
        other: &KStream<K, V2, M>,
        joiner: F,
        windows: JoinWindows,
        joined: StreamJoined<K, V, V2>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(&K, &V, &V2) -> Result<N::Owned<R>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let joiner =
            move |key: Option<&K>, left: Option<&V>, right: Option<&V2>| match (key, left, right) {
                (Some(key), Some(left), Some(right)) => {
                    joiner(key, left, right).map(N::into_option).map_err(E::into)
                }
                _ => Ok(None),
            };
        self.add_stream_join(other, joiner, (Kind::Inner, windows), joined)
    }

    /// [`join`](Self::join) with a result for each record of this stream: where no partner has come by the time at
    /// which the join [closes](JoinWindows) for it, the joiner gets `None`, and the result has the record's time. That
    /// includes records without key (KIP-962), which have no partner.
    ///
    /// What has stayed without partner is looked for when a record comes, at most once a second
    /// (`outer_join_emit_interval_ms`). A record that comes so late that only later ones than the newest could be its
    /// partners gets its result at once; if one then comes within the grace period it has a second result, as in Kafka
    /// Streams.
    pub fn left_join<V2, M, R, F>(
        &self,
        other: &KStream<K, V2, M>,
        joiner: F,
        windows: JoinWindows,
        joined: StreamJoined<K, V, V2>,
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
        self.try_left_join_with_key(other, joiner, windows, joined)
    }

    /// [`left_join`](Self::left_join) with a function that sees the key too.
    pub fn left_join_with_key<V2, M, R, F>(
        &self,
        other: &KStream<K, V2, M>,
        joiner: F,
        windows: JoinWindows,
        joined: StreamJoined<K, V, V2>,
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
        self.try_left_join_with_key(other, joiner, windows, joined)
    }

    /// [`left_join_with_key`](Self::left_join_with_key) with a function that can fail.
    pub fn try_left_join_with_key<V2, M, R, F, E>(
        &self,
        other: &KStream<K, V2, M>,
        joiner: F,
        windows: JoinWindows,
        joined: StreamJoined<K, V, V2>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(Option<&K>, &V, Option<&V2>) -> Result<N::Owned<R>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let joiner = move |key: Option<&K>, left: Option<&V>, right: Option<&V2>| match left {
            Some(left) => joiner(key, left, right).map(N::into_option).map_err(E::into),
            None => Ok(None),
        };
        self.add_stream_join(other, joiner, (Kind::Left, windows), joined)
    }

    /// [`left_join`](Self::left_join) with a result for each record of both streams. At least one of what the joiner
    /// gets is there.
    pub fn outer_join<V2, M, R, F>(
        &self,
        other: &KStream<K, V2, M>,
        joiner: F,
        windows: JoinWindows,
        joined: StreamJoined<K, V, V2>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(Option<&V>, Option<&V2>) -> N::Owned<R> + Send + Sync + 'static,
    {
        let joiner = move |_: Option<&K>, left: Option<&V>, right: Option<&V2>| {
            Ok::<_, UserError>(joiner(left, right))
        };
        self.try_outer_join_with_key(other, joiner, windows, joined)
    }

    /// [`outer_join`](Self::outer_join) with a function that sees the key too.
    pub fn outer_join_with_key<V2, M, R, F>(
        &self,
        other: &KStream<K, V2, M>,
        joiner: F,
        windows: JoinWindows,
        joined: StreamJoined<K, V, V2>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(Option<&K>, Option<&V>, Option<&V2>) -> N::Owned<R> + Send + Sync + 'static,
    {
        let joiner = move |key: Option<&K>, left: Option<&V>, right: Option<&V2>| {
            Ok::<_, UserError>(joiner(key, left, right))
        };
        self.try_outer_join_with_key(other, joiner, windows, joined)
    }

    /// [`outer_join_with_key`](Self::outer_join_with_key) with a function that can fail.
    pub fn try_outer_join_with_key<V2, M, R, F, E>(
        &self,
        other: &KStream<K, V2, M>,
        joiner: F,
        windows: JoinWindows,
        joined: StreamJoined<K, V, V2>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(Option<&K>, Option<&V>, Option<&V2>) -> Result<N::Owned<R>, E>
            + Send
            + Sync
            + 'static,
        E: Into<UserError>,
    {
        let joiner = move |key: Option<&K>, left: Option<&V>, right: Option<&V2>| {
            joiner(key, left, right).map(N::into_option).map_err(E::into)
        };
        self.add_stream_join(other, joiner, (Kind::Outer, windows), joined)
    }

    fn add_stream_join<V2, M, R, F>(
        &self,
        other: &KStream<K, V2, M>,
        joiner: F,
        (kind, windows): (Kind, JoinWindows),
        mut joined: StreamJoined<K, V, V2>,
    ) -> KStream<K, R, N>
    where
        V2: 'static,
        M: Nullity,
        R: 'static,
        F: Fn(Option<&K>, Option<&V>, Option<&V2>) -> Result<Option<R>, UserError>
            + Send
            + Sync
            + 'static,
    {
        let graph = &mut *self.graph.borrow_mut();
        if !Rc::ptr_eq(&self.graph, &other.graph) {
            let node = other.graph.borrow().name(other.node).to_owned();
            graph.note(DslError::OtherBuilder { node });
            return KStream::new(&self.graph, self.node, None, None, false);
        }
        if let Err(problem) = windows.check() {
            graph.note(problem);
        }
        joined.name = graph.valid_name(joined.name.as_deref());
        joined.store_name = graph.valid_name(joined.store_name.as_deref());
        let (key, value) = (joined.key.clone(), joined.value.clone());
        let other_value = joined.other_value.clone();
        let inputs = [
            self.parent_for_join(graph, joined.name_with("-left").as_deref(), (key.clone(), value)),
            other.parent_for_join(graph, joined.name_with("-right").as_deref(), (key, other_value)),
        ];
        graph.copartition_inputs(&inputs);
        let inherited = (self.key_serde.clone(), self.value_serde.clone());
        let joined = joined.or_inherited(graph, inherited, other.value_serde.clone());
        let key = joined.key.clone();
        let parents = inputs.map(|input| input.node);
        let node = add_nodes(graph, parents, joiner, (kind, windows), &joined);
        graph.forget_inputs(node, &inputs);
        KStream::new(&self.graph, node, key, None, false)
    }

    /// The node from which a join gets the stream: a repartition if one is needed.
    fn parent_for_join(
        &self,
        graph: &mut LogicalGraph,
        name: Option<&str>,
        (key, value): (Option<Codec<K>>, Option<Codec<V>>),
    ) -> JoinInput {
        if !self.repartition_required {
            return JoinInput::of(self.node);
        }
        let key = own_or_inherited(key, self.key_serde.as_ref());
        let value = own_or_inherited(value, self.value_serde.as_ref());
        self.repartition_for_join(graph, name, key, value)
    }
}

impl<K: 'static, V: 'static, V2: 'static> StreamJoined<K, V, V2> {
    fn name_with(&self, suffix: &str) -> Option<String> {
        self.name.as_ref().map(|name| format!("{name}{suffix}"))
    }

    /// With the serdes that the streams still have where neither one is given nor the type has a default, as the
    /// original takes its default.
    fn or_inherited(
        self,
        graph: &LogicalGraph,
        (key, value): (Option<Codec<K>>, Option<Codec<V>>),
        other_value: Option<Codec<V2>>,
    ) -> Self {
        let defaults = &graph.default_serdes;
        Self {
            key: self.key.or_else(|| key.filter(|_| defaults.key_of::<K>().is_none())),
            value: self.value.or_else(|| value.filter(|_| defaults.value_of::<V>().is_none())),
            other_value: self
                .other_value
                .or_else(|| other_value.filter(|_| defaults.value_of::<V2>().is_none())),
            ..self
        }
    }
}
