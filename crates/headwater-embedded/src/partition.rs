//! A partition: its log, and who waits for news of it.

use std::sync::{Arc, Weak};

use headwater_broker::{Appended, BrokerError, Isolation, TopicPartition};
use headwater_records::{Batch, ControlKind};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::faults::Faults;
use crate::log::{Log, Read};
use crate::storage::WriteOptions;

/// A partition. Its lock guards the log and the waiters; the catalog's lock may be taken while it
/// is held, never the other way round, and it is never held over an await.
#[derive(Debug)]
pub(crate) struct Partition {
    topic_partition: TopicPartition,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    log: Log,
    /// Nothing can be done with it any more.
    gone: Option<Gone>,
    /// Readers to be woken by the next append.
    waiters: Vec<Weak<Notify>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    /// Its topic is deleted.
    Deleted,
    /// The broker was restarted: another one has the log.
    Left,
}

impl Partition {
    pub(crate) fn new(log: Log) -> Self {
        Self {
            topic_partition: log.topic_partition().clone(),
            state: Mutex::new(State { log, gone: None, waiters: Vec::new() }),
        }
    }

    pub(crate) fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    /// Appends a batch and wakes who waits for it.
    pub(crate) fn append(
        &self,
        batch: &Batch,
        now_ms: i64,
        fsync: bool,
        faults: &Faults,
    ) -> Result<Appended, BrokerError> {
        let disk_full_after = faults.decide_write(&self.topic_partition);
        let mut state = self.state.lock();
        state.check_exists()?;
        let appended = state.log.append(batch, now_ms, WriteOptions { fsync, disk_full_after })?;
        state.wake();
        Ok(appended)
    }

    /// Ends the transaction of a producer in this partition, and wakes who waits for that.
    pub(crate) fn append_marker(
        &self,
        kind: ControlKind,
        (producer_id, producer_epoch): (i64, i16),
        now_ms: i64,
        options: WriteOptions,
    ) -> Result<(), BrokerError> {
        let mut state = self.state.lock();
        state.check_exists()?;
        state.log.append_marker(kind, producer_id, producer_epoch, now_ms, options)?;
        state.wake();
        Ok(())
    }

    /// What there is at `offset`. If that is nothing, `waiter` is notified of the next append, or
    /// of the end of the topic.
    pub(crate) fn read(
        &self,
        offset: i64,
        max_bytes: usize,
        isolation: Isolation,
        waiter: &Arc<Notify>,
    ) -> Result<Read, BrokerError> {
        let mut state = self.state.lock();
        state.check_exists()?;
        let read = state.log.read(offset, max_bytes, isolation)?;
        if read.data.is_none() {
            state.register(waiter);
        }
        Ok(read)
    }

    /// Does something with the log.
    pub(crate) fn with_log<T>(
        &self,
        work: impl FnOnce(&mut Log) -> Result<T, BrokerError>,
    ) -> Result<T, BrokerError> {
        let mut state = self.state.lock();
        state.check_exists()?;
        work(&mut state.log)
    }

    /// The topic is gone: every call from now on says so.
    pub(crate) fn delete(&self) {
        self.go(Gone::Deleted);
    }

    /// The log is another one's from now on: every call says that the broker was not there.
    pub(crate) fn leave(&self) {
        self.go(Gone::Left);
    }

    fn go(&self, gone: Gone) {
        let mut state = self.state.lock();
        state.gone = Some(gone);
        state.wake();
    }
}

impl State {
    fn check_exists(&self) -> Result<(), BrokerError> {
        match self.gone {
            None => Ok(()),
            Some(Gone::Deleted) => {
                let topic = self.log.topic_partition().topic.clone();
                Err(BrokerError::UnknownTopic { topic })
            }
            Some(Gone::Left) => Err(BrokerError::Disconnected {
                address: "the embedded broker".to_owned(),
                call: "any",
                cause: "it was restarted".to_owned(),
            }),
        }
    }

    fn register(&mut self, waiter: &Arc<Notify>) {
        self.waiters.retain(|known| known.strong_count() > 0);
        if !self.waiters.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(waiter))) {
            self.waiters.push(Arc::downgrade(waiter));
        }
    }

    fn wake(&mut self) {
        for waiter in self.waiters.drain(..).filter_map(|waiter| waiter.upgrade()) {
            waiter.notify_one();
        }
    }
}
