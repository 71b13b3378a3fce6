//! Tables and stores that every instance holds whole.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use headwater_runtime::UserError;
use headwater_topology::{SourceOptions, StoreKind};

use super::{SOURCE, StreamsBuilder};
use crate::error::DslError;
use crate::graph::{GlobalSource, LogicalGraph, LogicalKind, NodeKey, SharedGraph, Wire};
use crate::nodes::{Kept, ReadAs, source, table_source};
use crate::params::{Consumed, Materialized};
use crate::processor::{Processor, ProcessorContext, processor};
use crate::store::Stores;

/// A table of which every instance holds all partitions (feature row D4).
///
/// Streams are joined with it by any key, without repartition:
/// [`KStream::join_global_table`](crate::KStream::join_global_table). It is read to the end before an
/// instance processes its first record, and then follows its topic: on its own time, so a stream's record
/// may meet a table that is older or newer than itself. Its store can be queried, and read by processors under
/// its name.
pub struct GlobalKTable<K, V> {
    graph: SharedGraph,
    node: NodeKey,
    store: String,
    types: Types<K, V>,
}

type Types<K, V> = PhantomData<fn() -> (K, V)>;

impl<K, V> GlobalKTable<K, V> {
    /// The name of its store, under which it can be queried.
    pub fn queryable_store_name(&self) -> &str {
        &self.store
    }

    pub(crate) const fn graph(&self) -> &SharedGraph {
        &self.graph
    }

    pub(crate) const fn node(&self) -> NodeKey {
        self.node
    }
}

impl<K, V> Clone for GlobalKTable<K, V> {
    fn clone(&self) -> Self {
        let (graph, store) = (Rc::clone(&self.graph), self.store.clone());
        Self { graph, node: self.node, store, types: self.types }
    }
}

impl<K, V> fmt::Debug for GlobalKTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalKTable").field("store", &self.store).finish_non_exhaustive()
    }
}

impl StreamsBuilder {
    /// Reads a topic as a table of which every instance holds all partitions (feature row D4). It has no
    /// changelog: it is restored from the topic.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Materialized, Produced, StreamsBuilder};
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// let rates =
    ///     builder.global_table("rates", Consumed::with(Utf8, Long), Materialized::named("rates"));
    /// builder
    ///     .stream("payments", Consumed::with(Utf8, Utf8))
    ///     .join_global_table(&rates, |_, currency| currency.clone(), |_, rate| *rate)
    ///     .to("rates-of-payments", Produced::with(Utf8, Long));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn global_table<K: 'static, V: 'static>(
        &self,
        topic: impl Into<String>,
        consumed: Consumed<K, V>,
        materialized: Materialized<K, V>,
    ) -> GlobalKTable<K, V> {
        let topic = topic.into();
        let Consumed { key, value, name, extractor, offset_reset } = consumed;
        let mut graph = self.graph.borrow_mut();
        let materialized = materialized.checked(&mut graph).or_serdes(key.as_ref(), value.as_ref());
        let materialized = materialized.with_logging_disabled().with_caching_disabled();
        let store_name = match &materialized.name {
            Some(name) => name.clone(),
            None => graph.names.store_name(&format!("{topic}-")),
        };
        let store = materialized.declare(&store_name);
        if matches!(store.spec.kind, StoreKind::Versioned { .. }) {
            graph.note(DslError::VersionedGlobalTable);
        }
        let options = SourceOptions { offset_reset, timestamp_extractor: extractor.is_some() };
        let (source_name, name) = names(&mut graph, name.as_deref());
        let kept = Kept {
            store: store_name.clone(),
            key: materialized.key.clone(),
            value: materialized.value,
        };
        let source = GlobalSource {
            topic,
            options,
            source_name,
            source: Wire(source(ReadAs { key, value, extractor })),
            processor: Wire(table_source(kept)),
            store,
        };
        let node = graph.add(&[LogicalGraph::ROOT], name, LogicalKind::GlobalStore(source));
        drop(graph);
        let (graph, types) = (Rc::clone(&self.graph), PhantomData);
        GlobalKTable { graph, node, store: store_name, types }
    }

    /// Adds a store that every instance holds whole, and that a processor of the user's fills from all
    /// partitions of a topic (feature row P22). It has no changelog: when it is restored, the processor
    /// runs again on the records of the topic, so it must put into the store what they say and nothing else
    /// (KIP-1270). All processors read the store under its name, without being connected to it; only those
    /// of global stores write it.
    ///
    /// ```
    /// use headwater_dsl::{
    ///     Consumed, KeyValueStore, Processor, ProcessorContext, Record, Stores, StreamsBuilder,
    /// };
    /// use headwater_runtime::UserError;
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// /// Keeps the prices of articles that are for sale.
    /// struct KeepPrices(KeyValueStore<String, i64>);
    ///
    /// impl Processor<String, i64, (), ()> for KeepPrices {
    ///     fn process(
    ///         &mut self,
    ///         context: &mut ProcessorContext<'_, '_, (), ()>,
    ///         record: Record<'_, String, i64>,
    ///     ) -> Result<(), UserError> {
    ///         match (record.key, record.value) {
    ///             (Some(article), Some(price)) if *price > 0 => self.0.put(context, article, price)?,
    ///             (Some(article), _) => drop(self.0.delete(context, article)?),
    ///             (None, _) => {}
    ///         }
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let builder = StreamsBuilder::new();
    /// builder.add_global_store(
    ///     Stores::key_value("prices", Utf8, Long),
    ///     "prices",
    ///     Consumed::with(Utf8, Long),
    ///     |context| Ok(KeepPrices(context.key_value_store("prices")?)),
    /// );
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn add_global_store<KS, VS, K, V, P, F>(
        &self,
        store: Stores<KS, VS>,
        topic: impl Into<String>,
        consumed: Consumed<K, V>,
        supplier: F,
    ) where
        KS: 'static,
        VS: 'static,
        K: 'static,
        V: 'static,
        P: Processor<K, V, (), ()>,
        F: Fn(&mut ProcessorContext<'_, '_, (), ()>) -> Result<P, UserError>
            + Send
            + Sync
            + 'static,
    {
        let Consumed { key, value, name, extractor, offset_reset } = consumed;
        let mut graph = self.graph.borrow_mut();
        let options = SourceOptions { offset_reset, timestamp_extractor: extractor.is_some() };
        let (source_name, name) = names(&mut graph, name.as_deref());
        let source = GlobalSource {
            topic: topic.into(),
            options,
            source_name,
            source: Wire(source(ReadAs { key, value, extractor })),
            processor: Wire(processor::<K, V, (), (), P, F>(supplier, false)),
            store: store.declare(),
        };
        graph.add(&[LogicalGraph::ROOT], name, LogicalKind::GlobalStore(source));
    }
}

/// The names of source and processor, after the given one if there is one.
fn names(graph: &mut LogicalGraph, given: Option<&str>) -> (String, String) {
    let given = graph.valid_name(given);
    let source = given.as_ref().map(|name| format!("{name}-source"));
    let source = graph.name_or_next(source.as_deref(), SOURCE);
    (source, graph.name_or_next(given.as_deref(), "KTABLE-SOURCE-"))
}
