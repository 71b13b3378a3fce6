//! Cached stores: what waits to be forwarded, and what is pushed out of the record cache.

use headwater_store::CacheFlush;

use super::segmented::LeavingChange;
use super::{Cx, Origin};
use crate::process::store::{RecordContext, TaskStore};
use crate::process::{CachedUpdate, StoreSlot, TaskError};

impl Cx<'_> {
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
        let after = store.overlay.cache_bytes();
        self.thread.cache_bytes += after;
        self.thread.cache_bytes -= before;
        let found = found.map_err(|error| self.store_error(slot, error))?;
        // As in Kafka Streams, what is in the cache already pushes nothing out.
        if after > before {
            self.evict(slot)?;
        }
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
            let freed = before - store.overlay.cache_bytes();
            let result = evicted
                .map_err(|error| self.store_error(slot, error))
                .and_then(|found| self.forward_changes(slot, &flush).map(|()| found));
            // As in Kafka Streams, what leaves takes room until it has been forwarded.
            self.thread.cache_bytes -= freed;
            self.keep_flush(slot, flush);
            if !result? {
                return Ok(());
            }
        }
    }

    /// Logs changes and hands them to the store's listener, each with the context of its last
    /// update. User code that panics ends the change it was called for, not those behind it.
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
            // Each for itself: those behind it are in no cache any more, and would be lost.
            cx.guarded(|cx| listener.forward(cx, CachedUpdate { key, new, old, timestamp }))
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
}
