//! Typed views of stores, to be read from outside.

use std::fmt;
use std::marker::PhantomData;
use std::vec;

use headwater_store::serde::{Deserializer, Payload, SerdeError, Serializer};
use headwater_store::{
    CommittedStore, Direction, KeyRange, KeyValueRead, OverlayCursor, Part, StoreError,
    TIMESTAMP_BYTES, Timestamped, ValueAndTimestamp,
};

use super::{QueryError, StoreView, UncommittedReads};

/// A key-value store of a running instance, to be read: all partitions that the view was made for.
/// Made by [`Instance::store`](crate::Instance::store); the [module](crate::query) says what is seen.
///
/// Every method fails with [`QueryError::Migrated`] when a task has left, and with
/// [`QueryError::Store`] when a store cannot be read.
pub struct ReadOnlyKeyValueStore<K, V, KS, VS> {
    pub(super) view: StoreView,
    key_serde: KS,
    value_serde: VS,
    /// How much of a stored value is wanted.
    wanted: WantedPart,
    types: Types<K, V>,
}

type Types<K, V> = PhantomData<fn() -> (K, V)>;

/// How much of a stored value is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WantedPart {
    /// The value alone.
    Value,
    /// 8 bytes of timestamp, then the value.
    TimestampAndValue,
}

/// A key-value store whose values carry the timestamp of their last update.
pub type ReadOnlyTimestampedKeyValueStore<K, V, KS, VS> =
    ReadOnlyKeyValueStore<K, ValueAndTimestamp<V>, KS, Timestamped<VS>>;

impl<K, V, KS, VS> ReadOnlyKeyValueStore<K, V, KS, VS>
where
    KS: Serializer<K> + Deserializer<K>,
    VS: Deserializer<V>,
{
    pub(super) fn new(view: StoreView, key_serde: KS, value_serde: VS, wanted: WantedPart) -> Self {
        Self { view, key_serde, value_serde, wanted, types: PhantomData }
    }

    /// Name of the store.
    pub fn name(&self) -> &str {
        &self.view.store
    }

    /// The partitions it reads.
    pub fn partitions(&self) -> impl Iterator<Item = u32> {
        self.view.tasks.iter().map(|task| task.partition)
    }

    /// The same with uncommitted changes, asked of the stream threads.
    pub fn uncommitted(&self) -> UncommittedReads<'_, K, V, KS, VS> {
        UncommittedReads::new(self)
    }

    /// The value of `key`, in whichever partition has it. The key may be of any type that its serde
    /// writes: a `&str` will do for a `String`.
    ///
    /// # Errors
    /// As for all methods; also for a key without bytes.
    pub fn get<Q: ?Sized>(&self, key: &Q) -> Result<Option<V>, QueryError>
    where
        KS: Serializer<Q>,
    {
        let key = self.serialize(key)?;
        for mut store in self.view.open()? {
            let stored = store.get(&key).map_err(|source| self.failed(source))?;
            if let Some(value) = stored.map(|stored| self.value(stored)).transpose()?.flatten() {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Every entry from `from` to `to`, both included, `None` meaning open: one partition after the
    /// other, each in ascending order of the keys' bytes.
    ///
    /// # Errors
    /// As for all methods; also for a key without bytes.
    pub fn range(
        &self,
        from: Option<&K>,
        to: Option<&K>,
    ) -> Result<ReadOnlyEntries<'_, K, V, KS, VS>, QueryError> {
        self.entries(self.bounds(from, to)?, Direction::Forward)
    }

    /// As [`range`](Self::range), each partition in descending order.
    ///
    /// # Errors
    /// As for [`range`](Self::range).
    pub fn reverse_range(
        &self,
        from: Option<&K>,
        to: Option<&K>,
    ) -> Result<ReadOnlyEntries<'_, K, V, KS, VS>, QueryError> {
        self.entries(self.bounds(from, to)?, Direction::Reverse)
    }

    /// Every entry: one partition after the other, each in ascending order of the keys' bytes.
    ///
    /// # Errors
    /// As for all methods.
    pub fn all(&self) -> Result<ReadOnlyEntries<'_, K, V, KS, VS>, QueryError> {
        self.entries(KeyRange::all(), Direction::Forward)
    }

    /// As [`all`](Self::all), each partition in descending order.
    ///
    /// # Errors
    /// As for all methods.
    pub fn reverse_all(&self) -> Result<ReadOnlyEntries<'_, K, V, KS, VS>, QueryError> {
        self.entries(KeyRange::all(), Direction::Reverse)
    }

    /// Every entry whose key's bytes start with the bytes of `prefix`: one partition after the other,
    /// each in ascending order.
    ///
    /// # Errors
    /// As for all methods; also for a prefix without bytes.
    pub fn prefix_scan<P: ?Sized>(
        &self,
        prefix: &P,
        prefix_serializer: &impl Serializer<P>,
    ) -> Result<ReadOnlyEntries<'_, K, V, KS, VS>, QueryError> {
        let mut bytes = Vec::new();
        let written = prefix_serializer.serialize(prefix, &mut bytes);
        written.map_err(|source| self.serde_error(Part::Key, source))?;
        self.entries(KeyRange::prefix(&bytes), Direction::Forward)
    }

    /// About how many entries there are.
    ///
    /// # Errors
    /// As for all methods.
    pub fn approximate_num_entries(&self) -> Result<u64, QueryError> {
        let stores = self.view.open()?;
        let counts = stores.iter().map(KeyValueRead::approximate_entries);
        counts.sum::<Result<u64, StoreError>>().map_err(|source| self.failed(source))
    }

    pub(super) fn bounds(&self, from: Option<&K>, to: Option<&K>) -> Result<KeyRange, QueryError> {
        let bytes = |key: Option<&K>| key.map(|key| self.serialize(key)).transpose();
        let (from, to) = (bytes(from)?, bytes(to)?);
        Ok(KeyRange::inclusive(from.as_deref(), to.as_deref()))
    }

    fn entries(
        &self,
        range: KeyRange,
        direction: Direction,
    ) -> Result<ReadOnlyEntries<'_, K, V, KS, VS>, QueryError> {
        let waiting = self.view.open()?.into_iter();
        Ok(ReadOnlyEntries { store: self, range, direction, waiting, reading: None })
    }

    pub(super) fn serialize<Q: ?Sized>(&self, key: &Q) -> Result<Vec<u8>, QueryError>
    where
        KS: Serializer<Q>,
    {
        let mut bytes = Vec::new();
        let written = self.key_serde.serialize(key, &mut bytes);
        written.map_err(|source| self.serde_error(Part::Key, source))?;
        Ok(bytes)
    }

    pub(super) fn key(&self, bytes: &[u8]) -> Result<K, QueryError> {
        let key = self.key_serde.deserialize(Payload::new(bytes));
        key.map_err(|source| self.serde_error(Part::Key, source))
    }

    /// A stored value; `None` when its bytes are a form of null.
    pub(super) fn value(&self, stored: &[u8]) -> Result<Option<V>, QueryError> {
        let part = self.view.known.layout.split(stored);
        let bytes = match self.wanted {
            WantedPart::Value => part.value,
            WantedPart::TimestampAndValue => {
                stored.get(stored.len() - part.value.len() - TIMESTAMP_BYTES..).unwrap_or(stored)
            }
        };
        if self.value_serde.is_null(bytes) {
            return Ok(None);
        }
        let value = self.value_serde.deserialize(Payload::new(bytes));
        value.map(Some).map_err(|source| self.serde_error(Part::Value, source))
    }

    #[cold]
    fn serde_error(&self, part: Part, source: SerdeError) -> QueryError {
        self.failed(StoreError::Serde { store: self.name().to_owned(), part, source })
    }

    #[cold]
    fn failed(&self, source: StoreError) -> QueryError {
        QueryError::Store { store: self.view.store.to_string(), source }
    }
}

impl<K, V, KS, VS> fmt::Debug for ReadOnlyKeyValueStore<K, V, KS, VS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadOnlyKeyValueStore")
            .field("store", &self.view.store)
            .field("tasks", &self.view.tasks)
            .finish_non_exhaustive()
    }
}

/// The entries of a range of a [`ReadOnlyKeyValueStore`], read as they are asked for. It holds the
/// stores open until it is dropped.
#[derive(Debug)]
pub struct ReadOnlyEntries<'a, K, V, KS, VS> {
    store: &'a ReadOnlyKeyValueStore<K, V, KS, VS>,
    range: KeyRange,
    direction: Direction,
    /// Partitions that were not read yet.
    waiting: vec::IntoIter<CommittedStore>,
    reading: Option<(CommittedStore, OverlayCursor)>,
}

impl<K, V, KS, VS> Iterator for ReadOnlyEntries<'_, K, V, KS, VS>
where
    KS: Serializer<K> + Deserializer<K>,
    VS: Deserializer<V>,
{
    type Item = Result<(K, V), QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let store = self.store;
        loop {
            let Some((reading, cursor)) = &mut self.reading else {
                let mut next = self.waiting.next()?;
                match next.range(self.range.clone(), self.direction) {
                    Ok(cursor) => self.reading = Some((next, cursor)),
                    Err(source) => return Some(Err(store.failed(source))),
                }
                continue;
            };
            match reading.next(cursor) {
                Err(source) => return Some(Err(store.failed(source))),
                Ok(None) => self.reading = None,
                Ok(Some((key, value))) => match store.value(value) {
                    Err(error) => return Some(Err(error)),
                    Ok(None) => {}
                    Ok(Some(value)) => return Some(store.key(key).map(|key| (key, value))),
                },
            }
        }
    }
}
