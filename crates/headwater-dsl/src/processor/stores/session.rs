//! Values by key and session.

use std::fmt;

use headwater_runtime::Headers;
use headwater_store::serde::{Window, Windowed};
use headwater_store::{Direction, QueriedKeys, SegmentedQuery, StoredValue};

use super::Place;
use super::segmented::{Found, SegmentedPlace};
use super::window::{WindowedEntries, entries};
use super::with_headers::headers_of;
use crate::processor::{ContextError, ProcessingContext};

/// The methods that look for sessions, the same for both kinds of stores.
macro_rules! finds {
    ($entries:ident) => {
        /// The sessions of a key that end at `earliest_end` or later and begin at `latest_start` or earlier, by their
        /// ends, the earliest first.
        ///
        /// # Errors
        /// If the key cannot be written.
        pub fn find_sessions(
            &self,
            context: &ProcessingContext<'_, '_>,
            key: &K,
            earliest_end: i64,
            latest_start: i64,
        ) -> Result<$entries<K, V>, ContextError> {
            let keys = QueriedKeys::One(self.segmented.key(key)?);
            Ok(self.find(context, keys, (earliest_end, latest_start), Direction::Forward))
        }

        /// As [`find_sessions`](Self::find_sessions), the latest first.
        ///
        /// # Errors
        /// As for [`find_sessions`](Self::find_sessions).
        pub fn backward_find_sessions(
            &self,
            context: &ProcessingContext<'_, '_>,
            key: &K,
            earliest_end: i64,
            latest_start: i64,
        ) -> Result<$entries<K, V>, ContextError> {
            let keys = QueriedKeys::One(self.segmented.key(key)?);
            Ok(self.find(context, keys, (earliest_end, latest_start), Direction::Reverse))
        }

        /// As [`find_sessions`](Self::find_sessions) for the keys from one to another, both included and `None` meaning
        /// open: by segment of time and then by the bytes of the keys; of a store in memory by the sessions' ends, as
        /// in Kafka Streams.
        ///
        /// # Errors
        /// If a key cannot be written.
        pub fn find_sessions_of_keys(
            &self,
            context: &ProcessingContext<'_, '_>,
            (key_from, key_to): (Option<&K>, Option<&K>),
            earliest_end: i64,
            latest_start: i64,
        ) -> Result<$entries<K, V>, ContextError> {
            let keys = self.segmented.keys(key_from, key_to)?;
            Ok(self.find(context, keys, (earliest_end, latest_start), Direction::Forward))
        }

        /// As [`find_sessions_of_keys`](Self::find_sessions_of_keys), in the opposite order.
        ///
        /// # Errors
        /// As for [`find_sessions_of_keys`](Self::find_sessions_of_keys).
        pub fn backward_find_sessions_of_keys(
            &self,
            context: &ProcessingContext<'_, '_>,
            (key_from, key_to): (Option<&K>, Option<&K>),
            earliest_end: i64,
            latest_start: i64,
        ) -> Result<$entries<K, V>, ContextError> {
            let keys = self.segmented.keys(key_from, key_to)?;
            Ok(self.find(context, keys, (earliest_end, latest_start), Direction::Reverse))
        }

        /// All sessions of a key, by their ends, the earliest first.
        ///
        /// # Errors
        /// If the key cannot be written.
        pub fn fetch(
            &self,
            context: &ProcessingContext<'_, '_>,
            key: &K,
        ) -> Result<$entries<K, V>, ContextError> {
            self.find_sessions(context, key, 0, i64::MAX)
        }

        /// As [`fetch`](Self::fetch), the latest first.
        ///
        /// # Errors
        /// As for [`fetch`](Self::fetch).
        pub fn backward_fetch(
            &self,
            context: &ProcessingContext<'_, '_>,
            key: &K,
        ) -> Result<$entries<K, V>, ContextError> {
            self.backward_find_sessions(context, key, 0, i64::MAX)
        }

        fn find(
            &self,
            context: &ProcessingContext<'_, '_>,
            keys: QueriedKeys,
            (from, to): (i64, i64),
            direction: Direction,
        ) -> $entries<K, V> {
            let query = SegmentedQuery { keys, from, to };
            $entries(self.segmented.find(context, query, direction))
        }
    };
}

/// Values by key and session, as a processor uses them (feature rows P5, P32). Get one with
/// [`ProcessingContext::session_store`](crate::ProcessingContext::session_store) and keep it.
///
/// A session is known by its start and its end, both of which belong to it. All times are milliseconds since the
/// Unix epoch. What ended longer ago than the store's retention, by the newest session that was put, is not found
/// any more.
///
/// ```
/// use headwater_dsl::{ContextError, ProcessingContext, SessionStore};
///
/// /// How many sessions of a visitor touch the ten minutes before a time.
/// fn sessions(
///     visits: &SessionStore<String, i64>,
///     context: &mut ProcessingContext<'_, '_>,
///     visitor: &String,
///     time: i64,
/// ) -> Result<usize, ContextError> {
///     let mut count = 0;
///     let mut sessions = visits.find_sessions(context, visitor, time - 600_000, time)?;
///     while sessions.next(context)?.is_some() {
///         count += 1;
///     }
///     Ok(count)
/// }
/// ```
pub struct SessionStore<K, V> {
    segmented: SegmentedPlace<K, V>,
}

impl<K, V> SessionStore<K, V> {
    pub(in crate::processor) fn new(
        place: Place<K, V>,
        context: &ProcessingContext<'_, '_>,
    ) -> Self {
        Self { segmented: SegmentedPlace::new(place, context, 0) }
    }

    /// Gives a key a value for a session. One that is older than the store's retention is dropped and counted.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn put(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        session: Window,
        value: &V,
    ) -> Result<(), ContextError> {
        let timestamp = context.timestamp;
        self.segmented.write(context, (key, session), Some(value), timestamp)
    }

    /// Removes a session of a key.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn remove(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        session: Window,
    ) -> Result<(), ContextError> {
        let timestamp = context.timestamp;
        self.segmented.write(context, (key, session), None, timestamp)
    }

    /// The value of a key for exactly this session.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn fetch_session(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        session: Window,
    ) -> Result<Option<V>, ContextError> {
        self.segmented.read(context, (key, session), |place, stored| place.value(stored.value))
    }

    finds!(WindowedEntries);
}

/// A value and its headers (`AggregationWithHeaders`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AggregationWithHeaders<V> {
    /// The value.
    pub aggregation: V,
    /// The headers.
    pub headers: Headers,
}

/// Values with headers by key and session, as a processor uses them (KIP-1271). Get one with
/// [`ProcessingContext::session_store_with_headers`](crate::ProcessingContext::session_store_with_headers) and keep it.
///
/// Times are those of [`SessionStore`].
///
/// ```
/// use headwater_dsl::{ContextError, ProcessingContext, SessionStoreWithHeaders};
/// use headwater_store::serde::Window;
///
/// /// Keeps what a session comes to, with the headers of the record that it comes from.
/// fn keep(
///     visits: &SessionStoreWithHeaders<String, i64>,
///     context: &mut ProcessingContext<'_, '_>,
///     (visitor, pages): (&String, &i64),
///     session: Window,
/// ) -> Result<(), ContextError> {
///     let headers = context.headers().clone();
///     visits.put(context, visitor, session, pages, &headers)
/// }
/// ```
pub struct SessionStoreWithHeaders<K, V> {
    segmented: SegmentedPlace<K, V>,
}

impl<K, V> SessionStoreWithHeaders<K, V> {
    pub(in crate::processor) fn new(
        place: Place<K, V>,
        context: &ProcessingContext<'_, '_>,
    ) -> Self {
        Self { segmented: SegmentedPlace::new(place, context, 0) }
    }

    /// Gives a key a value with headers for a session; the changelog has them in its record. One that is older than the
    /// store's retention is dropped and counted.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn put(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        session: Window,
        value: &V,
        headers: &Headers,
    ) -> Result<(), ContextError> {
        let timestamp = context.timestamp;
        let value = (Some(value), Some(headers));
        self.segmented.write_with(context, (key, session), value, timestamp)
    }

    /// Removes a session of a key. The changelog record has the headers of the record that is being processed.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn remove(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        session: Window,
    ) -> Result<(), ContextError> {
        let timestamp = context.timestamp;
        self.segmented.write(context, (key, session), None, timestamp)
    }

    /// The value of a key for exactly this session, with its headers.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn fetch_session(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        session: Window,
    ) -> Result<Option<AggregationWithHeaders<V>>, ContextError> {
        self.segmented.read(context, (key, session), aggregation_with_headers)
    }

    finds!(SessionEntriesWithHeaders);
}

fn aggregation_with_headers<K, V>(
    place: &Place<K, V>,
    stored: StoredValue<'_>,
) -> Result<AggregationWithHeaders<V>, ContextError> {
    let headers = headers_of(place, stored)?;
    Ok(AggregationWithHeaders { aggregation: place.value(stored.value)?, headers })
}

entries!(
    /// Each key, its session, its value and its headers; read as they are asked for, while the store may be written.
    SessionEntriesWithHeaders, (Windowed<K>, AggregationWithHeaders<V>), |windowed| windowed,
    aggregation_with_headers
);

impl<K, V> fmt::Debug for SessionStoreWithHeaders<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionStoreWithHeaders").field(&self.segmented.place.name).finish()
    }
}

impl<K, V> fmt::Debug for SessionStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionStore").field(&self.segmented.place.name).finish()
    }
}
