//! Stores whose entries are more than a key and a value: with headers, of limited size, with history.

use headwater_records::{Header, Record};
use headwater_store::{
    Layout, StoreError, StoredValue, VersionedPut, VersionedRecord, push_headers, read_headers,
};

use super::{Cx, StoreCursor, borrow_headers};
use crate::process::store::{Keeper, RecordContext, TaskStore, unreadable};
use crate::process::{DropReason, Headers, StoreSlot, TaskError};

/// A key and its value, taken out of the store's layout.
pub type StoredEntry<'s> = (&'s [u8], StoredValue<'s>);

/// A version of a value, as bytes.
pub type StoredVersion<'s> = VersionedRecord<&'s [u8]>;

/// # Stores of other layouts
impl Cx<'_> {
    /// The value of a key, taken out of the store's layout; of a versioned store the latest one. Bytes
    /// without timestamp have none, as everywhere in such a store.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    #[inline]
    pub fn get_value(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
    ) -> Result<Option<StoredValue<'_>>, TaskError> {
        let layout = self.task.stores[slot.index()].layout;
        Ok(self.get(slot, key)?.map(|stored| layout.split(stored)))
    }

    /// As [`next_entry`](Self::next_entry), with the value taken out of the store's layout.
    ///
    /// # Errors
    /// As for [`next_entry`](Self::next_entry).
    pub fn next_value<'c>(
        &'c mut self,
        cursor: &'c mut StoreCursor,
    ) -> Result<Option<StoredEntry<'c>>, TaskError> {
        let layout = self.task.stores[cursor.store.index()].layout;
        Ok(self.next_entry(cursor)?.map(|(key, stored)| (key, layout.split(stored))))
    }

    /// As [`put`](Self::put), with headers that a store with headers keeps beside the value.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_with_headers(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
        (value, headers): (&[u8], &Headers),
        timestamp: i64,
    ) -> Result<(), TaskError> {
        self.task.stores[slot.index()].counts.puts += 1;
        let mut stored = self.take_buffer();
        push_headers(headers.iter(), &mut stored);
        stored.extend_from_slice(&timestamp.to_be_bytes());
        stored.extend_from_slice(value);
        let result = if self.is_cached(slot) {
            self.write_cached(slot, timestamp, |store, context| {
                store.overlay.put(key, Some(&stored), context);
            })
        } else {
            let store = &mut self.task.stores[slot.index()];
            store.overlay.put(key, Some(&stored), RecordContext::default);
            let headers = borrow_headers(headers);
            let record =
                Record { timestamp, key: Some(key), value: Some(value), headers: &headers };
            let logged = store.log(&mut self.thread.outputs, record);
            logged.map_err(|error| self.log_error(slot, error))
        };
        self.give_buffer(stored);
        result
    }

    /// Gives a key of a versioned store a value from `timestamp` on, or deletes it from then on
    /// with `None`. What is refused is counted ([`DropReason::Expired`]), and logged all the same, as in
    /// Kafka Streams.
    ///
    /// # Errors
    /// [`TaskErrorKind::Store`](crate::TaskErrorKind::Store) and [`TaskErrorKind::Unwritable`](crate::TaskErrorKind::Unwritable).
    ///
    /// # Panics
    /// When the store is no versioned one: a bug of whoever built the program.
    pub fn put_version(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<VersionedPut, TaskError> {
        let TaskStore { overlay, keeper, counts, .. } = &mut self.task.stores[slot.index()];
        counts.wrote(value.is_some());
        let Keeper::Versioned(layout) = keeper else { unreachable!("{NOT_VERSIONED}") };
        let put = layout.put(overlay, key, value, timestamp);
        let put = put.map_err(|error| self.store_error(slot, error))?;
        let record = Record { timestamp, key: Some(key), value, headers: &[] };
        let logged = self.task.stores[slot.index()].log(&mut self.thread.outputs, record);
        logged.map_err(|error| self.log_error(slot, error))?;
        if put == VersionedPut::NotPut {
            self.dropped(self.task.watch.node(), DropReason::Expired);
        }
        Ok(put)
    }

    /// The version of a key that was valid at a time, if a versioned store still has it.
    ///
    /// # Errors
    /// [`TaskErrorKind::Store`](crate::TaskErrorKind::Store) when the backend cannot be read.
    ///
    /// # Panics
    /// When the store is no versioned one.
    pub fn get_version(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
        as_of: i64,
    ) -> Result<Option<StoredVersion<'_>>, TaskError> {
        let task = self.task.id;
        let TaskStore { name, overlay, keeper, counts, .. } = &mut self.task.stores[slot.index()];
        counts.gets += 1;
        let Keeper::Versioned(layout) = keeper else { unreachable!("{NOT_VERSIONED}") };
        layout.get_as_of(overlay, key, as_of).map_err(|error| unreadable(task, name, error))
    }

    /// Whether the store has a history.
    #[inline]
    pub fn is_versioned(&self, slot: StoreSlot) -> bool {
        matches!(self.task.stores[slot.index()].keeper, Keeper::Versioned(_))
    }
}

const NOT_VERSIONED: &str = "a program asks only versioned stores for versions";

impl Cx<'_> {
    /// Reads a store that is cached, or that is more than single entries.
    pub(super) fn get_indirect(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
    ) -> Result<Option<&[u8]>, TaskError> {
        if self.is_cached(slot) {
            return self.get_cached(slot, key);
        }
        let task = self.task.id;
        let TaskStore { name, overlay, keeper, .. } = &mut self.task.stores[slot.index()];
        let found = match keeper {
            Keeper::None | Keeper::Segmented(_) => overlay.get(key),
            Keeper::Lru(lru) => lru.get(overlay, key),
            Keeper::Versioned(layout) => layout.get_stored(overlay, key),
        };
        found.map_err(|error| unreadable(task, name, error))
    }

    /// Writes a store that is cached, or that is more than single entries.
    pub(super) fn put_indirect(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        let store = &mut self.task.stores[slot.index()];
        if !matches!(store.keeper, Keeper::Versioned(_)) {
            store.counts.wrote(value.is_some());
        }
        match &store.keeper {
            Keeper::None | Keeper::Segmented(_) => self.put_cached(slot, key, value, timestamp),
            Keeper::Lru(_) => self.put_lru(slot, key, value, timestamp),
            Keeper::Versioned(_) => self.put_version(slot, key, value, timestamp).map(drop),
        }
    }

    /// Deletions of what had to go are logged first, as in the original.
    fn put_lru(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        let TaskStore { overlay, keeper, .. } = &mut self.task.stores[slot.index()];
        let Keeper::Lru(lru) = keeper else { unreachable!("asked before") };
        let evicted = lru.put(overlay, key, value);
        let evicted = evicted.map_err(|error| self.store_error(slot, error))?;
        let store = &self.task.stores[slot.index()];
        let gone = evicted.iter().map(|key| (&**key, None));
        let logged = gone.chain([(key, value)]).try_for_each(|(key, value)| {
            let record = Record { timestamp, key: Some(key), value, headers: &[] };
            store.log(&mut self.thread.outputs, record)
        });
        logged.map_err(|error| self.log_error(slot, error))
    }

    /// Logs a change whose record has the headers of the one being processed.
    pub(super) fn log_with_headers(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        let headers = borrow_headers(&self.task.headers);
        let record = Record { timestamp, key: Some(key), value, headers: &headers };
        let logged = self.task.stores[slot.index()].log(&mut self.thread.outputs, record);
        logged.map_err(|error| self.log_error(slot, error))
    }

    /// Logs a change that comes out of the record cache; `context` are the headers of the record that
    /// made it.
    pub(super) fn log_change(
        &mut self,
        slot: StoreSlot,
        (key, new): (&[u8], Option<StoredValue<'_>>),
        timestamp: i64,
        context: &Headers,
    ) -> Result<(), TaskError> {
        let store = &self.task.stores[slot.index()];
        let has_headers = match store.layout {
            Layout::TimestampedKeyValueWithHeaders => true,
            Layout::Segmented(options) => options.with_headers,
            _ => false,
        };
        let logged = match new {
            None if has_headers => {
                let headers = borrow_headers(context);
                let record = Record { timestamp, key: Some(key), value: None, headers: &headers };
                store.log(&mut self.thread.outputs, record)
            }
            Some(new) if !new.headers.is_empty() => {
                let headers = read_headers(new.headers).map_err(|damage| {
                    let error = StoreError::DamagedRow { store: store.name.to_string(), damage };
                    self.store_error(slot, error)
                })?;
                let headers: Vec<Header<'_>> =
                    headers.into_iter().map(|(name, value)| Header { name, value }).collect();
                let value = Some(new.value);
                let record = Record { timestamp, key: Some(key), value, headers: &headers };
                store.log(&mut self.thread.outputs, record)
            }
            new => {
                let value = new.map(|new| new.value);
                let record = Record { timestamp, key: Some(key), value, headers: &[] };
                store.log(&mut self.thread.outputs, record)
            }
        };
        logged.map_err(|error| self.log_error(slot, error))
    }
}
