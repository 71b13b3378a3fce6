//! Joins of a stream with a global table (feature row D39).

use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{Cx, NodeIndex, NullPart, TaskError, UserError};

use super::view::{At, SharedView};
use super::{StepError, settle};
use crate::edge::{Below, Edge, Node};
use crate::graph::NodeKey;
use crate::record::Record;
use crate::wiring::WireInner;

/// What a join of a stream with a global table does.
pub(crate) struct StreamGlobalJoin<M, F> {
    pub(crate) table: NodeKey,
    pub(crate) is_left_join: bool,
    /// Makes the table's key of the record.
    pub(crate) mapper: M,
    pub(crate) joiner: F,
}

/// The making of a join of a stream with a global table.
pub(crate) fn stream_global_join<K, V, K2, V2, R, M, F>(join: StreamGlobalJoin<M, F>) -> WireInner
where
    K: 'static,
    V: 'static,
    K2: 'static,
    V2: 'static,
    R: 'static,
    M: Fn(Option<&K>, &V) -> Result<Option<K2>, UserError> + Send + Sync + 'static,
    F: Fn(Option<&K>, &V, Option<&V2>) -> Result<Option<R>, UserError> + Send + Sync + 'static,
{
    let join = Arc::new(join);
    Arc::new(move |wiring| {
        Ok(Edge::to_stream(Joining {
            index: wiring.index(),
            table: wiring.view::<K2, V2>(join.table)?,
            join: Arc::clone(&join),
            below: wiring.below::<K, R>()?,
            input: PhantomData::<fn(V)>,
        }))
    })
}

struct Joining<K, V, K2, V2, R, M, F> {
    index: NodeIndex,
    table: SharedView<K2, V2>,
    join: Arc<StreamGlobalJoin<M, F>>,
    below: Below<K, R>,
    input: PhantomData<fn(V)>,
}

impl<K, V, K2, V2, R, M, F> Node<K, V> for Joining<K, V, K2, V2, R, M, F>
where
    M: Fn(Option<&K>, &V) -> Result<Option<K2>, UserError> + Send + Sync,
    F: Fn(Option<&K>, &V, Option<&V2>) -> Result<Option<R>, UserError> + Send + Sync,
{
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        cx.enter(self.index);
        let Some(value) = record.value else {
            return cx.null_record(self.index, NullPart::Value);
        };
        let key = match (self.join.mapper)(record.key, value) {
            Ok(key) => key,
            Err(error) => return settle(cx, self.index, Err(error.into())),
        };
        if key.is_none() && !self.join.is_left_join {
            return cx.null_record(self.index, NullPart::Key);
        }
        let result = self.join(cx, record, value, key.as_ref());
        settle(cx, self.index, result)
    }
}

impl<K, V, K2, V2, R, M, F> Joining<K, V, K2, V2, R, M, F>
where
    F: Fn(Option<&K>, &V, Option<&V2>) -> Result<Option<R>, UserError>,
{
    fn join(
        &self,
        cx: &mut Cx<'_>,
        record: Record<'_, K, V>,
        value: &V,
        key: Option<&K2>,
    ) -> Result<(), StepError> {
        let found = match key {
            Some(key) => self.table.get(cx, key, At::Latest)?,
            None => None,
        };
        if found.is_none() && !self.join.is_left_join {
            return Ok(());
        }
        let right = found.as_ref().map(|(value, _)| value);
        let joined = (self.join.joiner)(record.key, value, right)?;
        Ok(self.below.forward(cx, Record::new(record.key, joined.as_ref(), record.timestamp))?)
    }
}
