//! A stateless node: a step from a record to the records below.

use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{Cx, FailureKind, NodeIndex, NullPart, TaskError, UserError};

use crate::edge::{Below, Edge, Node};
use crate::record::Record;
use crate::wiring::WireInner;

/// The making of a node that runs `run` on every record, and makes new ones.
pub(crate) fn step<K, V, K2, V2, F>(run: F) -> WireInner
where
    K: 'static,
    V: 'static,
    K2: 'static,
    V2: 'static,
    F: Fn(&mut Out<'_, '_, K2, V2>, Record<'_, K, V>) -> Result<(), TaskError>
        + Send
        + Sync
        + 'static,
{
    wire(run, Forwards::New)
}

/// The making of a node that runs `run` on every record, and hands on no others. Filters and looks make new records as
/// all other operators do, since they are processors of fixed keys in the original.
pub(crate) fn pass<K, V, F>(run: F) -> WireInner
where
    K: 'static,
    V: 'static,
    F: Fn(&mut Out<'_, '_, K, V>, Record<'_, K, V>) -> Result<(), TaskError>
        + Send
        + Sync
        + 'static,
{
    wire(run, Forwards::Same)
}

/// What a step hands on.
#[derive(Clone, Copy)]
enum Forwards {
    /// New records.
    New,
    /// The record that it gets.
    Same,
}

fn wire<K, V, K2, V2, F>(run: F, forwards: Forwards) -> WireInner
where
    K: 'static,
    V: 'static,
    K2: 'static,
    V2: 'static,
    F: Fn(&mut Out<'_, '_, K2, V2>, Record<'_, K, V>) -> Result<(), TaskError>
        + Send
        + Sync
        + 'static,
{
    let run = Arc::new(run);
    Arc::new(move |wiring| {
        Ok(Edge::to_stream(Step {
            index: wiring.index(),
            run: Arc::clone(&run),
            below: match forwards {
                Forwards::New => wiring.below::<K2, V2>()?,
                Forwards::Same => wiring.below_same_record::<K2, V2>()?,
            },
            input: PhantomData::<fn(K, V)>,
        }))
    })
}

struct Step<K, V, K2, V2, F> {
    index: NodeIndex,
    run: Arc<F>,
    below: Below<K2, V2>,
    input: PhantomData<fn(K, V)>,
}

impl<K, V, K2, V2, F> Node<K, V> for Step<K, V, K2, V2, F>
where
    F: Fn(&mut Out<'_, '_, K2, V2>, Record<'_, K, V>) -> Result<(), TaskError> + Send + Sync,
{
    #[inline]
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        cx.enter(self.index);
        (self.run)(&mut Out { cx, index: self.index, below: &self.below }, record)
    }
}

/// Where a step sends records to.
pub(crate) struct Out<'a, 'cx, K, V> {
    cx: &'a mut Cx<'cx>,
    index: NodeIndex,
    below: &'a Below<K, V>,
}

impl<K, V> Out<'_, '_, K, V> {
    /// Hands a record to the nodes below.
    #[inline]
    pub(crate) fn forward(&mut self, record: Record<'_, K, V>) -> Result<(), TaskError> {
        self.below.forward(self.cx, record)
    }

    /// Says that user code of this node runs again, after nodes below have run.
    #[inline]
    pub(crate) fn enter(&mut self) {
        self.cx.enter(self.index);
    }

    /// Ends a record whose value is null where a function has no form for it.
    #[cold]
    pub(crate) fn null_value(&mut self) -> Result<(), TaskError> {
        self.cx.null_record(self.index, NullPart::Value)
    }

    /// Ends a record whose key is null where one is needed.
    #[cold]
    pub(crate) fn null_key(&mut self) -> Result<(), TaskError> {
        self.cx.null_record(self.index, NullPart::Key)
    }

    /// A user function failed.
    #[cold]
    pub(crate) fn failed(&mut self, error: impl Into<UserError>) -> Result<(), TaskError> {
        self.cx.failed(self.index, FailureKind::Processing, error.into())
    }
}
