//! A table that is kept in a store: the part that aggregations, sources and mapped tables share.

use std::fmt;
use std::sync::Arc;

use headwater_runtime::{
    CachedUpdate, Cx, FlushListener, NodeIndex, StoreSlot, TaskError, UserError,
};
use headwater_store::VersionedPut;
use headwater_store::serde::Payload;

use super::{NewValue, StepError, settle};
use crate::edge::TablesBelow;
use crate::error::DslError;
use crate::record::Change;
use crate::serdes::{Codec, Written};
use crate::wiring::Wiring;

/// The store that a table is kept in, by name, and its serdes.
pub(crate) struct Kept<K, V> {
    pub(crate) store: String,
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
}

/// A table's aggregation or source, and its store's listener, share it.
pub(super) type SharedTable<K, V> = Arc<KeptTable<K, V>>;

/// A store and the table nodes that get its updates.
pub(super) struct KeptTable<K, V> {
    index: NodeIndex,
    slot: StoreSlot,
    /// Whether the store has a history, and so may refuse an update or have a newer one.
    is_versioned: bool,
    key: Codec<K>,
    value: Codec<V>,
    pub(super) sends_old: bool,
    below: TablesBelow<K, V>,
}

impl<K: 'static, V: 'static> Kept<K, V> {
    /// The table at run time; `None` if the store does not exist in this topology.
    pub(super) fn wire(
        &self,
        wiring: &mut Wiring<'_>,
    ) -> Result<Option<SharedTable<K, V>>, DslError> {
        let Some(slot) = wiring.store(&self.store) else { return Ok(None) };
        let kept = Arc::new(KeptTable {
            index: wiring.index(),
            slot,
            is_versioned: wiring.is_versioned(slot),
            key: wiring.key_serde(self.key.as_ref())?,
            value: wiring.value_serde(self.value.as_ref())?,
            sends_old: wiring.sends_old_values(),
            below: wiring.tables_below()?,
        });
        let listener: Arc<dyn FlushListener> = Arc::<KeptTable<K, V>>::clone(&kept);
        wiring.listen(slot, listener);
        Ok(Some(kept))
    }
}

/// A key and its bytes: those that it holds itself or those at the start of a buffer. Behind the
/// latter the value is serialised.
pub(super) struct StoreKey<'k, K> {
    key: &'k K,
    written: Written<'k>,
    end: usize,
    buffer: &'k mut Vec<u8>,
}

impl<K> StoreKey<'_, K> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.written.or_in(self.buffer).unwrap_or_default()
    }
}

impl<K: 'static, V: 'static> KeptTable<K, V> {
    /// A key as the store has it; `buffer` is empty.
    #[inline]
    pub(super) fn key<'k>(
        &self,
        key: &'k K,
        buffer: &'k mut Vec<u8>,
    ) -> Result<StoreKey<'k, K>, StepError> {
        let written = self.key.write(Some(key), buffer)?;
        Ok(StoreKey { key, written, end: buffer.len(), buffer })
    }

    /// The value of a key with its time, which is −1 where the store keeps none.
    #[inline]
    pub(super) fn get(
        &self,
        cx: &mut Cx<'_>,
        key: &StoreKey<'_, K>,
    ) -> Result<Option<(V, i64)>, StepError> {
        let Some(stored) = cx.get_value(self.slot, key.bytes())? else { return Ok(None) };
        let value = self.value.deserialize(Payload::new(stored.value))?;
        Ok(Some((value, stored.timestamp.unwrap_or(NO_TIMESTAMP))))
    }

    /// Keeps a new value and hands it on: now, or when the cache is flushed. `old` is looked at only
    /// in the first case, and only if old values are sent.
    #[inline]
    pub(super) fn put(
        &self,
        cx: &mut Cx<'_>,
        key: StoreKey<'_, K>,
        new: &NewValue<'_, V>,
        old: Option<&V>,
        timestamp: i64,
    ) -> Result<(), StepError> {
        self.put_or_delete(cx, key, (new, old), timestamp, timestamp)
    }

    /// As [`put`](Self::put); a deletion has a time of its own in the store.
    #[inline]
    fn put_or_delete(
        &self,
        cx: &mut Cx<'_>,
        key: StoreKey<'_, K>,
        (new, old): (&NewValue<'_, V>, Option<&V>),
        timestamp: i64,
        deleted_at: i64,
    ) -> Result<(), StepError> {
        let new = new.as_ref();
        let StoreKey { key, written, end, buffer } = key;
        let value = match new {
            Some(value) => self.value.write(Some(value), buffer)?,
            None => Written::Null,
        };
        let (front, back) = buffer.split_at(end);
        let (front, back) = (written.or_in(front).unwrap_or_default(), value.or_in(back));
        let mut change = Change::new(new, old);
        if self.is_versioned {
            match cx.put_version(self.slot, front, back, timestamp)? {
                VersionedPut::Latest => {}
                VersionedPut::ValidTo(_) => change.is_latest = false,
                VersionedPut::NotPut => return Ok(()),
            }
        } else {
            let kept_at = if back.is_some() { timestamp } else { deleted_at };
            cx.put(self.slot, front, back, kept_at)?;
        }
        if !cx.is_cached(self.slot) {
            self.below.forward(cx, key, change, timestamp)?;
        }
        Ok(())
    }

    /// Puts in the place of the aggregate so far what `compute` makes of it; of `initial` where there
    /// is none.
    #[inline]
    pub(super) fn aggregate<'a>(
        &self,
        cx: &mut Cx<'_>,
        key: StoreKey<'_, K>,
        timestamp: i64,
        initial: impl Fn() -> Result<Option<V>, UserError>,
        compute: impl FnOnce(Option<V>) -> Result<NewValue<'a, V>, UserError>,
    ) -> Result<(), StepError>
    where
        V: 'a,
    {
        let record_timestamp = timestamp;
        let (so_far, timestamp) = match self.get(cx, &key)? {
            Some((so_far, earlier)) => (Some(so_far), timestamp.max(earlier)),
            None => (initial()?, timestamp),
        };
        // The function takes the aggregate away; what nodes below need of it is read once more.
        let old = if self.sends_old && so_far.is_some() {
            match self.get(cx, &key)? {
                Some((so_far, _)) => Some(so_far),
                None => initial()?,
            }
        } else {
            None
        };
        let new = compute(so_far)?;
        // An aggregate has the latest time of its records; one that goes away is deleted by this record, at its time.
        self.put_or_delete(cx, key, (&new, old.as_ref()), timestamp, record_timestamp)
    }

    fn forward_cached(&self, cx: &mut Cx<'_>, update: CachedUpdate<'_>) -> Result<(), StepError> {
        let read = |bytes: Option<&[u8]>| {
            bytes.map(|bytes| self.value.deserialize(Payload::new(bytes))).transpose()
        };
        let key = self.key.deserialize(Payload::new(update.key))?;
        let new = read(update.new)?;
        let old = if self.sends_old { read(update.old)? } else { None };
        let change = Change::new(new.as_ref(), old.as_ref());
        Ok(self.below.forward(cx, &key, change, update.timestamp)?)
    }
}

impl<K: 'static, V: 'static> FlushListener for KeptTable<K, V> {
    fn forward(&self, cx: &mut Cx<'_>, update: CachedUpdate<'_>) -> Result<(), TaskError> {
        cx.enter(self.index);
        let result = self.forward_cached(cx, update);
        settle(cx, self.index, result)
    }
}

impl<K, V> fmt::Debug for KeptTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptTable").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// The time of a value in a store that keeps none.
const NO_TIMESTAMP: i64 = -1;
