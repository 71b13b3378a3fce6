//! One commit: offsets, then stores.

use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{
    Broker, BrokerError, Clock, Grant, LogWriter, NextStep, OffsetCommit, TopicPartition,
};
use headwater_changelog::{Blocking, BlockingExt, Gap};
use tokio::sync::watch;

use super::apply::{TaskWrites, apply};
use super::{CommitFailure, Committer, Followed, SyncSchedule};
use crate::instance::error::InstanceError;
use crate::worker::{CommittedTask, SealedCommit};

/// Time between two tries.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A commit whose output is acknowledged.
pub(super) struct CommitJob {
    thread: usize,
    broker: Arc<dyn Broker>,
    clock: Arc<dyn Clock>,
    blocking: Arc<dyn Blocking>,
    task_timeout: Duration,
    grants: watch::Receiver<Option<Grant>>,
    offsets: Vec<OffsetCommit>,
    writes: Vec<TaskWrites>,
    gaps: Vec<Gap>,
    lost: Vec<Gap>,
}

/// How a commit ended. The storages come back either way.
pub(super) struct CommitEnd {
    pub(super) tasks: Vec<CommittedTask>,
    /// What was committed.
    pub(super) offsets: Vec<(TopicPartition, i64)>,
    pub(super) result: Result<(), CommitFailure>,
}

impl CommitJob {
    pub(super) fn new(
        committer: &Committer,
        sealed: SealedCommit,
        followed: &mut Followed,
        syncs: &mut SyncSchedule,
    ) -> Self {
        let now = committer.clock.monotonic();
        let mut offsets = Vec::new();
        let mut writes = Vec::with_capacity(sealed.tasks.len());
        for task in sealed.tasks {
            let bytes = task.storages.iter().map(|sealed| sealed.batch.bytes()).sum();
            let sync = syncs.is_due(task.task, bytes, now);
            writes.push(TaskWrites::new(task.task, sync, task.storages, |changelogs| {
                followed.updates(changelogs, &task.offsets)
            }));
            offsets.extend(task.offsets);
        }
        Self {
            thread: committer.thread,
            broker: Arc::clone(&committer.broker),
            clock: Arc::clone(&committer.clock),
            blocking: Arc::clone(&committer.blocking),
            task_timeout: committer.task_timeout,
            grants: committer.grants.clone(),
            offsets,
            writes,
            gaps: followed.take_gaps(),
            lost: followed.take_lost(),
        }
    }

    pub(super) async fn run(mut self) -> CommitEnd {
        if let Err(failure) = self.commit_offsets().await {
            return CommitEnd { tasks: self.back(), offsets: Vec::new(), result: Err(failure) };
        }
        let committed = std::mem::take(&mut self.offsets).into_iter();
        let offsets = committed.map(|input| (input.topic_partition, input.offset)).collect();
        if !self.lost.is_empty() {
            for Gap { topic_partition, offsets } in &self.lost {
                tracing::error!(
                    %topic_partition, from = offsets.start, to = offsets.end,
                    "the changelog has lost records that were acknowledged; the task is restored from what it holds"
                );
            }
            let reason = "a changelog has lost acknowledged records".to_owned();
            let failure = CommitFailure::Passing(reason);
            return CommitEnd { tasks: self.back(), offsets, result: Err(failure) };
        }
        if !self.gaps.is_empty() {
            // What the zombie wrote lies between our own records in the log. The stores stay where
            // they were, and restoring reads all of it in the order of the log.
            for Gap { topic_partition, offsets } in &self.gaps {
                tracing::error!(
                    %topic_partition, from = offsets.start, to = offsets.end,
                    "another instance has written to our changelog; the task is restored from it"
                );
            }
            let failure =
                CommitFailure::Passing("another instance wrote to a changelog".to_owned());
            return CommitEnd { tasks: self.back(), offsets, result: Err(failure) };
        }
        let thread = self.thread;
        let writes = std::mem::take(&mut self.writes);
        let tasks: Vec<_> = writes.iter().map(|writes| writes.task).collect();
        let applied = self.blocking.call(move || apply(thread, writes)).await;
        if let Some((tasks, result)) = applied {
            return CommitEnd { tasks, offsets, result: result.map_err(CommitFailure::Fatal) };
        }
        let task = tasks.first().copied().expect("a commit has tasks");
        let result = Err(CommitFailure::Fatal(InstanceError::Blocking { task }));
        CommitEnd { tasks: Vec::new(), offsets, result }
    }

    /// Commits under the grant in force. Between two generations of the group it waits for the new
    /// grant; when membership is lost there is none.
    async fn commit_offsets(&mut self) -> Result<(), CommitFailure> {
        let began = self.clock.monotonic();
        loop {
            let grant = self.grants.borrow_and_update().clone();
            let Some(grant) = grant.filter(|_| self.grants.has_changed().is_ok()) else {
                return Err(CommitFailure::Passing("membership of the group is lost".to_owned()));
            };
            let error = match self.broker.commit_offsets(&grant, &self.offsets).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let expired = self.clock.monotonic().saturating_sub(began) >= self.task_timeout;
            if expired {
                return Err(failure(self.thread, "commit offsets", &error));
            }
            match error.next_step() {
                NextStep::Retry => tokio::time::sleep(RETRY_PAUSE).await,
                NextStep::Rejoin => self.renewal(&grant).await,
                NextStep::ResetOffset
                | NextStep::Abort
                | NextStep::Fenced
                | NextStep::ReplaceWriter
                | NextStep::Fail => {
                    return Err(failure(self.thread, "commit offsets", &error));
                }
            }
            tracing::debug!(thread = self.thread, %error, "commits again");
        }
    }

    /// Waits until the grant is not this one any more, for a while.
    async fn renewal(&mut self, stale: &Grant) {
        let changed = self.grants.wait_for(|grant| grant.as_ref() != Some(stale));
        // Both ends of the wait are looked at by the caller: the grant, and the time.
        drop(tokio::time::timeout(RETRY_PAUSE.saturating_mul(20), changed).await);
    }

    fn back(&mut self) -> Vec<CommittedTask> {
        std::mem::take(&mut self.writes).into_iter().map(TaskWrites::back).collect()
    }
}

/// What an error of the broker means for the tasks of the thread.
pub(super) fn failure(
    thread: usize,
    operation: &'static str,
    error: &BrokerError,
) -> CommitFailure {
    match error.next_step() {
        NextStep::Rejoin | NextStep::Abort | NextStep::Fenced | NextStep::ReplaceWriter => {
            CommitFailure::Passing(error.to_string())
        }
        NextStep::Retry | NextStep::ResetOffset | NextStep::Fail => {
            let source = Box::new(error.clone());
            CommitFailure::Fatal(InstanceError::Commit { thread: thread + 1, operation, source })
        }
    }
}

/// A writer with a producer id of its own.
pub(super) async fn new_writer(committer: &Committer) -> Result<Box<dyn LogWriter>, CommitFailure> {
    let began = committer.clock.monotonic();
    loop {
        let error = match committer.broker.writer(committer.writer_options).await {
            Ok(writer) => return Ok(writer),
            Err(error) => error,
        };
        let waited = committer.clock.monotonic().saturating_sub(began);
        if error.next_step() != NextStep::Retry || waited >= committer.task_timeout {
            return Err(failure(committer.thread, "get a producer id", &error));
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}
