//! The committer of a stream thread: sends what the thread produces, and carries its commits out.
//!
//! The order of a commit under at-least-once: everything the thread produced before it is
//! acknowledged, then the input offsets are committed, then the sealed writes go into the stores,
//! with the changelog positions that the acknowledgements gave. The thread works on meanwhile.
//!
//! Under exactly-once the batches go into a transaction, one for all tasks of the thread, and the
//! offsets too. What the thread produces after it has sealed a commit belongs to the next transaction:
//! it is held back until this one is answered. When it is not known how a commit ended, nothing is
//! guessed: a new writer with the same id settles it, and the tasks begin anew at what is committed.
//!
//! When a batch or a commit fails, the thread gives all its tasks up
//! ([`ToWorker::CommitFailed`]) and this committer drops what still comes, until the instance says
//! [`CommitterCommand::Resume`]: then the tasks have left and a new writer takes over.

mod apply;
mod commit;
mod epochs;
mod followed;
mod judge;
mod sync;
mod writer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use headwater_broker::{
    Appended, Broker, BrokerError, Clock, Grant, ProduceBatch, RecordJudge, TopicPartition,
    TransactionalOptions, WriterOptions,
};
use headwater_changelog::Blocking;
use headwater_topology::{TaskId, Topology};
use tokio::sync::{mpsc, oneshot, watch};

use super::error::InstanceError;
use crate::worker::{BatchOrigin, CommittedTask, FromWorker, SealedCommit, ToWorker};
use commit::{CommitEnd, CommitJob};
use epochs::EpochLookup;
use followed::Followed;
use judge::{Judged, ProductionJudge, Sentence};
use sync::SyncSchedule;
use writer::{Writer, new_writer};

pub(super) use epochs::leader_epochs;
pub(super) use followed::FollowedChangelog;
pub(super) use judge::Production;

/// What a committer is told by the instance.
#[derive(Debug)]
pub(super) enum CommitterCommand {
    /// A task with these changelogs comes to the thread.
    Follow(Vec<FollowedChangelog>),
    /// All tasks have left after a failure: begin anew.
    Resume,
}

/// What a committer tells the instance.
#[derive(Debug)]
pub(super) enum CommitterEvent {
    /// A message of the thread that is for the instance or the fetcher.
    FromThread(FromWorker),
    /// A batch or a commit has failed; the thread has been told to give its tasks up.
    Failed {
        /// Why.
        error: CommitFailure,
    },
    /// A commit is done.
    Committed {
        /// The tasks it was for.
        tasks: Vec<TaskId>,
        /// Their input offsets.
        offsets: Vec<(TopicPartition, i64)>,
    },
}

/// Why a commit failed.
#[derive(Debug)]
pub(super) enum CommitFailure {
    /// It will go well again: the tasks begin anew at their last commit.
    Passing(String),
    /// A newer writer has the thread's transactional id: the tasks may belong to somebody else.
    Fenced(String),
    /// Somebody has to decide what to do.
    Fatal(InstanceError),
}

/// What a committer works with.
#[derive(Debug)]
pub(super) struct Committer {
    pub(super) thread: usize,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) blocking: Arc<dyn Blocking>,
    pub(super) writer_options: WriterOptions,
    /// Which topics are read by pattern.
    pub(super) topology: Topology,
    /// Of output that the broker does not take.
    pub(super) production: Production,
    /// Of the thread's transactions, under exactly-once.
    pub(super) transactions: Option<TransactionalOptions>,
    /// How long is tried again what may pass.
    pub(super) task_timeout: std::time::Duration,
    /// Acknowledged bytes are told to the thread when so many have gathered. Less than half of what
    /// makes it wait, so it never waits for those that are not told.
    pub(super) told_bytes: usize,
    pub(super) grants: watch::Receiver<Option<Grant>>,
    pub(super) to_thread: mpsc::UnboundedSender<ToWorker>,
    pub(super) events: mpsc::UnboundedSender<(usize, CommitterEvent)>,
}

/// The number of a batch of the thread, and of the dead letters of its records.
type SentNumber = (u64, u32);

/// A batch that waits for its writer.
struct HeldBack {
    number: SentNumber,
    batch: ProduceBatch,
    origin: Option<BatchOrigin>,
}

/// A batch on its way.
type Sent = Pin<Box<dyn Future<Output = SentEnd> + Send>>;

struct SentEnd {
    number: SentNumber,
    topic_partition: TopicPartition,
    count: u32,
    bytes: usize,
    result: Result<Appended, BrokerError>,
}

struct Running {
    committer: Committer,
    writer: Option<Writer>,
    /// A commit has the writer, and gives it back when its transaction is committed.
    writer_back: Option<oneshot::Receiver<Writer>>,
    /// Batches of the next transaction, or of the next writer.
    held_back: VecDeque<HeldBack>,
    /// A batch was not delivered, and it goes on without it: as soon as nothing is on its way, with
    /// another writer.
    wants_writer: bool,
    followed: Followed,
    syncs: SyncSchedule,
    sent: FuturesUnordered<Sent>,
    /// Numbers of the batches on their way.
    unacknowledged: BTreeSet<SentNumber>,
    last_number: u64,
    /// What the production handler says, before its batch is answered.
    judged: mpsc::UnboundedReceiver<Judged>,
    judges: mpsc::UnboundedSender<Judged>,
    /// The worst that it has said of batches that are not answered yet.
    sentences: BTreeMap<u64, Sentence>,
    dead_letters: u32,
    /// Acknowledged, and not yet told to the thread: each message wakes it.
    untold_bytes: usize,
    /// The commit that waits for acknowledgements, and the last batch that belongs to it.
    waiting: Option<(u64, SealedCommit)>,
    /// Acknowledgements of batches behind the waiting commit: they count for the next one.
    early: Vec<SentEnd>,
    committing: Option<Pin<Box<dyn Future<Output = CommitEnd> + Send>>>,
    epochs: EpochLookup,
    failed: bool,
}

impl Committer {
    /// Works until the thread or the instance is gone.
    pub(super) async fn run(
        self,
        mut commands: mpsc::UnboundedReceiver<CommitterCommand>,
        mut said: mpsc::UnboundedReceiver<Vec<FromWorker>>,
    ) {
        let followed = Followed::new(Arc::clone(&self.clock));
        let (judges, judged) = mpsc::unbounded_channel();
        let mut running = Running {
            committer: self,
            writer: None,
            writer_back: None,
            held_back: VecDeque::new(),
            wants_writer: false,
            followed,
            syncs: SyncSchedule::default(),
            sent: FuturesUnordered::new(),
            unacknowledged: BTreeSet::new(),
            last_number: 0,
            judged,
            judges,
            sentences: BTreeMap::new(),
            dead_letters: 0,
            untold_bytes: 0,
            waiting: None,
            early: Vec::new(),
            committing: None,
            epochs: EpochLookup::default(),
            failed: false,
        };
        // Ends what a run before this one may have left open.
        running.fence().await;
        loop {
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(CommitterCommand::Follow(changelogs)) => {
                        running.followed.follow(changelogs, running.last_number);
                    }
                    Some(CommitterCommand::Resume) => running.resume().await,
                    None => return,
                },
                Some(sent) = running.sent.next(), if !running.sent.is_empty() => {
                    running.acknowledged(sent).await;
                }
                writer = is_back(&mut running.writer_back), if running.writer_back.is_some() => {
                    running.begin_transaction(writer).await;
                }
                end = ended(&mut running.committing), if running.committing.is_some() => {
                    running.committing = None;
                    running.committed(end).await;
                }
                found = running.epochs.found() => {
                    for (topic_partition, epoch) in found {
                        running.followed.note_epoch(&topic_partition, epoch);
                    }
                }
                messages = said.recv() => {
                    let Some(messages) = messages else { return };
                    for message in messages {
                        running.said(message).await;
                        running.commit_if_ready();
                    }
                }
            }
            running.commit_if_ready();
        }
    }
}

async fn ended(
    committing: &mut Option<Pin<Box<dyn Future<Output = CommitEnd> + Send>>>,
) -> CommitEnd {
    match committing {
        Some(committing) => committing.await,
        None => std::future::pending().await,
    }
}

/// The writer, when its transaction is committed; `None` if it is not.
async fn is_back(writer: &mut Option<oneshot::Receiver<Writer>>) -> Option<Writer> {
    match writer {
        Some(back) => back.await.ok(),
        None => std::future::pending().await,
    }
}

impl Running {
    async fn said(&mut self, message: FromWorker) {
        match message {
            FromWorker::Produce(output) => self.produce(output.batch, output.origin).await,
            FromWorker::Commit(sealed) if self.failed => {
                self.tell(ToWorker::CommitFailed(storages_of(sealed)));
            }
            FromWorker::Commit(sealed) => self.waiting = Some((self.last_number, sealed)),
            FromWorker::Abort => {
                let reason = "a task has left without a commit".to_owned();
                self.fail(CommitFailure::Passing(reason)).await;
            }
            FromWorker::TaskClosed(closed) => {
                self.followed.forget(closed.task);
                self.report(CommitterEvent::FromThread(FromWorker::TaskClosed(closed)));
            }
            FromWorker::TaskFailed { closed, error } => {
                self.followed.forget(closed.task);
                let failed = FromWorker::TaskFailed { closed, error };
                self.report(CommitterEvent::FromThread(failed));
            }
            FromWorker::Consumed { .. } => unreachable!("the thread tells the fetcher itself"),
        }
    }

    /// Becomes the writer of the thread's transactions. Those before it are complete then.
    async fn fence(&mut self) {
        if self.committer.transactions.is_none() {
            return;
        }
        match new_writer(&self.committer).await {
            Ok(writer) => self.writer = Some(writer),
            Err(failure) => self.fail(failure).await,
        }
    }

    /// Sends what belongs to the next transaction. Without a writer the commit has failed, and says
    /// so by itself.
    async fn begin_transaction(&mut self, writer: Option<Writer>) {
        self.writer_back = None;
        let Some(writer) = writer else { return };
        self.writer = Some(writer);
        self.send_held_back().await;
    }

    /// One that fails lets go of those behind it.
    async fn send_held_back(&mut self) {
        while let Some(held_back) = self.held_back.pop_front() {
            self.send(held_back).await;
        }
    }

    /// Whether what the thread produces now belongs to the next transaction, or the next writer.
    fn holds_back(&self) -> bool {
        let is_committing = self.waiting.is_some() || self.writer_back.is_some();
        self.wants_writer || (self.committer.transactions.is_some() && is_committing)
    }

    async fn produce(&mut self, batch: ProduceBatch, origin: Option<BatchOrigin>) {
        if self.failed {
            self.let_go(batch.batch.size_bytes());
            return;
        }
        self.last_number += 1;
        let held_back = HeldBack { number: (self.last_number, 0), batch, origin };
        self.unacknowledged.insert(held_back.number);
        if self.holds_back() {
            self.held_back.push_back(held_back);
        } else {
            self.send(held_back).await;
        }
    }

    async fn send(&mut self, HeldBack { number, batch, origin }: HeldBack) {
        let bytes = batch.batch.size_bytes();
        if self.writer.is_none() {
            match new_writer(&self.committer).await {
                Ok(writer) => self.writer = Some(writer),
                Err(failure) => {
                    self.let_go(bytes);
                    self.fail(failure).await;
                    return;
                }
            }
        }
        let judge = origin.map(|origin| -> Arc<dyn RecordJudge> {
            let production = self.committer.production.clone();
            let judged = self.judges.clone();
            Arc::new(ProductionJudge { number: number.0, origin, production, judged })
        });
        let Some(writer) = &mut self.writer else { return };
        let topic_partition = batch.topic_partition.clone();
        let count = batch.batch.count();
        let acknowledgement = writer.send(batch, judge);
        self.sent.push(Box::pin(async move {
            let result = acknowledgement.await;
            SentEnd { number, topic_partition, count, bytes, result }
        }));
    }

    async fn acknowledged(&mut self, sent: SentEnd) {
        self.let_go(sent.bytes);
        self.take_judged().await;
        self.unacknowledged.remove(&sent.number);
        // What was said of a batch is not for the dead letters that were sent because of it.
        let sentence =
            if sent.number.1 == 0 { self.sentences.remove(&sent.number.0) } else { None };
        match &sent.result {
            Err(BrokerError::LeftOut { .. }) => {}
            Err(error) => self.not_written(error, sentence).await,
            Ok(_) if self.waiting.as_ref().is_some_and(|(last, _)| sent.number.0 > *last) => {
                self.early.push(sent);
            }
            Ok(appended) => {
                let number = sent.number.0;
                self.followed.acknowledge(number, &sent.topic_partition, *appended, sent.count);
            }
        }
        if self.wants_writer && self.sent.is_empty() && !self.failed {
            self.wants_writer = false;
            self.writer = None;
            self.send_held_back().await;
        }
    }

    /// A batch is not written, or nobody knows whether it is, and this is what the handler says.
    async fn not_written(&mut self, error: &BrokerError, sentence: Option<Sentence>) {
        match sentence {
            Some(Sentence::Fail(error)) => {
                self.fail(CommitFailure::Fatal(InstanceError::Task(error))).await;
            }
            Some(Sentence::Retry) => {
                let reason = format!("output was not delivered, and is written again: {error}");
                self.fail(CommitFailure::Passing(reason)).await;
            }
            // A transaction without it cannot be committed.
            Some(Sentence::LeftOut { undelivered: true, .. })
                if self.committer.transactions.is_none() =>
            {
                tracing::warn!(
                    thread = self.committer.thread,
                    error = error as &dyn std::error::Error,
                    "goes on without output that was not delivered"
                );
                self.wants_writer = true;
            }
            Some(Sentence::LeftOut { .. }) | None => {
                let failure = commit::failure(self.committer.thread, "write output", error);
                self.fail(failure).await;
            }
        }
    }

    /// Hears what the handler has said, which is always before the batch in question is answered.
    async fn take_judged(&mut self) {
        while let Ok(Judged { number, mut sentence }) = self.judged.try_recv() {
            if let Sentence::LeftOut { origin, dead_letter, .. } = &mut sentence {
                let BatchOrigin { task, node, .. } = *origin;
                self.tell(ToWorker::LeftOut { task, node });
                if let Some(batch) = dead_letter.take() {
                    self.send_dead_letter(number, batch).await;
                }
            }
            // Nobody is asked any further after one that does not go on.
            let is_decided = self.sentences.get(&number).is_some_and(Sentence::is_final);
            if !is_decided {
                self.sentences.insert(number, sentence);
            }
        }
    }

    /// A dead letter belongs to the same commit as the batch of its record.
    async fn send_dead_letter(&mut self, number: u64, batch: ProduceBatch) {
        if self.failed {
            return;
        }
        self.dead_letters += 1;
        let held_back = HeldBack { number: (number, self.dead_letters), batch, origin: None };
        self.unacknowledged.insert(held_back.number);
        if self.wants_writer {
            self.held_back.push_back(held_back);
        } else {
            self.send(held_back).await;
        }
    }

    /// Begins the waiting commit when everything before it is acknowledged.
    fn commit_if_ready(&mut self) {
        if self.committing.is_some() {
            return;
        }
        let acknowledged_to = self.unacknowledged.first().map_or(u64::MAX, |(number, _)| *number);
        let Some((_, sealed)) = self.waiting.take_if(|(last, _)| acknowledged_to > *last) else {
            return;
        };
        let mut job = CommitJob::new(&self.committer, sealed, &mut self.followed, &mut self.syncs);
        if self.committer.transactions.is_some() {
            let (back, is_back) = oneshot::channel();
            self.writer_back = Some(is_back);
            job.in_transaction(self.writer.take(), back);
        }
        for sent in std::mem::take(&mut self.early) {
            if let Ok(appended) = sent.result {
                let number = sent.number.0;
                self.followed.acknowledge(number, &sent.topic_partition, appended, sent.count);
            }
        }
        self.committing = Some(Box::pin(job.run()));
    }

    async fn committed(&mut self, end: CommitEnd) {
        let CommitEnd { tasks, offsets, result } = end;
        if let Some(mut back) = self.writer_back.take() {
            self.begin_transaction(back.try_recv().ok()).await;
        }
        match result {
            Ok(()) => {
                let ids = tasks.iter().map(|task| task.task).collect();
                self.report(CommitterEvent::Committed { tasks: ids, offsets });
                self.tell(ToWorker::Committed(tasks));
                let Committer { broker, clock, .. } = &self.committer;
                self.epochs.begin_if_due(broker, clock.monotonic(), &self.followed);
                if self.failed {
                    self.tell(ToWorker::CommitFailed(Vec::new()));
                }
            }
            Err(error) => {
                self.tell(ToWorker::CommitFailed(tasks));
                if !self.failed {
                    self.failed = true;
                    self.early.clear();
                    self.drop_held_back();
                    self.give_up_transaction().await;
                    self.report(CommitterEvent::Failed { error });
                }
            }
        }
    }

    /// Makes the thread give its tasks up; the first failure is the one reported.
    async fn fail(&mut self, error: CommitFailure) {
        if self.failed {
            return;
        }
        self.failed = true;
        self.early.clear();
        self.drop_held_back();
        self.give_up_transaction().await;
        // With a commit under way the thread is told when that has ended.
        if self.committing.is_none() {
            let storages = self.waiting.take().map(|(_, sealed)| storages_of(sealed));
            self.tell(ToWorker::CommitFailed(storages.unwrap_or_default()));
        }
        self.report(CommitterEvent::Failed { error });
    }

    /// Aborts what is open, before the tasks are let go: whoever has them next need not wait for the
    /// time-out.
    async fn give_up_transaction(&mut self) {
        if self.committer.transactions.is_some()
            && let Some(writer) = self.writer.take()
        {
            writer.give_up().await;
        }
    }

    fn drop_held_back(&mut self) {
        for held_back in std::mem::take(&mut self.held_back) {
            self.let_go(held_back.batch.batch.size_bytes());
        }
    }

    /// Waits for what is still on its way, so that nothing of the old writer comes after the tasks
    /// have been restored, and begins anew.
    async fn resume(&mut self) {
        while let Some(sent) = self.sent.next().await {
            self.let_go(sent.bytes);
        }
        while self.judged.try_recv().is_ok() {}
        self.sentences.clear();
        self.unacknowledged.clear();
        self.wants_writer = false;
        self.writer = None;
        self.followed.forget_all();
        self.failed = false;
        self.fence().await;
    }

    /// The thread is no longer answerable for bytes it has handed over.
    fn let_go(&mut self, bytes: usize) {
        self.untold_bytes += bytes;
        if self.untold_bytes >= self.committer.told_bytes {
            let bytes = std::mem::take(&mut self.untold_bytes);
            self.tell(ToWorker::Acknowledged { bytes });
        }
    }

    fn tell(&self, message: ToWorker) {
        if self.committer.to_thread.send(message).is_err() {
            tracing::debug!(thread = self.committer.thread, "the stream thread is gone");
        }
    }

    fn report(&self, event: CommitterEvent) {
        if self.committer.events.send((self.committer.thread, event)).is_err() {
            tracing::debug!(thread = self.committer.thread, "the instance is gone");
        }
    }
}

/// The storages of a commit that does not take place, on their way back.
fn storages_of(sealed: SealedCommit) -> Vec<CommittedTask> {
    let back = |task: crate::worker::SealedTask| CommittedTask {
        task: task.task,
        storages: task.storages.into_iter().map(|sealed| sealed.storage).collect(),
    };
    sealed.tasks.into_iter().map(back).collect()
}
