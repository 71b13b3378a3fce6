//! What a node may do while a record passes through it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::TopicName;
use headwater_records::{Header, Record, partition_for_key};
use headwater_store::serde::Payload;
use headwater_store::{Direction, KeyRange, KeyValueRef, Layout, OverlayCursor, StoreError};
use headwater_topology::TaskId;
use smallvec::SmallVec;

use crate::config::StreamsConfig;
use crate::metrics::ProcessorMetrics;
use crate::process::store::{TaskStore, unreadable};
use crate::process::{
    FirstPunctuation, Headers, NodeIndex, ProcessorSlot, PunctuationToken, PunctuationType,
    RawRecord, SinkSlot, StoreSlot, TaskError, TaskErrorKind, TaskProcessor, UserError,
};
use crate::task::TaskCore;
use crate::worker::{AppendError, BatchOrigin, Partitioning, ThreadCore, TopicIndex};

mod cache;
mod contexts;
mod failures;
mod fetch;
mod segmented;
mod stores;

pub use fetch::{FetchedEntries, FetchedEntry, WindowFetch};
pub use segmented::SegmentedCursor;
pub use stores::{StoredEntry, StoredVersion};

pub(crate) use failures::RETRY_OF_WHAT_STAYS;
pub(crate) use segmented::Segments;

/// The context of a record on its way through a task, made anew for each record: where it came
/// from, and what the nodes may do with the task's stores, sinks and schedules.
#[derive(Debug)]
pub struct Cx<'a> {
    pub(crate) task: &'a mut TaskCore,
    pub(crate) thread: &'a mut ThreadCore,
    pub(crate) origin: Origin<'a>,
}

/// Where the present record came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) topic: Option<&'a TopicName>,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) raw: Option<&'a RawRecord<'a>>,
}

impl Origin<'_> {
    /// No record: a punctuation at `timestamp` (feature row R14).
    pub(crate) const fn punctuation(timestamp: i64) -> Self {
        Self { topic: None, partition: -1, offset: -1, timestamp, raw: None }
    }
}

/// A place in a store's entries, see [`Cx::range`].
#[derive(Debug)]
pub struct StoreCursor {
    store: StoreSlot,
    cursor: OverlayCursor,
}

/// # Where the record came from
impl Cx<'_> {
    /// The topic of the input record; `None` in a punctuation.
    pub fn topic(&self) -> Option<&TopicName> {
        self.origin.topic
    }

    /// The partition of the input record; −1 in a punctuation.
    pub fn partition(&self) -> i32 {
        self.origin.partition
    }

    /// The offset of the input record; −1 in a punctuation.
    pub fn offset(&self) -> i64 {
        self.origin.offset
    }

    /// The timestamp of the input record, or the time of the punctuation.
    pub fn input_timestamp(&self) -> i64 {
        self.origin.timestamp
    }

    /// The record's headers. Nodes visited later see every change.
    pub fn headers(&self) -> &Headers {
        &self.task.headers
    }

    /// The record's headers, to change them.
    pub fn headers_mut(&mut self) -> &mut Headers {
        &mut self.task.headers
    }

    /// Runs `f`, which may change the headers, and gives the record those that it has now back.
    pub fn with_own_headers<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        if self.task.headers.is_empty() {
            let result = f(self);
            self.task.headers.clear();
            return result;
        }
        let mut before = self.thread.headers.pop().unwrap_or_default();
        before.clone_from(&self.task.headers);
        let result = f(self);
        std::mem::swap(&mut before, &mut self.task.headers);
        self.thread.headers.push(before);
        result
    }

    /// The bytes of a key, to read it from. Where they are those of the input record's key they are a part of its batch and
    /// need not be copied to be kept.
    pub fn key_payload<'p>(&'p self, bytes: &'p [u8]) -> Payload<'p> {
        match self.origin.raw {
            Some(&RawRecord { key: Some(key), owner, .. }) if key == bytes => {
                Payload::part_of(owner, key)
            }
            _ => Payload::new(bytes),
        }
    }

    /// The task.
    pub fn task_id(&self) -> TaskId {
        self.task.id
    }

    /// The application.
    pub fn application_id(&self) -> &str {
        &self.task.application_id
    }

    /// The settings of the application.
    pub fn config(&self) -> &StreamsConfig {
        &self.thread.config
    }

    /// Makes metrics with the labels of the thread, the task and this node.
    pub fn metrics(&self, node: NodeIndex) -> ProcessorMetrics {
        let scope = self.task.metrics.as_ref().map(|metrics| metrics.scope().clone());
        let name = self.task.program.nodes[node.index()].to_string();
        ProcessorMetrics::new(scope).with_label("processor_node_id", name)
    }

    /// The directory of the task's state. It is there if a store of the task lies on disk.
    pub fn state_dir(&self) -> &Path {
        &self.task.state_dir
    }

    /// The highest timestamp the task has seen; −1 before the first record.
    pub fn stream_time(&self) -> i64 {
        self.task.stream_time
    }

    /// Wall-clock time in milliseconds since 1970, as of the beginning of this slice of work.
    pub fn wall_clock_ms(&self) -> i64 {
        self.thread.now.wall_ms
    }
}

/// # Stores
impl Cx<'_> {
    /// The stored value of a key in the store's layout, such as with 8 bytes of timestamp in front if
    /// it is a timestamped store; of a versioned store the latest value.
    ///
    /// # Errors
    /// [`TaskErrorKind::Store`] when the backend cannot be read.
    #[inline]
    pub fn get(&mut self, slot: StoreSlot, key: &[u8]) -> Result<Option<&[u8]>, TaskError> {
        let store = &mut self.task.stores[slot.index()];
        store.counts.gets += 1;
        if !store.is_direct() {
            return self.get_indirect(slot, key);
        }
        let task = self.task.id;
        let TaskStore { name, overlay, .. } = &mut self.task.stores[slot.index()];
        overlay.get(key).map_err(|error| unreadable(task, name, error))
    }

    /// Gives a key a new value, without timestamp, or deletes it; changes are logged with
    /// `timestamp`, and kept with it in a timestamped store.
    ///
    /// In a cached store the change waits to be forwarded by the store's listener; older changes
    /// may be forwarded right now to make room.
    ///
    /// # Errors
    /// [`TaskErrorKind::Store`], [`TaskErrorKind::Unwritable`], and what nodes below the store say.
    #[inline]
    pub fn put(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        let store = &mut self.task.stores[slot.index()];
        if !store.is_direct() {
            return self.put_indirect(slot, key, value, timestamp);
        }
        store.counts.wrote(value.is_some());
        store.put(key, value, timestamp, || unreachable!("without cache no context is kept"));
        if value.is_none() && store.layout == Layout::TimestampedKeyValueWithHeaders {
            return self.log_with_headers(slot, key, None, timestamp);
        }
        let record = Record { timestamp, key: Some(key), value, headers: &[] };
        match store.log(&mut self.thread.outputs, record) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.log_error(slot, error)),
        }
    }

    /// Whether the store is cached: its changes are then handed on by its listener.
    #[inline]
    pub fn is_cached(&self, slot: StoreSlot) -> bool {
        self.task.stores[slot.index()].cache.is_some()
    }

    /// Starts reading the entries of a range, ascending or descending; what is written meanwhile
    /// may or may not be seen.
    pub fn range(&self, slot: StoreSlot, range: KeyRange, direction: Direction) -> StoreCursor {
        let store = &self.task.stores[slot.index()];
        store.count_range();
        let cursor = store.overlay.range(range, direction);
        StoreCursor { store: slot, cursor }
    }

    /// The next entry of a range: key and stored value.
    ///
    /// # Errors
    /// [`TaskErrorKind::Store`] when the backend cannot be read.
    pub fn next_entry<'c>(
        &'c mut self,
        cursor: &'c mut StoreCursor,
    ) -> Result<Option<KeyValueRef<'c>>, TaskError> {
        let task = self.task.id;
        let TaskStore { name, overlay, .. } = &mut self.task.stores[cursor.store.index()];
        overlay.next(&mut cursor.cursor).map_err(|error| unreadable(task, name, error))
    }

    /// About how many entries a store has.
    ///
    /// # Errors
    /// [`TaskErrorKind::Store`] when the backend cannot be read.
    pub fn approximate_entries(&self, slot: StoreSlot) -> Result<u64, TaskError> {
        let entries = self.task.stores[slot.index()].overlay.approximate_entries();
        entries.map_err(|error| self.store_error(slot, error))
    }

    #[cold]
    pub(super) fn log_error(&self, slot: StoreSlot, error: AppendError) -> TaskError {
        let changelog = self.task.stores[slot.index()].changelog.as_ref();
        self.append_error(changelog.map(|changelog| changelog.topic), error)
    }

    #[cold]
    pub(super) fn store_error(&self, slot: StoreSlot, error: StoreError) -> TaskError {
        unreadable(self.task.id, &self.task.stores[slot.index()].name, error)
    }
}

/// A topic that records are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputTopic(TopicIndex);

/// # Sinks
impl Cx<'_> {
    /// The topic of a sink that always writes to the same one.
    #[inline]
    pub fn topic_of(&self, sink: SinkSlot) -> OutputTopic {
        OutputTopic(self.task.sinks[sink.index()])
    }

    /// The topic of this name, for a sink that chooses one for each record; `None` if there is no such
    /// topic. What has been written to before is found without asking anybody.
    ///
    /// # Errors
    /// When the broker cannot be asked.
    #[inline]
    pub fn find_topic(&mut self, name: &str) -> Result<Option<OutputTopic>, UserError> {
        match self.thread.outputs.find(name) {
            Some(topic) => Ok(Some(OutputTopic(topic))),
            None => self.thread.look_up_topic(name).map(|found| found.map(OutputTopic)),
        }
    }

    /// How many partitions a topic has.
    pub fn partitions(&self, topic: OutputTopic) -> i32 {
        self.thread.outputs.partitions(topic.0)
    }

    /// The partition of a topic where Kafka's default partitioner puts a key of these bytes.
    pub fn default_partition(&self, topic: OutputTopic, key: &[u8]) -> i32 {
        partition_for_key(key, self.partitions(topic))
    }

    /// Writes a record to the topic of a sink, as [`send_to`](Self::send_to).
    ///
    /// # Errors
    /// As for [`send_to`](Self::send_to).
    #[inline]
    pub fn send(
        &mut self,
        sink: SinkSlot,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        timestamp: i64,
        partitioning: Partitioning,
    ) -> Result<(), TaskError> {
        self.send_to(self.topic_of(sink), key, value, timestamp, partitioning)
    }

    /// Writes a record with the present headers: encodes it into the batch its partition is
    /// building.
    ///
    /// # Errors
    /// [`TaskErrorKind::TooLarge`], [`TaskErrorKind::Unwritable`], [`TaskErrorKind::NoSuchPartition`].
    #[inline]
    pub fn send_to(
        &mut self,
        OutputTopic(topic): OutputTopic,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        timestamp: i64,
        partitioning: Partitioning,
    ) -> Result<(), TaskError> {
        let record = Record { timestamp, key, value, headers: &[] };
        let sent = if self.task.headers.is_empty() {
            let task = &self.task;
            self.thread.outputs.append(topic, partitioning, record, || Some(origin(task)))
        } else {
            self.append_with_headers(topic, partitioning, record)
        };
        match sent {
            Ok(()) => Ok(()),
            Err(error) => Err(self.append_error(Some(topic), error)),
        }
    }

    #[inline(never)]
    fn append_with_headers(
        &mut self,
        topic: TopicIndex,
        partitioning: Partitioning,
        record: Record<'_>,
    ) -> Result<(), AppendError> {
        let headers = borrow_headers(&self.task.headers);
        let (task, record) = (&self.task, Record { headers: &headers, ..record });
        self.thread.outputs.append(topic, partitioning, record, || Some(origin(task)))
    }

    /// A buffer for a serialiser, empty. Give it back with [`give_buffer`](Self::give_buffer), so
    /// that no record allocates one.
    #[inline]
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.thread.buffers.pop().unwrap_or_default()
    }

    /// Gives a buffer back.
    #[inline]
    pub fn give_buffer(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.thread.buffers.push(buffer);
    }

    #[cold]
    fn append_error(&self, topic: Option<TopicIndex>, error: AppendError) -> TaskError {
        let topic = topic.map_or_else(
            || TopicName::from("(none)"),
            |index| self.thread.outputs.name(index).clone(),
        );
        let kind = match error {
            AppendError::NoSuchPartition { partition, partitions } => {
                TaskErrorKind::NoSuchPartition { topic, partition, partitions }
            }
            AppendError::TooLarge { bytes, limit } => {
                TaskErrorKind::TooLarge { task: self.task.id, topic, bytes, limit }
            }
            AppendError::Records(source) => {
                TaskErrorKind::Unwritable { task: self.task.id, topic, source }
            }
        };
        kind.into()
    }
}

/// # Processors and schedules
impl Cx<'_> {
    /// Runs `f` with a user's processor, which is a `P`.
    ///
    /// A processor that was lost to a panic is made anew.
    ///
    /// # Errors
    /// What `f` says, or the `init` of a processor made anew.
    ///
    /// # Panics
    /// When the processor is not a `P`, or is running already: bugs of whoever built the program.
    pub fn with_processor<P: TaskProcessor>(
        &mut self,
        slot: ProcessorSlot,
        f: impl FnOnce(&mut P, &mut Self) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let mut processor = self.take_processor(slot)?;
        let any: &mut dyn std::any::Any = &mut *processor;
        let typed = any.downcast_mut::<P>().expect("a slot holds the type it was made with");
        let result = f(typed, self);
        self.task.processors[slot.index()] = Some(processor);
        result
    }

    /// Schedules [`TaskProcessor::punctuate`] of a processor (feature row R14).
    pub fn schedule(
        &mut self,
        slot: ProcessorSlot,
        interval: Duration,
        kind: PunctuationType,
    ) -> PunctuationToken {
        let first = match kind {
            PunctuationType::StreamTime => FirstPunctuation::AtOnce,
            PunctuationType::WallClockTime => FirstPunctuation::AfterInterval,
        };
        self.task.punctuations.schedule(slot, kind, interval, (first, self.thread.now.wall_ms))
    }

    /// As [`schedule`](Self::schedule), at a time and multiples of the interval after it (KIP-1146).
    pub fn schedule_from(
        &mut self,
        slot: ProcessorSlot,
        start_ms: i64,
        interval: Duration,
        kind: PunctuationType,
    ) -> PunctuationToken {
        let first = FirstPunctuation::At(start_ms);
        self.task.punctuations.schedule(slot, kind, interval, (first, self.thread.now.wall_ms))
    }

    /// Ends a schedule; says whether it was there.
    pub fn cancel(&mut self, token: PunctuationToken) -> bool {
        self.task.punctuations.cancel(token)
    }

    /// Asks for a commit of this task soon.
    pub fn request_commit(&mut self) {
        self.task.commit_requested = true;
    }

    /// Runs `f` with a processor of whatever type.
    pub(crate) fn with_any_processor(
        &mut self,
        slot: ProcessorSlot,
        f: impl FnOnce(&mut dyn TaskProcessor, &mut Self) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let mut processor = self.take_processor(slot)?;
        let result = f(&mut *processor, self);
        self.task.processors[slot.index()] = Some(processor);
        result
    }

    fn take_processor(&mut self, slot: ProcessorSlot) -> Result<Box<dyn TaskProcessor>, TaskError> {
        if let Some(processor) = self.task.processors[slot.index()].take() {
            return Ok(processor);
        }
        // One that was lost to a panic has left its schedules behind.
        self.task.punctuations.cancel_all(slot);
        let mut processor = self.task.program.processors[slot.index()].supplier.get();
        processor.init(self, slot)?;
        Ok(processor)
    }
}

/// Whose output begins a batch: the node that was entered last.
#[cold]
fn origin(task: &TaskCore) -> BatchOrigin {
    let node = task.watch.node();
    let name = Arc::clone(&task.program.nodes[node.index()]);
    BatchOrigin { task: task.id, node, name }
}

/// Headers as the codec takes them; up to eight without allocation.
#[inline]
pub(crate) fn borrow_headers(headers: &Headers) -> SmallVec<[Header<'_>; 8]> {
    headers.iter().map(|(name, value)| Header { name, value }).collect()
}
