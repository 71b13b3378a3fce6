//! Stores as processors use them.

use std::fmt;
use std::sync::Arc;

use headwater_runtime::{StoreCursor, StoreSlot};
use headwater_store::serde::{Payload, SerdeError};
use headwater_store::{Direction, KeyRange, ValueAndTimestamp, split_timestamp};

use super::context::ProcessingContext;
use super::error::ContextError;
use crate::serdes::Codec;

/// A store's place in the task, and its serdes.
pub(super) struct Place<K, V> {
    pub(super) name: Arc<str>,
    pub(super) slot: StoreSlot,
    pub(super) key: Codec<K>,
    pub(super) value: Codec<V>,
}

impl<K, V> Clone for Place<K, V> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            slot: self.slot,
            key: Arc::clone(&self.key),
            value: Arc::clone(&self.value),
        }
    }
}

impl<K, V> Place<K, V> {
    fn serde_error(&self, source: SerdeError) -> ContextError {
        ContextError::Serde { store: Arc::clone(&self.name), source }
    }

    /// Reads the stored bytes of a key.
    fn read<T>(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        read: impl FnOnce(&[u8]) -> Result<Option<T>, SerdeError>,
    ) -> Result<Option<T>, ContextError> {
        let mut bytes = context.cx.take_buffer();
        let written = self.key.serialize(key, &mut bytes);
        let mut found = Ok(None);
        let asked = match &written {
            Ok(()) => context.cx.get(self.slot, &bytes).map(|stored| {
                if let Some(stored) = stored {
                    found = read(stored);
                }
            }),
            Err(_) => Ok(()),
        };
        context.cx.give_buffer(bytes);
        written.map_err(|error| self.serde_error(error))?;
        context.note(asked)?;
        found.map_err(|error| self.serde_error(error))
    }

    fn write(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        value: Option<&V>,
        timestamp: i64,
    ) -> Result<(), ContextError> {
        let mut key_bytes = context.cx.take_buffer();
        let mut value_bytes = context.cx.take_buffer();
        let written = self.key.serialize(key, &mut key_bytes).and_then(|()| {
            value.map(|value| self.value.serialize(value, &mut value_bytes)).transpose()
        });
        let put = match &written {
            Ok(value) => {
                let value = value.map(|()| value_bytes.as_slice());
                context.cx.put(self.slot, &key_bytes, value, timestamp)
            }
            Err(_) => Ok(()),
        };
        context.cx.give_buffer(value_bytes);
        context.cx.give_buffer(key_bytes);
        written.map_err(|error| self.serde_error(error))?;
        Ok(context.note(put)?)
    }

    fn entries(
        &self,
        context: &ProcessingContext<'_, '_>,
        range: KeyRange,
        direction: Direction,
    ) -> StoreCursor {
        context.cx.range(self.slot, range, direction)
    }

    fn bounds(&self, from: Option<&K>, to: Option<&K>) -> Result<KeyRange, ContextError> {
        let bytes = |key: Option<&K>| -> Result<Option<Vec<u8>>, ContextError> {
            let Some(key) = key else { return Ok(None) };
            let mut bytes = Vec::new();
            self.key.serialize(key, &mut bytes).map_err(|error| self.serde_error(error))?;
            Ok(Some(bytes))
        };
        Ok(KeyRange::inclusive(bytes(from)?.as_deref(), bytes(to)?.as_deref()))
    }
}

/// Values by key, as a processor uses them. Get one with
/// [`ProcessingContext::key_value_store`](crate::ProcessingContext::key_value_store) and keep it.
pub struct KeyValueStore<K, V> {
    place: Place<K, V>,
}

impl<K, V> KeyValueStore<K, V> {
    pub(super) const fn new(place: Place<K, V>) -> Self {
        Self { place }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As everywhere here: if the key or value cannot be written or read, or the task cannot go on.
    pub fn get(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
    ) -> Result<Option<V>, ContextError> {
        let value = &self.place.value;
        self.place.read(context, key, |stored| {
            if value.is_null(stored) {
                return Ok(None);
            }
            value.deserialize(Payload::new(stored)).map(Some)
        })
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    pub fn put(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        value: &V,
    ) -> Result<(), ContextError> {
        let timestamp = context.timestamp;
        self.place.write(context, key, Some(value), timestamp)
    }

    /// Gives a key a value unless it has one; answers the one it has.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    pub fn put_if_absent(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        value: &V,
    ) -> Result<Option<V>, ContextError> {
        let found = self.get(context, key)?;
        if found.is_none() {
            self.put(context, key, value)?;
        }
        Ok(found)
    }

    /// Deletes a key; answers the value it had.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    pub fn delete(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
    ) -> Result<Option<V>, ContextError> {
        let found = self.get(context, key)?;
        let timestamp = context.timestamp;
        self.place.write(context, key, None, timestamp)?;
        Ok(found)
    }

    /// All entries in the order of the keys' bytes.
    pub fn all(&self, context: &ProcessingContext<'_, '_>) -> KeyValueEntries<K, V> {
        self.entries(context, KeyRange::all(), Direction::Forward)
    }

    /// All entries in the opposite order.
    pub fn reverse_all(&self, context: &ProcessingContext<'_, '_>) -> KeyValueEntries<K, V> {
        self.entries(context, KeyRange::all(), Direction::Reverse)
    }

    /// The entries from one key to another, both included, `None` meaning open.
    ///
    /// # Errors
    /// If a key cannot be written.
    pub fn range(
        &self,
        context: &ProcessingContext<'_, '_>,
        from: Option<&K>,
        to: Option<&K>,
    ) -> Result<KeyValueEntries<K, V>, ContextError> {
        let range = self.place.bounds(from, to)?;
        Ok(self.entries(context, range, Direction::Forward))
    }

    /// As [`range`](Self::range), in the opposite order.
    ///
    /// # Errors
    /// If a key cannot be written.
    pub fn reverse_range(
        &self,
        context: &ProcessingContext<'_, '_>,
        from: Option<&K>,
        to: Option<&K>,
    ) -> Result<KeyValueEntries<K, V>, ContextError> {
        let range = self.place.bounds(from, to)?;
        Ok(self.entries(context, range, Direction::Reverse))
    }

    fn entries(
        &self,
        context: &ProcessingContext<'_, '_>,
        range: KeyRange,
        direction: Direction,
    ) -> KeyValueEntries<K, V> {
        let cursor = self.place.entries(context, range, direction);
        KeyValueEntries { place: self.place.clone(), cursor }
    }
}

impl<K, V> fmt::Debug for KeyValueStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyValueStore").field(&self.place.name).finish()
    }
}

/// The entries of a store, read as they are asked for; the store may be written in between.
pub struct KeyValueEntries<K, V> {
    place: Place<K, V>,
    cursor: StoreCursor,
}

impl<K, V> KeyValueEntries<K, V> {
    /// The next entry.
    ///
    /// # Errors
    /// If the key or value cannot be read, or the task cannot go on.
    pub fn next(
        &mut self,
        context: &mut ProcessingContext<'_, '_>,
    ) -> Result<Option<(K, V)>, ContextError> {
        let mut read = Ok(None);
        let asked = context.cx.next_entry(&mut self.cursor).map(|entry| {
            if let Some((key, value)) = entry {
                read = self.place.key.deserialize(Payload::new(key)).and_then(|key| {
                    Ok(Some((key, self.place.value.deserialize(Payload::new(value))?)))
                });
            }
        });
        context.note(asked)?;
        read.map_err(|error| self.place.serde_error(error))
    }
}

impl<K, V> fmt::Debug for KeyValueEntries<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyValueEntries").field(&self.place.name).finish()
    }
}

/// Values with timestamps by key, as a processor uses them; the stores of tables are of this kind.
/// Get one with
/// [`ProcessingContext::timestamped_key_value_store`](crate::ProcessingContext::timestamped_key_value_store)
/// and keep it.
pub struct TimestampedKeyValueStore<K, V> {
    place: Place<K, V>,
}

impl<K, V> TimestampedKeyValueStore<K, V> {
    pub(super) const fn new(place: Place<K, V>) -> Self {
        Self { place }
    }

    /// The value of a key and its timestamp.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`].
    pub fn get(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
    ) -> Result<Option<ValueAndTimestamp<V>>, ContextError> {
        let serde = &self.place.value;
        self.place.read(context, key, |stored| {
            let Some((timestamp, value)) = split_timestamp(stored) else { return Ok(None) };
            if serde.is_null(value) {
                return Ok(None);
            }
            let value = serde.deserialize(Payload::new(value))?;
            Ok(Some(ValueAndTimestamp { value, timestamp }))
        })
    }

    /// Gives a key a value with a timestamp.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`].
    pub fn put(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        value: &V,
        timestamp: i64,
    ) -> Result<(), ContextError> {
        self.place.write(context, key, Some(value), timestamp)
    }

    /// Deletes a key; answers the value it had.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`].
    pub fn delete(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
    ) -> Result<Option<ValueAndTimestamp<V>>, ContextError> {
        let found = self.get(context, key)?;
        let timestamp = context.timestamp;
        self.place.write(context, key, None, timestamp)?;
        Ok(found)
    }
}

impl<K, V> fmt::Debug for TimestampedKeyValueStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimestampedKeyValueStore").field(&self.place.name).finish()
    }
}
