//! The records of one side of a join, kept for those of the other.

use std::sync::Arc;

use headwater_runtime::{Cx, NodeIndex, StoreSlot, TaskError};
use headwater_store::serde::{Payload, SerdeError};
use headwater_store::{SEGMENT_PREFIX, SegmentedOptions, WINDOW_SUFFIX};

use crate::edge::{Below, Edge, Node};
use crate::error::DslError;
use crate::nodes::{StepError, settle};
use crate::record::Record;
use crate::serdes::{Codec, Written};
use crate::wiring::{WireInner, Wiring};

/// The store that the records of a side are kept in, by name.
pub(crate) struct KeptRecords<K, V> {
    pub(crate) store: String,
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
}

impl<K, V> Clone for KeptRecords<K, V> {
    fn clone(&self) -> Self {
        let Self { store, key, value } = self;
        Self { store: store.clone(), key: key.clone(), value: value.clone() }
    }
}

impl<K: 'static, V: 'static> KeptRecords<K, V> {
    /// The store at run time.
    pub(super) fn wire(&self, wiring: &Wiring<'_>) -> Result<JoinStore<K, V>, DslError> {
        let slot = wiring.store(&self.store).expect("a join brings its stores along");
        Ok(JoinStore {
            slot,
            options: wiring.segments_of(slot),
            key: wiring.key_serde(self.key.as_ref())?,
            value: wiring.value_serde(self.value.as_ref())?,
        })
    }
}

/// A store of records by key and time.
pub(super) struct JoinStore<K, V> {
    slot: StoreSlot,
    options: SegmentedOptions,
    key: Codec<K>,
    value: Codec<V>,
}

impl<K: 'static, V: 'static> JoinStore<K, V> {
    pub(super) const fn slot(&self) -> StoreSlot {
        self.slot
    }

    pub(super) const fn retention_ms(&self) -> i64 {
        self.options.retention_ms
    }

    /// Appends the bytes of a key.
    pub(super) fn write_key(&self, key: &K, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        self.key.serialize(key, out)
    }

    pub(super) fn read_key(&self, bytes: &[u8]) -> Result<K, SerdeError> {
        self.key.deserialize(Payload::new(bytes))
    }

    /// The bytes of a value; `buffer` is empty.
    pub(super) fn write_value<'v>(
        &self,
        value: &'v V,
        buffer: &mut Vec<u8>,
    ) -> Result<Written<'v>, SerdeError> {
        self.value.write(Some(value), buffer)
    }

    pub(super) fn read_value(&self, bytes: &[u8]) -> Result<V, SerdeError> {
        self.value.deserialize(Payload::new(bytes))
    }

    fn put(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        value: Option<&V>,
        timestamp: i64,
    ) -> Result<(), StepError> {
        let (mut stored_key, mut bytes) = (cx.take_buffer(), cx.take_buffer());
        stored_key.extend_from_slice(&self.options.segment(timestamp).to_be_bytes());
        debug_assert_eq!(stored_key.len(), SEGMENT_PREFIX, "a segment's number is the prefix");
        let result = self.write_key(key, &mut stored_key).map_err(StepError::from).and_then(|()| {
            let key_end = stored_key.len();
            stored_key.resize(key_end + WINDOW_SUFFIX, 0);
            stored_key[key_end..key_end + 8].copy_from_slice(&timestamp.to_be_bytes());
            let written = value.map(|value| self.write_value(value, &mut bytes)).transpose()?;
            let value = written.and_then(|written| written.or_in(&bytes));
            Ok(cx.put_duplicate_with_headers(
                self.slot,
                &mut stored_key,
                timestamp,
                value,
                timestamp,
            )?)
        });
        cx.give_buffer(bytes);
        cx.give_buffer(stored_key);
        result
    }
}

/// The making of a node that hands records to the join below and then keeps them.
pub(crate) fn keep_records<K: 'static, V: 'static>(kept: KeptRecords<K, V>) -> WireInner {
    Arc::new(move |wiring| {
        Ok(Edge::to_stream(Keep {
            index: wiring.index(),
            store: kept.wire(wiring)?,
            below: wiring.below_same_record::<K, V>()?,
        }))
    })
}

struct Keep<K, V> {
    index: NodeIndex,
    store: JoinStore<K, V>,
    below: Below<K, V>,
}

impl<K: 'static, V: 'static> Node<K, V> for Keep<K, V> {
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        self.below.forward(cx, record)?;
        cx.enter(self.index);
        let Some(key) = record.key else { return Ok(()) };
        let result = self.store.put(cx, key, record.value, record.timestamp);
        settle(cx, self.index, result)
    }
}
