//! Values by key and time.

use std::fmt;

use headwater_store::{VersionedPut, VersionedRecord};

use super::Place;
use crate::processor::{ContextError, ProcessingContext};

/// Values by key and time, as a processor uses them (KIP-889, feature row P13). Get one with
/// [`ProcessingContext::versioned_key_value_store`](crate::ProcessingContext::versioned_key_value_store)
/// and keep it.
///
/// ```
/// use headwater_dsl::{ContextError, ProcessingContext, VersionedKeyValueStore};
///
/// /// What an order cost at the price of its time.
/// fn cost(
///     prices: &VersionedKeyValueStore<String, i64>,
///     context: &mut ProcessingContext<'_, '_>,
///     article: &String,
///     pieces: i64,
///     ordered_at: i64,
/// ) -> Result<Option<i64>, ContextError> {
///     let price = prices.get_as_of(context, article, ordered_at)?;
///     Ok(price.map(|price| price.value * pieces))
/// }
/// ```
pub struct VersionedKeyValueStore<K, V> {
    place: Place<K, V>,
}

impl<K, V> VersionedKeyValueStore<K, V> {
    pub(in crate::processor) const fn new(place: Place<K, V>) -> Self {
        Self { place }
    }

    /// The latest version of a key.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn get(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
    ) -> Result<Option<VersionedRecord<V>>, ContextError> {
        self.place.read(context, key, |stored| {
            let value = self.place.value(stored.value)?;
            let timestamp = stored.timestamp.unwrap_or(-1);
            Ok(VersionedRecord { value, timestamp, valid_to: None })
        })
    }

    /// The version of a key that was valid at a time, in milliseconds since the Unix epoch; `None` if
    /// there was none, or if the history does not reach back so far.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn get_as_of(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        as_of: i64,
    ) -> Result<Option<VersionedRecord<V>>, ContextError> {
        self.place.with_key(context, key, |context, key| {
            let mut found = Ok(None);
            let asked = context.cx.get_version(self.place.slot, key, as_of).map(|version| {
                if let Some(VersionedRecord { value, timestamp, valid_to }) = version {
                    let value = self.place.value(value);
                    found = value.map(|value| Some(VersionedRecord { value, timestamp, valid_to }));
                }
            });
            context.note(asked)?;
            found
        })
    }

    /// Gives a key a value from `timestamp` on, until its next newer version begins; `None` deletes it
    /// from then on. Answers whether it is the latest, or when the next newer version begins, or that
    /// the update is older than the history and was refused; that is counted.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn put(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        value: Option<&V>,
        timestamp: i64,
    ) -> Result<VersionedPut, ContextError> {
        self.place.with_value(context, key, value, |context, key, value| {
            let put = context.cx.put_version(self.place.slot, key, value, timestamp);
            Ok(context.note(put)?)
        })
    }

    /// Deletes a key from `timestamp` on; answers the version that was valid then.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn delete(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        timestamp: i64,
    ) -> Result<Option<VersionedRecord<V>>, ContextError> {
        let found = self.get_as_of(context, key, timestamp)?;
        let put = self.put(context, key, None, timestamp)?;
        Ok(found.filter(|_| put != VersionedPut::NotPut))
    }
}

impl<K, V> fmt::Debug for VersionedKeyValueStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VersionedKeyValueStore").field(&self.place.name).finish()
    }
}
