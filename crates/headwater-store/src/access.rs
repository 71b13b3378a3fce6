//! What may be done with a key-value store, over bytes.

use std::sync::Arc;

use crate::{
    CacheContext, Caching, Direction, KeyRange, KeyValueRef, Overlay, OverlayCursor,
    OverlayOptions, SegmentedOptions, SegmentedQuery, SegmentedRead, SegmentedScan, SpaceId,
    StorageReader, StoreError, StreamTime,
};

/// Reading a key-value store of bytes: the border between the typed views and whatever keeps the
/// bytes (feature row P32).
///
/// The methods take `&mut self` because reading may fill caches.
pub trait KeyValueRead {
    /// Name of the store.
    fn name(&self) -> &str;

    /// The value of `key`.
    ///
    /// # Errors
    /// What the backend, or a processor that a cache eviction ran, reports.
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError>;

    /// Starts reading a range; [`next`](Self::next) goes on.
    ///
    /// # Errors
    /// What the backend reports.
    fn range(&mut self, range: KeyRange, direction: Direction)
    -> Result<OverlayCursor, StoreError>;

    /// The next entry of a range that [`range`](Self::range) started.
    ///
    /// # Errors
    /// What the backend reports.
    fn next<'a>(
        &'a mut self,
        cursor: &'a mut OverlayCursor,
    ) -> Result<Option<KeyValueRef<'a>>, StoreError>;

    /// About how many entries the store has.
    ///
    /// # Errors
    /// What the backend reports.
    fn approximate_entries(&self) -> Result<u64, StoreError>;
}

/// Reading and writing a key-value store of bytes, as a processor does.
///
/// [`Overlay`] implements it for a store whose changes nobody forwards; the runtime implements it for
/// stores with changelog and cache.
pub trait KeyValueAccess: KeyValueRead {
    /// Gives `key` a new value, or deletes it with `None`.
    ///
    /// # Errors
    /// What the backend, or a processor that a cache eviction ran, reports.
    fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError>;
}

impl<C: CacheContext> KeyValueRead for Overlay<C> {
    fn name(&self) -> &str {
        self.store()
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        Self::get(self, key)
    }

    fn range(
        &mut self,
        range: KeyRange,
        direction: Direction,
    ) -> Result<OverlayCursor, StoreError> {
        Ok(Self::range(self, range, direction))
    }

    fn next<'a>(
        &'a mut self,
        cursor: &'a mut OverlayCursor,
    ) -> Result<Option<KeyValueRef<'a>>, StoreError> {
        Self::next(self, cursor)
    }

    fn approximate_entries(&self) -> Result<u64, StoreError> {
        Self::approximate_entries(self)
    }
}

impl<C: CacheContext + Default> KeyValueAccess for Overlay<C> {
    fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError> {
        Self::put(self, key, value, C::default);
        Ok(())
    }
}

/// Committed reads of one store through the shared read half of its storage: for queries, global
/// stores and tools. Cheap to make, one for each reader.
#[derive(Debug)]
pub struct CommittedStore(
    /// Never written to, and without a read cache, so that it always asks the backend.
    Overlay,
);

impl CommittedStore {
    /// Reads the store `name`, which lives in `space`.
    pub fn new(name: impl Into<String>, space: SpaceId, reader: Arc<dyn StorageReader>) -> Self {
        let options = OverlayOptions { caching: Caching::Off, read_cache_bytes: 0 };
        Self(Overlay::new(name, space, reader, options))
    }
}

impl KeyValueRead for CommittedStore {
    fn name(&self) -> &str {
        self.0.store()
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        self.0.get(key)
    }

    fn range(
        &mut self,
        range: KeyRange,
        direction: Direction,
    ) -> Result<OverlayCursor, StoreError> {
        Ok(self.0.range(range, direction))
    }

    fn next<'a>(
        &'a mut self,
        cursor: &'a mut OverlayCursor,
    ) -> Result<Option<KeyValueRef<'a>>, StoreError> {
        self.0.next(cursor)
    }

    fn approximate_entries(&self) -> Result<u64, StoreError> {
        self.0.approximate_entries()
    }
}

/// Committed reads of a store of windows or sessions: what is older than its retention is not seen.
#[derive(Debug)]
pub struct CommittedSegments {
    store: CommittedStore,
    options: SegmentedOptions,
    newest: i64,
}

impl CommittedSegments {
    /// Reads the store `name`, which lies in `space` and is kept as `options` say.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn new(
        name: &str,
        space: SpaceId,
        reader: Arc<dyn StorageReader>,
        options: SegmentedOptions,
    ) -> Result<Self, StoreError> {
        let newest = StreamTime::newest_of_store(&*reader, name)?;
        Ok(Self { store: CommittedStore::new(name, space, reader), options, newest })
    }

    /// A scan over what a query finds.
    pub fn scan(&self, query: SegmentedQuery, direction: Direction) -> SegmentedScan {
        let first = self.options.shown_from(self.newest).max(0);
        let segments = self.options.segment(first)..=self.options.segment(self.newest);
        SegmentedScan::new(self.options, query, direction, segments)
    }

    /// The stored value of a key with its times; `None` also when it is older than the store's retention.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        let Some(time) = self.options.time_of(key) else { return Ok(None) };
        if time < self.options.shown_from(self.newest) {
            return Ok(None);
        }
        let mut stored_key = Vec::new();
        self.options.push_stored_key(time, key, &mut stored_key);
        self.store.0.get(&stored_key)
    }
}

impl SegmentedRead for CommittedSegments {
    fn next<'a>(
        &'a mut self,
        cursor: &'a mut OverlayCursor,
    ) -> Result<Option<KeyValueRef<'a>>, StoreError> {
        self.store.next(cursor)
    }

    fn is_visible(&self, _stored_key: &[u8], time: i64) -> bool {
        time >= self.options.shown_from(self.newest)
    }
}
