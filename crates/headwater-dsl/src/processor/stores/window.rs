//! Values by key and window.

use std::fmt;

use headwater_runtime::Headers;
use headwater_store::serde::{Window, Windowed};
use headwater_store::{Direction, QueriedKeys, SegmentedQuery, ValueAndTimestamp};

use super::Place;
use super::segmented::{Found, SegmentedPlace};
use super::timestamped::with_timestamp;
use super::with_headers::{ValueTimestampHeaders, with_headers};
use crate::processor::{ContextError, ProcessingContext};

/// The methods that look for windows, the same for both kinds of stores.
macro_rules! fetches {
    ($entries:ident, $windowed:ident) => {
        /// The values of a key in the windows that begin from `from` to `to`, the earliest first.
        ///
        /// # Errors
        /// If the key cannot be written.
        pub fn fetch(
            &self,
            context: &ProcessingContext<'_, '_>,
            key: &K,
            from: i64,
            to: i64,
        ) -> Result<$entries<K, V>, ContextError> {
            let keys = QueriedKeys::One(self.segmented.key(key)?);
            Ok($entries(self.find(context, keys, (from, to), Direction::Forward)))
        }

        /// As [`fetch`](Self::fetch), the latest first.
        ///
        /// # Errors
        /// As for [`fetch`](Self::fetch).
        pub fn backward_fetch(
            &self,
            context: &ProcessingContext<'_, '_>,
            key: &K,
            from: i64,
            to: i64,
        ) -> Result<$entries<K, V>, ContextError> {
            let keys = QueriedKeys::One(self.segmented.key(key)?);
            Ok($entries(self.find(context, keys, (from, to), Direction::Reverse)))
        }

        /// The values of the keys from `key_from` to `key_to`, both included and `None` meaning open, in the windows
        /// that begin from `from` to `to`: by segment of time and then by the bytes of the keys; of a store in
        /// memory by window and then by key, as in Kafka Streams.
        ///
        /// # Errors
        /// If a key cannot be written.
        pub fn fetch_keys(
            &self,
            context: &ProcessingContext<'_, '_>,
            (key_from, key_to): (Option<&K>, Option<&K>),
            from: i64,
            to: i64,
        ) -> Result<$windowed<K, V>, ContextError> {
            let keys = self.segmented.keys(key_from, key_to)?;
            Ok($windowed(self.find(context, keys, (from, to), Direction::Forward)))
        }

        /// As [`fetch_keys`](Self::fetch_keys), in the opposite order.
        ///
        /// # Errors
        /// As for [`fetch_keys`](Self::fetch_keys).
        pub fn backward_fetch_keys(
            &self,
            context: &ProcessingContext<'_, '_>,
            (key_from, key_to): (Option<&K>, Option<&K>),
            from: i64,
            to: i64,
        ) -> Result<$windowed<K, V>, ContextError> {
            let keys = self.segmented.keys(key_from, key_to)?;
            Ok($windowed(self.find(context, keys, (from, to), Direction::Reverse)))
        }

        /// The values of all keys in the windows that begin from `from` to `to`, in the order of
        /// [`fetch_keys`](Self::fetch_keys).
        pub fn fetch_all(
            &self,
            context: &ProcessingContext<'_, '_>,
            from: i64,
            to: i64,
        ) -> $windowed<K, V> {
            $windowed(self.find(context, QueriedKeys::all(), (from, to), Direction::Forward))
        }

        /// As [`fetch_all`](Self::fetch_all), in the opposite order.
        pub fn backward_fetch_all(
            &self,
            context: &ProcessingContext<'_, '_>,
            from: i64,
            to: i64,
        ) -> $windowed<K, V> {
            $windowed(self.find(context, QueriedKeys::all(), (from, to), Direction::Reverse))
        }

        /// All values, in the order of [`fetch_keys`](Self::fetch_keys).
        pub fn all(&self, context: &ProcessingContext<'_, '_>) -> $windowed<K, V> {
            self.fetch_all(context, 0, i64::MAX)
        }

        /// All values, in the opposite order.
        pub fn backward_all(&self, context: &ProcessingContext<'_, '_>) -> $windowed<K, V> {
            self.backward_fetch_all(context, 0, i64::MAX)
        }

        fn find(
            &self,
            context: &ProcessingContext<'_, '_>,
            keys: QueriedKeys,
            (from, to): (i64, i64),
            direction: Direction,
        ) -> Found<K, V> {
            self.segmented.find(context, SegmentedQuery { keys, from, to }, direction)
        }
    };
}

/// Values by key and window, as a processor uses them (feature rows P5, P32). Get one with
/// [`ProcessingContext::window_store`](crate::ProcessingContext::window_store) and keep it.
///
/// A window is known by its start. All times are milliseconds since the Unix epoch. What is older than the store's
/// retention, by the newest window that was put, is not found any more.
///
/// ```
/// use headwater_dsl::{ContextError, ProcessingContext, WindowStore};
///
/// /// How much a customer has spent in the last three hours, each of which is a window.
/// fn spent(
///     by_hour: &WindowStore<String, i64>,
///     context: &mut ProcessingContext<'_, '_>,
///     customer: &String,
///     now: i64,
/// ) -> Result<i64, ContextError> {
///     let mut sum = 0;
///     let mut hours = by_hour.fetch(context, customer, now - 3 * 3_600_000, now)?;
///     while let Some((_, amount)) = hours.next(context)? {
///         sum += amount;
///     }
///     Ok(sum)
/// }
/// ```
pub struct WindowStore<K, V> {
    segmented: SegmentedPlace<K, V>,
}

/// Values with timestamps by key and window, as a processor uses them; windowed tables are kept in such stores.
/// Get one with
/// [`ProcessingContext::timestamped_window_store`](crate::ProcessingContext::timestamped_window_store) and keep it.
///
/// Times are those of [`WindowStore`].
pub struct TimestampedWindowStore<K, V> {
    segmented: SegmentedPlace<K, V>,
}

/// Values with timestamps and headers by key and window, as a processor uses them (KIP-1271). Get one with
/// [`ProcessingContext::timestamped_window_store_with_headers`](crate::ProcessingContext::timestamped_window_store_with_headers)
/// and keep it.
///
/// Times are those of [`WindowStore`].
///
/// ```
/// use headwater_dsl::{ContextError, ProcessingContext, TimestampedWindowStoreWithHeaders};
///
/// /// Keeps the last amount of each hour with the headers that it came with.
/// fn keep(
///     by_hour: &TimestampedWindowStoreWithHeaders<String, i64>,
///     context: &mut ProcessingContext<'_, '_>,
///     (customer, amount): (&String, &i64),
///     timestamp: i64,
/// ) -> Result<(), ContextError> {
///     let headers = context.headers().clone();
///     let hour = timestamp - timestamp % 3_600_000;
///     by_hour.put(context, customer, (amount, &headers), (timestamp, hour))
/// }
/// ```
pub struct TimestampedWindowStoreWithHeaders<K, V> {
    segmented: SegmentedPlace<K, V>,
}

impl<K, V> WindowStore<K, V> {
    pub(in crate::processor) fn new(
        place: Place<K, V>,
        context: &ProcessingContext<'_, '_>,
        window_size_ms: i64,
    ) -> Self {
        Self { segmented: SegmentedPlace::new(place, context, window_size_ms) }
    }

    /// Gives a key a value in the window that begins at `window_start`; in a store that retains duplicates one more.
    /// A window that is older than the store's retention is dropped and counted.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn put(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        value: &V,
        window_start: i64,
    ) -> Result<(), ContextError> {
        self.write(context, key, Some(value), window_start)
    }

    /// Removes a key's value of a window. A store that retains duplicates keeps all it has, as in Kafka Streams.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn delete(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        window_start: i64,
    ) -> Result<(), ContextError> {
        self.write(context, key, None, window_start)
    }

    fn write(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        value: Option<&V>,
        window_start: i64,
    ) -> Result<(), ContextError> {
        let timestamp = context.timestamp;
        self.segmented.write(context, (key, beginning(window_start)), value, timestamp)
    }

    /// The value of a key in the window that begins at `window_start`. A store that retains duplicates answers this
    /// question with nothing, as in Kafka Streams: ask for a [span](Self::fetch).
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn fetch_one(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        window_start: i64,
    ) -> Result<Option<V>, ContextError> {
        self.segmented.read(context, (key, beginning(window_start)), |place, stored| {
            place.value(stored.value)
        })
    }

    fetches!(WindowEntries, WindowedEntries);
}

impl<K, V> TimestampedWindowStore<K, V> {
    pub(in crate::processor) fn new(
        place: Place<K, V>,
        context: &ProcessingContext<'_, '_>,
        window_size_ms: i64,
    ) -> Self {
        Self { segmented: SegmentedPlace::new(place, context, window_size_ms) }
    }

    /// Gives a key a value with a timestamp in the window that begins at `window_start`. A window that is older than
    /// the store's retention is dropped and counted.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn put(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        value: &V,
        (timestamp, window_start): (i64, i64),
    ) -> Result<(), ContextError> {
        let entry = (key, beginning(window_start));
        self.segmented.write(context, entry, Some(value), timestamp)
    }

    /// Removes a key's value of a window.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn delete(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        window_start: i64,
    ) -> Result<(), ContextError> {
        let timestamp = context.timestamp;
        self.segmented.write(context, (key, beginning(window_start)), None, timestamp)
    }

    /// The value of a key in the window that begins at `window_start`, with its timestamp.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn fetch_one(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        window_start: i64,
    ) -> Result<Option<ValueAndTimestamp<V>>, ContextError> {
        self.segmented.read(context, (key, beginning(window_start)), with_timestamp)
    }

    fetches!(TimestampedWindowEntries, TimestampedWindowedEntries);
}

impl<K, V> TimestampedWindowStoreWithHeaders<K, V> {
    pub(in crate::processor) fn new(
        place: Place<K, V>,
        context: &ProcessingContext<'_, '_>,
        window_size_ms: i64,
    ) -> Self {
        Self { segmented: SegmentedPlace::new(place, context, window_size_ms) }
    }

    /// Gives a key a value with a timestamp and headers in the window that begins at `window_start`; the changelog has
    /// them in its record. A window that is older than the store's retention is dropped and counted.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn put(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        (value, headers): (&V, &Headers),
        (timestamp, window_start): (i64, i64),
    ) -> Result<(), ContextError> {
        let entry = (key, beginning(window_start));
        self.segmented.write_with(context, entry, (Some(value), Some(headers)), timestamp)
    }

    /// Removes a key's value of a window. The changelog record has the headers of the record that is being processed.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn delete(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        window_start: i64,
    ) -> Result<(), ContextError> {
        let timestamp = context.timestamp;
        self.segmented.write(context, (key, beginning(window_start)), None, timestamp)
    }

    /// The value of a key in the window that begins at `window_start`, with its timestamp and headers.
    ///
    /// # Errors
    /// See [`KeyValueStore::get`](crate::KeyValueStore::get).
    pub fn fetch_one(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        window_start: i64,
    ) -> Result<Option<ValueTimestampHeaders<V>>, ContextError> {
        self.segmented.read(context, (key, beginning(window_start)), with_headers)
    }

    fetches!(WindowEntriesWithHeaders, WindowedEntriesWithHeaders);
}

/// A window of which only the start is of interest.
const fn beginning(start: i64) -> Window {
    Window { start, end: start }
}

/// Entries that were looked for, read as they are asked for; the store may be written in between.
macro_rules! entries {
    ($(#[$doc:meta])* $name:ident, $item:ty, |$windowed:ident| $shown:expr, $read:expr) => {
        $(#[$doc])*
        pub struct $name<K, V>(pub(super) Found<K, V>);

        impl<K, V> $name<K, V> {
            /// The next entry.
            ///
            /// # Errors
            /// If the key or value cannot be read, or the task cannot go on.
            pub fn next(
                &mut self,
                context: &mut ProcessingContext<'_, '_>,
            ) -> Result<Option<$item>, ContextError> {
                let found = self.0.next(context, $read)?;
                Ok(found.map(|($windowed, value)| ($shown, value)))
            }
        }

        impl<K, V> fmt::Debug for $name<K, V> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

pub(super) use entries;

entries!(
    /// The start of each window and its value, of one key; read as they are asked for, while the store may be
    /// written.
    WindowEntries, (i64, V), |windowed| windowed.window.start,
    |place, stored| place.value(stored.value)
);
entries!(
    /// Each key, its window and its value; read as they are asked for, while the store may be written.
    WindowedEntries, (Windowed<K>, V), |windowed| windowed,
    |place, stored| place.value(stored.value)
);
entries!(
    /// As [`WindowEntries`], with timestamps.
    TimestampedWindowEntries, (i64, ValueAndTimestamp<V>), |windowed| windowed.window.start,
    with_timestamp
);
entries!(
    /// As [`WindowedEntries`], with timestamps.
    TimestampedWindowedEntries, (Windowed<K>, ValueAndTimestamp<V>), |windowed| windowed,
    with_timestamp
);

entries!(
    /// As [`WindowEntries`], with timestamps and headers.
    WindowEntriesWithHeaders, (i64, ValueTimestampHeaders<V>), |windowed| windowed.window.start,
    with_headers
);
entries!(
    /// As [`WindowedEntries`], with timestamps and headers.
    WindowedEntriesWithHeaders, (Windowed<K>, ValueTimestampHeaders<V>), |windowed| windowed,
    with_headers
);

impl<K, V> fmt::Debug for TimestampedWindowStoreWithHeaders<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimestampedWindowStoreWithHeaders")
            .field(&self.segmented.place.name)
            .finish()
    }
}

impl<K, V> fmt::Debug for WindowStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WindowStore").field(&self.segmented.place.name).finish()
    }
}

impl<K, V> fmt::Debug for TimestampedWindowStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimestampedWindowStore").field(&self.segmented.place.name).finish()
    }
}
