//! Streams of records.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use crate::error::DslError;
use crate::graph::{Effect, LogicalGraph, LogicalKind, NodeKey, Processor, SharedGraph};
use crate::nodes::pass;
use crate::nullity::{Nullable, Nullity, Present};
use crate::serdes::Codec;
use crate::wiring::WireInner;

mod branches;
mod emit;
mod flat_map;
mod grouping;
mod join_global;
mod join_stream;
mod join_table;
mod keys;
mod process;
mod repartition;
mod sinks;
mod to_table;
mod values;

pub use branches::{BranchedKStream, Branches};
pub use emit::{EmitPairs, EmitValues};
pub use sinks::Terminal;

pub(crate) use repartition::{SINK, Settings as RepartitionSettings, repartition};

/// A stream of independent records (feature row D2).
///
/// Functions get references and return owned results, so no type needs to be `Clone` and a stream
/// that is used twice copies nothing. What functions see of nulls is up to `N`, see [`Nullity`]. Each
/// function has a fallible form (`try_map_values`, ..), whose error goes to the processing exception
/// handler, as do panics.
///
/// Operators do not consume the stream: everything that is called on it gets every record, in the
/// order in which it was called.
pub struct KStream<K, V, N = Present> {
    graph: SharedGraph,
    node: NodeKey,
    key_serde: Option<Codec<K>>,
    value_serde: Option<Codec<V>>,
    /// Whether keys may have changed since records were last placed by key (feature row D14).
    repartition_required: bool,
    nullity: PhantomData<N>,
}

impl<K: 'static, V: 'static, N: Nullity> KStream<K, V, N> {
    pub(crate) fn new(
        graph: &SharedGraph,
        node: NodeKey,
        key_serde: Option<Codec<K>>,
        value_serde: Option<Codec<V>>,
        repartition_required: bool,
    ) -> Self {
        Self {
            graph: Rc::clone(graph),
            node,
            key_serde,
            value_serde,
            repartition_required,
            nullity: PhantomData,
        }
    }

    /// The stream whose functions see and return `Option`s.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Produced, StreamsBuilder};
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// builder
    ///     .stream("words", Consumed::with(Utf8, Utf8))
    ///     .nullable()
    ///     .map_values(|word| word.map(|word| word.len() as i64))
    ///     .to("lengths-and-tombstones", Produced::with(Utf8, Long));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn nullable(&self) -> KStream<K, V, Nullable> {
        self.with_nullity()
    }

    /// The stream whose functions see and return values. Records without value are dropped and
    /// counted by the first function that would have to see them.
    pub fn present(&self) -> KStream<K, V, Present> {
        self.with_nullity()
    }

    /// Names the node of the operator that made this stream, in descriptions and metrics.
    ///
    /// In Kafka Streams this is the parameter `Named` of each operator. Sources, sinks, groups,
    /// repartitions and processors have their names in their own parameters instead.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, StreamsBuilder};
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// let even = builder
    ///     .stream("numbers", Consumed::with(Utf8, Long))
    ///     .filter(|_, number| number % 2 == 0)
    ///     .named("even");
    /// # drop(even);
    /// assert!(builder.build()?.describe().contains("Processor: even"));
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    #[doc(alias = "Named")]
    #[must_use = "the stream goes on from here"]
    pub fn named(self, name: impl AsRef<str>) -> Self {
        self.graph.borrow_mut().rename(self.node, name.as_ref());
        self
    }

    /// The records of both streams, in no particular order between them.
    ///
    /// The result inherits no serdes, since the streams may have different ones (feature row D18).
    pub fn merge(&self, other: &Self) -> Self {
        let mut graph = self.graph.borrow_mut();
        let name = graph.name_or_next(None, "KSTREAM-MERGE-");
        let pass_on = pass::<K, V, _>(|out, record| {
            out.forward(record)?;
            Ok(())
        });
        let kind = LogicalKind::Processor(Processor::new(pass_on));
        let node = if Rc::ptr_eq(&self.graph, &other.graph) {
            graph.add(&[self.node, other.node], name, kind)
        } else {
            let node = other.graph.borrow().name(other.node).to_owned();
            graph.note(DslError::OtherBuilder { node });
            graph.add(&[self.node], name, kind)
        };
        graph.mark(node, Effect::Merges);
        drop(graph);
        let repartition_required = self.repartition_required || other.repartition_required;
        Self::new(&self.graph, node, None, None, repartition_required)
    }

    fn with_nullity<M: Nullity>(&self) -> KStream<K, V, M> {
        KStream::new(
            &self.graph,
            self.node,
            self.key_serde.clone(),
            self.value_serde.clone(),
            self.repartition_required,
        )
    }

    /// Adds a node without stores below this one.
    fn add_step(&self, prefix: &str, wire: WireInner) -> NodeKey {
        let mut graph = self.graph.borrow_mut();
        let name = graph.name_or_next(None, prefix);
        graph.add(&[self.node], name, LogicalKind::Processor(Processor::new(wire)))
    }

    /// The result of an operator that keeps keys and values.
    fn same(&self, node: NodeKey) -> Self {
        Self { node, ..self.clone() }
    }

    /// The node of an operator that does this to the records.
    fn marked(&self, node: NodeKey, effect: Effect) -> NodeKey {
        self.graph.borrow_mut().mark(node, effect);
        node
    }

    /// The result of an operator that keeps keys.
    fn other_values<V2: 'static>(&self, node: NodeKey) -> KStream<K, V2, N> {
        KStream::new(&self.graph, node, self.key_serde.clone(), None, self.repartition_required)
    }

    /// The result of an operator that makes other keys.
    fn other_keys<K2: 'static, V2: 'static>(
        &self,
        node: NodeKey,
        value_serde: Option<Codec<V2>>,
    ) -> KStream<K2, V2, N> {
        KStream::new(&self.graph, node, None, value_serde, true)
    }
}

impl<K, V, N> Clone for KStream<K, V, N> {
    fn clone(&self) -> Self {
        Self {
            graph: Rc::clone(&self.graph),
            node: self.node,
            key_serde: self.key_serde.clone(),
            value_serde: self.value_serde.clone(),
            repartition_required: self.repartition_required,
            nullity: PhantomData,
        }
    }
}

impl<K, V, N> fmt::Debug for KStream<K, V, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph: &LogicalGraph = &self.graph.borrow();
        f.debug_struct("KStream").field("node", &graph.name(self.node)).finish_non_exhaustive()
    }
}
