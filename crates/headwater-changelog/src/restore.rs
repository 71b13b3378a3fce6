//! The restore loop: reads changelogs from a position to an end and applies them.

mod progress;
#[cfg(test)]
#[expect(clippy::needless_raw_string_hashes, reason = "expect-test writes its texts so")]
mod tests;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use headwater_broker::{
    BrokerError, Clock, FetchRequest, FetchedPartition, Isolation, LogReader, TopicPartition,
};
use tokio::sync::mpsc;

use crate::read::{RETRY_PAUSE, apply};
use crate::{ApplyStep, Blocking, ChangelogError};
use progress::Restorer;

/// Up to where a changelog is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// To the end of the log, as it is when the restore begins. Under exactly-once this is the
    /// high watermark, taken after the committed offsets were read: reading committed up to there
    /// then sees everything that those offsets stand for.
    End,
    /// To the group's committed offset: the changelog is a source topic, and what lies beyond will
    /// be processed. `None`: nothing is committed, so nothing is read.
    Committed(Option<i64>),
}

impl Limit {
    /// The offset to stop at in a log from `log_start_offset` to `end_offset`.
    pub fn offset(self, log_start_offset: i64, end_offset: i64) -> i64 {
        match self {
            Self::End => end_offset,
            Self::Committed(committed) => committed.unwrap_or(log_start_offset).min(end_offset),
        }
    }
}

/// One changelog of a restore target.
#[derive(Clone, Debug)]
pub struct RestorePartition {
    /// The changelog.
    pub topic_partition: TopicPartition,
    /// The store's name, for the listener.
    pub store: Arc<str>,
    /// Where to begin.
    pub start_offset: i64,
    /// The leader epoch that the store has seen; an older one in the log is a truncation.
    pub leader_epoch: Option<i32>,
    /// How long the tombstones of the log are kept, in milliseconds; `None` when it is not compacted. Who hears nothing
    /// for longer has missed deletes: the state is to be rebuilt.
    pub tombstone_retention_ms: Option<i64>,
    /// When the store was last known to be complete, or began to be read, in milliseconds since 1970.
    pub at_end_ms: Option<i64>,
    /// Where to stop: [`Limit::offset`].
    pub end_offset: i64,
    /// The epoch of the log's leader when it was asked for its end. What lies before the end was in
    /// the log then, so a store that has read it can be held against this epoch later.
    pub end_epoch: Option<i32>,
}

/// What is restored together and ends together: the stores of a task.
#[derive(Debug)]
pub struct RestoreTarget<I, S> {
    /// What it is called in commands and answers.
    pub id: I,
    /// Its changelogs.
    pub changelogs: Vec<RestorePartition>,
    /// Applies their records.
    pub step: S,
}

/// What the loop is told.
#[derive(Debug)]
pub enum RestoreCommand<I, S> {
    /// Restore this too.
    Add(RestoreTarget<I, S>),
    /// Stop restoring this. What has been applied stays.
    Stop(I),
}

/// The end of a target's restore.
#[derive(Debug)]
pub struct RestoreEnd<I, S> {
    /// Which target.
    pub id: I,
    /// The step; `None` when it panicked.
    pub step: Option<S>,
    /// True when all changelogs have been read, false when the target was stopped.
    pub outcome: Result<bool, ChangelogError>,
}

/// Hears how restores go (feature row P31). Called from the restore loop: it must not block.
pub trait RestoreListener: fmt::Debug + Send + Sync + 'static {
    /// A store begins to be restored.
    fn on_restore_start(&self, changelog: &TopicPartition, store: &str, start: i64, end: i64) {
        let _: (_, _, _, _) = (changelog, store, start, end);
    }

    /// `records` have been applied; `remaining` offsets are still to be read.
    fn on_batch_restored(
        &self,
        changelog: &TopicPartition,
        store: &str,
        records: u64,
        remaining: u64,
    ) {
        let _: (_, _, _, _) = (changelog, store, records, remaining);
    }

    /// A store has been restored, with so many records in all.
    fn on_restore_end(&self, changelog: &TopicPartition, store: &str, total: u64) {
        let _: (_, _, _) = (changelog, store, total);
    }

    /// The restore of a store was stopped or failed, after so many records.
    fn on_restore_suspended(&self, changelog: &TopicPartition, store: &str, total: u64) {
        let _: (_, _, _) = (changelog, store, total);
    }
}

/// Hears nothing.
impl RestoreListener for () {}

/// How the loop works.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// What of transactions is read.
    pub isolation: Isolation,
    /// Bytes of one fetch, over all changelogs.
    pub fetch_bytes: usize,
    /// Bytes of one target that may wait to be applied; then it is not fetched further.
    pub pending_bytes: usize,
    /// How long a target may make no progress because of errors that may pass.
    pub give_up_after: Duration,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where records are applied.
    pub blocking: Arc<dyn Blocking>,
    /// Who hears of it.
    pub listener: Arc<dyn RestoreListener>,
}

/// Restores targets, as they are added, until `commands` is closed and all have ended: small ones
/// side by side, those with much to read one after the other.
///
/// A changelog ends when the position has reached its end or when the log is known to hold nothing
/// more before it; so transaction markers, compacted tails, deleted prefixes and empty logs all end
/// it, and no particular record is waited for.
///
/// # Cancel safety
/// Dropping the future drops all targets with their steps: a crash, after which each goes on from
/// its stored position.
pub async fn restore<I, S>(
    mut reader: Box<dyn LogReader>,
    mut commands: mpsc::UnboundedReceiver<RestoreCommand<I, S>>,
    ended: mpsc::UnboundedSender<RestoreEnd<I, S>>,
    options: RestoreOptions,
) where
    I: Copy + Ord + Send + fmt::Debug,
    S: ApplyStep,
{
    let blocking = Arc::clone(&options.blocking);
    let mut restorer = Restorer::new(options, ended);
    let mut applying = FuturesUnordered::new();
    let mut open = true;
    while open || !restorer.is_empty() {
        applying.extend(restorer.start_applying().map(|part| apply(&*blocking, part)));
        let (request, pause) = restorer.next_request();
        let idle = request.partitions.is_empty();
        let mut fetching = pin!(fetch(&mut *reader, &request, pause));
        loop {
            tokio::select! {
                biased;
                command = commands.recv(), if open => {
                    match command {
                        Some(RestoreCommand::Add(target)) => restorer.add(target),
                        Some(RestoreCommand::Stop(id)) => restorer.stop(id),
                        None => open = false,
                    }
                    break;
                }
                Some(part) = applying.next(), if !applying.is_empty() => {
                    restorer.applied(part);
                    if idle {
                        break;
                    }
                    applying.extend(restorer.start_applying().map(|part| apply(&*blocking, part)));
                }
                answer = &mut fetching, if !idle => {
                    restorer.answered(&request, answer);
                    break;
                }
            }
        }
    }
}

async fn fetch(
    reader: &mut dyn LogReader,
    request: &FetchRequest,
    pause: bool,
) -> Result<Vec<FetchedPartition>, BrokerError> {
    if pause {
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    reader.fetch(request).await
}
