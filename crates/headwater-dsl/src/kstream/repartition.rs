//! Repartitioning: through a topic, so that equal keys are in one partition again.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use headwater_topology::GeneratedNames;

use super::KStream;
use crate::builder::{SOURCE, own_or_inherited};
use crate::error::DslError;
use crate::graph::{
    LogicalGraph, LogicalKind, Mergeable, MergedRepartition, Repartition, RepartitionFilter, Wire,
};
use crate::nodes::{ReadAs, WriteAs, pass, sink, source, step};
use crate::nullity::Nullity;
use crate::params::{Extractor, FailOnInvalidTimestamp, Repartitioned, StreamPartitioner};
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
        let mut repartition = repartition(&mut graph, &prefix, named, settings);
        // Asked for by the user, so no optimization takes it out.
        repartition.serdes = None;
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
        filter: Some(RepartitionFilter {
            name: filter_name,
            dropping: Wire(drop_null_keys::<K, V>()),
            passing: Wire(pass_on::<K, V>()),
        }),
        sink: Wire(sink(
            WriteAs { key: key.clone(), value: value.clone(), partitioner },
            topic.clone(),
        )),
        // Records of ours have valid times, whatever the application says of others (D17).
        source: Wire(source(ReadAs {
            key: key.clone(),
            value: value.clone(),
            extractor: Some(Arc::new(FailOnInvalidTimestamp)),
        })),
        serdes: Some(Arc::new(RepartitionSerdes { key, value })),
        topic,
        partitions,
    };
    if named {
        repartition.call_after(prefix);
    }
    repartition
}

/// What the repartition of an operator is written and read with.
struct RepartitionSerdes<K, V> {
    key: Option<Codec<K>>,
    value: Option<Codec<V>>,
}

impl<K: 'static, V: 'static> Mergeable for RepartitionSerdes<K, V> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn merged(&self, others: &[Arc<dyn Mergeable>], topic: &str) -> MergedRepartition {
        // Whatever is below one change of keys, without a change of values, has its types.
        let others = others.iter().filter_map(|other| other.as_any().downcast_ref::<Self>());
        let all = || std::iter::once(self).chain(others.clone());
        let key = all().find_map(|it| it.key.clone());
        let value = all().find_map(|it| it.value.clone());
        let extractor = Some(Arc::new(FailOnInvalidTimestamp) as Extractor<K, V>);
        let read = ReadAs { key: key.clone(), value: value.clone(), extractor };
        MergedRepartition {
            dropping: drop_null_keys::<K, V>(),
            passing: pass_on::<K, V>(),
            sink: sink(
                WriteAs { key: key.clone(), value: value.clone(), partitioner: None },
                topic.to_owned(),
            ),
            source: source(read),
            serdes: Arc::new(Self { key, value }),
        }
    }
}

impl<K, V> fmt::Debug for RepartitionSerdes<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RepartitionSerdes")
    }
}

fn drop_null_keys<K: 'static, V: 'static>() -> WireInner {
    step::<K, V, K, V, _>(|out, record| {
        if record.key.is_none() {
            return out.null_key();
        }
        out.forward(record)
    })
}

/// The making of a node that hands every record on.
pub(super) fn pass_on<K: 'static, V: 'static>() -> WireInner {
    pass::<K, V, _>(|out, record| {
        out.forward(record)?;
        Ok(())
    })
}
