//! Joins of two tables: a node on each side, and one that brings the results of both together
//! (feature row D40).

use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{Cx, DropReason, NodeIndex, TaskError, UserError};

use super::kept_table::{Kept, KeptTable};
use super::view::{At, Optional, SharedView};
use super::{NewValue, StepError, settle, with_buffer};
use crate::edge::{Edge, TableNode, TablesBelow};
use crate::graph::NodeKey;
use crate::record::Change;
use crate::wiring::WireInner;

/// The making of the node that takes the updates of the left table and looks up the right one.
pub(crate) fn join_left<K, L, R, V, F>(
    right: NodeKey,
    optional: Optional,
    joiner: Arc<F>,
) -> WireInner
where
    K: 'static,
    L: 'static,
    R: 'static,
    V: 'static,
    F: Fn(Option<&L>, Option<&R>) -> Result<Option<V>, UserError> + Send + Sync + 'static,
{
    let own = Own { is_optional: optional.left, other_is_optional: optional.right };
    side::<K, L, R, V, _>(right, own, move |own, other| joiner(own, other))
}

/// The making of the node that takes the updates of the right table and looks up the left one.
pub(crate) fn join_right<K, L, R, V, F>(
    left: NodeKey,
    optional: Optional,
    joiner: Arc<F>,
) -> WireInner
where
    K: 'static,
    L: 'static,
    R: 'static,
    V: 'static,
    F: Fn(Option<&L>, Option<&R>) -> Result<Option<V>, UserError> + Send + Sync + 'static,
{
    let own = Own { is_optional: optional.right, other_is_optional: optional.left };
    side::<K, R, L, V, _>(left, own, move |own, other| joiner(other, own))
}

/// Which values may be missing, as a side sees it.
#[derive(Clone, Copy)]
struct Own {
    is_optional: bool,
    other_is_optional: bool,
}

fn side<K, V1, V2, V, F>(other: NodeKey, own: Own, joiner: F) -> WireInner
where
    K: 'static,
    V1: 'static,
    V2: 'static,
    V: 'static,
    F: Fn(Option<&V1>, Option<&V2>) -> Result<Option<V>, UserError> + Send + Sync + 'static,
{
    let joiner = Arc::new(joiner);
    Arc::new(move |wiring| {
        Ok(Edge::to_table(JoinSide {
            index: wiring.index(),
            skips_late: wiring.input_is_versioned(),
            sends_old: wiring.sends_old_values(),
            own,
            other: wiring.view::<K, V2>(other)?,
            joiner: Arc::clone(&joiner),
            below: wiring.tables_below::<K, V>()?,
            input: PhantomData::<fn(V1)>,
        }))
    })
}

struct JoinSide<K, V1, V2, V, F> {
    index: NodeIndex,
    /// Whether updates are passed over that a newer one has overtaken: those of a versioned table
    /// (feature row D52).
    skips_late: bool,
    sends_old: bool,
    own: Own,
    other: SharedView<K, V2>,
    joiner: Arc<F>,
    below: TablesBelow<K, V>,
    input: PhantomData<fn(V1)>,
}

impl<K, V1, V2, V, F> TableNode<K, V1> for JoinSide<K, V1, V2, V, F>
where
    F: Fn(Option<&V1>, Option<&V2>) -> Result<Option<V>, UserError> + Send + Sync,
{
    fn update(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V1>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        if self.skips_late && !change.is_latest {
            cx.dropped(self.index, DropReason::Overtaken);
            return Ok(());
        }
        let result = self.join(cx, key, change, timestamp);
        settle(cx, self.index, result)
    }
}

impl<K, V1, V2, V, F> JoinSide<K, V1, V2, V, F>
where
    F: Fn(Option<&V1>, Option<&V2>) -> Result<Option<V>, UserError>,
{
    fn join(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V1>,
        timestamp: i64,
    ) -> Result<(), StepError> {
        let other = self.other.get(cx, key, At::Latest)?;
        let nothing = change.new.is_none() && change.old.is_none();
        let (other, timestamp) = match &other {
            Some((other, time)) => (Some(other), timestamp.max(*time)),
            None if nothing || !self.own.other_is_optional => return Ok(()),
            None => (None, timestamp),
        };
        let join = |own: Option<&V1>| {
            let has_enough = own.is_some() || (self.own.is_optional && other.is_some());
            if has_enough { (self.joiner)(own, other) } else { Ok(None) }
        };
        let new = join(change.new)?;
        let old = if self.sends_old { join(change.old)? } else { None };
        let joined = Change::new(new.as_ref(), old.as_ref());
        let joined = Change { is_latest: change.is_latest, ..joined };
        Ok(self.below.forward(cx, key, joined, timestamp)?)
    }
}

/// The making of the node below both sides, which keeps the result if it is to be kept.
pub(crate) fn join_merge<K: 'static, V: 'static>(kept: Option<Kept<K, V>>) -> WireInner {
    Arc::new(move |wiring| {
        let kept = match &kept {
            Some(kept) => kept.wire(wiring)?,
            None => None,
        };
        Ok(Edge::to_table(JoinMerge {
            index: wiring.index(),
            kept,
            below: wiring.tables_below::<K, V>()?,
        }))
    })
}

struct JoinMerge<K, V> {
    index: NodeIndex,
    kept: Option<Arc<KeptTable<K, V>>>,
    below: TablesBelow<K, V>,
}

impl<K: 'static, V: 'static> TableNode<K, V> for JoinMerge<K, V> {
    fn update(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        // The sides send old values only if this node is to.
        let Some(kept) = &self.kept else {
            return self.below.forward(cx, key, change, timestamp);
        };
        with_buffer(cx, self.index, |cx, buffer| {
            let store_key = kept.key(key, buffer)?;
            let new = change.new.map_or(NewValue::Made(None), NewValue::Given);
            kept.put(cx, store_key, &new, change.old, timestamp)
        })
    }
}
