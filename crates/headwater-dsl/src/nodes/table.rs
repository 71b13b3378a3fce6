//! Tables: their sources, filters and maps, and the way back to a stream.

use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{Cx, NodeIndex, NullPart, TaskError, UserError};

use super::kept_table::{Kept, KeptTable};
use super::{NewValue, StepError, with_buffer};
use crate::edge::{Below, Edge, Node, TableNode, TablesBelow};
use crate::record::{Change, Record};
use crate::wiring::WireInner;

/// The making of a table's source node (feature row D45). Its store may not exist.
pub(crate) fn table_source<K: 'static, V: 'static>(kept: Kept<K, V>) -> WireInner {
    Arc::new(move |wiring| {
        Ok(Edge::to_stream(TableSource {
            index: wiring.index(),
            kept: kept.wire(wiring)?,
            below: wiring.tables_below()?,
        }))
    })
}

struct TableSource<K, V> {
    index: NodeIndex,
    kept: Option<Arc<KeptTable<K, V>>>,
    below: TablesBelow<K, V>,
}

impl<K: 'static, V: 'static> Node<K, V> for TableSource<K, V> {
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        cx.enter(self.index);
        let Some(key) = record.key else {
            return cx.null_record(self.index, NullPart::Key);
        };
        let Some(kept) = &self.kept else {
            let change = Change::new(record.value, None);
            return self.below.forward(cx, key, change, record.timestamp);
        };
        with_buffer(cx, self.index, |cx, buffer| keep(kept, cx, (key, buffer), record))
    }
}

fn keep<K: 'static, V: 'static>(
    kept: &KeptTable<K, V>,
    cx: &mut Cx<'_>,
    (key, buffer): (&K, &mut Vec<u8>),
    record: Record<'_, K, V>,
) -> Result<(), StepError> {
    let store_key = kept.key(key, buffer)?;
    let old = if kept.sends_old { kept.get(cx, &store_key)? } else { None };
    if let Some((_, old)) = &old
        && record.timestamp < *old
    {
        cx.warn_of_out_of_order(*old, record.timestamp);
    }
    let new = record.value.map_or(NewValue::Made(None), NewValue::Given);
    kept.put(cx, store_key, &new, old.as_ref().map(|(value, _)| value), record.timestamp)
}

/// A filter or map of a table.
pub(crate) struct MapTable<K, V2, F> {
    /// The new value of a key from a value that is there; a deleted one stays deleted.
    pub(crate) compute: F,
    /// The store of the result, if it has one.
    pub(crate) kept: Option<Kept<K, V2>>,
    /// Whether an update is swallowed when there is no value before nor after it, and old values are
    /// sent (feature row D47: filters do so, but not below a versioned table).
    pub(crate) swallows_nothing: bool,
}

/// The making of a filter or map of a table (feature row D47).
pub(crate) fn map_table<K, V, V2, F>(map: MapTable<K, V2, F>) -> WireInner
where
    K: 'static,
    V: 'static,
    V2: 'static,
    F: for<'a> Fn(&'a K, &'a V) -> Result<NewValue<'a, V2>, UserError> + Send + Sync + 'static,
{
    let map = Arc::new(map);
    Arc::new(move |wiring| {
        let kept = match &map.kept {
            Some(kept) => kept.wire(wiring)?,
            None => None,
        };
        Ok(Edge::to_table(Map {
            index: wiring.index(),
            sends_old: wiring.sends_old_values(),
            kept,
            swallows_nothing: map.swallows_nothing && !wiring.input_is_versioned(),
            below: wiring.tables_below()?,
            map: Arc::clone(&map),
            input: PhantomData::<fn(V)>,
        }))
    })
}

struct Map<K, V, V2, F> {
    index: NodeIndex,
    sends_old: bool,
    kept: Option<Arc<KeptTable<K, V2>>>,
    swallows_nothing: bool,
    below: TablesBelow<K, V2>,
    map: Arc<MapTable<K, V2, F>>,
    input: PhantomData<fn(V)>,
}

impl<K, V, V2, F> TableNode<K, V> for Map<K, V, V2, F>
where
    K: 'static,
    V2: 'static,
    F: for<'a> Fn(&'a K, &'a V) -> Result<NewValue<'a, V2>, UserError> + Send + Sync,
{
    fn update(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        with_buffer(cx, self.index, |cx, buffer| self.map(cx, (key, buffer), change, timestamp))
    }
}

impl<K: 'static, V, V2: 'static, F> Map<K, V, V2, F>
where
    F: for<'a> Fn(&'a K, &'a V) -> Result<NewValue<'a, V2>, UserError>,
{
    fn map(
        &self,
        cx: &mut Cx<'_>,
        (key, buffer): (&K, &mut Vec<u8>),
        change: Change<'_, V>,
        timestamp: i64,
    ) -> Result<(), StepError> {
        let new = self.compute(key, change.new)?;
        let Some(kept) = &self.kept else {
            let old =
                if self.sends_old { self.compute(key, change.old)? } else { NewValue::Made(None) };
            let (new, old) = (new.as_ref(), old.as_ref());
            let change = Change { is_latest: change.is_latest, ..Change::new(new, old) };
            if self.swallows(change) {
                return Ok(());
            }
            return Ok(self.below.forward(cx, key, change, timestamp)?);
        };
        let store_key = kept.key(key, buffer)?;
        let old =
            if self.sends_old { kept.get(cx, &store_key)?.map(|(value, _)| value) } else { None };
        if self.swallows(Change::new(new.as_ref(), old.as_ref())) {
            return Ok(());
        }
        kept.put(cx, store_key, &new, old.as_ref(), timestamp)
    }

    fn compute<'a>(&self, key: &'a K, value: Option<&'a V>) -> Result<NewValue<'a, V2>, UserError> {
        value.map_or(Ok(NewValue::Made(None)), |value| (self.map.compute)(key, value))
    }

    fn swallows(&self, change: Change<'_, V2>) -> bool {
        self.swallows_nothing && self.sends_old && change.new.is_none() && change.old.is_none()
    }
}

/// The making of a node that hands the updates of several tables on as those of one.
pub(crate) fn pass_on_table<K: 'static, V: 'static>() -> WireInner {
    Arc::new(|wiring| {
        let below = wiring.tables_below::<K, V>()?;
        Ok(Edge::to_table(PassOn { index: wiring.index(), below }))
    })
}

struct PassOn<K, V> {
    index: NodeIndex,
    below: TablesBelow<K, V>,
}

impl<K, V> TableNode<K, V> for PassOn<K, V> {
    fn update(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        self.below.forward(cx, key, change, timestamp)
    }
}

/// The making of the node that turns a table's updates into a stream.
pub(crate) fn table_to_stream<K: 'static, V: 'static>() -> WireInner {
    Arc::new(|wiring| {
        let below = wiring.below::<K, V>()?;
        Ok(Edge::to_table(TableToStream { index: wiring.index(), below }))
    })
}

struct TableToStream<K, V> {
    index: NodeIndex,
    below: Below<K, V>,
}

impl<K, V> TableNode<K, V> for TableToStream<K, V> {
    fn update(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        self.below.forward(cx, Record::new(Some(key), change.new, timestamp))
    }
}
