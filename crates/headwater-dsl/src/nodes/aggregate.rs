//! Aggregation of a grouped stream without windows (feature row D24).

use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{Cx, NodeIndex, NullPart, TaskError, UserError};

use super::kept_table::{Kept, KeptTable};
use super::{NewValue, with_buffer};
use crate::edge::{Edge, Node};
use crate::record::Record;
use crate::wiring::WireInner;

/// What an aggregation does with a record.
pub(crate) struct Aggregation<I, C> {
    /// The value before the first record. Sent as the old value of the first update by stores
    /// without cache, as the original does.
    pub(crate) initial: I,
    /// The new aggregate from key, value and aggregate so far.
    pub(crate) compute: C,
}

/// The making of an aggregation that is kept in a store.
pub(crate) fn aggregate<K, V, A, I, C>(
    kept: Kept<K, A>,
    aggregation: Aggregation<I, C>,
) -> WireInner
where
    K: 'static,
    V: 'static,
    A: 'static,
    I: Fn() -> Result<Option<A>, UserError> + Send + Sync + 'static,
    C: for<'a> Fn(&'a K, &'a V, Option<A>) -> Result<NewValue<'a, A>, UserError>
        + Send
        + Sync
        + 'static,
{
    let aggregation = Arc::new(aggregation);
    Arc::new(move |wiring| {
        let table = kept.wire(wiring)?.expect("an aggregation brings its store along");
        Ok(Edge::to_stream(Aggregate {
            index: wiring.index(),
            table,
            aggregation: Arc::clone(&aggregation),
            input: PhantomData::<fn(V)>,
        }))
    })
}

struct Aggregate<K, V, A, I, C> {
    index: NodeIndex,
    table: Arc<KeptTable<K, A>>,
    aggregation: Arc<Aggregation<I, C>>,
    input: PhantomData<fn(V)>,
}

impl<K, V, A, I, C> Node<K, V> for Aggregate<K, V, A, I, C>
where
    K: 'static,
    A: 'static,
    I: Fn() -> Result<Option<A>, UserError> + Send + Sync,
    C: for<'a> Fn(&'a K, &'a V, Option<A>) -> Result<NewValue<'a, A>, UserError> + Send + Sync,
{
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        cx.enter(self.index);
        let Some(key) = record.key else {
            return cx.null_record(self.index, NullPart::Key);
        };
        let Some(value) = record.value else {
            return cx.null_record(self.index, NullPart::Value);
        };
        let Aggregation { initial, compute } = &*self.aggregation;
        with_buffer(cx, self.index, |cx, buffer| {
            let store_key = self.table.key(key, buffer)?;
            self.table.aggregate(cx, store_key, record.timestamp, initial, |so_far| {
                compute(key, value, so_far)
            })
        })
    }
}
