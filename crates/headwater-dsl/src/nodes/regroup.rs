//! Grouping of a table: updates taken apart, sent through a topic, and put into aggregates again
//! (feature row D48).

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{
    Cx, FailureKind, NodeIndex, Partitioning, RawRecord, SinkSlot, SourceNode, TaskError, UserError,
};
use headwater_store::serde::{Payload, SerdeError};

use super::change_format;
use super::kept_table::{Kept, KeptTable};
use super::{NewValue, with_buffer};
use crate::edge::{Edge, TableNode, TablesBelow};
use crate::record::Change;
use crate::serdes::Codec;
use crate::wiring::{WireInner, WireSource};

/// The making of the node that gives the values of a table other keys and values.
///
/// An update whose key stays goes on in one piece, another one as a removal and then an addition.
pub(crate) fn regroup<K, V, K2, V2, F>(select: F) -> WireInner
where
    K: 'static,
    V: 'static,
    K2: PartialEq + 'static,
    V2: 'static,
    F: Fn(&K, &V) -> Result<(Option<K2>, Option<V2>), UserError> + Send + Sync + 'static,
{
    let select = Arc::new(select);
    Arc::new(move |wiring| {
        Ok(Edge::to_table(Regroup {
            index: wiring.index(),
            skips_late: wiring.input_is_versioned(),
            select: Arc::clone(&select),
            below: wiring.tables_below::<K2, V2>()?,
            input: PhantomData::<fn(K, V)>,
        }))
    })
}

struct Regroup<K, V, K2, V2, F> {
    index: NodeIndex,
    /// Whether updates are passed over that a newer one has overtaken: those of a versioned table
    /// (feature row D52).
    skips_late: bool,
    select: Arc<F>,
    below: TablesBelow<K2, V2>,
    input: PhantomData<fn(K, V)>,
}

impl<K, V, K2, V2, F> TableNode<K, V> for Regroup<K, V, K2, V2, F>
where
    K2: PartialEq,
    F: Fn(&K, &V) -> Result<(Option<K2>, Option<V2>), UserError> + Send + Sync,
{
    fn update(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        if self.skips_late && !change.is_latest {
            return Ok(());
        }
        cx.enter(self.index);
        let select = |value: Option<&V>| -> Result<Option<(K2, V2)>, UserError> {
            let Some(value) = value else { return Ok(None) };
            let (key, value) = (self.select)(key, value)?;
            Ok(key.zip(value))
        };
        let selected = select(change.new).and_then(|new| Ok((new, select(change.old)?)));
        match selected {
            Ok((new, old)) => self.forward(cx, new.as_ref(), old.as_ref(), timestamp),
            Err(error) => cx.failed(self.index, FailureKind::Processing, error),
        }
    }
}

impl<K, V, K2: PartialEq, V2, F> Regroup<K, V, K2, V2, F> {
    fn forward(
        &self,
        cx: &mut Cx<'_>,
        new: Option<&(K2, V2)>,
        old: Option<&(K2, V2)>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        if let (Some((key, new)), Some((old_key, old))) = (new, old)
            && key == old_key
        {
            let change = Change::new(Some(new), Some(old));
            return self.below.forward(cx, key, change, timestamp);
        }
        // Removals first, as aggregations have them.
        if let Some((key, old)) = old {
            let change = Change::new(None, Some(old));
            self.below.forward(cx, key, change, timestamp)?;
        }
        if let Some((key, new)) = new {
            let change = Change::new(Some(new), None);
            self.below.forward(cx, key, change, timestamp)?;
        }
        Ok(())
    }
}

/// The making of the sink of a grouped table.
pub(crate) fn change_sink<K: 'static, V: 'static>(
    key: Option<Codec<K>>,
    value: Option<Codec<V>>,
) -> WireInner {
    Arc::new(move |wiring| {
        Ok(Edge::to_table(ChangeSink {
            index: wiring.index(),
            slot: wiring.add_sink(),
            key: wiring.key_serde(key.as_ref())?,
            value: wiring.value_serde(value.as_ref())?,
        }))
    })
}

struct ChangeSink<K, V> {
    index: NodeIndex,
    slot: SinkSlot,
    key: Codec<K>,
    value: Codec<V>,
}

impl<K, V> TableNode<K, V> for ChangeSink<K, V> {
    fn update(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        let mut key_bytes = cx.take_buffer();
        let mut scratch = cx.take_buffer();
        let mut bytes = cx.take_buffer();
        let written = self
            .key
            .serialize(key, &mut key_bytes)
            .and_then(|()| change_format::write(&*self.value, change, &mut scratch, &mut bytes));
        let result = match written {
            Ok(()) => {
                cx.send(self.slot, Some(&key_bytes), Some(&bytes), timestamp, Partitioning::Default)
            }
            Err(error) => cx.failed(self.index, FailureKind::Production, error.into()),
        };
        cx.give_buffer(bytes);
        cx.give_buffer(scratch);
        cx.give_buffer(key_bytes);
        result
    }
}

/// The making of the source of a grouped table.
pub(crate) fn change_source<K: 'static, V: 'static>(
    key: Option<Codec<K>>,
    value: Option<Codec<V>>,
) -> WireSource {
    Arc::new(move |wiring| {
        Ok(Arc::new(ChangeSource {
            index: wiring.index(),
            key: wiring.key_serde(key.as_ref())?,
            value: wiring.value_serde(value.as_ref())?,
            below: wiring.tables_below()?,
        }))
    })
}

struct ChangeSource<K, V> {
    index: NodeIndex,
    key: Codec<K>,
    value: Codec<V>,
    below: TablesBelow<K, V>,
}

/// Key, new value, old value.
type ReadUpdate<K, V> = (K, Option<V>, Option<V>);

impl<K, V> ChangeSource<K, V> {
    fn read(&self, record: &RawRecord<'_>) -> Result<ReadUpdate<K, V>, SerdeError> {
        let missing = || SerdeError::other("update of a grouped table", MissingPart);
        let key = record.key.ok_or_else(missing)?;
        let value = record.value.ok_or_else(missing)?;
        let key = self.key.deserialize(Payload::part_of(record.owner, key))?;
        let (new, old) = change_format::read(&*self.value, Payload::part_of(record.owner, value))?;
        Ok((key, new, old))
    }
}

impl<K: 'static, V: 'static> SourceNode for ChangeSource<K, V> {
    fn process(&self, cx: &mut Cx<'_>, record: &RawRecord<'_>) -> Result<(), TaskError> {
        cx.enter(self.index);
        match self.read(record) {
            Ok((key, new, old)) => {
                let change = Change::new(new.as_ref(), old.as_ref());
                self.below.forward(cx, &key, change, record.timestamp)
            }
            Err(error) => cx.failed(self.index, FailureKind::Deserialization, error.into()),
        }
    }
}

impl<K, V> fmt::Debug for ChangeSource<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeSource").field("index", &self.index).finish_non_exhaustive()
    }
}

/// A record of a grouped table's topic without key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record has no key or no value")]
struct MissingPart;

/// The making of an aggregation of a grouped table. `compute` makes the new aggregate of key, update
/// and aggregate so far.
pub(crate) fn aggregate_table<K, V, A, C>(kept: Kept<K, A>, compute: C) -> WireInner
where
    K: 'static,
    V: 'static,
    A: 'static,
    C: for<'a> Fn(&'a K, Change<'a, V>, Option<A>) -> Result<NewValue<'a, A>, UserError>
        + Send
        + Sync
        + 'static,
{
    let compute = Arc::new(compute);
    Arc::new(move |wiring| {
        let table = kept.wire(wiring)?.expect("an aggregation brings its store along");
        Ok(Edge::to_table(AggregateTable {
            index: wiring.index(),
            table,
            compute: Arc::clone(&compute),
            input: PhantomData::<fn(V)>,
        }))
    })
}

struct AggregateTable<K, V, A, C> {
    index: NodeIndex,
    table: Arc<KeptTable<K, A>>,
    compute: Arc<C>,
    input: PhantomData<fn(V)>,
}

impl<K, V, A, C> TableNode<K, V> for AggregateTable<K, V, A, C>
where
    K: 'static,
    A: 'static,
    C: for<'a> Fn(&'a K, Change<'a, V>, Option<A>) -> Result<NewValue<'a, A>, UserError>
        + Send
        + Sync,
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
            let store_key = self.table.key(key, buffer)?;
            let nothing = || Ok(None);
            self.table.aggregate(cx, store_key, timestamp, nothing, |so_far| {
                (self.compute)(key, change, so_far)
            })
        })
    }
}
