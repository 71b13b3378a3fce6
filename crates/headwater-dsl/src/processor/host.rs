//! A node that user code is called as, for kits that test a processor alone.

use std::fmt;
use std::sync::{Arc, OnceLock};

use headwater_runtime::{Cx, Headers, ProcessorSlot, ProcessorSupplier, TaskError, TaskProcessor};

use super::context::{ProcessorContext, Surroundings};
use crate::edge::{Edge, NamedBelow, Node};
use crate::record::Record;
use crate::wiring::WireInner;

/// Hears what is forwarded: to which node below (`None`: to all), and what, with which headers.
type Heard<K, V> = dyn Fn(Option<&str>, Record<'_, K, V>, &Headers) + Send + Sync;

/// The place of a node in a topology that has no processor of its own: whoever holds this calls code as its
/// processor, and hears what the code forwards. Nothing is forwarded to real nodes.
///
/// A kit that tests a processor alone is made of this (`MockProcessorContext` of `headwater-testing`); others have no
/// use for it. See [`KStream::host`](crate::KStream::host).
pub struct ProcessorHost<K, V> {
    children: Vec<Arc<str>>,
    heard: Arc<Heard<K, V>>,
    hosted: Arc<OnceLock<Hosted<K, V>>>,
}

impl<K, V> Clone for ProcessorHost<K, V> {
    fn clone(&self) -> Self {
        let Self { children, heard, hosted } = self;
        Self { children: children.clone(), heard: Arc::clone(heard), hosted: Arc::clone(hosted) }
    }
}

/// Set when the topology is built.
struct Hosted<K, V> {
    surroundings: Surroundings,
    all: NamedBelow<K, V>,
    slot: ProcessorSlot,
}

impl<K: 'static, V: 'static> ProcessorHost<K, V> {
    /// A node with these below it.
    pub fn new(
        children: impl IntoIterator<Item = impl Into<Arc<str>>>,
        heard: impl Fn(Option<&str>, Record<'_, K, V>, &Headers) + Send + Sync + 'static,
    ) -> Self {
        let children = children.into_iter().map(Into::into).collect();
        Self { children, heard: Arc::new(heard), hosted: Arc::default() }
    }

    /// Calls code as the processor of this node. `cx` is of a task that runs its topology, and `timestamp` of the
    /// record, or of the punctuation.
    ///
    /// # Errors
    /// The error after which the task cannot go on, if there was one.
    ///
    /// # Panics
    /// Before the topology of the node is built.
    pub fn call<R>(
        &self,
        cx: &mut Cx<'_>,
        timestamp: i64,
        code: impl FnOnce(&mut ProcessorContext<'_, '_, K, V>) -> R,
    ) -> Result<R, TaskError> {
        let hosted = self.hosted.get().expect("a task runs the topology");
        let Hosted { surroundings, all, slot } = hosted;
        cx.enter(surroundings.index);
        let mut context = ProcessorContext::new(cx, surroundings, all, *slot, timestamp);
        let result = code(&mut context);
        context.finish().map_or(Ok(result), Err)
    }

    /// The making of the node.
    pub(crate) fn wire(&self) -> WireInner {
        let Self { children, heard, hosted } = self.clone();
        Arc::new(move |wiring| {
            let listener = |child: Option<&Arc<str>>| -> Arc<dyn Node<K, V>> {
                Arc::new(Listener { child: child.cloned(), heard: Arc::clone(&heard) })
            };
            let named = children.iter().map(|child| listener(Some(child))).collect();
            let all = NamedBelow::apart(children.clone(), named, listener(None));
            let slot = wiring.add_processor(Arc::new(Idle));
            let surroundings = Surroundings::new(wiring, false);
            // A topology is built anew for each application that runs it; the node is the same in all.
            drop(hosted.set(Hosted { surroundings, all, slot }));
            Ok(Edge::to_stream::<(), ()>(Deaf))
        })
    }
}

impl<K, V> fmt::Debug for ProcessorHost<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessorHost").field("children", &self.children).finish_non_exhaustive()
    }
}

struct Listener<K, V> {
    child: Option<Arc<str>>,
    heard: Arc<Heard<K, V>>,
}

impl<K: 'static, V: 'static> Node<K, V> for Listener<K, V> {
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        (self.heard)(self.child.as_deref(), record, cx.headers());
        Ok(())
    }
}

/// Takes what comes from above, which is nothing.
struct Deaf;

impl Node<(), ()> for Deaf {
    fn process(&self, _: &mut Cx<'_>, _: Record<'_, (), ()>) -> Result<(), TaskError> {
        Ok(())
    }
}

/// Holds the slot of schedules.
#[derive(Debug)]
struct Idle;

impl ProcessorSupplier for Idle {
    fn get(&self) -> Box<dyn TaskProcessor> {
        Box::new(Self)
    }
}

impl TaskProcessor for Idle {
    fn init(&mut self, _: &mut Cx<'_>, _: ProcessorSlot) -> Result<(), TaskError> {
        Ok(())
    }
}
