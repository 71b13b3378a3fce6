//! A stream joined with itself, with one store instead of two (feature row D36).

use std::any::Any;
use std::sync::Arc;

use headwater_runtime::{Cx, NodeIndex, NullPart, OperatorSlot, TaskError, UserError};
use headwater_store::Direction;

use super::kept::{JoinStore, KeptRecords};
use crate::edge::{Below, Edge, Node};
use crate::nodes::{StepError, settle};
use crate::params::JoinWindows;
use crate::record::Record;
use crate::wiring::WireInner;

/// The making of the node that joins a stream with itself. Results come in the order in which two stores would make
/// them: with the record on the left, then with it on the right, and where its own time is due with itself.
pub(crate) fn join_itself<K, V, V2, R, F>(
    kept: KeptRecords<K, V>,
    windows: JoinWindows,
    joiner: F,
) -> WireInner
where
    K: 'static,
    V: 'static,
    V2: 'static,
    R: 'static,
    F: Fn(Option<&K>, Option<&V>, Option<&V2>) -> Result<Option<R>, UserError>
        + Send
        + Sync
        + 'static,
{
    let join = Arc::new(move |key: &K, left: &V, right: &V| {
        // Both sides are the same stream, so both types are the same type.
        let right = (right as &dyn Any).downcast_ref::<V2>();
        joiner(Some(key), Some(left), right)
    });
    Arc::new(move |wiring| {
        let store = kept.wire(wiring)?;
        Ok(Edge::to_stream(JoinItself {
            index: wiring.index(),
            times: wiring.shared_operator(&[store.slot()]),
            store,
            windows,
            join: Arc::clone(&join),
            below: wiring.below::<K, R>()?,
        }))
    })
}

struct JoinItself<K, V, R, J> {
    index: NodeIndex,
    times: OperatorSlot,
    store: JoinStore<K, V>,
    windows: JoinWindows,
    join: Arc<J>,
    below: Below<K, R>,
}

/// Which side the record is on that is being processed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Left,
    Right,
}

impl<K, V, R, J> Node<K, V> for JoinItself<K, V, R, J>
where
    K: 'static,
    V: 'static,
    J: Fn(&K, &V, &V) -> Result<Option<R>, UserError> + Send + Sync,
{
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        cx.enter(self.index);
        let Some(value) = record.value else {
            return cx.null_record(self.index, NullPart::Value);
        };
        let Some(key) = record.key else { return cx.null_record(self.index, NullPart::Key) };
        let times = cx.times(self.times);
        times.observed = times.observed.max(record.timestamp);
        let result = self.join(cx, (key, value), record.timestamp);
        settle(cx, self.index, result)
    }
}

impl<K, V, R, J> JoinItself<K, V, R, J>
where
    K: 'static,
    V: 'static,
    J: Fn(&K, &V, &V) -> Result<Option<R>, UserError>,
{
    fn join(&self, cx: &mut Cx<'_>, record: (&K, &V), timestamp: i64) -> Result<(), StepError> {
        let mut key = cx.take_buffer();
        let written = self.store.write_key(record.0, &mut key);
        let result = written.map_err(StepError::from).and_then(|()| {
            self.join_kept(cx, record, &key, timestamp, On::Left)?;
            self.join_kept(cx, record, &key, timestamp, On::Right)
        });
        cx.give_buffer(key);
        result
    }

    /// Joins a record with those that are kept and, when it is on the right, with itself before the first that is
    /// later.
    fn join_kept(
        &self,
        cx: &mut Cx<'_>,
        (key, value): (&K, &V),
        key_bytes: &[u8],
        timestamp: i64,
        on: On,
    ) -> Result<(), StepError> {
        let JoinWindows { before_ms, after_ms, .. } = self.windows;
        let (before_ms, after_ms) = match on {
            On::Left => (before_ms, after_ms),
            On::Right => (after_ms, before_ms),
        };
        let mut meets_itself = on == On::Right && self.is_kept(cx, timestamp);
        let from = timestamp.saturating_sub(before_ms).max(0);
        let to = timestamp.saturating_add(after_ms).max(0);
        let mut fetch = cx.fetch(self.store.slot(), key_bytes, (from, to), Direction::Forward);
        let result = loop {
            match cx.next_fetched(&mut fetch) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error.into()),
            }
            let time = fetch.time();
            if meets_itself && time > timestamp {
                meets_itself = false;
                if let Err(error) = self.forward(cx, key, (value, value), timestamp) {
                    break Err(error);
                }
            }
            let joined = self.store.read_value(fetch.value()).map_err(StepError::from);
            let joined = joined.and_then(|other| {
                let pair = if on == On::Left { (value, &other) } else { (&other, value) };
                self.forward(cx, key, pair, timestamp.max(time))
            });
            if let Err(error) = joined {
                break Err(error);
            }
        };
        cx.end_fetch(fetch);
        result?;
        if meets_itself { self.forward(cx, key, (value, value), timestamp) } else { Ok(()) }
    }

    /// Whether a record of this time is not too late to be kept, and so to meet itself.
    fn is_kept(&self, cx: &mut Cx<'_>, timestamp: i64) -> bool {
        let observed = cx.times(self.times).observed;
        timestamp > observed.saturating_sub(self.store.retention_ms()).saturating_add(1)
    }

    fn forward(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        (left, right): (&V, &V),
        timestamp: i64,
    ) -> Result<(), StepError> {
        let joined = (self.join)(key, left, right)?;
        self.below.forward(cx, Record::new(Some(key), joined.as_ref(), timestamp))?;
        cx.enter(self.index);
        Ok(())
    }
}
