//! What a stream thread is told, and what it says. Whole batches, never single records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{OffsetCommit, TopicName, TopicPartition};
use headwater_records::BatchRecords;
use headwater_store::{
    Direction, KeyRange, KeyValueBytes, MetaUpdate, StoreError, TaskStorage, WriteBatch,
};
use headwater_topology::TaskId;
use tokio::sync::oneshot;

use crate::process::{NodeIndex, TaskError};
use crate::task::NewTask;
use crate::worker::OutputBatch;

/// Time, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time since some fixed point; never goes back.
    pub monotonic: Duration,
    /// Wall-clock time in milliseconds since 1970.
    pub wall_ms: i64,
}

/// What a fetch brought for one input of a task.
#[derive(Debug)]
pub struct FetchedInput {
    /// The task.
    pub task: TaskId,
    /// The input.
    pub topic_partition: TopicPartition,
    /// Checked and decompressed batches with data; control batches and aborted ones are left out.
    pub batches: Vec<BatchRecords>,
    /// What these batches pin in memory. It counts against the input's limit until
    /// [`FromWorker::Consumed`] gives it back.
    pub bytes: usize,
    /// Where this fetch began. What does not follow on what the task has is left over from an
    /// earlier life of the task and is not taken.
    pub offset: i64,
    /// The offset after everything this fetch covered: where the next one begins. Before `offset` when the
    /// log ends before that one, and the input begins anew at an earlier offset: then there are no batches.
    pub next_offset: i64,
    /// The end of the partition as this reader sees it: high watermark, or last stable offset.
    pub end_offset: i64,
}

impl FetchedInput {
    /// Whether the offset was reset to an earlier one.
    pub(crate) const fn goes_back(&self) -> bool {
        self.next_offset < self.offset
    }
}

/// What a stream thread is told.
#[derive(Debug)]
pub enum ToWorker {
    /// Run this task. It is restored.
    AddTask(Box<NewTask>),
    /// Stop this task: finish, commit, close. Answered by [`FromWorker::TaskClosed`].
    CloseTask(TaskId),
    /// Give this task up without a commit: it belongs to somebody else, or has failed. Answered by
    /// [`FromWorker::TaskClosed`].
    DropTask(TaskId),
    /// Records for tasks.
    Fetched(Vec<FetchedInput>),
    /// Commit soon, without waiting for the interval.
    CommitNow,
    /// Commit this task soon, even if it has done nothing: its stores note that they are complete.
    CommitTask(TaskId),
    /// Everything of the last [`FromWorker::Commit`] is acknowledged, committed and applied.
    Committed(Vec<CommittedTask>),
    /// The last [`FromWorker::Commit`], or a batch sent since the one before it, failed. All tasks
    /// of the thread are given up: they leave by [`FromWorker::TaskClosed`], to be restored from
    /// what is stored and begun again at what is committed. The tasks of the commit come back, with their
    /// storages as far as these are still there.
    CommitFailed(Vec<CommittedTask>),
    /// So many bytes handed over by [`FromWorker::Produce`] are acknowledged.
    Acknowledged {
        /// Size of the batches, as they were handed over.
        bytes: usize,
    },
    /// The broker does not take a record of this node, and its handler has said to go on: it counts as
    /// dropped.
    LeftOut {
        /// The task.
        task: TaskId,
        /// The node.
        node: NodeIndex,
    },
    /// The topics that tasks write to are these from now on, with their numbers of partitions.
    PartitionCounts(Arc<BTreeMap<TopicName, i32>>),
    /// Stop processing (or go on): KIP-834.
    Pause(bool),
    /// Tell what a store holds, uncommitted changes included. Answered at once; not at all when the
    /// task or the store is not here.
    Ask(StoreQuestion),
}

/// A question for entries of a store.
#[derive(Debug)]
pub struct StoreQuestion {
    /// The task.
    pub task: TaskId,
    /// Name of the store.
    pub store: Arc<str>,
    /// Which entries.
    pub range: KeyRange,
    /// From which end.
    pub direction: Direction,
    /// At most so many.
    pub limit: usize,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Result<Vec<KeyValueBytes>, StoreError>>,
}

/// What a stream thread says.
#[derive(Debug)]
pub enum FromWorker {
    /// Send this batch. Batches of a partition go out in this order.
    Produce(OutputBatch),
    /// Commit: when every batch said before this is acknowledged, commit the offsets, then apply
    /// the sealed overlays. At most one is under way per thread.
    Commit(SealedCommit),
    /// Abort the transaction: nothing said since the last [`Commit`](Self::Commit) counts. Only under
    /// exactly once. All tasks are leaving; what comes before
    /// [`ToWorker::CommitFailed`] is of no use any more.
    Abort,
    /// An input has let go of so many bytes.
    Consumed {
        /// The task.
        task: TaskId,
        /// The input.
        topic_partition: TopicPartition,
        /// Bytes no longer pinned.
        bytes: usize,
    },
    /// A task is no longer on this thread.
    TaskClosed(ClosedTask),
    /// A task cannot go on. It has left the thread; nothing of it since the last commit is kept.
    TaskFailed {
        /// What is left of it.
        closed: ClosedTask,
        /// Why.
        error: TaskError,
    },
}

/// All tasks of a commit.
#[derive(Debug)]
pub struct SealedCommit {
    /// The tasks, in order.
    pub tasks: Vec<SealedTask>,
}

/// One task of a commit. Its storages' write halves travel with it and come back in
/// [`CommittedTask`].
#[derive(Debug)]
pub struct SealedTask {
    /// The task.
    pub task: TaskId,
    /// The offsets to commit.
    pub offsets: Vec<OffsetCommit>,
    /// What to apply, one entry for each backend.
    pub storages: Vec<SealedStorage>,
}

/// The sealed writes for one storage.
#[derive(Debug)]
pub struct SealedStorage {
    /// The write half.
    pub storage: Box<dyn TaskStorage>,
    /// The writes of all its stores since the last commit.
    pub batch: WriteBatch,
    /// The changelog partitions of its stores. The position of each, as far as it is acknowledged
    /// when the commit is done, is to be stored with the data.
    pub changelogs: Vec<TopicPartition>,
    /// Stream times of operators, to be stored with the data.
    pub meta: Vec<MetaUpdate>,
}

/// The storages of a task coming back from a commit.
#[derive(Debug)]
pub struct CommittedTask {
    /// The task.
    pub task: TaskId,
    /// The write halves, in the order in which they came.
    pub storages: Vec<Box<dyn TaskStorage>>,
}

/// What is left of a task that has left its thread.
#[derive(Debug)]
pub struct ClosedTask {
    /// The task.
    pub task: TaskId,
    /// Its storages, to be closed, or kept open for a standby.
    pub storages: Vec<Box<dyn TaskStorage>>,
    /// Whether everything it did is committed.
    pub clean: bool,
    /// Bytes of its inputs that were still buffered.
    pub released_bytes: usize,
}
