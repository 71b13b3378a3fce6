//! Stores of sessions.

use headwater_store::serde::{Deserializer, Serializer, Window};
use headwater_store::{Direction, SegmentedQuery};

use super::{ReadOnlyWindowedEntries, Segmented};
use crate::query::QueryError;

/// A session store of a running instance, to be read: all partitions that the view was made for.
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
/// let clicks = QueryableStoreTypes::session::<String, i64, _, _>(Utf8, Long);
/// let clicks = instance.store(StoreQueryParameters::new("clicks-per-session", clicks))?;
/// for session in clicks.fetch("ada")? {
///     let (session, clicks) = session?;
///     println!("{clicks} from {} to {}", session.window.start, session.window.end);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ReadOnlySessionStore<K, V, KS, VS>(Segmented<K, V, KS, VS>);

impl<K, V, KS, VS> ReadOnlySessionStore<K, V, KS, VS>
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

    /// The value of `key` for exactly this session, in whichever partition has it.
    ///
    /// # Errors
    /// As for all methods; also for a key without bytes.
    pub fn fetch_session<Q: ?Sized>(
        &self,
        key: &Q,
        session: Window,
    ) -> Result<Option<V>, QueryError>
    where
        KS: Serializer<Q>,
    {
        self.0.get(key, session)
    }

    /// The sessions of `key` that end at `earliest_end` or later and begin at `latest_start` or earlier, by their
    /// ends, the earliest first.
    ///
    /// # Errors
    /// As for all methods; also for a key without bytes.
    pub fn find_sessions<Q: ?Sized>(
        &self,
        key: &Q,
        earliest_end: i64,
        latest_start: i64,
    ) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError>
    where
        KS: Serializer<Q>,
    {
        let keys = self.0.one_key(key)?;
        let query = SegmentedQuery { keys, from: earliest_end, to: latest_start };
        self.0.find(query, Direction::Forward)
    }

    /// As [`find_sessions`](Self::find_sessions), the latest first.
    ///
    /// # Errors
    /// As for [`find_sessions`](Self::find_sessions).
    pub fn backward_find_sessions<Q: ?Sized>(
        &self,
        key: &Q,
        earliest_end: i64,
        latest_start: i64,
    ) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError>
    where
        KS: Serializer<Q>,
    {
        let keys = self.0.one_key(key)?;
        let query = SegmentedQuery { keys, from: earliest_end, to: latest_start };
        self.0.find(query, Direction::Reverse)
    }

    /// As [`find_sessions`](Self::find_sessions) for the keys from one to another, both included and `None` meaning
    /// open: one partition after the other, each by segment of time and then by the bytes of the keys; of a store in
    /// memory by the sessions' ends, as in Kafka Streams.
    ///
    /// # Errors
    /// As for all methods; also for a key without bytes.
    pub fn find_sessions_of_keys(
        &self,
        (key_from, key_to): (Option<&K>, Option<&K>),
        earliest_end: i64,
        latest_start: i64,
    ) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError> {
        let keys = self.0.keys(key_from, key_to)?;
        let query = SegmentedQuery { keys, from: earliest_end, to: latest_start };
        self.0.find(query, Direction::Forward)
    }

    /// As [`find_sessions_of_keys`](Self::find_sessions_of_keys), each partition in the opposite order.
    ///
    /// # Errors
    /// As for [`find_sessions_of_keys`](Self::find_sessions_of_keys).
    pub fn backward_find_sessions_of_keys(
        &self,
        (key_from, key_to): (Option<&K>, Option<&K>),
        earliest_end: i64,
        latest_start: i64,
    ) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError> {
        let keys = self.0.keys(key_from, key_to)?;
        let query = SegmentedQuery { keys, from: earliest_end, to: latest_start };
        self.0.find(query, Direction::Reverse)
    }

    /// All sessions of `key`, by their ends, the earliest first.
    ///
    /// # Errors
    /// As for [`find_sessions`](Self::find_sessions).
    pub fn fetch<Q: ?Sized>(
        &self,
        key: &Q,
    ) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError>
    where
        KS: Serializer<Q>,
    {
        self.find_sessions(key, 0, i64::MAX)
    }

    /// As [`fetch`](Self::fetch), the latest first.
    ///
    /// # Errors
    /// As for [`find_sessions`](Self::find_sessions).
    pub fn backward_fetch<Q: ?Sized>(
        &self,
        key: &Q,
    ) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError>
    where
        KS: Serializer<Q>,
    {
        self.backward_find_sessions(key, 0, i64::MAX)
    }

    /// All sessions of the keys from one to another, in the order of
    /// [`find_sessions_of_keys`](Self::find_sessions_of_keys).
    ///
    /// # Errors
    /// As for [`find_sessions_of_keys`](Self::find_sessions_of_keys).
    pub fn fetch_keys(
        &self,
        key_from: Option<&K>,
        key_to: Option<&K>,
    ) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError> {
        self.find_sessions_of_keys((key_from, key_to), 0, i64::MAX)
    }

    /// As [`fetch_keys`](Self::fetch_keys), each partition in the opposite order.
    ///
    /// # Errors
    /// As for [`find_sessions_of_keys`](Self::find_sessions_of_keys).
    pub fn backward_fetch_keys(
        &self,
        key_from: Option<&K>,
        key_to: Option<&K>,
    ) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError> {
        self.backward_find_sessions_of_keys((key_from, key_to), 0, i64::MAX)
    }
}
