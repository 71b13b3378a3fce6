//! A stream thread's work, as a plain struct: told by messages, driven by [`Worker::step`].

mod call;
mod measured;
mod messages;
mod outputs;
mod summary;
mod thread_core;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{Clock, TopicName};
use headwater_topology::TaskId;

pub use call::CalledRecord;
pub use messages::{
    ClosedTask, CommittedTask, FetchedInput, FromWorker, Now, SealedCommit, SealedStorage,
    SealedTask, StoreQuestion, ToWorker,
};
pub use outputs::{BatchOrigin, OutputBatch, OutputLimits, Partitioning};

pub(crate) use outputs::{AppendError, Outputs, TopicIndex};
pub(crate) use thread_core::ThreadCore;

use summary::Summary;

use crate::config::StreamsConfig;
use crate::metrics::{MetricsScope, ThreadMetrics};
use crate::process::{
    DefaultTimestampExtractor, DropCounts, DropReason, DroppedRecords, Handlers, NullRecords,
    TaskError, UserError,
};
use crate::task::{Choice, Input, MaxTaskIdle, NewTask, Task};

/// Settings of a stream thread.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// All settings of the application, for processors to look at.
    pub streams: Arc<StreamsConfig>,
    /// All tasks share one transaction: what one of them has done counts with all others, or not.
    pub exactly_once: bool,
    /// Time between two commits.
    pub commit_interval: Duration,
    /// How long a task waits for an input that is at its end.
    pub max_task_idle: MaxTaskIdle,
    /// Memory of this thread's record caches; 0 switches caching off.
    pub cache_bytes_max: usize,
    /// Uncommitted writes of this thread's stores before it commits early. While a commit is under
    /// way, the thread waits for it when it has written as much again.
    pub uncommitted_bytes_max: usize,
    /// Bytes handed over and not yet acknowledged before the thread waits.
    pub unacknowledged_bytes_max: usize,
    /// Records of a task before the next task's turn.
    pub slice_records: usize,
    /// Limits of output batches.
    pub outputs: OutputLimits,
    /// What to do with failures.
    pub handlers: Handlers,
    /// The time of records whose source has no extractor of its own.
    pub default_timestamp_extractor: DefaultTimestampExtractor,
    /// What happens to records that are null where a node has no form for it.
    pub null_records: NullRecords,
    /// Wall-clock time between two emissions of an operator that waits for windows to close.
    pub window_emit_interval: Duration,
    /// Wall-clock time between two looks of a join for records that have stayed without partner.
    pub outer_join_emit_interval: Duration,
    /// How many partitions each output topic has: sinks, changelogs, dead-letter topics.
    pub partition_counts: Arc<BTreeMap<TopicName, i32>>,
    /// The largest batch that a topic takes, where that is known (`max.message.bytes`).
    pub message_bytes: Arc<BTreeMap<TopicName, usize>>,
    /// Knows other topics, for sinks that choose one for each record. Without it they find those above.
    pub topic_lookup: Option<Arc<dyn TopicLookup>>,
    /// The name of the thread, a label of its metrics.
    pub thread_name: Arc<str>,
    /// Time between two summaries in the log; zero: none.
    pub summary_interval: Option<Duration>,
    /// Where metrics go; without it none are told.
    pub metrics: Option<MetricsScope>,
    /// What slices of work are timed with, for the metrics; without it they tell no times of them. It is read for
    /// nothing else: what a worker does hangs on the time that a step is told.
    pub stopwatch: Option<Arc<dyn Clock>>,
}

/// Knows topics whose names come up while records are processed.
pub trait TopicLookup: fmt::Debug + Send + Sync {
    /// How many partitions a topic has; `None` if it does not exist. Called on the stream thread, which
    /// waits for the answer, once for each topic that exists.
    ///
    /// # Errors
    /// When it cannot be found out.
    fn partitions(&self, topic: &TopicName) -> Result<Option<i32>, UserError>;
}

impl WorkerConfig {
    /// The settings of one of the stream threads of an instance.
    pub fn of_thread(
        config: &StreamsConfig,
        handlers: Handlers,
        partition_counts: Arc<BTreeMap<TopicName, i32>>,
    ) -> Self {
        let share = |bytes: u64| {
            usize::try_from(bytes).unwrap_or(usize::MAX) / config.num_stream_threads.max(1)
        };
        Self {
            streams: Arc::new(config.clone()),
            exactly_once: config.is_exactly_once(),
            commit_interval: Duration::from_millis(config.commit_interval_in_force_ms()),
            max_task_idle: config.max_task_idle_ms,
            cache_bytes_max: share(config.statestore_cache_max_bytes),
            uncommitted_bytes_max: share(config.statestore_uncommitted_max_bytes),
            outputs: OutputLimits {
                batch_bytes: usize::try_from(config.batch_size).unwrap_or(usize::MAX),
                compression: config.compression_type,
                request_bytes: usize::try_from(config.max_request_size).unwrap_or(usize::MAX),
            },
            handlers,
            default_timestamp_extractor: config.default_timestamp_extractor,
            null_records: config.null_records,
            window_emit_interval: Duration::from_millis(config.window_emit_interval_ms),
            outer_join_emit_interval: Duration::from_millis(config.outer_join_emit_interval_ms),
            partition_counts,
            summary_interval: u64::try_from(config.log_summary_interval_ms)
                .ok()
                .map(Duration::from_millis),
            ..Self::default()
        }
    }
}

impl Default for WorkerConfig {
    /// Kafka Streams' defaults where it has the setting.
    fn default() -> Self {
        Self {
            streams: Arc::new(StreamsConfig::new("")),
            exactly_once: false,
            commit_interval: Duration::from_secs(30),
            max_task_idle: MaxTaskIdle::AtMost(Duration::ZERO),
            cache_bytes_max: 10 * 1024 * 1024,
            uncommitted_bytes_max: 32 * 1024 * 1024,
            unacknowledged_bytes_max: 8 * 1024 * 1024,
            slice_records: 1_000,
            outputs: OutputLimits::default(),
            handlers: Handlers::default(),
            default_timestamp_extractor: DefaultTimestampExtractor::default(),
            null_records: NullRecords::Drop,
            window_emit_interval: Duration::from_secs(1),
            outer_join_emit_interval: Duration::from_secs(1),
            partition_counts: Arc::default(),
            message_bytes: Arc::default(),
            topic_lookup: None,
            thread_name: "".into(),
            summary_interval: None,
            metrics: None,
            stopwatch: None,
        }
    }
}

/// So many complete batches are handed over together, unless the thread is idle before.
const BATCHES_AT_ONCE: usize = 4;

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

/// Whether and how a task is about to leave the thread.
#[derive(Debug)]
enum Leaving {
    No,
    /// After a commit.
    Clean,
    /// Without one.
    Dropped,
    /// Without one, for this reason.
    Failed(TaskError),
}

#[derive(Clone, Copy, Debug)]
enum Commit {
    /// None under way; the last one began then.
    Idle { last: Duration },
    /// Under way since then.
    Sealed { since: Duration },
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

    fn add_task(&mut self, new: NewTask) {
        let id = new.id;
        let seen = match new.seen() {
            Ok(seen) => seen,
            Err(error) => {
                let storages = new.storages;
                let closed = ClosedTask { task: id, storages, clean: false, released_bytes: 0 };
                self.messages.push(FromWorker::TaskFailed { closed, error });
                return;
            }
        };
        let mut task = new.build(&seen, &mut self.thread);
        if let Some(metrics) = &mut self.thread.metrics {
            metrics.task_came();
        }
        let leaving = match task.init(&mut self.thread) {
            Ok(()) => Leaving::No,
            Err(error) => Leaving::Failed(error),
        };
        self.tasks.insert(id, Slot { task, leaving, sealed: false, is_new: true });
        self.turns.push_back(id);
    }

    fn leave(&mut self, id: TaskId, how: Leaving) {
        let Some(slot) = self.tasks.get_mut(&id) else { return };
        let harder = match (&slot.leaving, &how) {
            (Leaving::No, _) | (Leaving::Clean, Leaving::Dropped | Leaving::Failed(_)) => true,
            (Leaving::Clean | Leaving::Dropped | Leaving::Failed(_), _) => false,
        };
        if harder {
            slot.leaving = how;
        }
    }

    fn fetched(&mut self, fetched: FetchedInput) {
        let found = self.tasks.get_mut(&fetched.task).and_then(|slot| {
            let Task { inputs, core, .. } = &mut slot.task;
            let mut inputs = inputs.iter_mut();
            let input = inputs.find(|input| input.topic_partition == fetched.topic_partition)?;
            Some((input, core))
        });
        match found {
            Some((input, core)) => core.commit_needed |= input.add(fetched),
            // The task has left meanwhile.
            None => self.messages.push(FromWorker::Consumed {
                task: fetched.task,
                topic_partition: fetched.topic_partition,
                bytes: fetched.bytes,
            }),
        }
    }

    fn punctuate(&mut self) {
        if self.paused {
            return;
        }
        for slot in self.tasks.values_mut() {
            if !matches!(slot.leaving, Leaving::No) {
                continue;
            }
            if let Err(error) = slot.task.punctuate_wall_clock(&mut self.thread) {
                slot.leaving = Leaving::Failed(error);
            }
        }
    }

    /// Gives the next task that has work its turn; false when none has.
    fn run_next_task(&mut self) -> bool {
        if self.paused || self.is_blocked() {
            return false;
        }
        let written = self.uncommitted_bytes();
        let room = self.config.uncommitted_bytes_max.saturating_sub(written);
        let began = self.read_stopwatch();
        for _ in 0..self.turns.len() {
            let Some(id) = self.turns.pop_front() else { return false };
            let Some(slot) = self.tasks.get_mut(&id) else { continue };
            self.turns.push_back(id);
            if !matches!(slot.leaving, Leaving::No) {
                continue;
            }
            slot.task.core.watch.set_at_work(true);
            let ran = slot.task.run(&mut self.thread, self.config.slice_records, room);
            slot.task.core.watch.set_at_work(false);
            match ran {
                Ok(end) => {
                    self.counts.processed += end.records as u64;
                    report_consumed(&mut self.messages, &mut slot.task);
                    self.commit_wanted |= slot.task.core.commit_requested;
                    if end.records > 0 && std::mem::take(&mut slot.is_new) {
                        // Whoever reads only what is committed sees the pause of a move end here.
                        self.commit_wanted |= self.config.exactly_once;
                    }
                    if end.records > 0 {
                        self.ran(id, end.records as u64, began);
                        return true;
                    }
                    if matches!(end.next, Choice::Process(_)) {
                        return true;
                    }
                }
                Err(error) => {
                    slot.leaving = Leaving::Failed(error);
                    return true;
                }
            }
        }
        false
    }

    /// Whether output or the commit under way must be acknowledged before more is processed.
    fn is_blocked(&self) -> bool {
        let is_commit_waited_for =
            matches!(self.commit, Commit::Sealed { .. }) && self.is_uncommitted_full();
        is_commit_waited_for || self.unacknowledged_bytes >= self.config.unacknowledged_bytes_max
    }

    /// Hands complete batches over, several at a time, because whoever takes them is woken for each
    /// hand-over and sends what it is given; with nothing else to do also the incomplete ones, so that
    /// an idle thread holds no record back.
    fn hand_over(&mut self, idle: bool) {
        if idle {
            self.thread.outputs.complete_all();
        } else if self.thread.outputs.ready_len() < BATCHES_AT_ONCE {
            return;
        }
        let ThreadCore { outputs, metrics, .. } = &mut self.thread;
        for batch in outputs.take_ready() {
            if let Some(metrics) = metrics {
                metrics.handed_over(&batch);
            }
            produce(&mut self.messages, &mut self.unacknowledged_bytes, batch);
        }
    }

    /// A task that leaves without a commit has output in the transaction that must not count, and
    /// there is one transaction for all tasks: so they all leave, and begin anew at the last commit.
    fn abort_if_broken(&mut self) {
        let leaves = |slot: &Slot| matches!(slot.leaving, Leaving::Dropped | Leaving::Failed(_));
        if self.aborted || !self.tasks.values().any(leaves) {
            return;
        }
        self.aborted = true;
        self.drop_all();
        self.messages.push(FromWorker::Abort);
    }

    fn commit_if_due(&mut self) {
        let Commit::Idle { last } = self.commit else { return };
        let now = self.thread.now.monotonic;
        let is_due = self.commit_wanted
            || now.saturating_sub(last) >= self.config.commit_interval
            || self.tasks.values().any(|slot| matches!(slot.leaving, Leaving::Clean))
            || self.is_uncommitted_full();
        if !is_due {
            return;
        }
        self.commit = Commit::Idle { last: now };
        self.commit_wanted = false;
        self.flush_caches();
        if self.config.exactly_once {
            // A cache could not be flushed: then nothing is sealed.
            self.abort_if_broken();
        }
        let mut sealed = Vec::new();
        for slot in self.tasks.values_mut() {
            let stays = matches!(slot.leaving, Leaving::No | Leaving::Clean);
            if !stays || !slot.task.core.commit_needed {
                continue;
            }
            sealed.push(slot.task.seal().expect("caches are flushed and no commit is under way"));
            slot.sealed = true;
        }
        if sealed.is_empty() {
            return;
        }
        self.hand_over(true);
        self.messages.push(FromWorker::Commit(SealedCommit { tasks: sealed }));
        self.commit = Commit::Sealed { since: now };
    }

    fn flush_caches(&mut self) {
        for slot in self.tasks.values_mut() {
            if !matches!(slot.leaving, Leaving::No | Leaving::Clean) {
                continue;
            }
            if let Err(error) = slot.task.flush_caches(&mut self.thread) {
                slot.leaving = Leaving::Failed(error);
            }
        }
    }

    fn is_uncommitted_full(&self) -> bool {
        self.uncommitted_bytes() >= self.config.uncommitted_bytes_max
    }

    fn uncommitted_bytes(&self) -> usize {
        self.tasks.values().map(|slot| slot.task.core.uncommitted_bytes()).sum()
    }

    fn committed(&mut self, tasks: Vec<CommittedTask>) {
        if let (Some(metrics), Commit::Sealed { since }) = (&mut self.thread.metrics, self.commit) {
            metrics.committed(since);
        }
        self.end_commit();
        self.counts.commits += 1;
        self.summary.committed_tasks += tasks.len() as u64;
        for CommittedTask { task, storages } in tasks {
            if let Some(slot) = self.tasks.get_mut(&task) {
                slot.task.release(storages);
                slot.sealed = false;
            }
        }
    }

    fn commit_failed(&mut self, tasks: Vec<CommittedTask>) {
        self.end_commit();
        for CommittedTask { task, storages } in tasks {
            if let Some(slot) = self.tasks.get_mut(&task) {
                slot.task.core.storages = storages;
                slot.sealed = false;
            }
        }
        self.drop_all();
    }

    /// Nothing since the last commit counts.
    fn drop_all(&mut self) {
        self.thread.outputs.clear();
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        for id in ids {
            self.leave(id, Leaving::Dropped);
        }
    }

    fn end_commit(&mut self) {
        if let Commit::Sealed { since } = self.commit {
            self.commit = Commit::Idle { last: since };
        }
    }

    /// Lets tasks go that are about to leave and have nothing under way.
    fn let_go(&mut self) {
        let ready = |slot: &Slot| match &slot.leaving {
            Leaving::No => false,
            Leaving::Clean => !slot.sealed && !slot.task.core.commit_needed,
            Leaving::Dropped | Leaving::Failed(_) => !slot.sealed,
        };
        let ids: Vec<TaskId> =
            self.tasks.iter().filter(|(_, slot)| ready(slot)).map(|(id, _)| *id).collect();
        for id in ids {
            self.end_metrics(id);
            let Some(slot) = self.tasks.remove(&id) else { continue };
            self.turns.retain(|turn| *turn != id);
            let released_bytes = slot.task.inputs.iter().map(Input::pinned_bytes).sum();
            self.thread.cache_bytes -= slot.task.core.cache_bytes();
            let clean = matches!(slot.leaving, Leaving::Clean);
            if !clean {
                // It would come to the changelog behind what the next restore reads.
                self.thread.outputs.discard(&slot.task.core.changelogs());
            }
            let storages = slot.task.dismantle();
            let closed = ClosedTask { task: id, storages, clean, released_bytes };
            self.messages.push(match slot.leaving {
                Leaving::Failed(error) => FromWorker::TaskFailed { closed, error },
                Leaving::No | Leaving::Clean | Leaving::Dropped => FromWorker::TaskClosed(closed),
            });
        }
        self.aborted &= !self.tasks.is_empty();
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

fn produce(messages: &mut Vec<FromWorker>, unacknowledged: &mut usize, batch: OutputBatch) {
    *unacknowledged += batch.batch.batch.size_bytes();
    messages.push(FromWorker::Produce(batch));
}

/// Tells which bytes of inputs are no longer pinned.
fn report_consumed(messages: &mut Vec<FromWorker>, task: &mut Task) {
    for input in &mut task.inputs {
        let bytes = input.take_consumed();
        if bytes > 0 {
            messages.push(FromWorker::Consumed {
                task: task.core.id,
                topic_partition: input.topic_partition.clone(),
                bytes,
            });
        }
    }
}
