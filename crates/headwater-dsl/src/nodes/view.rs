//! Looking a key of a table up, as joins do: in the table's store where it has one, else computed from
//! the tables that it is made of.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use headwater_runtime::{Cx, StoreSlot, UserError};
use headwater_store::serde::Payload;

use super::StepError;
use crate::error::DslError;
use crate::graph::NodeKey;
use crate::serdes::Codec;
use crate::wiring::Wiring;

/// Which value of a key is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The latest one.
    Latest,
    /// The one that was valid at a time, if the table has a history; else the latest.
    Time(i64),
}

/// A value and its time; `None` where a table has none.
pub(crate) type Found<V> = Option<(V, i64)>;

/// A table as a node sees it that looks keys up.
pub(crate) trait TableView<K, V>: Send + Sync {
    /// The value of a key and its time, which is −1 where the table's store keeps none.
    fn get(&self, cx: &mut Cx<'_>, key: &K, at: At) -> Result<Found<V>, StepError>;
}

/// A view of some type.
pub(crate) type SharedView<K, V> = Arc<dyn TableView<K, V>>;

/// Makes the view of a table that is not kept.
type WireView<K, V> =
    Arc<dyn Fn(&mut Wiring<'_>) -> Result<SharedView<K, V>, DslError> + Send + Sync>;

/// The making of a view, of some types.
#[derive(Clone)]
pub(crate) struct AnyView(Arc<dyn Any + Send + Sync>);

impl AnyView {
    pub(super) fn new<K: 'static, V: 'static>(
        wire: impl Fn(&mut Wiring<'_>) -> Result<SharedView<K, V>, DslError> + Send + Sync + 'static,
    ) -> Self {
        let wire: WireView<K, V> = Arc::new(wire);
        Self(Arc::new(wire))
    }

    /// The view, if it is of these types.
    pub(crate) fn wire<K: 'static, V: 'static>(
        &self,
        wiring: &mut Wiring<'_>,
    ) -> Option<Result<SharedView<K, V>, DslError>> {
        self.0.downcast_ref::<WireView<K, V>>().map(|wire| wire(wiring))
    }
}

impl fmt::Debug for AnyView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyView")
    }
}

/// The view of a table that is kept in a store.
pub(crate) struct StoreView<K, V> {
    pub(crate) slot: StoreSlot,
    pub(crate) key: Codec<K>,
    pub(crate) value: Codec<V>,
    pub(crate) is_versioned: bool,
}

impl<K: 'static, V: 'static> StoreView<K, V> {
    fn read(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        at: At,
        buffer: &mut Vec<u8>,
    ) -> Result<Found<V>, StepError> {
        let written = self.key.write(Some(key), buffer)?;
        let key = written.or_in(buffer).unwrap_or_default();
        if let At::Time(time) = at
            && self.is_versioned
        {
            let Some(version) = cx.get_version(self.slot, key, time)? else { return Ok(None) };
            let value = self.value.deserialize(Payload::new(version.value))?;
            return Ok(Some((value, version.timestamp)));
        }
        let Some(stored) = cx.get_value(self.slot, key)? else { return Ok(None) };
        let value = self.value.deserialize(Payload::new(stored.value))?;
        Ok(Some((value, stored.timestamp.unwrap_or(NO_TIMESTAMP))))
    }
}

impl<K: 'static, V: 'static> TableView<K, V> for StoreView<K, V> {
    fn get(&self, cx: &mut Cx<'_>, key: &K, at: At) -> Result<Found<V>, StepError> {
        let mut buffer = cx.take_buffer();
        let found = self.read(cx, key, at, &mut buffer);
        cx.give_buffer(buffer);
        found
    }
}

/// The time of a value in a store that keeps none.
const NO_TIMESTAMP: i64 = -1;

/// The view of a filtered table.
pub(crate) fn filter_view<K, V, P>(table: NodeKey, predicate: Arc<P>) -> AnyView
where
    K: 'static,
    V: 'static,
    P: Fn(&K, &V) -> Result<bool, UserError> + Send + Sync + 'static,
{
    AnyView::new(move |wiring| {
        let table = wiring.view(table)?;
        let view: SharedView<K, V> =
            Arc::new(FilterView { table, predicate: Arc::clone(&predicate) });
        Ok(view)
    })
}

struct FilterView<K, V, P> {
    table: SharedView<K, V>,
    predicate: Arc<P>,
}

impl<K, V, P> TableView<K, V> for FilterView<K, V, P>
where
    P: Fn(&K, &V) -> Result<bool, UserError> + Send + Sync,
{
    fn get(&self, cx: &mut Cx<'_>, key: &K, at: At) -> Result<Found<V>, StepError> {
        let Some((value, time)) = self.table.get(cx, key, at)? else { return Ok(None) };
        Ok((self.predicate)(key, &value)?.then_some((value, time)))
    }
}

/// The view of a table with mapped values.
pub(crate) fn map_view<K, V, V2, F>(table: NodeKey, mapper: Arc<F>) -> AnyView
where
    K: 'static,
    V: 'static,
    V2: 'static,
    F: Fn(&K, &V) -> Result<Option<V2>, UserError> + Send + Sync + 'static,
{
    AnyView::new(move |wiring| {
        let table = wiring.view(table)?;
        let view: SharedView<K, V2> =
            Arc::new(MapView::<K, V, F> { table, mapper: Arc::clone(&mapper) });
        Ok(view)
    })
}

struct MapView<K, V, F> {
    table: SharedView<K, V>,
    mapper: Arc<F>,
}

impl<K, V, V2, F> TableView<K, V2> for MapView<K, V, F>
where
    F: Fn(&K, &V) -> Result<Option<V2>, UserError> + Send + Sync,
{
    fn get(&self, cx: &mut Cx<'_>, key: &K, at: At) -> Result<Found<V2>, StepError> {
        let Some((value, time)) = self.table.get(cx, key, at)? else { return Ok(None) };
        Ok((self.mapper)(key, &value)?.map(|value| (value, time)))
    }
}

/// Which sides of a join of tables may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Optional {
    pub(crate) left: bool,
    pub(crate) right: bool,
}

/// The view of a join of tables that is not kept (feature row D40).
pub(crate) fn join_view<K, L, R, V, F>(
    (left, right): (NodeKey, NodeKey),
    optional: Optional,
    joiner: Arc<F>,
) -> AnyView
where
    K: 'static,
    L: 'static,
    R: 'static,
    V: 'static,
    F: Fn(Option<&L>, Option<&R>) -> Result<Option<V>, UserError> + Send + Sync + 'static,
{
    AnyView::new(move |wiring| {
        let (left, right) = (wiring.view(left)?, wiring.view(right)?);
        let joiner = Arc::clone(&joiner);
        let view: SharedView<K, V> =
            Arc::new(JoinView::<K, L, R, F> { left, right, optional, joiner });
        Ok(view)
    })
}

struct JoinView<K, L, R, F> {
    left: SharedView<K, L>,
    right: SharedView<K, R>,
    optional: Optional,
    joiner: Arc<F>,
}

impl<K, L, R, V, F> TableView<K, V> for JoinView<K, L, R, F>
where
    F: Fn(Option<&L>, Option<&R>) -> Result<Option<V>, UserError> + Send + Sync,
{
    /// A join has no history, whatever its tables have (feature row D52).
    fn get(&self, cx: &mut Cx<'_>, key: &K, _at: At) -> Result<Found<V>, StepError> {
        let left = self.left.get(cx, key, At::Latest)?;
        if left.is_none() && !self.optional.left {
            return Ok(None);
        }
        let right = self.right.get(cx, key, At::Latest)?;
        if right.is_none() && !self.optional.right {
            return Ok(None);
        }
        let times = (left.as_ref().map(|it| it.1), right.as_ref().map(|it| it.1));
        let Some(time) = times.0.max(times.1) else { return Ok(None) };
        let joined = (self.joiner)(left.as_ref().map(|it| &it.0), right.as_ref().map(|it| &it.0))?;
        Ok(joined.map(|value| (value, time)))
    }
}
