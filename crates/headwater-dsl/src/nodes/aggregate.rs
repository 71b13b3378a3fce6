//! Aggregation of a grouped stream without windows (feature row D24).

use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{Cx, NodeIndex, NullPart, TaskError, UserError};

use super::kept_table::{Kept, KeptTable};
use super::{NewValue, StepError, settle};
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
        let mut buffer = cx.take_buffer();
        let result = self.update(cx, (key, value), record.timestamp, &mut buffer);
        cx.give_buffer(buffer);
        settle(cx, self.index, result)
    }
}

impl<K: 'static, V, A: 'static, I, C> Aggregate<K, V, A, I, C>
where
    I: Fn() -> Result<Option<A>, UserError>,
    C: for<'a> Fn(&'a K, &'a V, Option<A>) -> Result<NewValue<'a, A>, UserError>,
{
    #[inline]
    fn update(
        &self,
        cx: &mut Cx<'_>,
        (key, value): (&K, &V),
        timestamp: i64,
        buffer: &mut Vec<u8>,
    ) -> Result<(), StepError> {
        let Aggregation { initial, compute } = &*self.aggregation;
        let store_key = self.table.key(key, buffer)?;
        let before = self.table.get(cx, &store_key)?;
        let (aggregate, timestamp) = match before {
            Some((aggregate, earlier)) => (Some(aggregate), timestamp.max(earlier)),
            None => (initial()?, timestamp),
        };
        // The function takes the aggregate away; what nodes below need of it is read once more.
        let old = if self.table.sends_old && aggregate.is_some() {
            match self.table.get(cx, &store_key)? {
                Some((aggregate, _)) => Some(aggregate),
                None => initial()?,
            }
        } else {
            None
        };
        let new = compute(key, value, aggregate)?;
        self.table.put(cx, store_key, &new, old.as_ref(), timestamp)
    }
}
