//! A stream thread's work, as a plain struct: told by messages, driven by [`Worker::step`].

mod call;
mod commits;
mod config;
mod measured;
mod messages;
mod outputs;
mod summary;
mod tasks;
mod thread_core;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use headwater_topology::TaskId;

pub use call::CalledRecord;
pub use config::{TopicLookup, WorkerConfig};
pub use messages::{
    ClosedTask, CommittedTask, FetchedInput, FromWorker, Now, SealedCommit, SealedStorage,
    SealedTask, StoreQuestion, ToWorker,
};
pub use outputs::{BatchOrigin, OutputBatch, OutputLimits, Partitioning};

pub(crate) use outputs::{AppendError, Outputs, TopicIndex};
pub(crate) use thread_core::ThreadCore;

use commits::Commit;
use summary::Summary;
use tasks::Leaving;

use crate::metrics::ThreadMetrics;
use crate::process::{DropCounts, DropReason, DroppedRecords};
use crate::task::Task;

/// What a thread does after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Step again: there is work.
    Again,
    /// Nothing to do before this monotonic time, unless a message comes.
    WaitUntil(Duration),
    /// Nothing to do until a message comes.
    Wait,
}

/// How many records a thread has processed and dropped, all tasks it ever had together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Records processed.
    pub processed: u64,
    /// Commits done.
    pub commits: u64,
}

/// Bytes that a thread holds and that are limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldBytes {
    /// Writes to stores that are not committed, those of the commit under way included.
    pub(crate) uncommitted: usize,
    /// Record caches.
    pub(crate) caches: usize,
    /// Batches handed over and not acknowledged.
    pub(crate) output: usize,
}

/// A stream thread's tasks and how it works on them. One thread owns it.
#[derive(Debug)]
pub struct Worker {
    config: WorkerConfig,
    thread: ThreadCore,
    tasks: BTreeMap<TaskId, Slot>,
    /// Tasks in the order of their next turns.
    turns: VecDeque<TaskId>,
    messages: Vec<FromWorker>,
    unacknowledged_bytes: usize,
    commit: Commit,
    commit_wanted: bool,
    /// The transaction is given up, and all tasks are leaving.
    aborted: bool,
    paused: bool,
    counts: WorkerCounts,
    summary: Summary,
}

#[derive(Debug)]
struct Slot {
    task: Task,
    leaving: Leaving,
    /// Its storages are with the commit that is under way.
    sealed: bool,
    /// It has processed nothing since it came.
    is_new: bool,
}

impl Worker {
    /// A thread without tasks.
    pub fn new(config: WorkerConfig, now: Now) -> Self {
        let thread = ThreadCore::new(&config, config.outputs, now);
        Self {
            config,
            thread,
            tasks: BTreeMap::new(),
            turns: VecDeque::new(),
            messages: Vec::new(),
            unacknowledged_bytes: 0,
            commit: Commit::Idle { last: now.monotonic },
            commit_wanted: false,
            aborted: false,
            paused: false,
            counts: WorkerCounts::default(),
            summary: Summary::new(now.monotonic),
        }
    }

    /// Takes a message in. Little is done here; [`step`](Self::step) acts on it.
    pub fn handle(&mut self, message: ToWorker) {
        match message {
            ToWorker::AddTask(task) => self.add_task(*task),
            ToWorker::CloseTask(id) => self.leave(id, Leaving::Clean),
            ToWorker::DropTask(id) => self.leave(id, Leaving::Dropped),
            ToWorker::Fetched(fetched) => {
                if let Some(metrics) = &mut self.thread.metrics {
                    metrics.polled(&fetched);
                }
                for input in fetched {
                    self.fetched(input);
                }
            }
            ToWorker::CommitNow => self.commit_wanted = true,
            ToWorker::CommitTask(id) => {
                if let Some(slot) = self.tasks.get_mut(&id) {
                    slot.task.core.commit_needed = true;
                    self.commit_wanted = true;
                }
            }
            ToWorker::Committed(tasks) => self.committed(tasks),
            ToWorker::CommitFailed(tasks) => self.commit_failed(tasks),
            ToWorker::Acknowledged { bytes } => {
                self.unacknowledged_bytes = self.unacknowledged_bytes.saturating_sub(bytes);
            }
            ToWorker::LeftOut { task, node } => {
                if let Some(slot) = self.tasks.get(&task) {
                    slot.task.core.watch.count_drop(node, DropReason::Production);
                }
            }
            ToWorker::PartitionCounts(counts) => self.thread.partition_counts = counts,
            ToWorker::Pause(paused) => self.paused = paused,
            ToWorker::Ask(question) => self.answer(question),
        }
    }

    fn answer(&mut self, question: StoreQuestion) {
        let StoreQuestion { task, store, range, direction, limit, answer } = question;
        let task = self.tasks.get_mut(&task).map(|slot| &mut slot.task);
        if let Some(entries) = task.and_then(|task| task.read(&store, range, direction, limit))
            && answer.send(entries).is_err()
        {
            tracing::debug!(%store, "nobody waits for the answer any more");
        }
    }

    /// Does a bounded piece of work.
    pub fn step(&mut self, now: Now) -> Step {
        self.thread.now = now;
        if let Some(metrics) = &mut self.thread.metrics {
            metrics.begin_step(now.monotonic);
        }
        self.tasks.values_mut().for_each(|slot| slot.task.core.refresh_global_stores());
        self.punctuate();
        if self.config.exactly_once {
            self.abort_if_broken();
        }
        self.commit_if_due();
        self.let_go();
        let ran = self.run_next_task();
        self.hand_over(!ran);
        self.summarise();
        self.tell_metrics(ran);
        if ran || self.can_act_now() { Step::Again } else { self.wait() }
    }

    /// Takes what the thread has to say, in order.
    pub fn take_messages(&mut self) -> std::vec::Drain<'_, FromWorker> {
        self.messages.drain(..)
    }

    /// The tasks on this thread.
    pub fn task_ids(&self) -> impl Iterator<Item = TaskId> {
        self.tasks.keys().copied()
    }

    /// What the thread has done so far.
    pub fn counts(&self) -> WorkerCounts {
        self.counts
    }

    /// What the thread holds.
    pub(crate) fn held_bytes(&self) -> HeldBytes {
        let written = self.tasks.values().map(|slot| slot.task.core.written_bytes());
        HeldBytes {
            uncommitted: written.sum(),
            caches: self.thread.cache_bytes,
            output: self.unacknowledged_bytes,
        }
    }

    /// Records dropped by a task.
    pub fn drops(&self, task: TaskId) -> Option<DropCounts> {
        let watch = &self.tasks.get(&task)?.task.core.watch;
        let mut dropped = DroppedRecords::default();
        dropped.add(task, watch.drops());
        Some(dropped.counts())
    }

    /// Whether the next step would do something right away.
    fn can_act_now(&self) -> bool {
        let idle = matches!(self.commit, Commit::Idle { .. });
        self.tasks.values().any(|slot| match slot.leaving {
            Leaving::No => false,
            Leaving::Clean => idle,
            Leaving::Dropped | Leaving::Failed(_) => !slot.sealed,
        }) || (idle && self.commit_wanted)
    }

    /// The next time something is due.
    fn wait(&self) -> Step {
        let now = self.thread.now;
        let mut due: Option<Duration> = None;
        let mut consider = |at: Duration| due = Some(due.map_or(at, |earliest| earliest.min(at)));
        if let Commit::Idle { last } = self.commit
            && self.tasks.values().any(|slot| slot.task.core.commit_needed)
        {
            consider(last.saturating_add(self.config.commit_interval));
        }
        if let Some(next) = self.thread.metrics.as_ref().and_then(ThreadMetrics::next_telling) {
            consider(next);
        }
        for slot in self.tasks.values().filter(|_| !self.paused) {
            if let Some(until) = slot.task.waits_until(&self.thread) {
                consider(until);
            }
            let wall_ms = slot.task.core.punctuations.next_wall_ms();
            if wall_ms < i64::MAX {
                let wait = u64::try_from(wall_ms.saturating_sub(now.wall_ms)).unwrap_or(0);
                consider(now.monotonic.saturating_add(Duration::from_millis(wait)));
            }
        }
        due.map_or(Step::Wait, Step::WaitUntil)
    }
}
