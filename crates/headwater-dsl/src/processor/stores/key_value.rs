//! Values by key.

use std::fmt;

use headwater_store::serde::Serializer;
use headwater_store::{Direction, KeyRange};

use super::{Entries, New, Place, ranges};
use crate::processor::{ContextError, ProcessingContext};

/// Values by key, as a processor uses them. Get one with
/// [`ProcessingContext::key_value_store`](crate::ProcessingContext::key_value_store) and keep it.
///
/// ```
/// use headwater_dsl::{ContextError, KeyValueStore, ProcessingContext};
/// use headwater_store::serde::Utf8;
///
/// /// The sum of all amounts whose names begin so.
/// fn sum(
///     amounts: &KeyValueStore<String, i64>,
///     context: &mut ProcessingContext<'_, '_>,
///     prefix: &str,
/// ) -> Result<i64, ContextError> {
///     let mut sum = 0;
///     let mut entries = amounts.prefix_scan(context, prefix, &Utf8)?;
///     while let Some((_, amount)) = entries.next(context)? {
///         sum += amount;
///     }
///     Ok(sum)
/// }
/// ```
pub struct KeyValueStore<K, V> {
    place: Place<K, V>,
}

impl<K, V> KeyValueStore<K, V> {
    pub(in crate::processor) const fn new(place: Place<K, V>) -> Self {
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
        self.place.read(context, key, |stored| self.place.value(stored.value))
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
        self.place.write(context, key, New::Value(value), timestamp)
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
        self.place.write(context, key, New::Deleted, timestamp)?;
        Ok(found)
    }

    ranges!(KeyValueEntries);
}

impl<K, V> fmt::Debug for KeyValueStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyValueStore").field(&self.place.name).finish()
    }
}

/// The entries of a store, read as they are asked for; the store may be written in between.
pub struct KeyValueEntries<K, V> {
    entries: Entries<K, V>,
}

impl<K, V> KeyValueEntries<K, V> {
    fn new(
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
    ) -> Result<Option<(K, V)>, ContextError> {
        self.entries.next(context, |place, stored| place.value(stored.value))
    }
}

impl<K, V> fmt::Debug for KeyValueEntries<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyValueEntries").field(&self.entries.place.name).finish()
    }
}
