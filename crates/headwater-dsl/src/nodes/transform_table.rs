//! A table whose values are made by user code with state.

use std::sync::Arc;

use headwater_runtime::{Cx, NodeIndex, TaskError, UserError};

use super::kept_table::{Kept, KeptTable};
use super::{NewValue, StepError, with_buffer};
use crate::edge::{Edge, TableNode, TablesBelow};
use crate::processor::{ProcessingContext, Transformers, ValueTransformerWithKey};
use crate::record::Change;
use crate::wiring::WireInner;

/// The making of a node that transforms the values of a table. `kept` is the store of the result, if
/// it has one.
pub(crate) fn transform_table<K, V, V2, T, F>(supplier: F, kept: Option<Kept<K, V2>>) -> WireInner
where
    K: 'static,
    V: 'static,
    V2: 'static,
    T: ValueTransformerWithKey<K, V, V2>,
    F: Fn(&mut ProcessingContext<'_, '_>) -> Result<T, UserError> + Send + Sync + 'static,
{
    let supplier = Arc::new(supplier);
    Arc::new(move |wiring| {
        let kept = match &kept {
            Some(kept) => kept.wire(wiring)?,
            None => None,
        };
        let supplier = Arc::clone(&supplier);
        let transformers = Transformers::wire(wiring, Arc::new(move |context| supplier(context)));
        Ok(Edge::to_table(TransformTable::<K, V, V2, T> {
            index: wiring.index(),
            sends_old: wiring.sends_old_values(),
            kept,
            below: wiring.tables_below()?,
            transformers,
        }))
    })
}

struct TransformTable<K, V, V2, T> {
    index: NodeIndex,
    sends_old: bool,
    kept: Option<Arc<KeptTable<K, V2>>>,
    below: TablesBelow<K, V2>,
    transformers: Transformers<K, V, V2, T>,
}

impl<K, V, V2, T> TableNode<K, V> for TransformTable<K, V, V2, T>
where
    K: 'static,
    V: 'static,
    V2: 'static,
    T: ValueTransformerWithKey<K, V, V2>,
{
    fn update(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        with_buffer(cx, self.index, |cx, buffer| {
            self.transform(cx, (key, buffer), change, timestamp)
        })
    }
}

impl<K, V, V2, T> TransformTable<K, V, V2, T>
where
    K: 'static,
    V: 'static,
    V2: 'static,
    T: ValueTransformerWithKey<K, V, V2>,
{
    fn transform(
        &self,
        cx: &mut Cx<'_>,
        (key, buffer): (&K, &mut Vec<u8>),
        change: Change<'_, V>,
        timestamp: i64,
    ) -> Result<(), StepError> {
        let new = self.transformers.transform(cx, key, change.new, timestamp)?;
        let Some(kept) = &self.kept else {
            let old = if self.sends_old {
                self.transformers.transform(cx, key, change.old, timestamp)?
            } else {
                None
            };
            let is_latest = change.is_latest;
            let change = Change { is_latest, ..Change::new(new.as_ref(), old.as_ref()) };
            return Ok(self.below.forward(cx, key, change, timestamp)?);
        };
        let store_key = kept.key(key, buffer)?;
        let old =
            if self.sends_old { kept.get(cx, &store_key)?.map(|(value, _)| value) } else { None };
        kept.put(cx, store_key, &NewValue::Made(new), old.as_ref(), timestamp)
    }
}
