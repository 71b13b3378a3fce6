//! What a node may do while a record passes through it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{TopicName, TopicPartition};
use headwater_records::{Header, Record, partition_for_key};
use headwater_store::{
    CacheFlush, Direction, KeyRange, KeyValueRef, Layout, OverlayCursor, StoreError,
};
use headwater_topology::TaskId;
use smallvec::SmallVec;

use crate::process::store::{RecordContext, TaskStore};
use crate::process::{
    CachedUpdate, DropReason, ExceptionHandler, Failure, FailureKind, FirstPunctuation, Headers,
    NodeIndex, NullError, NullPart, NullRecords, ProcessorSlot, PunctuationToken, PunctuationType,
    RawRecord, Reaction, RecordPosition, SinkSlot, StoreSlot, TaskError, TaskProcessor, UserError,
    dead_letter_headers,
};
use crate::task::TaskCore;
use crate::worker::{AppendError, Partitioning, ThreadCore, TopicIndex};

mod contexts;
mod segmented;
mod stores;

pub use segmented::SegmentedEntry;
pub use stores::{StoredEntry, StoredVersion};

use segmented::LeavingChange;

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

    /// The task.
    pub fn task_id(&self) -> TaskId {
        self.task.id
    }

    /// The application.
    pub fn application_id(&self) -> &str {
        &self.task.application_id
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
    /// [`TaskError::Store`] when the backend cannot be read.
    #[inline]
    pub fn get(&mut self, slot: StoreSlot, key: &[u8]) -> Result<Option<&[u8]>, TaskError> {
        if !self.task.stores[slot.index()].is_direct() {
            return self.get_indirect(slot, key);
        }
        let task = self.task.id;
        let TaskStore { name, overlay, .. } = &mut self.task.stores[slot.index()];
        overlay.get(key).map_err(|error| TaskError::Store {
            task,
            store: Arc::clone(name),
            source: Arc::new(error),
        })
    }

    /// Gives a key a new value, without timestamp, or deletes it; changes are logged with
    /// `timestamp`, and kept with it in a timestamped store.
    ///
    /// In a cached store the change waits to be forwarded by the store's listener; older changes
    /// may be forwarded right now to make room.
    ///
    /// # Errors
    /// [`TaskError::Store`], [`TaskError::Unwritable`], and what nodes below the store say.
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
        store.put(key, value, timestamp, || unreachable!("without cache no context is kept"));
        if value.is_none() && store.layout == Layout::TimestampedKeyValueWithHeaders {
            return self.log_with_headers(slot, key, timestamp);
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
        let cursor = self.task.stores[slot.index()].overlay.range(range, direction);
        StoreCursor { store: slot, cursor }
    }

    /// The next entry of a range: key and stored value.
    ///
    /// # Errors
    /// [`TaskError::Store`] when the backend cannot be read.
    pub fn next_entry<'c>(
        &'c mut self,
        cursor: &'c mut StoreCursor,
    ) -> Result<Option<KeyValueRef<'c>>, TaskError> {
        let task = self.task.id;
        let TaskStore { name, overlay, .. } = &mut self.task.stores[cursor.store.index()];
        overlay.next(&mut cursor.cursor).map_err(|error| TaskError::Store {
            task,
            store: Arc::clone(name),
            source: Arc::new(error),
        })
    }

    /// About how many entries a store has.
    ///
    /// # Errors
    /// [`TaskError::Store`] when the backend cannot be read.
    pub fn approximate_entries(&self, slot: StoreSlot) -> Result<u64, TaskError> {
        let entries = self.task.stores[slot.index()].overlay.approximate_entries();
        entries.map_err(|error| self.store_error(slot, error))
    }

    /// Forwards all waiting changes of a cached store, as a commit does.
    pub(crate) fn flush(&mut self, slot: StoreSlot) -> Result<(), TaskError> {
        let store = &mut self.task.stores[slot.index()];
        let Some(cache) = &mut store.cache else { return Ok(()) };
        let before = store.overlay.cache_bytes();
        let mut flush = std::mem::take(&mut cache.flush);
        let taken = store.overlay.take_unforwarded(&mut flush);
        cache.benefit.note_committed(flush.len());
        self.thread.cache_bytes += store.overlay.cache_bytes();
        self.thread.cache_bytes -= before;
        let result = taken
            .map_err(|error| self.store_error(slot, error))
            .and_then(|()| self.forward_changes(slot, &flush));
        self.keep_flush(slot, flush);
        result
    }

    /// Reading makes an entry part of the cache, which can push another one out; so the value is
    /// copied first.
    pub(super) fn get_cached(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
    ) -> Result<Option<&[u8]>, TaskError> {
        let mut value = std::mem::take(&mut self.thread.value);
        value.clear();
        let store = &mut self.task.stores[slot.index()];
        let before = store.overlay.cache_bytes();
        let found =
            store.overlay.get(key).map(|found| found.map(|bytes| value.extend_from_slice(bytes)));
        self.thread.cache_bytes += store.overlay.cache_bytes();
        self.thread.cache_bytes -= before;
        let found = found.map_err(|error| self.store_error(slot, error))?;
        self.evict(slot)?;
        self.thread.value = value;
        Ok(found.map(|()| self.thread.value.as_slice()))
    }

    pub(super) fn put_cached(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        self.write_cached(slot, timestamp, |store, context| {
            store.put(key, value, timestamp, context);
        })
    }

    /// Writes to a cached store; `write` is given the context that the update is kept with.
    pub(super) fn write_cached(
        &mut self,
        slot: StoreSlot,
        timestamp: i64,
        write: impl FnOnce(&mut TaskStore, &dyn Fn() -> RecordContext),
    ) -> Result<(), TaskError> {
        let origin = self.origin;
        let task = &mut *self.task;
        let store = &mut task.stores[slot.index()];
        let before = store.overlay.cache_bytes();
        let headers = &task.headers;
        write(store, &|| RecordContext {
            topic_partition: origin.topic.map(|topic| (topic.clone(), origin.partition)),
            offset: origin.offset,
            timestamp,
            headers: headers.clone(),
        });
        self.thread.cache_bytes += store.overlay.cache_bytes();
        self.thread.cache_bytes -= before;
        if let Some(cache) = &mut store.cache {
            cache.benefit.note_put();
        }
        self.evict(slot)
    }

    #[cold]
    pub(super) fn log_error(&self, slot: StoreSlot, error: AppendError) -> TaskError {
        let changelog = self.task.stores[slot.index()].changelog.as_ref();
        self.append_error(changelog.map(|changelog| changelog.topic), error)
    }

    /// Pushes the oldest entries of a store out of the record cache while the thread has too many,
    /// and all of them while the cache stands aside.
    fn evict(&mut self, slot: StoreSlot) -> Result<(), TaskError> {
        loop {
            let store = &mut self.task.stores[slot.index()];
            let Some(cache) = &mut store.cache else { return Ok(()) };
            let before = store.overlay.cache_bytes();
            let is_empty_enough = self.thread.cache_bytes <= self.thread.cache_bytes_max;
            if is_empty_enough && (before == 0 || !cache.benefit.is_aside()) {
                return Ok(());
            }
            let mut flush = std::mem::take(&mut cache.flush);
            let evicted = store.overlay.evict_oldest(&mut flush);
            cache.benefit.note_evicted(flush.len());
            self.thread.cache_bytes += store.overlay.cache_bytes();
            self.thread.cache_bytes -= before;
            let result = evicted
                .map_err(|error| self.store_error(slot, error))
                .and_then(|found| self.forward_changes(slot, &flush).map(|()| found));
            self.keep_flush(slot, flush);
            if !result? {
                return Ok(());
            }
        }
    }

    /// Logs changes and hands them to the store's listener, each with the context of its last
    /// update.
    fn forward_changes(
        &mut self,
        slot: StoreSlot,
        flush: &CacheFlush<RecordContext>,
    ) -> Result<(), TaskError> {
        if flush.is_empty() {
            return Ok(());
        }
        let store = &self.task.stores[slot.index()];
        let layout = store.layout;
        let listener = store.cache.as_ref().and_then(|cache| cache.listener.clone());
        let headers = std::mem::take(&mut self.task.headers);
        let result = flush.iter().try_for_each(|change| {
            let context = change.context;
            let new = change.new.map(|stored| layout.split(stored));
            let Some(LeavingChange { key, old }) = self.leave_cache(slot, &change) else {
                return Ok(());
            };
            let old = old.map(|stored| layout.split(stored).value);
            // The time of a result can be later than that of the record that changed it.
            let stored_time = new.and_then(|new| new.timestamp);
            let timestamp = stored_time.unwrap_or(context.timestamp);
            self.log_change(slot, (key, new), timestamp, &context.headers)?;
            let new = new.map(|new| new.value);
            let Some(listener) = &listener else { return Ok(()) };
            self.task.headers.clone_from(&context.headers);
            let mut cx = Cx {
                task: &mut *self.task,
                thread: &mut *self.thread,
                origin: Origin {
                    topic: context.topic_partition.as_ref().map(|(topic, _)| topic),
                    partition: context
                        .topic_partition
                        .as_ref()
                        .map_or(-1, |(_, partition)| *partition),
                    offset: context.offset,
                    timestamp: context.timestamp,
                    raw: None,
                },
            };
            listener.forward(&mut cx, CachedUpdate { key, new, old, timestamp })
        });
        self.task.headers = headers;
        result
    }

    fn keep_flush(&mut self, slot: StoreSlot, mut flush: CacheFlush<RecordContext>) {
        flush.clear();
        if let Some(cache) = &mut self.task.stores[slot.index()].cache {
            cache.flush = flush;
        }
    }

    #[cold]
    pub(super) fn store_error(&self, slot: StoreSlot, error: StoreError) -> TaskError {
        let store = Arc::clone(&self.task.stores[slot.index()].name);
        TaskError::Store { task: self.task.id, store, source: Arc::new(error) }
    }
}

/// # Sinks
impl Cx<'_> {
    /// How many partitions a sink's topic has.
    pub fn partitions(&self, sink: SinkSlot) -> i32 {
        self.thread.outputs.partitions(self.task.sinks[sink.index()])
    }

    /// The partition of a sink's topic where Kafka's default partitioner puts a key of these bytes.
    pub fn default_partition(&self, sink: SinkSlot, key: &[u8]) -> i32 {
        partition_for_key(key, self.partitions(sink))
    }

    /// Writes a record with the present headers: encodes it into the batch its partition is
    /// building.
    ///
    /// # Errors
    /// [`TaskError::Unwritable`] when it is too large, [`TaskError::NoSuchPartition`].
    #[inline]
    pub fn send(
        &mut self,
        sink: SinkSlot,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        timestamp: i64,
        partitioning: Partitioning,
    ) -> Result<(), TaskError> {
        let topic = self.task.sinks[sink.index()];
        let record = Record { timestamp, key, value, headers: &[] };
        let sent = if self.task.headers.is_empty() {
            self.thread.outputs.append(topic, partitioning, record)
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
        self.thread.outputs.append(topic, partitioning, Record { headers: &headers, ..record })
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
        match error {
            AppendError::NoSuchPartition { partition, partitions } => {
                TaskError::NoSuchPartition { topic, partition, partitions }
            }
            AppendError::Records(source) => {
                TaskError::Unwritable { task: self.task.id, topic, source }
            }
        }
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

/// # Failures and drops
impl Cx<'_> {
    /// Says which node runs now, so that a panic or a hang can be told by name.
    #[inline]
    pub fn enter(&mut self, node: NodeIndex) {
        self.task.watch.enter(node);
    }

    /// Counts a record that ends at `node`.
    #[cold]
    pub fn dropped(&mut self, node: NodeIndex, reason: DropReason) {
        self.task.watch.count_drop(node, reason);
        tracing::debug!(
            task = %self.task.id,
            node = &*self.task.program.nodes[node.index()],
            offset = self.origin.offset,
            %reason,
            "record dropped"
        );
    }

    /// Ends a record that is null where `node` has no form for it: counted, or a failure of
    /// processing, as the settings have it ([`NullRecords`]). `Ok` means to go on without it.
    ///
    /// # Errors
    /// [`TaskError::Record`] when it is to fail, and the handler says so too.
    #[cold]
    pub fn null_record(&mut self, node: NodeIndex, part: NullPart) -> Result<(), TaskError> {
        match self.thread.null_records {
            NullRecords::Drop => {
                self.dropped(node, part.reason());
                Ok(())
            }
            NullRecords::Fail => {
                let error = Box::new(NullError { part });
                self.handle_failure(node, FailureKind::Processing, error, part.reason())
            }
        }
    }

    /// User code failed at `node`: asks the handler. `Ok` means to go on without this record.
    ///
    /// # Errors
    /// [`TaskError::Record`] when the handler says to fail.
    #[cold]
    pub fn failed(
        &mut self,
        node: NodeIndex,
        kind: FailureKind,
        error: UserError,
    ) -> Result<(), TaskError> {
        let reason = match kind {
            FailureKind::Deserialization => DropReason::Deserialization,
            FailureKind::Processing => DropReason::Processing,
            FailureKind::Production => DropReason::Production,
        };
        self.handle_failure(node, kind, error, reason)
    }

    fn handle_failure(
        &mut self,
        node: NodeIndex,
        kind: FailureKind,
        error: UserError,
        reason: DropReason,
    ) -> Result<(), TaskError> {
        let position = self.position();
        let reaction = self.ask_handler(node, kind, position.as_ref(), &*error);
        match reaction {
            Reaction::Fail => {
                return Err(TaskError::Record {
                    kind,
                    task: self.task.id,
                    node: Arc::clone(&self.task.program.nodes[node.index()]),
                    position,
                    source: Arc::from(error),
                });
            }
            Reaction::Continue => {}
            Reaction::DeadLetter(topic) => self.send_dead_letter(&topic, &*error)?,
        }
        self.task.watch.count_drop(node, reason);
        Ok(())
    }

    /// The input record; `None` in a punctuation.
    pub(crate) fn position(&self) -> Option<RecordPosition> {
        let topic = self.origin.topic?.clone();
        Some(RecordPosition {
            topic_partition: TopicPartition::new(topic, self.origin.partition),
            offset: self.origin.offset,
        })
    }

    fn ask_handler(
        &self,
        node: NodeIndex,
        kind: FailureKind,
        position: Option<&RecordPosition>,
        error: &(dyn Error + Send + Sync + 'static),
    ) -> Reaction {
        let handler: &dyn ExceptionHandler = self.thread.handlers.of(kind);
        handler.handle(&Failure {
            kind,
            task: self.task.id,
            node: &self.task.program.nodes[node.index()],
            position,
            raw_key: self.origin.raw.and_then(|raw| raw.key),
            raw_value: self.origin.raw.and_then(|raw| raw.value),
            headers: &self.task.headers,
            timestamp: self.origin.timestamp,
            error,
        })
    }

    /// The input record goes to the dead-letter topic as it came, with its origin in headers
    /// (KIP-1034).
    fn send_dead_letter(
        &mut self,
        topic: &TopicName,
        error: &(dyn Error + 'static),
    ) -> Result<(), TaskError> {
        let Some(partitions) = self.thread.partition_counts.get(topic).copied() else {
            return Err(TaskError::UnknownDeadLetterTopic { topic: topic.clone() });
        };
        let index = self.thread.outputs.topic(topic, partitions);
        let position = self.position();
        let headers = dead_letter_headers(&self.task.headers, error, position.as_ref());
        let headers = borrow_headers(&headers);
        let record = Record {
            timestamp: self.origin.timestamp,
            key: self.origin.raw.and_then(|raw| raw.key),
            value: self.origin.raw.and_then(|raw| raw.value),
            headers: &headers,
        };
        match self.thread.outputs.append(index, Partitioning::Default, record) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.append_error(Some(index), error)),
        }
    }
}

/// Headers as the codec takes them; up to eight without allocation.
#[inline]
pub(super) fn borrow_headers(headers: &Headers) -> SmallVec<[Header<'_>; 8]> {
    headers.iter().map(|(name, value)| Header { name, value }).collect()
}
