//! Typed views of stores with a history, to be read from outside.

use std::fmt;
use std::marker::PhantomData;

use headwater_store::serde::{Deserializer, Payload, SerdeError, Serializer};
use headwater_store::{CommittedStore, Layout, Part, StoreError, VersionedLayout, VersionedRecord};

use super::{QueryError, StoreView};

/// A versioned store of a running instance, to be read: all partitions that the view was made for.
/// Made by [`Instance::store`](crate::Instance::store); the [module](crate::query) says what is seen.
///
/// Every method fails with [`QueryError::Migrated`] when a task has left, and with
/// [`QueryError::Store`] when a store cannot be read.
///
/// ```no_run
/// # fn print(instance: &headwater_runtime::Instance) -> Result<(), headwater_runtime::QueryError> {
/// use headwater_runtime::{QueryableStoreTypes, StoreQueryParameters};
/// use headwater_store::serde::{Long, Utf8};
///
/// let prices = QueryableStoreTypes::versioned_key_value::<String, i64, _, _>(Utf8, Long);
/// let prices = instance.store(StoreQueryParameters::new("prices", prices))?;
/// println!("now: {:?}", prices.get("tea")?);
/// println!("at new year: {:?}", prices.get_as_of("tea", 1_767_225_600_000)?);
/// for version in prices.versions("tea", 0, i64::MAX)? {
///     println!("{} from {} on", version.value, version.timestamp);
/// }
/// # Ok(())
/// # }
/// ```
pub struct ReadOnlyVersionedKeyValueStore<K, V, KS, VS> {
    view: StoreView,
    key_serde: KS,
    value_serde: VS,
    types: Types<K, V>,
}

type Types<K, V> = PhantomData<fn() -> (K, V)>;

impl<K, V, KS, VS> ReadOnlyVersionedKeyValueStore<K, V, KS, VS>
where
    KS: Serializer<K>,
    VS: Deserializer<V>,
{
    pub(super) const fn new(view: StoreView, key_serde: KS, value_serde: VS) -> Self {
        Self { view, key_serde, value_serde, types: PhantomData }
    }

    /// Name of the store.
    pub fn name(&self) -> &str {
        &self.view.store
    }

    /// The latest version of `key`, in whichever partition has it (KIP-960).
    ///
    /// # Errors
    /// As for all methods; also for a key without bytes.
    pub fn get<Q: ?Sized>(&self, key: &Q) -> Result<Option<VersionedRecord<V>>, QueryError>
    where
        KS: Serializer<Q>,
    {
        let key = self.serialize(key)?;
        self.first(|layout, store| {
            let found = layout.get(store, &key).map_err(|source| self.failed(source))?;
            found.map(|found| self.record(found)).transpose()
        })
    }

    /// The version of `key` that was valid at a time, in milliseconds since the Unix epoch; `None` if
    /// there was none, or if the store's history does not reach back so far (KIP-960).
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_as_of<Q: ?Sized>(
        &self,
        key: &Q,
        as_of: i64,
    ) -> Result<Option<VersionedRecord<V>>, QueryError>
    where
        KS: Serializer<Q>,
    {
        let key = self.serialize(key)?;
        self.first(|layout, store| {
            let found = layout.get_as_of(store, &key, as_of);
            let found = found.map_err(|source| self.failed(source))?;
            found.map(|found| self.record(found)).transpose()
        })
    }

    /// Every version of `key` that was valid at some time from `from` to `to`, both included, the
    /// oldest first (KIP-968).
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn versions<Q: ?Sized>(
        &self,
        key: &Q,
        from: i64,
        to: i64,
    ) -> Result<Vec<VersionedRecord<V>>, QueryError>
    where
        KS: Serializer<Q>,
    {
        let key = self.serialize(key)?;
        let found = self.first(|layout, store| {
            let found = layout.versions(store, &key, from, to);
            let found = found.map_err(|source| self.failed(source))?;
            let typed = found.iter().map(|version| {
                let VersionedRecord { ref value, timestamp, valid_to } = *version;
                self.record(VersionedRecord { value: value.as_slice(), timestamp, valid_to })
            });
            let typed = typed.collect::<Result<Vec<_>, _>>()?;
            Ok((!typed.is_empty()).then_some(typed))
        })?;
        Ok(found.unwrap_or_default())
    }

    /// What the first partition that has anything says.
    fn first<T>(
        &self,
        mut ask: impl FnMut(&mut VersionedLayout, &mut CommittedStore) -> Result<Option<T>, QueryError>,
    ) -> Result<Option<T>, QueryError> {
        let Layout::Versioned(options) = self.view.known.layout else { return Ok(None) };
        for mut store in self.view.open()? {
            if let Some(found) = ask(&mut VersionedLayout::new(options), &mut store)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn record(&self, found: VersionedRecord<&[u8]>) -> Result<VersionedRecord<V>, QueryError> {
        let VersionedRecord { value, timestamp, valid_to } = found;
        let value = self.value_serde.deserialize(Payload::new(value));
        let value = value.map_err(|source| self.serde_error(Part::Value, source))?;
        Ok(VersionedRecord { value, timestamp, valid_to })
    }

    fn serialize<Q: ?Sized>(&self, key: &Q) -> Result<Vec<u8>, QueryError>
    where
        KS: Serializer<Q>,
    {
        let mut bytes = Vec::new();
        let written = self.key_serde.serialize(key, &mut bytes);
        written.map_err(|source| self.serde_error(Part::Key, source))?;
        Ok(bytes)
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

impl<K, V, KS, VS> fmt::Debug for ReadOnlyVersionedKeyValueStore<K, V, KS, VS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadOnlyVersionedKeyValueStore")
            .field("store", &self.view.store)
            .field("tasks", &self.view.tasks)
            .finish_non_exhaustive()
    }
}
