//! A task's stores, as its nodes use them: overlay, record cache and changelog.

use std::fmt;
use std::sync::Arc;

use headwater_broker::{TopicName, TopicPartition};
use headwater_records::Record;
use headwater_store::{CacheContext, CacheFlush, Overlay, StoreError};
use headwater_topology::StoreKind;

use crate::process::{FlushListener, Headers};
use crate::worker::{Outputs, Partitioning, TopicIndex};

/// The record that caused a cached update, kept until the update is forwarded.
#[derive(Clone, Debug)]
pub(crate) struct RecordContext {
    /// Where it came from; `None` in a punctuation.
    pub(crate) topic_partition: Option<(TopicName, i32)>,
    /// Its offset; −1 in a punctuation.
    pub(crate) offset: i64,
    /// Its timestamp.
    pub(crate) timestamp: i64,
    /// Its headers.
    pub(crate) headers: Headers,
}

impl CacheContext for RecordContext {
    fn resident_bytes(&self) -> usize {
        let topic = self.topic_partition.as_ref().map_or(0, |(topic, _)| topic.as_str().len());
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len))
            .sum();
        8 + 8 + 4 + topic + headers
    }
}

/// How a store lays out its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueLayout {
    /// The value as it is.
    Plain,
    /// 8 bytes of timestamp, then the value (feature row P7).
    Timestamped,
}

impl ValueLayout {
    pub(crate) fn of(kind: &StoreKind) -> Self {
        match kind {
            StoreKind::TimestampedKeyValue => Self::Timestamped,
            _ => Self::Plain,
        }
    }

    /// Takes a stored value apart: its timestamp, if the layout has one, and the value.
    pub(crate) fn split(self, stored: &[u8]) -> (Option<i64>, &[u8]) {
        match (self, stored.split_first_chunk::<8>()) {
            (Self::Timestamped, Some((timestamp, value))) => {
                (Some(i64::from_be_bytes(*timestamp)), value)
            }
            _ => (None, stored),
        }
    }
}

/// One store of a task.
pub(crate) struct TaskStore {
    pub(crate) name: Arc<str>,
    pub(crate) layout: ValueLayout,
    pub(crate) overlay: Overlay<RecordContext>,
    /// Which of the task's storages holds it.
    pub(crate) storage: usize,
    pub(crate) changelog: Option<StoreChangelog>,
    /// Set when the store is cached.
    pub(crate) cache: Option<StoreCache>,
}

/// Where a store's changes are logged.
#[derive(Clone, Debug)]
pub(crate) struct StoreChangelog {
    pub(crate) topic: TopicIndex,
    pub(crate) topic_partition: TopicPartition,
    /// False when the changelog is a source topic, which is not written again.
    pub(crate) written: bool,
}

/// What a cached store needs beside its overlay.
#[derive(Debug)]
pub(crate) struct StoreCache {
    pub(crate) listener: Option<Arc<dyn FlushListener>>,
    /// A flush under way; kept for its room.
    pub(crate) flush: CacheFlush<RecordContext>,
}

impl TaskStore {
    pub(crate) fn new(
        name: Arc<str>,
        layout: ValueLayout,
        overlay: Overlay<RecordContext>,
        storage: usize,
    ) -> Self {
        Self { name, layout, overlay, storage, changelog: None, cache: None }
    }

    /// The stored value, with its timestamp in front if the layout has one.
    #[inline]
    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        self.overlay.get(key)
    }

    /// Writes to the overlay, in the store's layout.
    #[inline]
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        timestamp: i64,
        context: impl FnOnce() -> RecordContext,
    ) {
        match (self.layout, value) {
            (ValueLayout::Timestamped, Some(value)) => {
                self.overlay.put_timestamped(key, value, timestamp, context);
            }
            (_, value) => self.overlay.put(key, value, context),
        }
    }

    /// Logs a change: the value without its timestamp, which travels as the record's (feature
    /// rows P8, P19).
    #[inline]
    pub(crate) fn log(
        &self,
        outputs: &mut Outputs,
        key: &[u8],
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<(), crate::worker::AppendError> {
        let Some(changelog) = self.changelog.as_ref().filter(|changelog| changelog.written) else {
            return Ok(());
        };
        let partition = Partitioning::Exactly(changelog.topic_partition.partition);
        let record = Record { timestamp, key: Some(key), value, headers: &[] };
        outputs.append(changelog.topic, partition, record)
    }
}

impl fmt::Debug for TaskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskStore")
            .field("name", &self.name)
            .field("layout", &self.layout)
            .field("overlay", &self.overlay)
            .finish_non_exhaustive()
    }
}
