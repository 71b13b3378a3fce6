//! Topologies node by node.

use headwater_runtime::UserError;
use headwater_store::serde::Serde;
use headwater_topology::{SinkTopic, SourceOptions};

use crate::builder::TopicSelection;
use crate::error::DslError;
use crate::graph::Draft;
use crate::nodes::{ReadAs, sink, source};
use crate::params::{Consumed, Processed, Produced};
use crate::processor::{Processor, ProcessorContext, processor};
use crate::serdes::{DefaultSerdes, codec};
use crate::store::Stores;
use crate::topology::Topology;
use crate::wiring::Behaviour;

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
        let wire = source(ReadAs { key, value, extractor });
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
        let wire = processor::<KIn, VIn, KOut, VOut, P, F>(supplier, false);
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
        let wire = sink(key, value, partitioner, topic.to_owned());
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
        let Draft { builder, behaviours } = self.draft.clone();
        Topology::new(builder, behaviours)
    }
}

impl Default for TopologyBuilder {
    fn default() -> Self {
        Self::new()
    }
}
