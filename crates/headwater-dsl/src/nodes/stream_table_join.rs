//! Joins of a stream with a table: each record is joined with what the table has for its key (feature rows
//! D37, D38).

use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{Cx, NodeIndex, NullPart, TaskError, UserError};

use super::view::{At, SharedView};
use super::{StepError, settle};
use crate::edge::{Below, Edge, Node};
use crate::graph::NodeKey;
use crate::record::Record;
use crate::serdes::Codec;
use crate::wiring::WireInner;

mod buffer;

use buffer::{Buffer, Due};

/// What a join of a stream with a table does.
pub(crate) struct StreamTableJoin<F> {
    pub(crate) table: NodeKey,
    pub(crate) is_left_join: bool,
    pub(crate) joiner: F,
}

/// The store in which records wait.
pub(crate) struct Grace<K, V> {
    pub(crate) store: String,
    pub(crate) grace_ms: i64,
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
}

/// The making of a join of a stream with a table.
pub(crate) fn stream_table_join<K, V, V2, R, F>(
    join: StreamTableJoin<F>,
    grace: Option<Grace<K, V>>,
) -> WireInner
where
    K: 'static,
    V: 'static,
    V2: 'static,
    R: 'static,
    F: Fn(Option<&K>, &V, Option<&V2>) -> Result<Option<R>, UserError> + Send + Sync + 'static,
{
    let join = Arc::new(join);
    Arc::new(move |wiring| {
        let buffer = match &grace {
            Some(grace) => Some(Buffer::wire(grace, wiring)?),
            None => None,
        };
        Ok(Edge::to_stream(Joining {
            index: wiring.index(),
            table: wiring.view::<K, V2>(join.table)?,
            buffer,
            join: Arc::clone(&join),
            below: wiring.below::<K, R>()?,
            input: PhantomData::<fn(V)>,
        }))
    })
}

struct Joining<K, V, V2, R, F> {
    index: NodeIndex,
    table: SharedView<K, V2>,
    buffer: Option<Buffer<K, V>>,
    join: Arc<StreamTableJoin<F>>,
    below: Below<K, R>,
    input: PhantomData<fn(V)>,
}

impl<K, V, V2, R, F> Node<K, V> for Joining<K, V, V2, R, F>
where
    K: 'static,
    V: 'static,
    F: Fn(Option<&K>, &V, Option<&V2>) -> Result<Option<R>, UserError> + Send + Sync,
{
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        cx.enter(self.index);
        let Record { key, value, timestamp } = record;
        if key.is_none() && !(self.join.is_left_join && value.is_some()) {
            return cx.null_record(self.index, NullPart::Key);
        }
        let Some(value) = value else {
            return cx.null_record(self.index, NullPart::Value);
        };
        let result = match &self.buffer {
            None => self.join(cx, key, value, timestamp),
            Some(buffer) => self.wait(cx, buffer, (key, value), timestamp),
        };
        settle(cx, self.index, result)
    }
}

impl<K, V, V2, R, F> Joining<K, V, V2, R, F>
where
    K: 'static,
    V: 'static,
    F: Fn(Option<&K>, &V, Option<&V2>) -> Result<Option<R>, UserError> + Send + Sync,
{
    fn join(
        &self,
        cx: &mut Cx<'_>,
        key: Option<&K>,
        value: &V,
        timestamp: i64,
    ) -> Result<(), StepError> {
        let found = match key {
            Some(key) => self.table.get(cx, key, At::Time(timestamp))?,
            None => None,
        };
        if found.is_none() && !self.join.is_left_join {
            return Ok(());
        }
        let joined = (self.join.joiner)(key, value, found.as_ref().map(|(value, _)| value))?;
        Ok(self.below.forward(cx, Record::new(key, joined.as_ref(), timestamp))?)
    }

    /// Puts a record among those that wait, and joins those whose time has come.
    fn wait(
        &self,
        cx: &mut Cx<'_>,
        buffer: &Buffer<K, V>,
        (key, value): (Option<&K>, &V),
        timestamp: i64,
    ) -> Result<(), StepError> {
        let Some(key) = key else { return Err(UserError::from(NullKeyWithGrace).into()) };
        if !buffer.put(cx, key, value, timestamp)? {
            return self.join(cx, Some(key), value, timestamp);
        }
        let mut due = Due::take(cx);
        let mut cursor = buffer.due(cx)?;
        let result = loop {
            match due.read_next(cx, &mut cursor) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
            let joined = buffer.let_go(cx, self.index, &due, |cx, key, value, timestamp| {
                self.join(cx, Some(key), value, timestamp)
            });
            if let Err(error) = joined.and_then(|()| buffer.remove(cx, &due)) {
                break Err(error.into());
            }
        };
        due.give(cx);
        result
    }
}

/// A record without key cannot wait for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the record has no key, which a left join with a grace period needs; filter such records out before it"
)]
struct NullKeyWithGrace;
