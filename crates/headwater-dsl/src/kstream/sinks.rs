//! The ends of a stream.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use headwater_runtime::UserError;
use headwater_topology::SinkTopic;

use super::KStream;
use crate::builder::own_or_inherited;
use crate::error::DslError;
use crate::graph::{LogicalGraph, LogicalKind, NodeKey, Processor, SharedGraph, Wire};
use crate::nodes::{WriteAs, choosing_sink, sink, step};
use crate::nullity::Nullity;
use crate::params::{Printed, Produced, TopicNameExtractor, print_line};

/// An operator without result, to be named if need be.
pub struct Terminal {
    graph: SharedGraph,
    node: NodeKey,
}

impl Terminal {
    /// Names the operator's node.
    #[doc(alias = "Named")]
    pub fn named(self, name: impl AsRef<str>) {
        self.graph.borrow_mut().rename(self.node, name.as_ref());
    }
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph: &LogicalGraph = &self.graph.borrow();
        f.debug_struct("Terminal").field("node", &graph.name(self.node)).finish_non_exhaustive()
    }
}

impl<K: 'static, V: 'static, N: Nullity> KStream<K, V, N> {
    /// Calls a function for every record. Its effects are not repeated exactly once.
    pub fn foreach<F>(&self, action: F) -> Terminal
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) + Send + Sync + 'static,
    {
        self.try_foreach(move |key, value| {
            action(key, value);
            Ok::<_, UserError>(())
        })
    }

    /// [`foreach`](Self::foreach) with a function that can fail.
    pub fn try_foreach<F, E>(&self, action: F) -> Terminal
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> Result<(), E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let node = self.add_step(
            "KSTREAM-FOREACH-",
            step::<K, V, K, V, _>(move |out, record| {
                let Some(value) = N::view(record.value) else {
                    return out.null_value();
                };
                action(record.key, value).or_else(|error| out.failed(error))
            }),
        );
        Terminal { graph: Rc::clone(&self.graph), node }
    }

    /// Prints every record, null values included. See [`Printed`] for an example.
    pub fn print(&self, printed: Printed<K, V>) {
        let Printed { name, label, mapper, place } = printed;
        let mut graph = self.graph.borrow_mut();
        let place = match place {
            Ok(place) => place,
            Err((path, reason)) => {
                graph.note(DslError::Unprintable { path, reason });
                return;
            }
        };
        let name = graph.name_or_next(name.as_deref(), "KSTREAM-PRINTER-");
        let label = label.unwrap_or_else(|| graph.name(self.node).to_owned());
        let wire = step::<K, V, K, V, _>(move |out, record| {
            print_line(&place, &label, &mapper(record.key, record.value))
                .or_else(|error| out.failed(error))
        });
        graph.add(&[self.node], name, LogicalKind::Processor(Processor::new(wire)));
    }

    /// Writes every record to a topic, which must exist.
    pub fn to(&self, topic: impl Into<String>, produced: Produced<K, V>) {
        let topic = topic.into();
        let Produced { key, value, name, partitioner } = produced;
        let key = own_or_inherited(key, self.key_serde.as_ref());
        let value = own_or_inherited(value, self.value_serde.as_ref());
        let write = WriteAs { key, value, partitioner };
        let wire = Wire(sink(write, topic.clone()));
        self.add_sink(name.as_deref(), LogicalKind::Sink { topic: SinkTopic::named(topic), wire });
    }

    /// Writes every record to the topic that is chosen for it. A topic that does not exist is a failure of
    /// production, about which the handler decides; one that is new is found when it is first chosen.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Produced, Record, RecordContext, StreamsBuilder};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// builder.stream("orders", Consumed::with(Utf8, Utf8)).to_extracted(
    ///     |record: Record<'_, String, String>, _: RecordContext<'_>| {
    ///         format!("orders-of-{}", record.key.map_or("nobody", String::as_str))
    ///     },
    ///     Produced::with(Utf8, Utf8),
    /// );
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn to_extracted(&self, extractor: impl TopicNameExtractor<K, V>, produced: Produced<K, V>) {
        let Produced { key, value, name, partitioner } = produced;
        let key = own_or_inherited(key, self.key_serde.as_ref());
        let value = own_or_inherited(value, self.value_serde.as_ref());
        let topic = SinkTopic::Dynamic { chooser: extractor.name().to_owned() };
        let wire = Wire(choosing_sink(WriteAs { key, value, partitioner }, Arc::new(extractor)));
        self.add_sink(name.as_deref(), LogicalKind::Sink { topic, wire });
    }

    fn add_sink(&self, name: Option<&str>, kind: LogicalKind) {
        let mut graph = self.graph.borrow_mut();
        let name = graph.name_or_next(name, super::repartition::SINK);
        graph.add(&[self.node], name, kind);
    }
}
