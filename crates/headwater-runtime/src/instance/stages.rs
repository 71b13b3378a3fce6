//! The way of a task through an instance, as the outside hears of it: each stage, how long it was in
//! it, and what ended that.

use std::fmt;
use std::time::Duration;

use headwater_topology::TaskId;

use super::TaskRole;
use super::life_cycle::{Stage, TaskEvent};

/// Where a task stands on its way through an instance: finer than
/// [`TaskState`](crate::TaskState), so that each moment in which an active task does not process has
/// its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TaskStage {
    /// Its stores are to be opened.
    Waiting,
    /// Its stores are being opened.
    Opening,
    /// Its stores are open; what it needs for another role is being found out.
    Preparing,
    /// Its stores read the rest of their changelogs.
    Restoring,
    /// Its stores follow their changelogs: it is a standby or a warm-up.
    Following,
    /// Its stores are complete; its thread is not ready for it.
    Ready,
    /// It processes records.
    Running,
    /// It commits, and leaves its thread.
    Leaving,
    /// Its stores are being closed.
    Closing,
}

impl TaskStage {
    /// The stage in one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Opening => "opening",
            Self::Preparing => "preparing",
            Self::Restoring => "restoring",
            Self::Following => "following",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Leaving => "leaving",
            Self::Closing => "closing",
        }
    }
}

impl fmt::Display for TaskStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Stage> for TaskStage {
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::Waiting { .. } => Self::Waiting,
            Stage::Opening => Self::Opening,
            Stage::Preparing => Self::Preparing,
            Stage::Restoring => Self::Restoring,
            Stage::Following => Self::Following,
            Stage::Ready => Self::Ready,
            Stage::Running => Self::Running,
            Stage::Leaving => Self::Leaving,
            Stage::Closing => Self::Closing,
        }
    }
}

/// A task of an instance has gone from one stage to another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageChange {
    /// The task.
    pub task: TaskId,
    /// What it does on this instance, from now on.
    pub role: TaskRole,
    /// The stage that it leaves; `None`: it is new here.
    pub from: Option<TaskStage>,
    /// The stage that begins; `None`: it is not here any more.
    pub to: Option<TaskStage>,
    /// What happened, in one word or two: `assigned`, `revoked`, `lost`, `restored`...
    pub reason: &'static str,
    /// For how long it was in the stage that it leaves.
    pub lasted: Duration,
    /// When it begins to process: for how long it was to process here and did not.
    pub idle: Option<Duration>,
}

/// Hears of every stage of every task (feature row R5). Called from the coordinator of the instance:
/// it must not block.
///
/// The time in which an active task did not process is the one between the end of
/// [`Running`](TaskStage::Running) on one instance and its beginning on another, or
/// [`StageChange::idle`] on the same.
///
/// ```
/// use headwater_runtime::{StageChange, TaskListener};
///
/// #[derive(Debug)]
/// struct Tell;
///
/// impl TaskListener for Tell {
///     fn on_stage(&self, change: &StageChange) {
///         let stage = |stage: Option<_>| stage.map_or("nowhere".to_owned(), |it| format!("{it}"));
///         let (from, to) = (stage(change.from), stage(change.to));
///         println!("{} {}: {from} to {to} after {:?}", change.task, change.reason, change.lasted);
///     }
/// }
/// ```
pub trait TaskListener: fmt::Debug + Send + Sync + 'static {
    /// A task has gone from one stage to another.
    fn on_stage(&self, change: &StageChange);
}

/// Hears nothing.
impl TaskListener for () {
    fn on_stage(&self, _: &StageChange) {}
}

/// An event in a word or two.
pub(super) fn reason(event: TaskEvent) -> &'static str {
    match event {
        TaskEvent::Assigned(_) => "assigned",
        TaskEvent::Revoked => "revoked",
        TaskEvent::Lost => "membership lost",
        TaskEvent::TimePassed { .. } => "may be opened",
        TaskEvent::Opened { .. } => "opened",
        TaskEvent::OpenFailed { .. } => "opening failed",
        TaskEvent::Restored => "restored",
        TaskEvent::ReadingStopped => "reading stopped",
        TaskEvent::ReadingFailed { .. } => "reading failed",
        TaskEvent::ThreadReady => "thread ready",
        TaskEvent::Damaged => "state damaged",
        TaskEvent::Interrupted { .. } => "interrupted",
        TaskEvent::GoesWell => "goes well",
        TaskEvent::InputsChanged => "inputs changed",
        TaskEvent::LeftThread { clean: true } => "committed",
        TaskEvent::LeftThread { clean: false } => "given up",
        TaskEvent::ThreadDied { .. } => "thread died",
        TaskEvent::Closed { .. } => "closed",
    }
}
