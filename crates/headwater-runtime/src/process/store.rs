//! A task's stores, as its nodes use them: overlay, record cache and changelog.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use headwater_broker::{TopicName, TopicPartition};
use headwater_records::Record;
use headwater_store::{
    CacheContext, CacheFlush, Layout, LruLayout, Overlay, StoreError, VersionedLayout,
    push_headers, push_timestamped,
};
use headwater_topology::{StoreKind, StoreSpec, TaskId};

use crate::metrics::StoreCounts;
use crate::process::cache_benefit::CacheBenefit;
use crate::process::{FlushListener, Headers, Segments, TaskError, TaskErrorKind};
use crate::worker::{Outputs, Partitioning, TopicIndex};

/// The record that caused a cached update, kept until the update is forwarded.
#[derive(Clone, Debug, Default)]
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

/// One store of a task.
pub(crate) struct TaskStore {
    pub(crate) name: Arc<str>,
    pub(crate) layout: Layout,
    pub(crate) overlay: Overlay<RecordContext>,
    /// What the layout needs beside the overlay.
    pub(crate) keeper: Keeper,
    /// A value in its layout; kept for its room.
    stored: Vec<u8>,
    /// What was done with it since that was last told.
    pub(crate) counts: StoreCounts,
    /// The looks at ranges among them, which change nothing else.
    ranges: Cell<u64>,
    /// Which of the task's storages holds it; `None` for a global store, which is only read.
    pub(crate) storage: Option<usize>,
    pub(crate) changelog: Option<StoreChangelog>,
    /// Set when the store is cached.
    pub(crate) cache: Option<StoreCache>,
}

/// What a layout needs beside the overlay, where an update is more than one entry.
#[derive(Debug)]
pub(crate) enum Keeper {
    /// Nothing.
    None,
    Lru(LruLayout),
    Versioned(VersionedLayout),
    Segmented(Segments),
}

impl Keeper {
    fn of(spec: &StoreSpec, layout: Layout) -> Self {
        match (&spec.kind, layout) {
            (StoreKind::Lru { max_entries }, _) => Self::Lru(LruLayout::new(*max_entries)),
            (_, Layout::Versioned(options)) => Self::Versioned(VersionedLayout::new(options)),
            (_, Layout::Segmented(options)) => {
                Self::Segmented(Segments::new(options, spec.persistent))
            }
            _ => Self::None,
        }
    }
}

/// Where a store's changes are logged.
#[derive(Clone, Debug)]
pub(crate) struct StoreChangelog {
    pub(crate) topic: TopicIndex,
    pub(crate) topic_partition: TopicPartition,
    /// False when the changelog is a source topic, which is not written again.
    pub(crate) written: bool,
}

impl StoreChangelog {
    /// Logs a change.
    #[inline]
    pub(crate) fn append(
        &self,
        outputs: &mut Outputs,
        record: Record<'_>,
    ) -> Result<(), crate::worker::AppendError> {
        let partition = Partitioning::Exactly(self.topic_partition.partition);
        outputs.append(self.topic, partition, record, || None)
    }
}

/// What a cached store needs beside its overlay.
#[derive(Debug)]
pub(crate) struct StoreCache {
    pub(crate) listener: Option<Arc<dyn FlushListener>>,
    /// A flush under way; kept for its room.
    pub(crate) flush: CacheFlush<RecordContext>,
    pub(crate) benefit: CacheBenefit,
}

impl StoreCache {
    pub(crate) fn new(listener: Option<Arc<dyn FlushListener>>) -> Self {
        Self { listener, flush: CacheFlush::default(), benefit: CacheBenefit::new() }
    }
}

impl TaskStore {
    pub(crate) fn new(
        spec: &StoreSpec,
        layout: Layout,
        overlay: Overlay<RecordContext>,
        storage: Option<usize>,
    ) -> Self {
        let name = Arc::from(spec.name.as_str());
        let keeper = Keeper::of(spec, layout);
        let (stored, changelog, cache) = (Vec::new(), None, None);
        let (counts, ranges) = (StoreCounts::default(), Cell::new(0));
        Self { name, layout, overlay, keeper, stored, counts, ranges, storage, changelog, cache }
    }

    /// A range is looked at.
    pub(crate) fn count_range(&self) {
        self.ranges.set(self.ranges.get() + 1);
    }

    /// What was done with the store since this was last asked.
    pub(crate) fn take_counts(&mut self) -> StoreCounts {
        let ranges = self.ranges.take();
        let hits = self.overlay.take_cache_hits();
        let counts = StoreCounts { hits, ..std::mem::take(&mut self.counts) };
        match self.keeper {
            Keeper::Segmented(_) => StoreCounts { fetches: counts.fetches + ranges, ..counts },
            _ => StoreCounts { ranges: counts.ranges + ranges, ..counts },
        }
    }

    /// Whether reading and writing are no more than that of one entry, and wait in no cache.
    #[inline]
    pub(crate) const fn is_direct(&self) -> bool {
        self.cache.is_none() && matches!(self.keeper, Keeper::None | Keeper::Segmented(_))
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
            (Layout::TimestampedKeyValue, Some(value)) => {
                self.overlay.put_timestamped(key, value, timestamp, context);
            }
            (Layout::TimestampedKeyValueWithHeaders, Some(value)) => {
                self.put_with_headers(key, (value, Some(timestamp)), None, context);
            }
            (_, value) => self.overlay.put(key, value, context),
        }
    }

    /// Without headers, that is: what an operator computes has none of its own.
    pub(crate) fn put_with_headers(
        &mut self,
        key: &[u8],
        (value, timestamp): (&[u8], Option<i64>),
        headers: Option<&Headers>,
        context: impl FnOnce() -> RecordContext,
    ) {
        self.stored.clear();
        match headers {
            Some(headers) => push_headers(headers.iter(), &mut self.stored),
            None => self.stored.push(NO_HEADERS),
        }
        match timestamp {
            Some(timestamp) => push_timestamped(timestamp, value, &mut self.stored),
            None => self.stored.extend_from_slice(value),
        }
        self.overlay.put(key, Some(&self.stored), context);
    }

    /// Logs a change: the value without its timestamp and headers, which travel as the record's
    /// (feature rows P8, P19, P33).
    #[inline]
    pub(crate) fn log(
        &self,
        outputs: &mut Outputs,
        record: Record<'_>,
    ) -> Result<(), crate::worker::AppendError> {
        let Some(changelog) = self.changelog.as_ref().filter(|changelog| changelog.written) else {
            return Ok(());
        };
        changelog.append(outputs, record)
    }
}

/// A store that its backend cannot read or write.
#[cold]
pub(crate) fn unreadable(task: TaskId, store: &Arc<str>, error: StoreError) -> TaskError {
    TaskErrorKind::Store { task, store: Arc::clone(store), source: Arc::new(error) }.into()
}

/// How a value without headers begins.
const NO_HEADERS: u8 = 0;

impl fmt::Debug for TaskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskStore")
            .field("name", &self.name)
            .field("layout", &self.layout)
            .field("overlay", &self.overlay)
            .finish_non_exhaustive()
    }
}
