//! From streams to groups.

use headwater_runtime::UserError;

use super::KStream;
use super::keys::select_key;
use crate::builder::own_or_inherited;
use crate::graph::{Effect, LogicalKind, Processor};
use crate::kgrouped_stream::KGroupedStream;
use crate::nullity::Nullity;
use crate::params::Grouped;

impl<K: 'static, V: 'static, N: Nullity> KStream<K, V, N> {
    /// Groups records by a key made from each, for an aggregation. They go through a repartition
    /// topic; records without key are dropped there.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Grouped, Materialized, StreamsBuilder};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// let counts = builder
    ///     .stream("words", Consumed::with(Utf8, Utf8))
    ///     .group_by(|_, word| word.clone(), Grouped::with(Utf8, Utf8))
    ///     .count(Materialized::named("counts"));
    /// # drop(counts);
    /// let topics = builder.build()?.graph().internal_topics();
    /// let names: Vec<_> = topics.iter().map(|topic| topic.name.as_str()).collect();
    /// assert_eq!(names, ["-counts-changelog", "-counts-repartition"]);
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn group_by<K2: 'static, F>(
        &self,
        selector: F,
        grouped: Grouped<K2, V>,
    ) -> KGroupedStream<K2, V, N>
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> N::Owned<K2> + Send + Sync + 'static,
    {
        self.try_group_by(move |key, value| Ok::<_, UserError>(selector(key, value)), grouped)
    }

    /// [`group_by`](Self::group_by) with a function that can fail.
    pub fn try_group_by<K2: 'static, F, E>(
        &self,
        selector: F,
        grouped: Grouped<K2, V>,
    ) -> KGroupedStream<K2, V, N>
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> Result<N::Owned<K2>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let mut graph = self.graph.borrow_mut();
        let name = graph.name_or_next(grouped.name.as_deref(), "KSTREAM-KEY-SELECT-");
        let wire = select_key::<_, _, _, N, _, _>(selector);
        let node = graph.add(&[self.node], name, LogicalKind::Processor(Processor::new(wire)));
        graph.mark(node, Effect::ChangesKeys);
        drop(graph);
        let value = own_or_inherited(grouped.value, self.value_serde.as_ref());
        KGroupedStream::new(&self.graph, node, grouped.key, value, grouped.name, true)
    }

    /// Groups records by their key, for an aggregation. They go through a repartition topic only if
    /// the key may have changed before.
    pub fn group_by_key(&self, grouped: Grouped<K, V>) -> KGroupedStream<K, V, N> {
        let key = own_or_inherited(grouped.key, self.key_serde.as_ref());
        let value = own_or_inherited(grouped.value, self.value_serde.as_ref());
        let name = self.graph.borrow_mut().valid_name(grouped.name.as_deref());
        let required = self.repartition_required;
        KGroupedStream::new(&self.graph, self.node, key, value, name, required)
    }
}
