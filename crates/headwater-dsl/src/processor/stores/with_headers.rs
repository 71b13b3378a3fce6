//! Values with timestamps and headers, by key (KIP-1271).

use std::fmt;

use headwater_runtime::Headers;
use headwater_store::serde::Serializer;
use headwater_store::{Direction, KeyRange, StoreError, StoredValue, read_headers};

use super::timestamped::TimestampedKeyValueEntries;
use super::{New, Place, ranges};
use crate::processor::{ContextError, ProcessingContext};

/// A value, its timestamp and its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueTimestampHeaders<V> {
    /// The value.
    pub value: V,
    /// Milliseconds since the Unix epoch.
    pub timestamp: i64,
    /// The headers.
    pub headers: Headers,
}

/// Values with timestamps and headers by key, as a processor uses them (KIP-1271). Get one with
/// [`ProcessingContext::timestamped_key_value_store_with_headers`](crate::ProcessingContext::timestamped_key_value_store_with_headers)
/// and keep it.
///
/// ```
/// use headwater_dsl::{
///     Processor, ProcessorContext, Record, Stores, TimestampedKeyValueStoreWithHeaders,
/// };
/// use headwater_runtime::UserError;
/// use headwater_store::serde::Utf8;
///
/// /// Keeps every value with the headers it came with.
/// struct Keep {
///     kept: TimestampedKeyValueStoreWithHeaders<String, String>,
/// }
///
/// impl Processor<String, String, String, String> for Keep {
///     fn process(
///         &mut self,
///         context: &mut ProcessorContext<'_, '_, String, String>,
///         record: Record<'_, String, String>,
///     ) -> Result<(), UserError> {
///         if let (Some(key), Some(value)) = (record.key, record.value) {
///             let headers = context.headers().clone();
///             self.kept.put(context, key, value, record.timestamp, &headers)?;
///         }
///         Ok(())
///     }
/// }
///
/// let kept = Stores::timestamped_key_value_with_headers("kept", Utf8, Utf8);
/// # drop((kept, |kept| Keep { kept }));
/// ```
pub struct TimestampedKeyValueStoreWithHeaders<K, V> {
    place: Place<K, V>,
}

impl<K, V> TimestampedKeyValueStoreWithHeaders<K, V> {
    pub(in crate::processor) const fn new(place: Place<K, V>) -> Self {
        Self { place }
    }

    /// The value of a key, its timestamp and its headers.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn get(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
    ) -> Result<Option<ValueTimestampHeaders<V>>, ContextError> {
        self.place.read(context, key, |stored| with_headers(&self.place, stored))
    }

    /// Gives a key a value with a timestamp and headers. The changelog has them in its record.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn put(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        value: &V,
        timestamp: i64,
        headers: &Headers,
    ) -> Result<(), ContextError> {
        self.place.write(context, key, New::WithHeaders(value, headers), timestamp)
    }

    /// Deletes a key; answers the value it had. The changelog record has the headers of the record
    /// that is being processed.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn delete(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
    ) -> Result<Option<ValueTimestampHeaders<V>>, ContextError> {
        let found = self.get(context, key)?;
        let timestamp = context.timestamp;
        self.place.write(context, key, New::Deleted, timestamp)?;
        Ok(found)
    }

    ranges!(TimestampedKeyValueEntries);
}

/// The headers of a stored value.
pub(super) fn headers_of<K, V>(
    place: &Place<K, V>,
    stored: StoredValue<'_>,
) -> Result<Headers, ContextError> {
    let headers = read_headers(stored.headers).map_err(|damage| {
        let store = place.name.to_string();
        ContextError::Store { source: StoreError::DamagedRow { store, damage } }
    })?;
    Ok(headers.into_iter().collect())
}

/// A stored value with its timestamp and headers.
pub(super) fn with_headers<K, V>(
    place: &Place<K, V>,
    stored: StoredValue<'_>,
) -> Result<ValueTimestampHeaders<V>, ContextError> {
    Ok(ValueTimestampHeaders {
        value: place.value(stored.value)?,
        timestamp: stored.timestamp.unwrap_or(-1),
        headers: headers_of(place, stored)?,
    })
}

impl<K, V> fmt::Debug for TimestampedKeyValueStoreWithHeaders<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimestampedKeyValueStoreWithHeaders").field(&self.place.name).finish()
    }
}
