//! What the stores of windows and of sessions have in common.

use std::sync::Arc;

use headwater_runtime::{Headers, SegmentedCursor};
use headwater_store::serde::{Payload, Window, Windowed};
use headwater_store::{
    Direction, QueriedKeys, SegmentedEntry, SegmentedOptions, SegmentedQuery, StoredValue,
};

use super::Place;
use crate::processor::{ContextError, ProcessingContext};

/// A store of windows or sessions, its place and its options.
pub(super) struct SegmentedPlace<K, V> {
    pub(super) place: Place<K, V>,
    options: SegmentedOptions,
    /// Of windows; sessions are as long as they are.
    window_size_ms: i64,
}

impl<K, V> Clone for SegmentedPlace<K, V> {
    fn clone(&self) -> Self {
        let Self { options, window_size_ms, .. } = *self;
        Self { place: self.place.clone(), options, window_size_ms }
    }
}

impl<K, V> SegmentedPlace<K, V> {
    pub(super) fn new(
        place: Place<K, V>,
        context: &ProcessingContext<'_, '_>,
        window_size_ms: i64,
    ) -> Self {
        let options = context.cx.segmented_options(place.slot);
        Self { place, options, window_size_ms }
    }

    /// Runs `ask` with the key of an entry, its segment in front.
    fn with_stored_key<T>(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        (key, window): (&K, Window),
        ask: impl FnOnce(&mut ProcessingContext<'_, '_>, &mut [u8]) -> Result<T, ContextError>,
    ) -> Result<T, ContextError> {
        let mut stored_key = context.cx.take_buffer();
        let SegmentedOptions { kind, .. } = self.options;
        self.options.push_stored_key(kind.time(window), &[], &mut stored_key);
        let result = match self.place.key.serialize(key, &mut stored_key) {
            Ok(()) => {
                kind.push_times(window, &mut stored_key);
                ask(context, &mut stored_key)
            }
            Err(error) => Err(self.place.serde_error(error)),
        };
        context.cx.give_buffer(stored_key);
        result
    }

    /// Reads the value of an entry.
    pub(super) fn read<T>(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        (key, window): (&K, Window),
        read: impl FnOnce(&Place<K, V>, StoredValue<'_>) -> Result<T, ContextError>,
    ) -> Result<Option<T>, ContextError> {
        let Self { place, .. } = self;
        self.with_stored_key(context, (key, window), |context, stored_key| {
            let mut found = Ok(None);
            let time = self.options.kind.time(window);
            let asked = context.cx.get_segmented(place.slot, stored_key, time).map(|stored| {
                if let Some(stored) = stored
                    && !place.value.is_null(stored.value)
                {
                    found = read(place, stored).map(Some);
                }
            });
            context.note(asked)?;
            found
        })
    }

    /// Gives an entry a value, or removes it.
    pub(super) fn write(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        entry: (&K, Window),
        value: Option<&V>,
        timestamp: i64,
    ) -> Result<(), ContextError> {
        self.write_with(context, entry, (value, None), timestamp)
    }

    /// As [`write`](Self::write), with headers for a store that keeps them.
    pub(super) fn write_with(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        entry: (&K, Window),
        (value, headers): (Option<&V>, Option<&Headers>),
        timestamp: i64,
    ) -> Result<(), ContextError> {
        let Self { place, .. } = self;
        if place.is_read_only {
            return Err(ContextError::ReadOnly { store: Arc::clone(&place.name) });
        }
        let time = self.options.kind.time(entry.1);
        let mut bytes = context.cx.take_buffer();
        let serialized = value.map(|value| place.value.serialize(value, &mut bytes)).transpose();
        let result = match serialized {
            Ok(written) => self.with_stored_key(context, entry, |context, stored_key| {
                let value = written.map(|()| bytes.as_slice());
                let ProcessingContext { cx, .. } = context;
                let slot = place.slot;
                let put = match (value, headers) {
                    (Some(value), Some(headers)) => {
                        let value = (value, headers);
                        cx.put_segmented_with_headers(slot, stored_key, time, value, timestamp)
                    }
                    (value, _) if self.options.duplicates => {
                        cx.put_duplicate(slot, stored_key, time, value, timestamp)
                    }
                    (value, _) => cx.put_segmented(slot, stored_key, time, value, timestamp),
                };
                Ok(context.note(put)?)
            }),
            Err(error) => Err(place.serde_error(error)),
        };
        context.cx.give_buffer(bytes);
        result
    }

    /// The bytes of a key.
    pub(super) fn key(&self, key: &K) -> Result<Vec<u8>, ContextError> {
        let mut bytes = Vec::new();
        let written = self.place.key.serialize(key, &mut bytes);
        written.map_err(|error| self.place.serde_error(error))?;
        Ok(bytes)
    }

    /// The keys from one to another.
    pub(super) fn keys(
        &self,
        from: Option<&K>,
        to: Option<&K>,
    ) -> Result<QueriedKeys, ContextError> {
        let bytes = |key: Option<&K>| key.map(|key| self.key(key)).transpose();
        Ok(QueriedKeys::Between(bytes(from)?, bytes(to)?))
    }

    /// Starts to look for entries.
    pub(super) fn find(
        &self,
        context: &ProcessingContext<'_, '_>,
        query: SegmentedQuery,
        direction: Direction,
    ) -> Found<K, V> {
        let cursor = context.cx.find_segmented(self.place.slot, query, direction);
        Found { place: self.clone(), cursor, entry: SegmentedEntry::default() }
    }
}

/// A key with its window, and its value.
type WindowedEntry<K, T> = (Windowed<K>, T);

/// A place in the entries that were looked for.
pub(super) struct Found<K, V> {
    place: SegmentedPlace<K, V>,
    cursor: SegmentedCursor,
    entry: SegmentedEntry,
}

impl<K, V> Found<K, V> {
    /// The next entry whose value is no form of null: its window, and its key and value.
    pub(super) fn next<T>(
        &mut self,
        context: &mut ProcessingContext<'_, '_>,
        read: impl Fn(&Place<K, V>, StoredValue<'_>) -> Result<T, ContextError>,
    ) -> Result<Option<WindowedEntry<K, T>>, ContextError> {
        let Self { place: SegmentedPlace { place, options, window_size_ms }, cursor, entry } = self;
        loop {
            let found = context.cx.next_segmented(cursor, entry);
            if !context.note(found)? {
                return Ok(None);
            }
            if place.value.is_null(&entry.value) {
                continue;
            }
            let read_key = options.kind.read_key(entry.key(), *window_size_ms);
            let Some((key, window)) = read_key else { continue };
            let key = place.key.deserialize(Payload::new(key));
            let key = key.map_err(|error| place.serde_error(error))?;
            let stored = StoredValue {
                timestamp: options.timestamped.then_some(entry.timestamp),
                headers: &entry.headers,
                value: &entry.value,
            };
            return Ok(Some((Windowed { key, window }, read(place, stored)?)));
        }
    }
}
