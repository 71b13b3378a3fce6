//! A table whose values are made by user code with state, and how its keys are looked up when it is not kept.

use std::sync::Arc;

use headwater_runtime::{Cx, NodeIndex, TaskError, UserError};

use super::kept_table::{Kept, KeptTable};
use super::view::{AnyView, At, Found, SharedView, TableView};
use super::{NewValue, StepError, with_buffer};
use crate::edge::{Edge, TableNode, TablesBelow};
use crate::graph::NodeKey;
use crate::processor::{ProcessingContext, Transformers, ValueTransformerWithKey};
use crate::record::Change;
use crate::wiring::WireInner;

/// The making of a node that transforms the values of a table. `kept` is the store of the result, if
/// it has one.
pub(crate) fn transform_table<K, V, V2, T, F>(
    supplier: Arc<F>,
    kept: Option<Kept<K, V2>>,
) -> WireInner
where
    K: 'static,
    V: 'static,
    V2: 'static,
    T: ValueTransformerWithKey<K, V, V2>,
    F: Fn(&mut ProcessingContext<'_, '_>) -> Result<T, UserError> + Send + Sync + 'static,
{
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

/// The view of a transformed table that is not kept. `connected` are the stores of the node that transforms.
pub(crate) fn transform_view<K, V, V2, T, F>(
    table: NodeKey,
    connected: Vec<String>,
    supplier: Arc<F>,
) -> AnyView
where
    K: 'static,
    V: 'static,
    V2: 'static,
    T: ValueTransformerWithKey<K, V, V2>,
    F: Fn(&mut ProcessingContext<'_, '_>) -> Result<T, UserError> + Send + Sync + 'static,
{
    AnyView::new(move |wiring| {
        let table = wiring.view(table)?;
        let supplier = Arc::clone(&supplier);
        let supplier = Arc::new(move |context: &mut ProcessingContext<'_, '_>| supplier(context));
        let transformers = Transformers::wire_for_look_ups(wiring, &connected, supplier);
        let view: SharedView<K, V2> =
            Arc::new(TransformView::<K, V, V2, T> { table, transformers });
        Ok(view)
    })
}

struct TransformView<K, V, V2, T> {
    table: SharedView<K, V>,
    transformers: Transformers<K, V, V2, T>,
}

/// The time of what is made of a key that the table above does not hold.
const NO_TIMESTAMP: i64 = -1;

impl<K, V, V2, T> TableView<K, V2> for TransformView<K, V, V2, T>
where
    K: 'static,
    V: 'static,
    V2: 'static,
    T: ValueTransformerWithKey<K, V, V2>,
{
    fn get(&self, cx: &mut Cx<'_>, key: &K, at: At) -> Result<Found<V2>, StepError> {
        let (value, time) = self.table.get(cx, key, at)?.unzip();
        let time = time.unwrap_or(NO_TIMESTAMP);
        let made = cx
            .in_no_context(time, |cx| self.transformers.transform(cx, key, value.as_ref(), time))?;
        Ok(made.map(|value| (value, time)))
    }
}
