//! Stores as processors use them.

use std::sync::Arc;

use headwater_runtime::{Headers, StoreCursor, StoreSlot};
use headwater_store::serde::{Payload, SerdeError};
use headwater_store::{Direction, KeyRange, StoredValue};

use super::context::ProcessingContext;
use super::error::ContextError;
use crate::serdes::Codec;

mod key_value;
mod segmented;
mod session;
mod timestamped;
mod versioned;
mod window;
mod with_headers;

pub use key_value::{KeyValueEntries, KeyValueStore};
pub use session::{
    AggregationWithHeaders, SessionEntriesWithHeaders, SessionStore, SessionStoreWithHeaders,
};
pub use timestamped::{TimestampedKeyValueEntries, TimestampedKeyValueStore};
pub use versioned::VersionedKeyValueStore;
pub use window::{
    TimestampedWindowEntries, TimestampedWindowStore, TimestampedWindowStoreWithHeaders,
    TimestampedWindowedEntries, WindowEntries, WindowEntriesWithHeaders, WindowStore,
    WindowedEntries, WindowedEntriesWithHeaders,
};
pub use with_headers::{TimestampedKeyValueStoreWithHeaders, ValueTimestampHeaders};

/// A store's place in the task, and its serdes.
pub(super) struct Place<K, V> {
    pub(super) name: Arc<str>,
    pub(super) slot: StoreSlot,
    pub(super) key: Codec<K>,
    pub(super) value: Codec<V>,
    /// A global store, as tasks have it.
    pub(super) is_read_only: bool,
}

impl<K, V> Clone for Place<K, V> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            slot: self.slot,
            key: Arc::clone(&self.key),
            value: Arc::clone(&self.value),
            is_read_only: self.is_read_only,
        }
    }
}

/// What is to be written under a key.
#[derive(Debug)]
enum New<'v, V> {
    Deleted,
    Value(&'v V),
    WithHeaders(&'v V, &'v Headers),
}

impl<K, V> Place<K, V> {
    fn serde_error(&self, source: SerdeError) -> ContextError {
        ContextError::Serde { store: Arc::clone(&self.name), source }
    }

    /// Serialises a key and runs `ask` with its bytes.
    fn with_key<T>(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        ask: impl FnOnce(&mut ProcessingContext<'_, '_>, &[u8]) -> Result<T, ContextError>,
    ) -> Result<T, ContextError> {
        let mut bytes = context.cx.take_buffer();
        let result = match self.key.serialize(key, &mut bytes) {
            Ok(()) => ask(context, &bytes),
            Err(error) => Err(self.serde_error(error)),
        };
        context.cx.give_buffer(bytes);
        result
    }

    /// Reads the stored value of a key; one that is a form of null counts as none.
    fn read<T>(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        read: impl FnOnce(StoredValue<'_>) -> Result<T, ContextError>,
    ) -> Result<Option<T>, ContextError> {
        self.with_key(context, key, |context, key| {
            let mut found = Ok(None);
            let asked = context.cx.get_value(self.slot, key).map(|stored| {
                if let Some(stored) = stored
                    && !self.value.is_null(stored.value)
                {
                    found = read(stored).map(Some);
                }
            });
            context.note(asked)?;
            found
        })
    }

    /// A value from its bytes.
    fn value(&self, bytes: &[u8]) -> Result<V, ContextError> {
        let value = self.value.deserialize(Payload::new(bytes));
        value.map_err(|error| self.serde_error(error))
    }

    fn write(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        new: New<'_, V>,
        timestamp: i64,
    ) -> Result<(), ContextError> {
        self.with_value(context, key, new.value(), |context, key, value| {
            let put = match (new, value) {
                (New::WithHeaders(_, headers), Some(value)) => {
                    context.cx.put_with_headers(self.slot, key, (value, headers), timestamp)
                }
                _ => context.cx.put(self.slot, key, value, timestamp),
            };
            Ok(context.note(put)?)
        })
    }

    /// Serialises a key and a value and runs `put` with their bytes.
    fn with_value<T>(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        value: Option<&V>,
        put: impl FnOnce(
            &mut ProcessingContext<'_, '_>,
            &[u8],
            Option<&[u8]>,
        ) -> Result<T, ContextError>,
    ) -> Result<T, ContextError> {
        if self.is_read_only {
            return Err(ContextError::ReadOnly { store: Arc::clone(&self.name) });
        }
        self.with_key(context, key, |context, key| {
            let Some(value) = value else { return put(context, key, None) };
            let mut bytes = context.cx.take_buffer();
            let result = match self.value.serialize(value, &mut bytes) {
                Ok(()) => put(context, key, Some(&bytes)),
                Err(error) => Err(self.serde_error(error)),
            };
            context.cx.give_buffer(bytes);
            result
        })
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

impl<V> Clone for New<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for New<'_, V> {}

impl<'v, V> New<'v, V> {
    const fn value(self) -> Option<&'v V> {
        match self {
            Self::Deleted => None,
            Self::Value(value) | Self::WithHeaders(value, _) => Some(value),
        }
    }
}

/// A place in the entries of a store.
struct Entries<K, V> {
    place: Place<K, V>,
    cursor: StoreCursor,
}

impl<K, V> Entries<K, V> {
    fn new(
        place: &Place<K, V>,
        context: &ProcessingContext<'_, '_>,
        range: KeyRange,
        direction: Direction,
    ) -> Self {
        let cursor = context.cx.range(place.slot, range, direction);
        Self { place: place.clone(), cursor }
    }

    /// The next entry whose value is no form of null.
    fn next<T>(
        &mut self,
        context: &mut ProcessingContext<'_, '_>,
        read: impl Fn(&Place<K, V>, StoredValue<'_>) -> Result<T, ContextError>,
    ) -> Result<Option<(K, T)>, ContextError> {
        let Self { place, cursor } = self;
        loop {
            let mut found = Ok(None);
            let asked = context.cx.next_value(cursor).map(|entry| {
                let Some((key, stored)) = entry else { return false };
                let is_null = place.value.is_null(stored.value);
                if !is_null {
                    let key = place.key.deserialize(Payload::new(key));
                    found = key
                        .map_err(|error| place.serde_error(error))
                        .and_then(|key| Ok(Some((key, read(place, stored)?))));
                }
                is_null
            });
            let goes_on = context.note(asked)?;
            if !goes_on {
                return found;
            }
        }
    }
}

/// The methods that read ranges, the same for all stores of values by key.
macro_rules! ranges {
    ($entries:ident) => {
        /// All entries in the order of the keys' bytes.
        pub fn all(&self, context: &ProcessingContext<'_, '_>) -> $entries<K, V> {
            $entries::new(&self.place, context, KeyRange::all(), Direction::Forward)
        }

        /// All entries in the opposite order.
        pub fn reverse_all(&self, context: &ProcessingContext<'_, '_>) -> $entries<K, V> {
            $entries::new(&self.place, context, KeyRange::all(), Direction::Reverse)
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
        ) -> Result<$entries<K, V>, ContextError> {
            let range = self.place.bounds(from, to)?;
            Ok($entries::new(&self.place, context, range, Direction::Forward))
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
        ) -> Result<$entries<K, V>, ContextError> {
            let range = self.place.bounds(from, to)?;
            Ok($entries::new(&self.place, context, range, Direction::Reverse))
        }

        /// The entries whose keys' bytes begin with those of `prefix`, in the order of the keys' bytes.
        ///
        /// # Errors
        /// If the prefix cannot be written.
        pub fn prefix_scan<P: ?Sized>(
            &self,
            context: &ProcessingContext<'_, '_>,
            prefix: &P,
            prefix_serializer: &impl Serializer<P>,
        ) -> Result<$entries<K, V>, ContextError> {
            let mut bytes = Vec::new();
            let written = prefix_serializer.serialize(prefix, &mut bytes);
            written.map_err(|error| self.place.serde_error(error))?;
            let range = KeyRange::prefix(&bytes);
            Ok($entries::new(&self.place, context, range, Direction::Forward))
        }

        /// About how many entries there are.
        ///
        /// # Errors
        /// If the store cannot be read.
        pub fn approximate_num_entries(
            &self,
            context: &mut ProcessingContext<'_, '_>,
        ) -> Result<u64, ContextError> {
            let counted = context.cx.approximate_entries(self.place.slot);
            Ok(context.note(counted)?)
        }
    };
}

use ranges;
