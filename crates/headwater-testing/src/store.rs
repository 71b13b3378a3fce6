//! Stores that a test writes.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use headwater_runtime::ReadOnlyKeyValueStore;
use headwater_store::serde::{Deserializer, Format, Serializer};

use crate::TestDriverError;
use crate::driver::Core;

/// A key-value store of the topology, to be read and written by a test
/// ([`TopologyTestDriver::writable_key_value_store`](crate::TopologyTestDriver::writable_key_value_store)).
pub struct TestKeyValueStore<K, V, KS, VS> {
    core: Rc<RefCell<Core>>,
    name: String,
    store: ReadOnlyKeyValueStore<K, V, KS, VS>,
    key: KS,
    value: VS,
}

impl<K, V, KS, VS> TestKeyValueStore<K, V, KS, VS>
where
    KS: Serializer<K> + Deserializer<K> + Format,
    VS: Serializer<V> + Deserializer<V> + Format,
{
    pub(crate) fn new(
        core: Rc<RefCell<Core>>,
        name: &str,
        store: ReadOnlyKeyValueStore<K, V, KS, VS>,
        (key, value): (KS, VS),
    ) -> Self {
        Self { core, name: name.to_owned(), store, key, value }
    }

    /// What the store holds for a key.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn get(&self, key: &K) -> Result<Option<V>, TestDriverError> {
        Ok(self.store.get(key)?)
    }

    /// Puts a value, with the time of the wall clock where the store keeps times. It goes to the changelog, and to
    /// what is below the store where it is cached, as when a processor had put it; and it is committed.
    ///
    /// # Errors
    /// When key or value cannot be written, or a task has failed.
    pub fn put(&self, key: &K, value: &V) -> Result<(), TestDriverError> {
        let now = self.core.borrow().wall_ms();
        self.put_at(key, value, now)
    }

    /// As [`put`](Self::put), with this time, in milliseconds since 1970.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_at(&self, key: &K, value: &V, timestamp: i64) -> Result<(), TestDriverError> {
        let mut bytes = Vec::new();
        let written = self.value.serialize(value, &mut bytes);
        written.map_err(|source| self.wrong(source))?;
        self.write(key, Some(&bytes), timestamp)
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn delete(&self, key: &K) -> Result<(), TestDriverError> {
        let now = self.core.borrow().wall_ms();
        self.write(key, None, now)
    }

    fn write(&self, key: &K, value: Option<&[u8]>, timestamp: i64) -> Result<(), TestDriverError> {
        let mut bytes = Vec::new();
        self.key.serialize(key, &mut bytes).map_err(|source| self.wrong(source))?;
        self.core.borrow_mut().write_store(&self.name, &bytes, value, timestamp)
    }

    fn wrong(&self, source: headwater_store::serde::SerdeError) -> TestDriverError {
        TestDriverError::StoreSerde { store: self.name.clone(), source }
    }
}

impl<K, V, KS, VS> fmt::Debug for TestKeyValueStore<K, V, KS, VS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestKeyValueStore").field("name", &self.name).finish_non_exhaustive()
    }
}
