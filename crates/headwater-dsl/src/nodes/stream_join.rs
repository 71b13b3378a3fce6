//! Joins of two streams (feature rows D32 to D36): on each side a node that keeps the records, and one that looks
//! the records of the other side up.
//!
//! A record goes to the join first and into its own store afterwards, so that it does not meet itself. Rules:
//! Kafka Streams' `KStreamJoinWindow`, `KStreamKStreamJoin` and `KStreamKStreamSelfJoin`.

use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{Cx, NodeIndex, NullPart, OperatorSlot, TaskError, UserError, WindowFetch};
use headwater_store::Direction;

use super::{StepError, settle};
use crate::edge::{Below, Edge, Node};
use crate::params::JoinWindows;
use crate::record::Record;
use crate::wiring::WireInner;

mod itself;
mod kept;
mod unmatched;

pub(crate) use itself::join_itself;
pub(crate) use kept::{KeptRecords, keep_records};
pub(crate) use unmatched::KeptUnmatched;

use kept::JoinStore;
use unmatched::{Side, Unmatched};

/// What a side of a join does with its records and what it finds: the joiner, its own value first.
pub(crate) struct StreamJoin<K, V, V2, F> {
    pub(crate) own: KeptRecords<K, V>,
    pub(crate) other: KeptRecords<K, V2>,
    pub(crate) windows: JoinWindows,
    /// Whether it is the left one.
    pub(crate) is_left: bool,
    /// Whether its records have a result without partner.
    pub(crate) is_optional: bool,
    /// Where records wait for partners, if any side's do.
    pub(crate) unmatched: Option<KeptUnmatched>,
    pub(crate) joiner: F,
}

/// The making of the node that joins the records of one side.
pub(crate) fn join_side<K, V, V2, R, F>(join: StreamJoin<K, V, V2, F>) -> WireInner
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
    let StreamJoin { own, other, windows, is_left, is_optional, unmatched, joiner } = join;
    let joiner = Arc::new(joiner);
    Arc::new(move |wiring| {
        let (own, other) = (own.wire(wiring)?, other.wire(wiring)?);
        let mut stores = [own.slot(), other.slot()];
        stores.sort_unstable();
        let side = if is_left { Side::Left } else { Side::Right };
        let times = wiring.shared_operator(&stores);
        let unmatched = unmatched.as_ref().map(|kept| kept.wire(wiring, windows, times));
        let (before_ms, after_ms) = if is_left {
            (windows.before_ms, windows.after_ms)
        } else {
            (windows.after_ms, windows.before_ms)
        };
        Ok(Edge::to_stream(JoinSide {
            index: wiring.index(),
            times,
            side,
            is_optional,
            before_ms,
            after_ms,
            own,
            other,
            unmatched,
            joiner: Arc::clone(&joiner),
            below: wiring.below::<K, R>()?,
            result: PhantomData,
        }))
    })
}

struct JoinSide<K, V, V2, R, F> {
    index: NodeIndex,
    /// What both sides have seen.
    times: OperatorSlot,
    side: Side,
    is_optional: bool,
    /// How much earlier and later than a record its partners may be.
    before_ms: i64,
    after_ms: i64,
    own: JoinStore<K, V>,
    other: JoinStore<K, V2>,
    unmatched: Option<Unmatched>,
    joiner: Arc<F>,
    below: Below<K, R>,
    result: PhantomData<fn() -> R>,
}

impl<K, V, V2, R, F> Node<K, V> for JoinSide<K, V, V2, R, F>
where
    K: 'static,
    V: 'static,
    V2: 'static,
    F: Fn(Option<&K>, Option<&V>, Option<&V2>) -> Result<Option<R>, UserError> + Send + Sync,
{
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        cx.enter(self.index);
        let times = cx.times(self.times);
        times.observed = times.observed.max(record.timestamp);
        let result = match (record.key, record.value) {
            (_, None) => return cx.null_record(self.index, NullPart::Value),
            (None, Some(_)) if !self.is_optional => {
                return cx.null_record(self.index, NullPart::Key);
            }
            // Such records have no partner (KIP-962).
            (None, Some(value)) => self.forward(cx, None, (value, None), record.timestamp),
            (Some(key), Some(value)) => self.join(cx, key, value, record.timestamp),
        };
        settle(cx, self.index, result)
    }
}

impl<K, V, V2, R, F> JoinSide<K, V, V2, R, F>
where
    K: 'static,
    V: 'static,
    V2: 'static,
    F: Fn(Option<&K>, Option<&V>, Option<&V2>) -> Result<Option<R>, UserError> + Send + Sync,
{
    fn join(&self, cx: &mut Cx<'_>, key: &K, value: &V, timestamp: i64) -> Result<(), StepError> {
        if let Some(unmatched) = &self.unmatched
            && timestamp == cx.times(self.times).observed
        {
            self.forward_unmatched(cx, unmatched, timestamp)?;
        }
        let from = timestamp.saturating_sub(self.before_ms).max(0);
        let to = timestamp.saturating_add(self.after_ms).max(0);
        let mut bytes = cx.take_buffer();
        let found = self.other.write_key(key, &mut bytes);
        let result = found.map_err(StepError::from).and_then(|()| {
            let mut fetch = cx.fetch(self.other.slot(), &bytes, (from, to), Direction::Forward);
            let found = self.join_found(cx, (key, &bytes), value, timestamp, &mut fetch);
            cx.end_fetch(fetch);
            if found? || !self.is_optional {
                return Ok(());
            }
            self.keep_or_forward(cx, (key, &bytes), value, timestamp, to)
        });
        cx.give_buffer(bytes);
        result
    }

    /// Joins a record with all that was found. Answers whether there was any.
    fn join_found(
        &self,
        cx: &mut Cx<'_>,
        (key, key_bytes): (&K, &[u8]),
        value: &V,
        timestamp: i64,
        fetch: &mut WindowFetch,
    ) -> Result<bool, StepError> {
        let mut found_any = false;
        while cx.next_fetched(fetch)? {
            found_any = true;
            let time = fetch.time();
            if let Some(unmatched) = &self.unmatched {
                unmatched.remove(cx, (time, self.side.other()), key_bytes, timestamp)?;
            }
            let other = self.other.read_value(fetch.value())?;
            self.forward(cx, Some(key), (value, Some(&other)), timestamp.max(time))?;
        }
        Ok(found_any)
    }

    /// A record that has found no partner waits for one, unless only late ones could come (feature row D34).
    fn keep_or_forward(
        &self,
        cx: &mut Cx<'_>,
        (key, key_bytes): (&K, &[u8]),
        value: &V,
        timestamp: i64,
        partners_until: i64,
    ) -> Result<(), StepError> {
        match &self.unmatched {
            Some(unmatched) if partners_until >= cx.times(self.times).observed => {
                let mut bytes = cx.take_buffer();
                let written = self.own.write_value(value, &mut bytes);
                let kept = written.map_err(StepError::from).and_then(|written| {
                    let value = written.or_in(&bytes).unwrap_or_default();
                    unmatched.add(cx, (timestamp, self.side), key_bytes, value)
                });
                cx.give_buffer(bytes);
                kept
            }
            _ => self.forward(cx, Some(key), (value, None), timestamp),
        }
    }

    /// Sends on what has stayed without partner for as long as one could come.
    fn forward_unmatched(
        &self,
        cx: &mut Cx<'_>,
        unmatched: &Unmatched,
        timestamp: i64,
    ) -> Result<(), StepError> {
        if !unmatched.is_due(cx, self.after_ms) {
            return Ok(());
        }
        unmatched.take_due(cx, timestamp, |cx, (time, side), key, value| {
            let key = self.own.read_key(key)?;
            let joined = if side == self.side {
                let value = self.own.read_value(value)?;
                (self.joiner)(Some(&key), Some(&value), None)?
            } else {
                let value = self.other.read_value(value)?;
                (self.joiner)(Some(&key), None, Some(&value))?
            };
            let joined = Record::new(Some(&key), joined.as_ref(), time);
            Ok(self.below.forward(cx, joined)?)
        })
    }

    fn forward(
        &self,
        cx: &mut Cx<'_>,
        key: Option<&K>,
        (own, other): (&V, Option<&V2>),
        timestamp: i64,
    ) -> Result<(), StepError> {
        let joined = (self.joiner)(key, Some(own), other)?;
        self.below.forward(cx, Record::new(key, joined.as_ref(), timestamp))?;
        cx.enter(self.index);
        Ok(())
    }
}
