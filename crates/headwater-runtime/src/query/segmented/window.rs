//! Stores of windows.

use headwater_store::serde::{Deserializer, Serializer, Window};
use headwater_store::{Direction, SegmentedQuery, Timestamped, ValueAndTimestamp};

use super::{ReadOnlyWindowedEntries, Segmented};
use crate::query::QueryError;

/// A window store of a running instance, to be read: all partitions that the view was made for.
/// Made by [`Instance::store`](crate::Instance::store); the [module](crate::query) says what is seen.
///
/// Times are milliseconds since the Unix epoch. What is older than the store's retention is not seen. Every method
/// fails with [`QueryError::Migrated`] when a task has left, and with [`QueryError::Store`] when a store cannot be
/// read.
///
/// ```no_run
/// # fn print(instance: &headwater_runtime::Instance) -> Result<(), headwater_runtime::QueryError> {
/// use headwater_runtime::{QueryableStoreTypes, StoreQueryParameters};
/// use headwater_store::serde::{Long, Utf8};
///
/// let visits = QueryableStoreTypes::window::<String, i64, _, _>(Utf8, Long);
/// let visits = instance.store(StoreQueryParameters::new("visits-per-minute", visits))?;
/// for window in visits.fetch("home", 0, i64::MAX)? {
///     let (start, visits) = window?;
///     println!("{visits} from {start} on");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ReadOnlyWindowStore<K, V, KS, VS>(Segmented<K, V, KS, VS>);

/// A window store whose values carry the timestamp of their last update.
pub type ReadOnlyTimestampedWindowStore<K, V, KS, VS> =
    ReadOnlyWindowStore<K, ValueAndTimestamp<V>, KS, Timestamped<VS>>;

impl<K, V, KS, VS> ReadOnlyWindowStore<K, V, KS, VS>
where
    KS: Serializer<K> + Deserializer<K>,
    VS: Deserializer<V>,
{
    pub(in crate::query) const fn new(segmented: Segmented<K, V, KS, VS>) -> Self {
        Self(segmented)
    }

    /// Name of the store.
    pub fn name(&self) -> &str {
        &self.0.view.store
    }

    /// The value of `key` in the window that begins at `window_start`, in whichever partition has it.
    ///
    /// # Errors
    /// As for all methods; also for a key without bytes.
    pub fn fetch_one<Q: ?Sized>(&self, key: &Q, window_start: i64) -> Result<Option<V>, QueryError>
    where
        KS: Serializer<Q>,
    {
        self.0.get(key, Window { start: window_start, end: window_start })
    }

    /// The values of `key` in the windows that begin from `from` to `to`, the earliest first.
    ///
    /// # Errors
    /// As for all methods; also for a key without bytes.
    pub fn fetch<Q: ?Sized>(
        &self,
        key: &Q,
        from: i64,
        to: i64,
    ) -> Result<ReadOnlyWindowEntries<'_, K, V, KS, VS>, QueryError>
    where
        KS: Serializer<Q>,
    {
        self.fetch_in(key, (from, to), Direction::Forward)
    }

    /// As [`fetch`](Self::fetch), the latest first.
    ///
    /// # Errors
    /// As for [`fetch`](Self::fetch).
    pub fn backward_fetch<Q: ?Sized>(
        &self,
        key: &Q,
        from: i64,
        to: i64,
    ) -> Result<ReadOnlyWindowEntries<'_, K, V, KS, VS>, QueryError>
    where
        KS: Serializer<Q>,
    {
        self.fetch_in(key, (from, to), Direction::Reverse)
    }

    fn fetch_in<Q: ?Sized>(
        &self,
        key: &Q,
        (from, to): (i64, i64),
        direction: Direction,
    ) -> Result<ReadOnlyWindowEntries<'_, K, V, KS, VS>, QueryError>
    where
        KS: Serializer<Q>,
    {
        let keys = self.0.one_key(key)?;
        self.0.find(SegmentedQuery { keys, from, to }, direction).map(ReadOnlyWindowEntries)
    }

    /// The values of the keys from `key_from` to `key_to`, both included and `None` meaning open, in the windows that
    /// begin from `from` to `to`: one partition after the other, each by segment of time and then by the bytes of
    /// the keys; of a store in memory by window and then by key, as in Kafka Streams.
    ///
    /// # Errors
    /// As for all methods; also for a key without bytes.
    pub fn fetch_keys(
        &self,
        (key_from, key_to): (Option<&K>, Option<&K>),
        from: i64,
        to: i64,
    ) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError> {
        let keys = self.0.keys(key_from, key_to)?;
        self.0.find(SegmentedQuery { keys, from, to }, Direction::Forward)
    }

    /// As [`fetch_keys`](Self::fetch_keys), each partition in the opposite order.
    ///
    /// # Errors
    /// As for [`fetch_keys`](Self::fetch_keys).
    pub fn backward_fetch_keys(
        &self,
        (key_from, key_to): (Option<&K>, Option<&K>),
        from: i64,
        to: i64,
    ) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError> {
        let keys = self.0.keys(key_from, key_to)?;
        self.0.find(SegmentedQuery { keys, from, to }, Direction::Reverse)
    }

    /// The values of all keys in the windows that begin from `from` to `to`, in the order of
    /// [`fetch_keys`](Self::fetch_keys).
    ///
    /// # Errors
    /// As for all methods.
    pub fn fetch_all(
        &self,
        from: i64,
        to: i64,
    ) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError> {
        self.fetch_keys((None, None), from, to)
    }

    /// As [`fetch_all`](Self::fetch_all), each partition in the opposite order.
    ///
    /// # Errors
    /// As for all methods.
    pub fn backward_fetch_all(
        &self,
        from: i64,
        to: i64,
    ) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError> {
        self.backward_fetch_keys((None, None), from, to)
    }

    /// All values, in the order of [`fetch_keys`](Self::fetch_keys).
    ///
    /// # Errors
    /// As for all methods.
    pub fn all(&self) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError> {
        self.fetch_all(0, i64::MAX)
    }

    /// All values, each partition in the opposite order.
    ///
    /// # Errors
    /// As for all methods.
    pub fn backward_all(&self) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError> {
        self.backward_fetch_all(0, i64::MAX)
    }
}

/// The starts of the windows of a key and their values, read as they are asked for. It holds the stores open until it
/// is dropped.
#[derive(Debug)]
pub struct ReadOnlyWindowEntries<'a, K, V, KS, VS>(ReadOnlyWindowedEntries<'a, K, V, KS, VS>);

impl<K, V, KS, VS> Iterator for ReadOnlyWindowEntries<'_, K, V, KS, VS>
where
    KS: Serializer<K> + Deserializer<K>,
    VS: Deserializer<V>,
{
    type Item = Result<(i64, V), QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.0.next()?;
        Some(next.map(|(windowed, value)| (windowed.window.start, value)))
    }
}
