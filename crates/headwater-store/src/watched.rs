//! A storage around another one, for tests of what is built on storages.

use std::fmt;
use std::sync::Arc;

use crate::{
    Chunk, Direction, KeyRange, KeyValueBytes, MetaUpdate, SortedBatch, SpaceId, StorageReader,
    StoreError, TaskStorage, WriteBatch,
};

/// Hears what a [`WatchedStorage`] is about to do, and may refuse or change it. Nothing is unless said otherwise.
pub trait StorageWatch: fmt::Debug + Send + Sync + 'static {
    /// Entries are about to be read.
    ///
    /// # Errors
    /// What is answered in place of doing it.
    fn read(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// A batch is about to be applied.
    ///
    /// # Errors
    /// What is answered in place of doing it.
    fn apply(&self, batch: &SortedBatch<'_>) -> Result<(), StoreError> {
        let _: &SortedBatch<'_> = batch;
        Ok(())
    }

    /// What is applied in place of a batch, if not the batch itself.
    fn replace(&self, batch: &SortedBatch<'_>) -> Option<WriteBatch> {
        let _: &SortedBatch<'_> = batch;
        None
    }

    /// A store is about to be dropped.
    ///
    /// # Errors
    /// What is answered in place of doing it.
    fn drop_space(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The storage is about to be synced or closed.
    ///
    /// # Errors
    /// What is answered in place of doing it.
    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A storage that does what another one does, and tells a [`StorageWatch`] before.
///
/// ```
/// use std::path::Path;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use headwater_store::{
///     MemoryBackend, OpenOptions, SortedBatch, StorageWatch, StoreBackend, StoreError,
///     TaskStorage, WatchedStorage, WriteBatch,
/// };
///
/// #[derive(Debug, Default)]
/// struct Counted(AtomicUsize);
///
/// impl StorageWatch for Counted {
///     fn apply(&self, batch: &SortedBatch<'_>) -> Result<(), StoreError> {
///         self.0.fetch_add(batch.len(), Ordering::Relaxed);
///         Ok(())
///     }
/// }
///
/// let inner = MemoryBackend::new().open(Path::new("0_0"), &OpenOptions::default())?;
/// let counted = Arc::new(Counted::default());
/// let mut storage = WatchedStorage::new(inner, Arc::clone(&counted));
/// let space = storage.space("words")?;
/// let mut batch = WriteBatch::new();
/// batch.push(space, b"tea", Some(b"1"));
/// storage.apply(batch.sort(), &[])?;
/// assert_eq!(counted.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Debug)]
pub struct WatchedStorage<W> {
    inner: Box<dyn TaskStorage>,
    watch: Arc<W>,
}

impl<W> WatchedStorage<W> {
    /// Around `inner`.
    pub const fn new(inner: Box<dyn TaskStorage>, watch: Arc<W>) -> Self {
        Self { inner, watch }
    }
}

impl<W: StorageWatch> TaskStorage for WatchedStorage<W> {
    fn space(&mut self, name: &str) -> Result<SpaceId, StoreError> {
        self.inner.space(name)
    }

    fn segmented_space(&mut self, name: &str) -> Result<SpaceId, StoreError> {
        self.inner.segmented_space(name)
    }

    fn spaces(&self) -> Result<Vec<(String, SpaceId)>, StoreError> {
        self.inner.spaces()
    }

    fn drop_space(&mut self, space: SpaceId) -> Result<(), StoreError> {
        self.watch.drop_space()?;
        self.inner.drop_space(space)
    }

    fn apply(&mut self, batch: SortedBatch<'_>, meta: &[MetaUpdate]) -> Result<(), StoreError> {
        self.watch.apply(&batch)?;
        match self.watch.replace(&batch) {
            Some(mut other) => self.inner.apply(other.sort(), meta),
            None => self.inner.apply(batch, meta),
        }
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.meta(key)
    }

    fn meta_entries(&self) -> Result<Vec<KeyValueBytes>, StoreError> {
        self.inner.meta_entries()
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.watch.sync()?;
        self.inner.sync()
    }

    fn reader(&self) -> Arc<dyn StorageReader> {
        let watch = Arc::clone(&self.watch);
        Arc::new(WatchedReader { inner: self.inner.reader(), watch })
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        self.watch.sync()?;
        self.inner.close()
    }
}

#[derive(Debug)]
struct WatchedReader<W> {
    inner: Arc<dyn StorageReader>,
    watch: Arc<W>,
}

impl<W: StorageWatch> StorageReader for WatchedReader<W> {
    fn get(&self, space: SpaceId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.watch.read()?;
        self.inner.get(space, key, value)
    }

    fn scan(
        &self,
        space: SpaceId,
        range: &KeyRange,
        direction: Direction,
        chunk: &mut Chunk,
    ) -> Result<(), StoreError> {
        self.watch.read()?;
        self.inner.scan(space, range, direction, chunk)
    }

    fn approximate_entries(&self, space: SpaceId) -> Result<u64, StoreError> {
        self.inner.approximate_entries(space)
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.meta(key)
    }
}
