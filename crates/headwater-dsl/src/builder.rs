//! The entry to streams and tables.

use std::any::{TypeId, type_name};
use std::sync::Arc;

use headwater_runtime::{DslStoreFormat, DslStoreSuppliers, StreamsConfig, TopologyOptimization};
use headwater_store::serde::Serde;
use headwater_topology::{SourceOptions, Topics};

use crate::error::DslError;
use crate::graph::{LogicalGraph, LogicalKind, SharedGraph, StreamSource, TableSource, Wire};
use crate::kstream::KStream;
use crate::ktable::KTable;
use crate::nodes::{Kept, ReadAs, source, table_source};
use crate::nullity::Present;
use crate::params::{Consumed, Extractor, Materialized, TimestampExtractor};
use crate::serdes::{Codec, codec};
use crate::store::{DslStores, Stores};
use crate::topology::{BuiltWith, Topology};
use crate::wrapper::{AnyWrapper, ProcessorWrapper};

mod global;

pub use global::GlobalKTable;

/// Describes what an application does, as streams and tables (feature row D1).
///
/// ```
/// use headwater_dsl::{Consumed, Grouped, Materialized, Produced, StreamsBuilder};
/// use headwater_store::serde::{Long, Utf8};
///
/// let builder = StreamsBuilder::new();
/// builder
///     .stream("lines", Consumed::with(Utf8, Utf8))
///     .flat_map_values(|line, out| line.split_whitespace().for_each(|word| out.emit(word.to_owned())))
///     .group_by(|_, word| word.clone(), Grouped::with(Utf8, Utf8))
///     .count(Materialized::named("counts"))
///     .to_stream()
///     .to("counts", Produced::with(Utf8, Long));
///
/// let topology = builder.build()?;
/// println!("{}", topology.describe());
/// # Ok::<(), headwater_dsl::DslError>(())
/// ```
#[derive(Debug)]
pub struct StreamsBuilder {
    graph: SharedGraph,
}

/// The topics of a stream: one, several, or all that match a pattern.
///
/// A `&str` or `String` is one topic, an array or a vector several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSelection(Topics);

impl TopicSelection {
    /// All topics whose whole name matches this regular expression, new ones included. The syntax is
    /// that of the `regex-lite` crate.
    pub fn pattern(pattern: impl Into<String>) -> Self {
        Self(Topics::Pattern(pattern.into()))
    }

    pub(crate) fn into_topics(self) -> Topics {
        self.0
    }
}

impl From<&str> for TopicSelection {
    fn from(topic: &str) -> Self {
        Self(Topics::one(topic))
    }
}

impl From<String> for TopicSelection {
    fn from(topic: String) -> Self {
        Self(Topics::one(topic))
    }
}

impl<const N: usize> From<[&str; N]> for TopicSelection {
    fn from(topics: [&str; N]) -> Self {
        Self(Topics::Named(topics.into_iter().map(str::to_owned).collect()))
    }
}

impl From<Vec<String>> for TopicSelection {
    fn from(topics: Vec<String>) -> Self {
        Self(Topics::Named(topics))
    }
}

impl StreamsBuilder {
    /// A builder without streams.
    pub fn new() -> Self {
        Self { graph: LogicalGraph::shared() }
    }

    /// The serde for keys of type `K` wherever none is given or inherited. The types of Kafka's own
    /// serdes have one from the start (`String`, `Text`, `i16`, `i32`, `i64`, `f32`, `f64`, `bool`,
    /// `Bytes`, `Uuid`).
    pub fn default_key_serde<K: 'static>(&self, serde: impl Serde<K>) {
        self.graph.borrow_mut().default_serdes.set_key(codec(serde));
    }

    /// The serde for values of type `V` wherever none is given or inherited.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Produced, StreamsBuilder};
    /// use headwater_store::serde::Json;
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Order {
    ///     amount: u64,
    /// }
    ///
    /// let builder = StreamsBuilder::new();
    /// builder.default_value_serde(Json::<Order>::new());
    /// builder
    ///     .stream::<String, Order>("orders", Consumed::new())
    ///     .filter(|_, order| order.amount > 100)
    ///     .to("large-orders", Produced::new());
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn default_value_serde<V: 'static>(&self, serde: impl Serde<V>) {
        self.graph.borrow_mut().default_serdes.set_value(codec(serde));
    }

    /// The timestamp extractor for topics that are read as these types wherever none is given; sources
    /// of other types take what the application says (`default.timestamp.extractor`). Repartition
    /// topics are not asked (feature row D17).
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Produced, Record, StreamsBuilder};
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// // The value is the time.
    /// builder.default_timestamp_extractor(|record: Record<'_, String, i64>, _partition_time| {
    ///     record.value.copied().unwrap_or(record.timestamp)
    /// });
    /// builder.stream("visits", Consumed::with(Utf8, Long)).to("by-time", Produced::with(Utf8, Long));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn default_timestamp_extractor<K: 'static, V: 'static>(
        &self,
        extractor: impl TimestampExtractor<K, V>,
    ) {
        let extractor: Extractor<K, V> = Arc::new(extractor);
        let extractors = &mut self.graph.borrow_mut().default_extractors;
        extractors.insert(TypeId::of::<(K, V)>(), Arc::new(extractor));
    }

    /// Makes [`build`](Self::build) refuse names of stores and internal topics that were generated
    /// (`ensure.explicit.internal.resource.naming`, KIP-1111, feature row T15): such names change when
    /// operators are added, and with them the topics and stores that a running application needs. The
    /// setting of that name has the same said at the start of an instance.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Grouped, Materialized, StreamsBuilder};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// builder.ensure_explicit_internal_resource_naming();
    /// let words = builder.stream("words", Consumed::with(Utf8, Utf8));
    /// let counts = words.group_by_key(Grouped::new()).count(Materialized::new());
    /// assert!(builder.build().is_err());
    /// # drop(counts);
    /// ```
    pub fn ensure_explicit_internal_resource_naming(&self) {
        self.graph.borrow_mut().refuses_generated = true;
    }

    /// What is called in the place of each processor, and calls it (KIP-1112). A later call replaces an earlier one.
    pub fn processor_wrapper(&self, wrapper: impl ProcessorWrapper) {
        self.graph.borrow_mut().wrapper = Some(AnyWrapper::new(wrapper));
    }

    /// How the stores of tables keep their values (`dsl.store.format`, KIP-1285), whatever the configuration says
    /// that the topology is built with.
    pub fn dsl_store_format(&self, format: DslStoreFormat) {
        self.graph.borrow_mut().stores.format = Some(format);
    }

    /// Where the stores of tables are (`dsl.store.suppliers.class`, KIP-954), whatever the configuration says that the
    /// topology is built with.
    pub fn dsl_store_suppliers(&self, suppliers: DslStoreSuppliers) {
        self.graph.borrow_mut().stores.suppliers = Some(suppliers);
    }

    /// Reads topics as a stream of independent records.
    ///
    /// Several streams of the same topics share one source, whose serdes are those of the first.
    pub fn stream<K: 'static, V: 'static>(
        &self,
        topics: impl Into<TopicSelection>,
        consumed: Consumed<K, V>,
    ) -> KStream<K, V> {
        let Consumed { key, value, name, extractor, offset_reset } = consumed;
        let mut graph = self.graph.borrow_mut();
        let options = SourceOptions { offset_reset, timestamp_extractor: extractor.is_some() };
        let name = graph.name_or_next(name.as_deref(), SOURCE);
        let read = ReadAs { key: key.clone(), value: value.clone(), extractor };
        let source = StreamSource {
            topics: topics.into().into_topics(),
            options,
            wire: Wire(source(read)),
            record_type: TypeId::of::<(K, V)>(),
            type_name: type_name::<(K, V)>(),
        };
        let node = graph.add(&[LogicalGraph::ROOT], name, LogicalKind::Source(source));
        KStream::<K, V, Present>::new(&self.graph, node, key, value, false)
    }

    /// Reads a topic as a table: each record is an update of its key (feature row D45).
    ///
    /// The table is kept in a store only if it is named or something downstream needs it.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Materialized, StreamsBuilder};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// let users = builder.table("users", Consumed::with(Utf8, Utf8), Materialized::named("users"));
    /// assert_eq!(users.queryable_store_name(), Some("users"));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn table<K: 'static, V: 'static>(
        &self,
        topic: impl Into<String>,
        consumed: Consumed<K, V>,
        materialized: Materialized<K, V>,
    ) -> KTable<K, V> {
        let topic = topic.into();
        let Consumed { key, value, name, extractor, offset_reset } = consumed;
        let mut graph = self.graph.borrow_mut();
        let materialized = materialized.checked(&mut graph).or_serdes(key.as_ref(), value.as_ref());
        let store_name = match &materialized.name {
            Some(name) => name.clone(),
            None => graph.names.store_name(&format!("{topic}-")),
        };
        graph.note_generated(materialized.generated_names(&store_name));
        let options = SourceOptions { offset_reset, timestamp_extractor: extractor.is_some() };
        let given = graph.valid_name(name.as_deref());
        let source_name = graph
            .name_or_next(given.as_ref().map(|name| format!("{name}-source")).as_deref(), SOURCE);
        let table_name = graph.name_or_next(given.as_deref(), "KTABLE-SOURCE-");
        let read = ReadAs { key: key.clone(), value: value.clone(), extractor };
        let kept = Kept {
            store: store_name.clone(),
            key: materialized.key.clone(),
            value: materialized.value.clone(),
        };
        let table = TableSource {
            topic,
            options,
            source_name,
            source: Wire(source(read)),
            table: Wire(table_source(kept)),
            store: materialized.declare(&store_name),
            materialized: materialized.name.is_some(),
            reuses_topic: false,
        };
        let node = graph.add(&[LogicalGraph::ROOT], table_name, LogicalKind::TableSource(table));
        drop(graph);
        let Materialized { name, key, value, .. } = materialized;
        KTable::new(&self.graph, node, key, value, name)
    }

    /// Adds a store for processors that name it in [`Processed::with_stores`](crate::Processed).
    pub fn add_state_store<K: 'static, V: 'static>(&self, store: Stores<K, V>) {
        let store = store.declare();
        let mut graph = self.graph.borrow_mut();
        let name = store.spec.name.clone();
        graph.add(&[LogicalGraph::ROOT], name, LogicalKind::Store(store));
    }

    /// The first mistake in what was described so far, as far as it shows before the whole is known.
    ///
    /// # Errors
    /// That mistake.
    pub fn check(&self) -> Result<(), DslError> {
        self.graph.borrow().problem().map_or(Ok(()), |problem| Err(problem.clone()))
    }

    /// The finished topology. The builder stays as it is; more can be added for another topology. What a configuration
    /// says of topologies has no effect here but with [`build_with`](Self::build_with); an instance warns of it.
    ///
    /// # Errors
    /// The first mistake, or what is wrong with the whole: names and topics that are taken, stores
    /// that are missing, types without serde.
    pub fn build(&self) -> Result<Topology, DslError> {
        self.build_optimized(TopologyOptimization::NONE, DslStores::default())
    }

    /// The finished topology, rewritten as the configuration says (`topology.optimization`, feature row
    /// D21), its stores as that says (`dsl.store.format`, `dsl.store.suppliers.class`). Without the configuration, as by [`build`](Self::build), nothing is optimized, as in Kafka
    /// Streams. Whether and how a topology is optimized decides over names of internal topics, so that it cannot
    /// be changed under a running application.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Materialized, StreamsBuilder};
    /// use headwater_runtime::{StreamsConfig, TopologyOptimization};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// let users = builder.table("users", Consumed::with(Utf8, Utf8), Materialized::named("users"));
    /// # drop(users);
    /// let config = StreamsConfig::new("app").topology_optimization(TopologyOptimization::ALL);
    /// let topology = builder.build_with(&config)?;
    /// // The table's topic is the changelog of its store.
    /// assert!(topology.graph().internal_topics().is_empty());
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    ///
    /// # Errors
    /// As for [`build`](Self::build).
    pub fn build_with(&self, config: &StreamsConfig) -> Result<Topology, DslError> {
        self.build_optimized(config.topology_optimization, DslStores::in_config(config))
    }

    fn build_optimized(
        &self,
        optimization: TopologyOptimization,
        stores: DslStores,
    ) -> Result<Topology, DslError> {
        let given = self.graph.borrow().stores;
        let stores = given.or(stores);
        let draft = self.graph.borrow().write(optimization, stores)?;
        let built_with = BuiltWith { optimization, given, stores };
        Topology::new(draft.builder, draft.behaviours, Some(built_with))
    }
}

impl Default for StreamsBuilder {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) const SOURCE: &str = "KSTREAM-SOURCE-";

/// A serde of a stream for the next operator: its own, or what the stream still has.
pub(crate) fn own_or_inherited<T>(
    own: Option<Codec<T>>,
    inherited: Option<&Codec<T>>,
) -> Option<Codec<T>> {
    own.or_else(|| inherited.cloned())
}
