//! What is done around the processors of a topology (KIP-1112).

use std::fmt;
use std::sync::Arc;

use headwater_runtime::{Cx, TaskError};
use headwater_topology::TaskId;

use crate::edge::{Node, TableNode};
use crate::record::{Change, Record};

/// Is called in the place of each processor of a topology, those of operators included, and calls it: for tracing,
/// timing, or counting by node (`processor.wrapper.class`, KIP-1112).
///
/// It is given to [`StreamsBuilder::processor_wrapper`](crate::StreamsBuilder::processor_wrapper) or
/// [`TopologyBuilder::processor_wrapper`](crate::TopologyBuilder::processor_wrapper). Sources and sinks are no
/// processors, and the inner nodes of foreign-key joins are left alone. Without a wrapper nothing is in the way of
/// records; with one each processor costs a call more.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use headwater_dsl::{Consumed, ProcessorCall, ProcessorWrapper, Produced, StreamsBuilder};
/// use headwater_runtime::TaskError;
/// use headwater_store::serde::Utf8;
///
/// /// Counts the records that reach the filter.
/// struct Count(Arc<AtomicU64>);
///
/// impl ProcessorWrapper for Count {
///     fn process(
///         &self,
///         call: ProcessorCall<'_>,
///         inner: &mut dyn FnMut() -> Result<(), TaskError>,
///     ) -> Result<(), TaskError> {
///         if call.node == "long-ones" {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///         inner()
///     }
/// }
///
/// let builder = StreamsBuilder::new();
/// let count = Arc::new(AtomicU64::new(0));
/// builder.processor_wrapper(Count(Arc::clone(&count)));
/// builder
///     .stream("words", Consumed::with(Utf8, Utf8))
///     .filter(|_, word| word.len() > 7)
///     .named("long-ones")
///     .to("long-words", Produced::with(Utf8, Utf8));
/// # builder.build()?;
/// # Ok::<(), headwater_dsl::DslError>(())
/// ```
pub trait ProcessorWrapper: Send + Sync + 'static {
    /// Called for each record or update that reaches a processor. `inner` does its work, and that of all nodes
    /// below it; a record for which it is not called ends here, uncounted.
    ///
    /// # Errors
    /// What `inner` says. It ends the work of the task: failures of user code have been through the handler.
    fn process(
        &self,
        call: ProcessorCall<'_>,
        inner: &mut dyn FnMut() -> Result<(), TaskError>,
    ) -> Result<(), TaskError>;
}

/// A record on its way into a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessorCall<'c> {
    /// The name of the processor's node.
    pub node: &'c str,
    /// The task.
    pub task: TaskId,
    /// The time of the record or update.
    pub timestamp: i64,
}

/// A wrapper of some type.
#[derive(Clone)]
pub(crate) struct AnyWrapper(Arc<dyn ProcessorWrapper>);

impl AnyWrapper {
    pub(crate) fn new(wrapper: impl ProcessorWrapper) -> Self {
        Self(Arc::new(wrapper))
    }

    /// The wrapper around one node.
    pub(crate) fn around(&self, node: &str) -> Wrap {
        Wrap { node: node.into(), wrapper: Arc::clone(&self.0) }
    }
}

impl fmt::Debug for AnyWrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyWrapper")
    }
}

/// A wrapper and the node that it is around.
#[derive(Clone)]
pub(crate) struct Wrap {
    node: Arc<str>,
    wrapper: Arc<dyn ProcessorWrapper>,
}

impl Wrap {
    fn call(
        &self,
        cx: &mut Cx<'_>,
        timestamp: i64,
        mut inner: impl FnMut(&mut Cx<'_>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let call = ProcessorCall { node: &self.node, task: cx.task_id(), timestamp };
        self.wrapper.process(call, &mut || inner(cx))
    }
}

/// A node with a wrapper around it.
pub(crate) struct Wrapped<N: ?Sized> {
    pub(crate) node: Arc<N>,
    pub(crate) wrap: Wrap,
}

impl<K, V> Node<K, V> for Wrapped<dyn Node<K, V>> {
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        self.wrap.call(cx, record.timestamp, |cx| self.node.process(cx, record))
    }
}

impl<K, V> TableNode<K, V> for Wrapped<dyn TableNode<K, V>> {
    fn update(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        self.wrap.call(cx, timestamp, |cx| self.node.update(cx, key, change, timestamp))
    }
}
