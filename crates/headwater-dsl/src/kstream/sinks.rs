//! The ends of a stream.

use std::fmt;
use std::rc::Rc;

use headwater_runtime::UserError;
use headwater_topology::SinkTopic;

use super::KStream;
use crate::builder::own_or_inherited;
use crate::graph::{LogicalGraph, LogicalKind, NodeKey, SharedGraph, Wire};
use crate::nodes::{sink, step};
use crate::nullity::Nullity;
use crate::params::Produced;

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

    /// Writes every record to a topic, which must exist.
    pub fn to(&self, topic: impl Into<String>, produced: Produced<K, V>) {
        let topic = topic.into();
        let Produced { key, value, name, partitioner } = produced;
        let key = own_or_inherited(key, self.key_serde.as_ref());
        let value = own_or_inherited(value, self.value_serde.as_ref());
        let mut graph = self.graph.borrow_mut();
        let name = graph.name_or_next(name.as_deref(), super::repartition::SINK);
        let kind = LogicalKind::Sink {
            wire: Wire(sink(key, value, partitioner, topic.clone())),
            topic: SinkTopic::named(topic),
        };
        graph.add(&[self.node], name, kind);
    }
}
