//! Values with timestamps, by key.

use std::fmt;

use headwater_store::serde::Serializer;
use headwater_store::{Direction, KeyRange, StoredValue, ValueAndTimestamp};

use super::{Entries, New, Place, ranges};
use crate::processor::{ContextError, ProcessingContext};

/// Values with timestamps by key, as a processor uses them; the stores of tables are of this kind.
/// Get one with
/// [`ProcessingContext::timestamped_key_value_store`](crate::ProcessingContext::timestamped_key_value_store)
/// and keep it.
pub struct TimestampedKeyValueStore<K, V> {
    place: Place<K, V>,
}

impl<K, V> TimestampedKeyValueStore<K, V> {
    pub(in crate::processor) const fn new(place: Place<K, V>) -> Self {
        Self { place }
    }

    /// The value of a key and its timestamp.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn get(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
    ) -> Result<Option<ValueAndTimestamp<V>>, ContextError> {
        self.place.read(context, key, |stored| with_timestamp(&self.place, stored))
    }

    /// Gives a key a value with a timestamp.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn put(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        value: &V,
        timestamp: i64,
    ) -> Result<(), ContextError> {
        self.place.write(context, key, New::Value(value), timestamp)
    }

    /// Gives a key a value with a timestamp unless it has one; answers the one it has.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn put_if_absent(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        value: &V,
        timestamp: i64,
    ) -> Result<Option<ValueAndTimestamp<V>>, ContextError> {
        let found = self.get(context, key)?;
        if found.is_none() {
            self.put(context, key, value, timestamp)?;
        }
        Ok(found)
    }

    /// Deletes a key; answers the value it had.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn delete(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
    ) -> Result<Option<ValueAndTimestamp<V>>, ContextError> {
        let found = self.get(context, key)?;
        let timestamp = context.timestamp;
        self.place.write(context, key, New::Deleted, timestamp)?;
        Ok(found)
    }

    ranges!(TimestampedKeyValueEntries);
}

/// A stored value with its timestamp, −1 in a store that keeps none.
pub(super) fn with_timestamp<K, V>(
    place: &Place<K, V>,
    stored: StoredValue<'_>,
) -> Result<ValueAndTimestamp<V>, ContextError> {
    let value = place.value(stored.value)?;
    Ok(ValueAndTimestamp { value, timestamp: stored.timestamp.unwrap_or(-1) })
}

impl<K, V> fmt::Debug for TimestampedKeyValueStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimestampedKeyValueStore").field(&self.place.name).finish()
    }
}

/// The entries of a store with timestamps, read as they are asked for; the store may be written in
/// between.
pub struct TimestampedKeyValueEntries<K, V> {
    entries: Entries<K, V>,
}

type TimestampedEntry<K, V> = (K, ValueAndTimestamp<V>);

impl<K, V> TimestampedKeyValueEntries<K, V> {
    pub(super) fn new(
        place: &Place<K, V>,
        context: &ProcessingContext<'_, '_>,
        range: KeyRange,
        direction: Direction,
    ) -> Self {
        Self { entries: Entries::new(place, context, range, direction) }
    }

    /// The next entry.
    ///
    /// # Errors
    /// If the key or value cannot be read, or the task cannot go on.
    pub fn next(
        &mut self,
        context: &mut ProcessingContext<'_, '_>,
    ) -> Result<Option<TimestampedEntry<K, V>>, ContextError> {
        self.entries.next(context, |place, stored| with_timestamp(place, stored))
    }
}

impl<K, V> fmt::Debug for TimestampedKeyValueEntries<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimestampedKeyValueEntries").field(&self.entries.place.name).finish()
    }
}
