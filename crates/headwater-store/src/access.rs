//! What a processor may do with a key-value store, over bytes.

use crate::{CacheContext, Direction, KeyRange, KeyValueRef, Overlay, OverlayCursor, StoreError};

/// A key-value store of bytes as a processor sees it: the border between the typed views and
/// whatever keeps the bytes.
///
/// [`Overlay`] implements it for a store whose changes nobody forwards; the runtime implements it for
/// stores with changelog and cache.
pub trait KeyValueAccess {
    /// Name of the store.
    fn name(&self) -> &str;

    /// The value of `key`.
    ///
    /// # Errors
    /// What the backend, or a processor that a cache eviction ran, reports.
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError>;

    /// Gives `key` a new value, or deletes it with `None`.
    ///
    /// # Errors
    /// What the backend, or a processor that a cache eviction ran, reports.
    fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError>;

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

impl<C: CacheContext + Default> KeyValueAccess for Overlay<C> {
    fn name(&self) -> &str {
        self.store()
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        Self::get(self, key)
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError> {
        Self::put(self, key, value, C::default);
        Ok(())
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
