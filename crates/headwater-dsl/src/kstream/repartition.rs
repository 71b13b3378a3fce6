//! Repartitioning: through a topic, so that equal keys are in one partition again.

use std::sync::Arc;

use headwater_topology::GeneratedNames;

use super::KStream;
use crate::builder::{SOURCE, own_or_inherited};
use crate::error::DslError;
use crate::graph::{LogicalGraph, LogicalKind, Repartition, Wire};
use crate::nodes::{ReadAs, sink, source, step};
use crate::nullity::Nullity;
use crate::params::{FailOnInvalidTimestamp, Repartitioned, StreamPartitioner};
use crate::serdes::Codec;
use crate::wiring::WireInner;

pub(crate) const SINK: &str = "KSTREAM-SINK-";

impl<K: 'static, V: 'static, N: Nullity> KStream<K, V, N> {
    /// Sends the stream through an internal topic, so that records with equal keys are in one
    /// partition, and the number of partitions is what is asked for. Records without key are dropped
    /// (feature rows D14 to D17).
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Produced, Repartitioned, StreamsBuilder};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// builder
    ///     .stream("orders", Consumed::with(Utf8, Utf8))
    ///     .repartition(Repartitioned::new().named("spread").with_number_of_partitions(12))
    ///     .to("spread-orders", Produced::new());
    /// assert_eq!(builder.build()?.graph().subtopologies().len(), 2);
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn repartition(&self, repartitioned: Repartitioned<K, V>) -> Self {
        let Repartitioned { key, value, name, partitions, partitioner } = repartitioned;
        let mut graph = self.graph.borrow_mut();
        let given = graph.valid_name(name.as_deref());
        let named = given.is_some();
        let prefix = given.unwrap_or_else(|| graph.names.processor_name("KSTREAM-REPARTITION-"));
        if !named {
            let repartition_topic = Some(Repartition::topic(&prefix));
            graph.note_generated(GeneratedNames { repartition_topic, ..GeneratedNames::default() });
        }
        let settings = Settings {
            key: own_or_inherited(key, self.key_serde.as_ref()),
            value: own_or_inherited(value, self.value_serde.as_ref()),
            partitioner,
            partitions,
        };
        let (key, value) = (settings.key.clone(), settings.value.clone());
        let repartition = repartition(&mut graph, &prefix, named, settings);
        let name = repartition.source_name.clone();
        let node = graph.add(&[self.node], name, LogicalKind::Repartition(repartition));
        drop(graph);
        Self::new(&self.graph, node, key, value, false)
    }
}

/// What a repartition can be told.
pub(crate) struct Settings<K, V> {
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
    pub(crate) partitioner: Option<StreamPartitioner<K, V>>,
    pub(crate) partitions: Option<u32>,
}

/// A repartition through the topic with this prefix. `named` says whether the user gave the prefix;
/// the nodes are then called after it (feature row D15).
pub(crate) fn repartition<K: 'static, V: 'static>(
    graph: &mut LogicalGraph,
    prefix: &str,
    named: bool,
    settings: Settings<K, V>,
) -> Repartition {
    let topic = Repartition::topic(prefix);
    if settings.partitions == Some(0) {
        graph.note(DslError::NoPartitions { topic: topic.clone() });
    }
    // Taken in any case, so that naming does not renumber what follows (D12).
    let sink_name = graph.names.processor_name(SINK);
    let filter_name = graph.names.processor_name("KSTREAM-FILTER-");
    let source_name = graph.names.processor_name(SOURCE);
    let Settings { key, value, partitioner, partitions } = settings;
    let mut repartition = Repartition {
        sink_name,
        source_name,
        filter: Some((filter_name, Wire(drop_null_keys::<K, V>()))),
        sink: Wire(sink(key.clone(), value.clone(), partitioner, topic.clone())),
        // Records of ours have valid times, whatever the application says of others (D17).
        source: Wire(source(ReadAs {
            key,
            value,
            extractor: Some(Arc::new(FailOnInvalidTimestamp)),
        })),
        topic,
        partitions,
    };
    if named {
        repartition.call_after(prefix);
    }
    repartition
}

fn drop_null_keys<K: 'static, V: 'static>() -> WireInner {
    step::<K, V, K, V, _>(|out, record| {
        if record.key.is_none() {
            return out.null_key();
        }
        out.forward(record)
    })
}
