//! Reads of uncommitted state: questions that the stream thread answers between two slices of work.

use std::collections::VecDeque;
use std::vec;

use headwater_store::serde::{Deserializer, Serializer};
use headwater_store::{Direction, KeyRange, KeyValueBytes};
use headwater_topology::TaskId;

use super::{QueryError, ReadOnlyKeyValueStore};

/// The same store with all that was processed so far, also what waits in the record cache and for the
/// next commit. Made by [`ReadOnlyKeyValueStore::uncommitted`].
///
/// Every read is a question to the stream threads that have the tasks; an answer comes between two
/// slices of work, so a slow user function delays it. A failure before the next commit takes back
/// what was seen. While a task is being restored nobody can be asked.
#[derive(Debug)]
pub struct UncommittedReads<'a, K, V, KS, VS> {
    store: &'a ReadOnlyKeyValueStore<K, V, KS, VS>,
}

/// Entries that one question asks for.
const ENTRIES_OF_AN_ANSWER: usize = 256;

impl<'a, K, V, KS, VS> UncommittedReads<'a, K, V, KS, VS>
where
    KS: Serializer<K> + Deserializer<K>,
    VS: Deserializer<V>,
{
    pub(super) fn new(store: &'a ReadOnlyKeyValueStore<K, V, KS, VS>) -> Self {
        Self { store }
    }

    /// The value of `key`, in whichever partition has it.
    ///
    /// # Errors
    /// As for [`ReadOnlyKeyValueStore::get`].
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn get<Q: ?Sized>(&self, key: &Q) -> Result<Option<V>, QueryError>
    where
        KS: Serializer<Q>,
    {
        let key = self.store.serialize(key)?;
        let range = KeyRange::inclusive(Some(&key), Some(&key));
        for task in self.store.view.tasks.iter().copied() {
            let question = (range.clone(), Direction::Forward, 1);
            for (_, value) in self.store.view.ask(task, question).await? {
                if let Some(value) = self.store.value(&value)? {
                    return Ok(Some(value));
                }
            }
        }
        Ok(None)
    }

    /// Every entry from `from` to `to`, both included, `None` meaning open: one partition after the
    /// other, each in ascending order of the keys' bytes.
    ///
    /// # Errors
    /// For a key without bytes.
    pub fn range(
        &self,
        from: Option<&K>,
        to: Option<&K>,
    ) -> Result<UncommittedEntries<'a, K, V, KS, VS>, QueryError> {
        Ok(self.entries(self.store.bounds(from, to)?, Direction::Forward))
    }

    /// As [`range`](Self::range), each partition in descending order.
    ///
    /// # Errors
    /// As for [`range`](Self::range).
    pub fn reverse_range(
        &self,
        from: Option<&K>,
        to: Option<&K>,
    ) -> Result<UncommittedEntries<'a, K, V, KS, VS>, QueryError> {
        Ok(self.entries(self.store.bounds(from, to)?, Direction::Reverse))
    }

    /// Every entry: one partition after the other, each in ascending order of the keys' bytes.
    pub fn all(&self) -> UncommittedEntries<'a, K, V, KS, VS> {
        self.entries(KeyRange::all(), Direction::Forward)
    }

    /// As [`all`](Self::all), each partition in descending order.
    pub fn reverse_all(&self) -> UncommittedEntries<'a, K, V, KS, VS> {
        self.entries(KeyRange::all(), Direction::Reverse)
    }

    fn entries(
        &self,
        range: KeyRange,
        direction: Direction,
    ) -> UncommittedEntries<'a, K, V, KS, VS> {
        UncommittedEntries {
            store: self.store,
            rest: range.clone(),
            range,
            direction,
            tasks: self.store.view.tasks.iter().copied().collect(),
            answer: Vec::new().into_iter(),
        }
    }
}

/// The entries of a range with uncommitted changes, asked for piece by piece; what changes between
/// two answers may or may not be seen.
#[derive(Debug)]
pub struct UncommittedEntries<'a, K, V, KS, VS> {
    store: &'a ReadOnlyKeyValueStore<K, V, KS, VS>,
    range: KeyRange,
    direction: Direction,
    /// What is left of the range in the first of the tasks.
    rest: KeyRange,
    tasks: VecDeque<TaskId>,
    answer: vec::IntoIter<KeyValueBytes>,
}

impl<K, V, KS, VS> UncommittedEntries<'_, K, V, KS, VS>
where
    KS: Serializer<K> + Deserializer<K>,
    VS: Deserializer<V>,
{
    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// [`QueryError::Migrated`] when a task has left, [`QueryError::Store`] when its store cannot be
    /// read.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<(K, V)>, QueryError> {
        loop {
            for (key, value) in self.answer.by_ref() {
                if let Some(value) = self.store.value(&value)? {
                    return Ok(Some((self.store.key(&key)?, value)));
                }
            }
            let Some(&task) = self.tasks.front() else { return Ok(None) };
            let question = (self.rest.clone(), self.direction, ENTRIES_OF_AN_ANSWER);
            let answer = self.store.view.ask(task, question).await?;
            if let Some((last, _)) = answer.last() {
                self.rest.resume_after(last, self.direction);
            } else {
                self.tasks.pop_front();
                self.rest = self.range.clone();
            }
            self.answer = answer.into_iter();
        }
    }
}
