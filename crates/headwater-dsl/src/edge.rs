//! The edges of the run-time graph.

use std::any::{Any, type_name};
use std::sync::Arc;

use headwater_runtime::{Cx, TaskError};

use crate::error::DslError;
use crate::record::{Change, Record};
use crate::wrapper::{Wrap, Wrapped};

/// A run-time node that takes the records of a stream. Immutable, shared by all tasks.
pub(crate) trait Node<K, V>: Send + Sync {
    /// Processes one record to the end: when this returns, all nodes below have run.
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError>;
}

/// A run-time node that takes the updates of a table.
pub(crate) trait TableNode<K, V>: Send + Sync {
    /// Processes one update to the end.
    fn update(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V>,
        timestamp: i64,
    ) -> Result<(), TaskError>;
}

/// A node of some type.
pub(crate) struct Edge {
    node: Box<dyn Any>,
    wrap: fn(Self, Wrap) -> Self,
}

impl Edge {
    pub(crate) fn to_stream<K: 'static, V: 'static>(node: impl Node<K, V> + 'static) -> Self {
        let node: Arc<dyn Node<K, V>> = Arc::new(node);
        let wrap = |edge: Self, wrap| match edge.node.downcast::<Arc<dyn Node<K, V>>>() {
            Ok(node) => Self::to_stream::<K, V>(Wrapped { node: *node, wrap }),
            Err(_) => unreachable!("it was made as this type"),
        };
        Self { node: Box::new(node), wrap }
    }

    pub(crate) fn to_table<K: 'static, V: 'static>(node: impl TableNode<K, V> + 'static) -> Self {
        let node: Arc<dyn TableNode<K, V>> = Arc::new(node);
        let wrap = |edge: Self, wrap| match edge.node.downcast::<Arc<dyn TableNode<K, V>>>() {
            Ok(node) => Self::to_table::<K, V>(Wrapped { node: *node, wrap }),
            Err(_) => unreachable!("it was made as this type"),
        };
        Self { node: Box::new(node), wrap }
    }

    /// A node of another kind, around which no wrapper fits.
    pub(crate) fn of<T: ?Sized + 'static>(node: Arc<T>) -> Self {
        Self { node: Box::new(node), wrap: |edge, _| edge }
    }

    /// The node with a wrapper around it.
    pub(crate) fn wrapped(self, wrap: Wrap) -> Self {
        (self.wrap)(self, wrap)
    }

    pub(crate) fn stream<K: 'static, V: 'static>(
        &self,
        parent: &str,
    ) -> Result<Arc<dyn Node<K, V>>, DslError> {
        self.typed(parent)
    }

    pub(crate) fn table<K: 'static, V: 'static>(
        &self,
        parent: &str,
    ) -> Result<Arc<dyn TableNode<K, V>>, DslError> {
        self.typed(parent)
    }

    pub(crate) fn typed<T: ?Sized + 'static>(&self, parent: &str) -> Result<Arc<T>, DslError> {
        self.node.downcast_ref::<Arc<T>>().cloned().ok_or_else(|| DslError::OtherRecordType {
            node: parent.to_owned(),
            forwarded: type_name::<T>(),
        })
    }
}

/// The stream nodes below a node, in the order in which they get each record.
pub(crate) struct Below<K, V>(Nodes<K, V>);

type Nodes<K, V> = Box<[Arc<dyn Node<K, V>>]>;

impl<K, V> Below<K, V> {
    pub(crate) fn new(nodes: Vec<Arc<dyn Node<K, V>>>) -> Self {
        Self(nodes.into_boxed_slice())
    }

    /// The same, for records whose headers are not those of the record above.
    pub(crate) fn with_own_headers(self) -> Self
    where
        K: 'static,
        V: 'static,
    {
        Self::new(vec![Arc::new(OwnHeaders(self))])
    }

    #[inline]
    pub(crate) fn forward(
        &self,
        cx: &mut Cx<'_>,
        record: Record<'_, K, V>,
    ) -> Result<(), TaskError> {
        for node in &self.0 {
            node.process(cx, record)?;
        }
        Ok(())
    }

    /// Hands a record to one of the nodes only; to none if there are not so many.
    #[inline]
    pub(crate) fn forward_to(
        &self,
        index: usize,
        cx: &mut Cx<'_>,
        record: Record<'_, K, V>,
    ) -> Result<(), TaskError> {
        self.0.get(index).map_or(Ok(()), |node| node.process(cx, record))
    }
}

/// The nodes below one that makes new records, each with a copy of the headers: what is done to these below ends here.
struct OwnHeaders<K, V>(Below<K, V>);

impl<K, V> Node<K, V> for OwnHeaders<K, V> {
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        cx.with_own_headers(|cx| self.0.forward(cx, record))
    }
}

/// The stream nodes below a processor, which may choose among them by name.
pub(crate) struct NamedBelow<K, V> {
    names: Vec<Arc<str>>,
    /// By their names.
    named: Nodes<K, V>,
    below: Below<K, V>,
}

impl<K, V> NamedBelow<K, V> {
    pub(crate) fn new(names: Vec<Arc<str>>, below: Below<K, V>) -> Self {
        Self { names, named: below.0.clone(), below }
    }

    /// Nodes of their own for what is handed to those of these names, and for what is handed to all.
    pub(crate) fn apart(
        names: Vec<Arc<str>>,
        named: Vec<Arc<dyn Node<K, V>>>,
        all: Arc<dyn Node<K, V>>,
    ) -> Self {
        Self { names, named: named.into_boxed_slice(), below: Below::new(vec![all]) }
    }

    /// The same, for records whose headers are not those of the record above.
    pub(crate) fn with_own_headers(self) -> Self
    where
        K: 'static,
        V: 'static,
    {
        let own = |node: &Arc<dyn Node<K, V>>| -> Arc<dyn Node<K, V>> {
            Arc::new(OwnHeaders(Below::new(vec![Arc::clone(node)])))
        };
        let named = self.named.iter().map(own).collect();
        Self { names: self.names, named, below: self.below.with_own_headers() }
    }

    /// All of them.
    pub(crate) const fn all(&self) -> &Below<K, V> {
        &self.below
    }

    /// The one of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&dyn Node<K, V>> {
        let at = self.names.iter().position(|known| **known == *name)?;
        Some(&*self.named[at])
    }

    /// The names.
    pub(crate) fn names(&self) -> &[Arc<str>] {
        &self.names
    }
}

/// The table nodes below a node, in the order in which they get each update.
pub(crate) struct TablesBelow<K, V>(TableNodes<K, V>);

type TableNodes<K, V> = Box<[Arc<dyn TableNode<K, V>>]>;

impl<K, V> TablesBelow<K, V> {
    pub(crate) fn new(nodes: Vec<Arc<dyn TableNode<K, V>>>) -> Self {
        Self(nodes.into_boxed_slice())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(crate) fn forward(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        for node in &self.0 {
            node.update(cx, key, change, timestamp)?;
        }
        Ok(())
    }
}
