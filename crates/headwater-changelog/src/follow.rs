//! The follow loop: applies changelogs to stores that nobody works on, for as long as that lasts.
//! Standbys and warm-ups are this, and nothing else.

mod lag;
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

use crate::read::apply;
use crate::{ApplyStep, Blocking, ChangelogError};
use progress::Follower;

pub use lag::{FollowProgress, StoreLag};

/// One changelog of a follow target.
#[derive(Clone, Debug)]
pub struct FollowPartition {
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
    /// The changelog is a source topic: it is applied up to the group's committed offset, which
    /// this was; [`FollowCommand::Limit`] moves it. `None`: up to the end, wherever that is.
    pub limit: Option<i64>,
}

/// What is followed together: the stores of a task.
#[derive(Debug)]
pub struct FollowTarget<I, S> {
    /// What it is called in commands and news.
    pub id: I,
    /// Its changelogs.
    pub changelogs: Vec<FollowPartition>,
    /// Applies their records.
    pub step: S,
    /// Where others see how far it is: [`FollowProgress::new`] of the same changelogs.
    pub progress: Arc<FollowProgress>,
}

/// Why a store is no longer followed (KIP-988).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SuspendReason {
    /// It goes elsewhere, or is closed.
    Migrated,
    /// The task becomes active here.
    Promoted,
}

impl SuspendReason {
    /// The reason in Kafka Streams' word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Migrated => "MIGRATED",
            Self::Promoted => "PROMOTED",
        }
    }
}

/// What the loop is told.
#[derive(Debug)]
pub enum FollowCommand<I, S> {
    /// Follow this too.
    Add(FollowTarget<I, S>),
    /// A changelog that is a source topic has been processed up to this offset.
    Limit {
        /// The target.
        id: I,
        /// Its changelog.
        topic_partition: TopicPartition,
        /// The group's committed offset.
        offset: i64,
    },
    /// Stop following this. What has been applied stays.
    Stop {
        /// The target.
        id: I,
        /// Why.
        reason: SuspendReason,
    },
    /// Read nothing, or go on (KIP-834).
    Pause(bool),
}

/// What the loop tells.
#[derive(Debug)]
pub enum FollowNews<I, S> {
    /// The target has come within the acceptable lag.
    CaughtUp(I),
    /// The target is no longer followed.
    Ended(FollowEnd<I, S>),
}

/// The end of following a target.
#[derive(Debug)]
pub struct FollowEnd<I, S> {
    /// Which target.
    pub id: I,
    /// The step; `None` when it panicked.
    pub step: Option<S>,
    /// An error, unless it was told to stop.
    pub outcome: Result<(), ChangelogError>,
}

/// Hears how standbys and warm-ups get on (KIP-988, feature row P31). Called from the follow loop:
/// it must not block.
pub trait StandbyUpdateListener: fmt::Debug + Send + Sync + 'static {
    /// A store begins to be followed, from this offset on.
    fn on_update_start(&self, changelog: &TopicPartition, store: &str, starting_offset: i64) {
        let _: (_, _, _) = (changelog, store, starting_offset);
    }

    /// `records` have been applied, the last of them before `next_offset`; the log ends at
    /// `end_offset`.
    fn on_batch_loaded(
        &self,
        changelog: &TopicPartition,
        store: &str,
        records: u64,
        (next_offset, end_offset): (i64, i64),
    ) {
        let _: (_, _, _, _, _) = (changelog, store, records, next_offset, end_offset);
    }

    /// A store is no longer followed. It is at `next_offset` of a log that ends at `end_offset`;
    /// `-1`: nobody knows.
    fn on_update_suspended(
        &self,
        changelog: &TopicPartition,
        store: &str,
        (next_offset, end_offset): (i64, i64),
        reason: SuspendReason,
    ) {
        let _: (_, _, _, _, _) = (changelog, store, next_offset, end_offset, reason);
    }
}

/// Hears nothing.
impl StandbyUpdateListener for () {}

/// How the loop works.
#[derive(Clone, Debug)]
pub struct FollowOptions {
    /// What of transactions is read.
    pub isolation: Isolation,
    /// Bytes of one fetch, over all changelogs.
    pub fetch_bytes: usize,
    /// Bytes of one target that may wait to be applied; then it is not fetched further.
    pub pending_bytes: usize,
    /// Targets that may apply at the same time.
    pub applying_max: usize,
    /// How long a fetch waits for news.
    pub max_wait: Duration,
    /// At least so long between two fetches while everything is at its end, so that a trickle does
    /// not cost a request for each record.
    pub pace: Duration,
    /// The lag, in offsets over all changelogs of a target, at which it has caught up.
    pub acceptable_lag: u64,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where records are applied.
    pub blocking: Arc<dyn Blocking>,
    /// Who hears of it.
    pub listener: Arc<dyn StandbyUpdateListener>,
}

/// Follows targets side by side, many in each fetch, as they are added, until `commands` is closed.
///
/// Errors that may pass are tried again for as long as the target is followed: a standby that does
/// not get on harms nobody, and its lag shows it.
///
/// # Cancel safety
/// Dropping the future drops all targets with their steps: a crash, after which each goes on from
/// its stored position.
pub async fn follow<I, S>(
    mut reader: Box<dyn LogReader>,
    mut commands: mpsc::UnboundedReceiver<FollowCommand<I, S>>,
    news: mpsc::UnboundedSender<FollowNews<I, S>>,
    options: FollowOptions,
) where
    I: Copy + Ord + Send + fmt::Debug,
    S: ApplyStep,
{
    let blocking = Arc::clone(&options.blocking);
    let mut follower = Follower::new(options, news);
    let mut applying = FuturesUnordered::new();
    loop {
        applying.extend(follower.start_applying().into_iter().map(|part| apply(&*blocking, part)));
        let (request, wait) = follower.next_request();
        let asked = request.partitions.len();
        let retry_in = follower.retry_in();
        let mut fetching = pin!(fetch(&mut *reader, &request, wait));
        loop {
            tokio::select! {
                biased;
                command = commands.recv() => {
                    let Some(command) = command else { return };
                    follower.told(command);
                    // Many come at once after a rebalance; one fetch serves them all.
                    while let Ok(command) = commands.try_recv() {
                        follower.told(command);
                    }
                    break;
                }
                Some(part) = applying.next() => {
                    follower.applied(part);
                    applying.extend(follower.start_applying().into_iter().map(|part| apply(&*blocking, part)));
                    if follower.open_partitions() > asked {
                        break;
                    }
                }
                answer = &mut fetching, if asked > 0 => {
                    follower.answered(&request, answer);
                    break;
                }
                () = tokio::time::sleep(retry_in.unwrap_or_default()),
                    if asked == 0 && retry_in.is_some() => break,
            }
        }
    }
}

async fn fetch(
    reader: &mut dyn LogReader,
    request: &FetchRequest,
    wait: Duration,
) -> Result<Vec<FetchedPartition>, BrokerError> {
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    reader.fetch(request).await
}
