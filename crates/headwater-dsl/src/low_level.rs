//! Topologies node by node.

use std::sync::Arc;

use headwater_runtime::UserError;
use headwater_store::serde::Serde;
use headwater_topology::{SinkTopic, SourceOptions, StoreSource};

use crate::builder::TopicSelection;
use crate::error::DslError;
use crate::graph::{Draft, GlobalSource, Wire};
use crate::nodes::{self, ReadAs, WriteAs, choosing_sink, sink};
use crate::params::{Consumed, Processed, Produced, TopicNameExtractor};
use crate::processor::{Processor, ProcessorContext, processor as processor_node};
use crate::serdes::{DefaultSerdes, codec};
use crate::store::{Stores, check};
use crate::topology::Topology;
use crate::wiring::Behaviour;
use crate::wrapper::{AnyWrapper, ProcessorWrapper};

/// Describes what an application does node by node: sources, processors, sinks and stores, with names
/// of the user's own (feature row P1; Kafka Streams' class `Topology`).
///
/// Nodes are added parents first; each call fails at once if the graph would be wrong. That children
/// take the records which their parents forward is checked in [`build`](Self::build).
///
/// ```
/// use headwater_dsl::{
///     Consumed, Processed, Processor, ProcessorContext, Produced, Record, TopologyBuilder,
/// };
/// use headwater_runtime::UserError;
/// use headwater_store::serde::{Long, Utf8};
///
/// /// Sends long words one way and short ones the other.
/// struct Sort;
///
/// impl Processor<String, String, String, i64> for Sort {
///     fn process(
///         &mut self,
///         context: &mut ProcessorContext<'_, '_, String, i64>,
///         record: Record<'_, String, String>,
///     ) -> Result<(), UserError> {
///         let Some(word) = record.value else { return Ok(()) };
///         let length = i64::try_from(word.len())?;
///         let child = if length > 7 { "long" } else { "short" };
///         Ok(context.forward_to(child, record.with_value(Some(&length)))?)
///     }
/// }
///
/// let mut builder = TopologyBuilder::new();
/// builder
///     .add_source("words", "words", Consumed::with(Utf8, Utf8))?
///     .add_processor("sort", |_| Ok(Sort), Processed::new(), ["words"])?
///     .add_sink("long", "long-words", Produced::with(Utf8, Long), ["sort"])?
///     .add_sink("short", "short-words", Produced::with(Utf8, Long), ["sort"])?;
/// let topology = builder.build()?;
/// # assert_eq!(topology.graph().nodes().len(), 4);
/// # Ok::<(), headwater_dsl::DslError>(())
/// ```
#[derive(Debug)]
pub struct TopologyBuilder {
    draft: Draft,
}

impl TopologyBuilder {
    /// A builder without nodes.
    pub fn new() -> Self {
        let mut draft = Draft::default();
        draft.behaviours.default_serdes = DefaultSerdes::built_in();
        Self { draft }
    }

    /// The serde for keys of type `K` wherever none is given; see
    /// [`StreamsBuilder::default_key_serde`](crate::StreamsBuilder::default_key_serde).
    pub fn default_key_serde<K: 'static>(&mut self, serde: impl Serde<K>) -> &mut Self {
        self.draft.behaviours.default_serdes.set_key(codec(serde));
        self
    }

    /// The serde for values of type `V` wherever none is given.
    pub fn default_value_serde<V: 'static>(&mut self, serde: impl Serde<V>) -> &mut Self {
        self.draft.behaviours.default_serdes.set_value(codec(serde));
        self
    }

    /// What is called in the place of each processor, and calls it (KIP-1112). A later call replaces an earlier one.
    pub fn processor_wrapper(&mut self, wrapper: impl ProcessorWrapper) -> &mut Self {
        self.draft.behaviours.wrapper = Some(AnyWrapper::new(wrapper));
        self
    }

    /// Adds a source. It is called `name`, whatever `consumed` says.
    ///
    /// # Errors
    /// If the name is taken, or another source reads one of the topics.
    pub fn add_source<K: 'static, V: 'static>(
        &mut self,
        name: &str,
        topics: impl Into<TopicSelection>,
        consumed: Consumed<K, V>,
    ) -> Result<&mut Self, DslError> {
        let Consumed { key, value, extractor, offset_reset, name: _ } = consumed;
        let options = SourceOptions { offset_reset, timestamp_extractor: extractor.is_some() };
        self.draft.builder.add_source(name, topics.into().into_topics(), options)?;
        let wire = nodes::source(ReadAs { key, value, extractor });
        self.draft.behave(name, Behaviour::Source(wire));
        Ok(self)
    }

    /// Adds a processor below these nodes, with the stores that `processed` names or brings along.
    /// It is called `name`, whatever `processed` says.
    ///
    /// # Errors
    /// If the name is taken, or a parent or store is not there.
    pub fn add_processor<KIn, VIn, KOut, VOut, P, F>(
        &mut self,
        name: &str,
        supplier: F,
        processed: Processed,
        parents: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<&mut Self, DslError>
    where
        KIn: 'static,
        VIn: 'static,
        KOut: 'static,
        VOut: 'static,
        P: Processor<KIn, VIn, KOut, VOut>,
        F: Fn(&mut ProcessorContext<'_, '_, KOut, VOut>) -> Result<P, UserError>
            + Send
            + Sync
            + 'static,
    {
        self.draft.builder.add_processor(name, parents)?;
        let wire = processor_node::<KIn, VIn, KOut, VOut, P, F>(supplier, false);
        self.draft.behave(name, Behaviour::Inner(wire));
        let Processed { connected, provided, name: _ } = processed;
        for store in provided {
            self.draft.declare(&store, [name])?;
        }
        if !connected.is_empty() {
            self.connect_processor_and_state_stores(name, connected)?;
        }
        Ok(self)
    }

    /// Adds a store that only its own processor writes, from a topic that is its changelog at the same
    /// time: nothing is logged a second time, and the store is restored from the topic. `source` names
    /// the node that reads the topic, from its first record on; `processor` the node that is handed its
    /// records and puts them into the store as they are. Other processors read the store when they are
    /// connected to it (feature rows P1, T14).
    ///
    /// ```
    /// use headwater_dsl::{
    ///     Consumed, Processor, ProcessorContext, Record, Stores, TopologyBuilder, KeyValueStore,
    /// };
    /// use headwater_runtime::UserError;
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// /// Keeps the prices of the topic.
    /// struct Keep(KeyValueStore<String, i64>);
    ///
    /// impl Processor<String, i64, (), ()> for Keep {
    ///     fn process(
    ///         &mut self,
    ///         context: &mut ProcessorContext<'_, '_, (), ()>,
    ///         record: Record<'_, String, i64>,
    ///     ) -> Result<(), UserError> {
    ///         match (record.key, record.value) {
    ///             (Some(article), Some(price)) => self.0.put(context, article, price)?,
    ///             (Some(article), None) => drop(self.0.delete(context, article)?),
    ///             (None, _) => {}
    ///         }
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut builder = TopologyBuilder::new();
    /// builder.add_read_only_state_store(
    ///     Stores::key_value("prices", Utf8, Long),
    ///     ("prices-source", "prices", Consumed::with(Utf8, Long)),
    ///     ("keep-prices", |context: &mut ProcessorContext<'_, '_, (), ()>| {
    ///         Ok(Keep(context.key_value_store("prices")?))
    ///     }),
    /// )?;
    /// let topology = builder.build()?;
    /// assert!(topology.graph().internal_topics().is_empty());
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    ///
    /// # Errors
    /// If a name is taken, or another source reads the topic.
    pub fn add_read_only_state_store<K, V, KIn, VIn, KOut, VOut, P, F>(
        &mut self,
        store: Stores<K, V>,
        (source, topic, consumed): (&str, &str, Consumed<KIn, VIn>),
        (processor, supplier): (&str, F),
    ) -> Result<&mut Self, DslError>
    where
        K: 'static,
        V: 'static,
        KIn: 'static,
        VIn: 'static,
        KOut: 'static,
        VOut: 'static,
        P: Processor<KIn, VIn, KOut, VOut>,
        F: Fn(&mut ProcessorContext<'_, '_, KOut, VOut>) -> Result<P, UserError>
            + Send
            + Sync
            + 'static,
    {
        let Consumed { key, value, extractor, offset_reset: _, name: _ } = consumed;
        let store = store.declare();
        check(&store.spec)?;
        let from = StoreSource {
            source: source.to_owned(),
            topic: topic.to_owned(),
            processor: processor.to_owned(),
            timestamp_extractor: extractor.is_some(),
        };
        self.draft.builder.add_read_only_state_store(Arc::clone(&store.spec), from)?;
        let reads = nodes::source(ReadAs { key, value, extractor });
        self.draft.behave(source, Behaviour::Source(reads));
        let writes = processor_node::<KIn, VIn, KOut, VOut, P, F>(supplier, false);
        self.draft.behave(processor, Behaviour::Inner(writes));
        self.draft.behaviours.stores.insert(store.spec.name.clone(), store);
        Ok(self)
    }

    /// Adds a store that every instance holds whole, with the source of its topic and the processor that
    /// fills it (feature row P22): see
    /// [`StreamsBuilder::add_global_store`](crate::StreamsBuilder::add_global_store). What it forwards goes
    /// to processors below it, which may write global stores too, and nothing else.
    ///
    /// # Errors
    /// If a name is taken or used twice, or another source reads the topic.
    pub fn add_global_store<K, V, KIn, VIn, KOut, VOut, P, F>(
        &mut self,
        store: Stores<K, V>,
        (source, topic, consumed): (&str, &str, Consumed<KIn, VIn>),
        (processor, supplier): (&str, F),
    ) -> Result<&mut Self, DslError>
    where
        K: 'static,
        V: 'static,
        KIn: 'static,
        VIn: 'static,
        KOut: 'static,
        VOut: 'static,
        P: Processor<KIn, VIn, KOut, VOut>,
        F: Fn(&mut ProcessorContext<'_, '_, KOut, VOut>) -> Result<P, UserError>
            + Send
            + Sync
            + 'static,
    {
        let Consumed { key, value, extractor, offset_reset, name: _ } = consumed;
        let options = SourceOptions { offset_reset, timestamp_extractor: extractor.is_some() };
        let from = GlobalSource {
            topic: topic.to_owned(),
            options,
            source_name: source.to_owned(),
            source: Wire(nodes::source(ReadAs { key, value, extractor })),
            processor: Wire(processor_node::<KIn, VIn, KOut, VOut, P, F>(supplier, false)),
            store: store.declare(),
        };
        self.draft.declare_global(processor, &from)?;
        Ok(self)
    }

    /// Adds a sink below these nodes. It is called `name`, whatever `produced` says.
    ///
    /// # Errors
    /// If the name is taken, or a parent is not there.
    pub fn add_sink<K: 'static, V: 'static>(
        &mut self,
        name: &str,
        topic: &str,
        produced: Produced<K, V>,
        parents: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<&mut Self, DslError> {
        let Produced { key, value, partitioner, name: _ } = produced;
        self.draft.builder.add_sink(name, SinkTopic::named(topic), parents)?;
        let wire = sink(WriteAs { key, value, partitioner }, topic.to_owned());
        self.draft.behave(name, Behaviour::Inner(wire));
        Ok(self)
    }

    /// Adds a sink below these nodes that chooses a topic for each record; see
    /// [`KStream::to_extracted`](crate::KStream::to_extracted).
    ///
    /// # Errors
    /// If the name is taken, or a parent is not there.
    pub fn add_extracted_sink<K: 'static, V: 'static>(
        &mut self,
        name: &str,
        extractor: impl TopicNameExtractor<K, V>,
        produced: Produced<K, V>,
        parents: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<&mut Self, DslError> {
        let Produced { key, value, partitioner, name: _ } = produced;
        let topic = SinkTopic::Dynamic { chooser: extractor.name().to_owned() };
        self.draft.builder.add_sink(name, topic, parents)?;
        let wire = choosing_sink(WriteAs { key, value, partitioner }, Arc::new(extractor));
        self.draft.behave(name, Behaviour::Inner(wire));
        Ok(self)
    }

    /// Adds a store that these processors use, which thereby fall into one sub-topology.
    ///
    /// # Errors
    /// If another store has the name, or a processor is not there.
    pub fn add_state_store<K: 'static, V: 'static>(
        &mut self,
        store: Stores<K, V>,
        processors: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<&mut Self, DslError> {
        self.draft.declare(&store.declare(), processors)?;
        Ok(self)
    }

    /// Lets a processor use these stores, which were added before.
    ///
    /// # Errors
    /// If the processor or a store is not there, or no store is named.
    pub fn connect_processor_and_state_stores(
        &mut self,
        processor: &str,
        stores: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<&mut Self, DslError> {
        self.draft.builder.connect_processor_and_state_stores(processor, stores)?;
        Ok(self)
    }

    /// The finished topology. The builder stays as it is.
    ///
    /// # Errors
    /// If a node does not take what its parent forwards, or a type has no serde.
    pub fn build(&self) -> Result<Topology, DslError> {
        let Draft { builder, behaviours, .. } = self.draft.clone();
        Topology::new(builder, behaviours, None)
    }
}

impl Default for TopologyBuilder {
    fn default() -> Self {
        Self::new()
    }
}
