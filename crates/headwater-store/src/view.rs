//! Stores with types: serdes over [`KeyValueRead`] and [`KeyValueAccess`].

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use crate::serde::{Deserializer, Format, Payload, SerdeError, Serializer};
use crate::{
    CommittedStore, Direction, KeyRange, KeyValueAccess, KeyValueRead, Layout, OverlayCursor, Part,
    StoreDescription, StoreError, TaskStorage, Timestamped, ValueAndTimestamp,
};

#[cfg(test)]
mod tests;

/// A key-value store with keys `K` and values `V`.
///
/// `A` says what may be done with it: a [`KeyValueRead`] only reads, a [`KeyValueAccess`] writes too.
/// Names are those of Kafka Streams' `KeyValueStore` (feature row P32); Kafka's order of keys is that
/// of their bytes, so ranges over numbers are only meaningful for numbers of the same sign.
pub struct KeyValueStore<K, V, A, KS, VS> {
    access: A,
    key_serde: KS,
    value_serde: VS,
    key: Vec<u8>,
    value: Vec<u8>,
    types: Types<K, V>,
}

type Types<K, V> = PhantomData<fn() -> (K, V)>;

/// A key-value store whose values carry the timestamp of their last update.
pub type TimestampedKeyValueStore<K, V, A, KS, VS> =
    KeyValueStore<K, ValueAndTimestamp<V>, A, KS, Timestamped<VS>>;

impl<K, V, A, KS, VS> KeyValueStore<K, V, A, KS, VS>
where
    A: KeyValueRead,
    KS: Serializer<K> + Deserializer<K>,
    VS: Serializer<V> + Deserializer<V>,
{
    /// A typed view of `access`. Nothing is checked here; [`open_key_value`] checks.
    pub fn new(access: A, key_serde: KS, value_serde: VS) -> Self {
        Self {
            access,
            key_serde,
            value_serde,
            key: Vec::new(),
            value: Vec::new(),
            types: PhantomData,
        }
    }

    /// Name of the store.
    pub fn name(&self) -> &str {
        self.access.name()
    }

    /// The value of `key`. The key may be of any type that its serde writes: a `&str` will do for a
    /// `String`.
    ///
    /// # Errors
    /// [`StoreError::Serde`] for a value of another type, and what the store reports.
    pub fn get<Q: ?Sized>(&mut self, key: &Q) -> Result<Option<V>, StoreError>
    where
        KS: Serializer<Q>,
    {
        self.serialize_key(key)?;
        self.get_serialized()
    }

    /// Every entry from `from` to `to`, both included, `None` meaning open, in ascending order of the
    /// keys' bytes.
    ///
    /// # Errors
    /// [`StoreError::Serde`] for a bound without bytes, and what the store reports.
    pub fn range(
        &mut self,
        from: Option<&K>,
        to: Option<&K>,
    ) -> Result<Entries<'_, K, V, A, KS, VS>, StoreError> {
        self.entries_between(from, to, Direction::Forward)
    }

    /// As [`range`](Self::range), in descending order.
    ///
    /// # Errors
    /// As for [`range`](Self::range).
    pub fn reverse_range(
        &mut self,
        from: Option<&K>,
        to: Option<&K>,
    ) -> Result<Entries<'_, K, V, A, KS, VS>, StoreError> {
        self.entries_between(from, to, Direction::Reverse)
    }

    /// Every entry in ascending order of the keys' bytes.
    ///
    /// # Errors
    /// What the store reports.
    pub fn all(&mut self) -> Result<Entries<'_, K, V, A, KS, VS>, StoreError> {
        self.entries(KeyRange::all(), Direction::Forward)
    }

    /// Every entry in descending order of the keys' bytes.
    ///
    /// # Errors
    /// What the store reports.
    pub fn reverse_all(&mut self) -> Result<Entries<'_, K, V, A, KS, VS>, StoreError> {
        self.entries(KeyRange::all(), Direction::Reverse)
    }

    /// Every entry whose key's bytes start with the bytes of `prefix`, in ascending order.
    ///
    /// # Errors
    /// [`StoreError::Serde`] for a prefix without bytes, and what the store reports.
    pub fn prefix_scan<P: ?Sized>(
        &mut self,
        prefix: &P,
        prefix_serializer: &impl Serializer<P>,
    ) -> Result<Entries<'_, K, V, A, KS, VS>, StoreError> {
        let mut bytes = Vec::new();
        let written = prefix_serializer.serialize(prefix, &mut bytes);
        written.map_err(|source| serde_error(&self.access, Part::Key, source))?;
        self.entries(KeyRange::prefix(&bytes), Direction::Forward)
    }

    /// About how many entries the store has.
    ///
    /// # Errors
    /// What the store reports.
    pub fn approximate_entries(&self) -> Result<u64, StoreError> {
        self.access.approximate_entries()
    }

    fn entries_between(
        &mut self,
        from: Option<&K>,
        to: Option<&K>,
        direction: Direction,
    ) -> Result<Entries<'_, K, V, A, KS, VS>, StoreError> {
        let mut serialized = |key: Option<&K>| -> Result<Option<Vec<u8>>, StoreError> {
            let Some(key) = key else { return Ok(None) };
            self.serialize_key(key)?;
            Ok(Some(self.key.clone()))
        };
        let (from, to) = (serialized(from)?, serialized(to)?);
        self.entries(KeyRange::inclusive(from.as_deref(), to.as_deref()), direction)
    }

    fn entries(
        &mut self,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Entries<'_, K, V, A, KS, VS>, StoreError> {
        let cursor = self.access.range(range, direction)?;
        Ok(Entries { store: self, cursor })
    }

    fn serialize_key<Q: ?Sized>(&mut self, key: &Q) -> Result<(), StoreError>
    where
        KS: Serializer<Q>,
    {
        self.key.clear();
        let written = self.key_serde.serialize(key, &mut self.key);
        written.map_err(|source| serde_error(&self.access, Part::Key, source))
    }

    /// The value of the key in `self.key`.
    fn get_serialized(&mut self) -> Result<Option<V>, StoreError> {
        let read = match self.access.get(&self.key)? {
            Some(bytes) if !self.value_serde.is_null(bytes) => {
                self.value_serde.deserialize(Payload::new(bytes)).map(Some)
            }
            Some(_) | None => Ok(None),
        };
        read.map_err(|source| serde_error(&self.access, Part::Value, source))
    }
}

impl<K, V, A, KS, VS> KeyValueStore<K, V, A, KS, VS>
where
    A: KeyValueAccess,
    KS: Serializer<K> + Deserializer<K>,
    VS: Serializer<V> + Deserializer<V>,
{
    /// Gives `key` a new value, or deletes it with `None`.
    ///
    /// # Errors
    /// [`StoreError::Serde`] for a key or value without bytes, and what the store reports.
    pub fn put(&mut self, key: &K, value: Option<&V>) -> Result<(), StoreError> {
        self.serialize_key(key)?;
        self.put_serialized(value)
    }

    /// Gives `key` the value unless it has one; answers the one it has.
    ///
    /// # Errors
    /// As for [`get`](Self::get) and [`put`](Self::put).
    pub fn put_if_absent(&mut self, key: &K, value: &V) -> Result<Option<V>, StoreError> {
        let found = self.get(key)?;
        if found.is_none() {
            self.put_serialized(Some(value))?;
        }
        Ok(found)
    }

    /// Deletes `key` and answers the value it had.
    ///
    /// # Errors
    /// As for [`get`](Self::get) and [`put`](Self::put).
    pub fn delete(&mut self, key: &K) -> Result<Option<V>, StoreError> {
        let found = self.get(key)?;
        self.put_serialized(None)?;
        Ok(found)
    }

    /// Writes the key in `self.key`.
    fn put_serialized(&mut self, value: Option<&V>) -> Result<(), StoreError> {
        let Some(value) = value else {
            return self.access.put(&self.key, None);
        };
        self.value.clear();
        let written = self.value_serde.serialize(value, &mut self.value);
        written.map_err(|source| serde_error(&self.access, Part::Value, source))?;
        self.access.put(&self.key, Some(&self.value))
    }
}

impl<K, V, A: fmt::Debug, KS, VS> fmt::Debug for KeyValueStore<K, V, A, KS, VS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValueStore").field("access", &self.access).finish_non_exhaustive()
    }
}

/// The entries of a range of a [`KeyValueStore`], read as they are asked for.
#[derive(Debug)]
pub struct Entries<'a, K, V, A, KS, VS> {
    store: &'a mut KeyValueStore<K, V, A, KS, VS>,
    cursor: OverlayCursor,
}

impl<K, V, A, KS, VS> Iterator for Entries<'_, K, V, A, KS, VS>
where
    A: KeyValueRead,
    KS: Deserializer<K>,
    VS: Deserializer<V>,
{
    type Item = Result<(K, V), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let store = &mut *self.store;
        loop {
            let read = match store.access.next(&mut self.cursor) {
                Ok(None) => return None,
                Ok(Some((_, value))) if store.value_serde.is_null(value) => continue,
                Ok(Some((key, value))) => store
                    .key_serde
                    .deserialize(Payload::new(key))
                    .map_err(|source| (Part::Key, source))
                    .and_then(|key| {
                        let value = store.value_serde.deserialize(Payload::new(value));
                        value.map(|value| (key, value)).map_err(|source| (Part::Value, source))
                    }),
                Err(error) => return Some(Err(error)),
            };
            return Some(read.map_err(|(part, source)| serde_error(&store.access, part, source)));
        }
    }
}

/// Opens the committed contents of the key-value store `name` in a task's storage, if it was written
/// with this layout and these formats.
///
/// # Errors
/// [`StoreError::NoSuchStore`], [`StoreError::WrongType`], [`StoreError::Damaged`], and what the
/// backend reports.
pub fn open_key_value<K, V, KS, VS>(
    storage: &dyn TaskStorage,
    dir: &Path,
    name: &str,
    key_serde: KS,
    value_serde: VS,
) -> Result<KeyValueStore<K, V, CommittedStore, KS, VS>, StoreError>
where
    KS: Serializer<K> + Deserializer<K> + Format,
    VS: Serializer<V> + Deserializer<V> + Format,
{
    let wanted = StoreDescription {
        layout: Layout::KeyValue,
        key_format: key_serde.format(),
        value_format: value_serde.format(),
    };
    let access = open_committed(storage, dir, name, &wanted)?;
    Ok(KeyValueStore::new(access, key_serde, value_serde))
}

/// As [`open_key_value`], for a timestamped key-value store.
///
/// # Errors
/// As for [`open_key_value`].
pub fn open_timestamped_key_value<K, V, KS, VS>(
    storage: &dyn TaskStorage,
    dir: &Path,
    name: &str,
    key_serde: KS,
    value_serde: VS,
) -> Result<TimestampedKeyValueStore<K, V, CommittedStore, KS, VS>, StoreError>
where
    KS: Serializer<K> + Deserializer<K> + Format,
    VS: Serializer<V> + Deserializer<V> + Format,
{
    let wanted = StoreDescription {
        layout: Layout::TimestampedKeyValue,
        key_format: key_serde.format(),
        value_format: value_serde.format(),
    };
    let access = open_committed(storage, dir, name, &wanted)?;
    Ok(KeyValueStore::new(access, key_serde, Timestamped(value_serde)))
}

/// Committed reads of a store that was written as `wanted`.
fn open_committed(
    storage: &dyn TaskStorage,
    dir: &Path,
    name: &str,
    wanted: &StoreDescription,
) -> Result<CommittedStore, StoreError> {
    let spaces = storage.spaces()?;
    let space = spaces.into_iter().find_map(|(other, space)| (other == name).then_some(space));
    let description = StoreDescription::load(storage, dir, name)?;
    let (Some(space), Some(description)) = (space, description) else {
        return Err(StoreError::NoSuchStore { store: name.to_owned(), dir: dir.to_owned() });
    };
    description.expect(name, wanted)?;
    Ok(CommittedStore::new(name, space, storage.reader()))
}

#[cold]
fn serde_error(access: &impl KeyValueRead, part: Part, source: SerdeError) -> StoreError {
    StoreError::Serde { store: access.name().to_owned(), part, source }
}
