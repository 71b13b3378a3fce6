//! One commit: offsets, then stores.

use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{Broker, BrokerError, Clock, Grant, NextStep, OffsetCommit, TopicPartition};
use headwater_changelog::{Blocking, BlockingExt, Gap};
use headwater_topology::Topology;
use tokio::sync::{oneshot, watch};

use super::apply::{TaskWrites, apply};
use super::{CommitFailure, Committer, Followed, SyncSchedule, Writer};
use crate::instance::error::InstanceError;
use crate::worker::{CommittedTask, SealedCommit};

/// Time between two tries.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A commit whose output is acknowledged.
pub(super) struct CommitJob {
    thread: usize,
    broker: Arc<dyn Broker>,
    clock: Arc<dyn Clock>,
    blocking: Arc<dyn Blocking>,
    task_timeout: Duration,
    grants: watch::Receiver<Option<Grant>>,
    topology: Topology,
    offsets: Vec<OffsetCommit>,
    writes: Vec<TaskWrites>,
    gaps: Vec<Gap>,
    lost: Vec<Gap>,
    way: Way,
}

/// How offsets are committed.
enum Way {
    /// For themselves.
    Alone,
    /// With the output. The writer goes back as soon as the transaction is committed.
    InTransaction { writer: Option<Writer>, back: Option<oneshot::Sender<Writer>> },
}

/// How a commit ended. The tasks come back either way, and their storages if there was anybody to work on them.
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
            topology: committer.topology.clone(),
            offsets,
            writes,
            gaps: followed.take_gaps(),
            lost: followed.take_lost(),
            way: Way::Alone,
        }
    }

    /// Commits with the output that `writer` has sent; without a writer there is none.
    pub(super) fn in_transaction(&mut self, writer: Option<Writer>, back: oneshot::Sender<Writer>) {
        self.way = Way::InTransaction { writer, back: Some(back) };
        // Markers lie between our own records; nobody else can have written.
        self.gaps.clear();
    }

    pub(super) async fn run(mut self) -> CommitEnd {
        let committed = match self.commit_offsets().await {
            Ok(()) => self.commit_transaction().await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = committed {
            if let Way::InTransaction { writer, .. } = &mut self.way
                && let Some(writer) = writer.take()
            {
                writer.give_up().await;
            }
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
            // What the zombie wrote, or the task before it was restored, lies between our own records in the log. The stores stay where
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
        let without = |task| CommittedTask { task, storages: Vec::new() };
        CommitEnd { tasks: tasks.into_iter().map(without).collect(), offsets, result }
    }

    /// Commits the transaction with the offsets in it.
    async fn commit_transaction(&mut self) -> Result<(), CommitFailure> {
        let thread = self.thread;
        let Way::InTransaction { writer, back } = &mut self.way else { return Ok(()) };
        let Some(Writer::Transactional(transaction)) = writer else {
            return Err(CommitFailure::Passing("the thread has no writer".to_owned()));
        };
        if let Err(error) = transaction.commit().await {
            return Err(match error.next_step() {
                NextStep::Retry => {
                    CommitFailure::Passing(format!("it is not known how a commit ended: {error}"))
                }
                _ => failure(thread, "commit", &error),
            });
        }
        if let Some((writer, back)) = writer.take().zip(back.take()) {
            // Without a committer nobody writes any more.
            drop(back.send(writer));
        }
        Ok(())
    }

    async fn try_commit(&mut self, grant: &Grant) -> Result<(), BrokerError> {
        match &mut self.way {
            Way::InTransaction { writer: Some(Writer::Transactional(writer)), .. } => {
                writer.add_offsets(grant, &self.offsets).await
            }
            Way::InTransaction { .. } => Ok(()),
            Way::Alone => self.broker.commit_offsets(grant, &self.offsets).await,
        }
    }

    /// Commits under the grant in force, or puts the offsets into the transaction. Between two generations of the group it waits for the new
    /// grant; when membership is lost there is none.
    async fn commit_offsets(&mut self) -> Result<(), CommitFailure> {
        let began = self.clock.monotonic();
        loop {
            let grant = self.grants.borrow_and_update().clone();
            let Some(grant) = grant.filter(|_| self.grants.has_changed().is_ok()) else {
                return Err(CommitFailure::Passing("membership of the group is lost".to_owned()));
            };
            let error = match self.try_commit(&grant).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let expired = self.clock.monotonic().saturating_sub(began) >= self.task_timeout;
            if expired {
                return Err(failure(self.thread, "commit offsets", &error));
            }
            match error.next_step() {
                _ if self.leaves_out_deleted_topic(&error) => {}
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

    /// A topic that is read only because a pattern matches it may be deleted at any time. Nobody needs its
    /// offsets then, and all others are to be committed.
    fn leaves_out_deleted_topic(&mut self, error: &BrokerError) -> bool {
        let Some(topic) =
            error.missing_topic().filter(|it| self.topology.matches_pattern(it.as_str()))
        else {
            return false;
        };
        tracing::warn!(%topic, "a topic that a pattern matches is gone; its offsets are not committed");
        let before = self.offsets.len();
        self.offsets.retain(|offset| offset.topic_partition.topic != *topic);
        self.offsets.len() < before
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
        NextStep::Rejoin | NextStep::Abort | NextStep::ReplaceWriter => {
            CommitFailure::Passing(error.to_string())
        }
        NextStep::Fenced => CommitFailure::Fenced(error.to_string()),
        NextStep::Retry | NextStep::ResetOffset | NextStep::Fail => {
            let source = Box::new(error.clone());
            CommitFailure::Fatal(InstanceError::Commit { thread: thread + 1, operation, source })
        }
    }
}
