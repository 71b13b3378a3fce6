//! What the coordinator knows of a task.

use std::sync::Arc;
use std::time::Duration;

use headwater_changelog::{FollowProgress, RestorePartition, StoreStep};
use headwater_store::TaskStorage;

use crate::instance::life_cycle::LifeCycle;
use crate::process::OffsetReset;
use crate::query::LocalStore;
use crate::task::{InputStart, StorePlace, TaskWatch};

/// A task of this instance: where it stands, and what it holds there.
#[derive(Debug)]
pub(super) struct TaskEntry {
    pub(super) thread: usize,
    /// The thread to which it goes when it has left the one where it is.
    pub(super) moves_to: Option<usize>,
    pub(super) life: LifeCycle,
    /// When its stage began, in monotonic time.
    pub(super) stage_since: Duration,
    /// Since when it is to be active here and does not process; `None` while it does.
    pub(super) idle_since: Option<Duration>,
    /// Between opening and running.
    pub(super) startable: Option<Startable>,
    /// Where its stores are in their storages, while they are open.
    pub(super) places: Vec<StorePlace>,
    /// While it follows.
    pub(super) progress: Option<Arc<FollowProgress>>,
    /// While they are neither with the restore loop nor on the thread.
    pub(super) stores: Stores,
    pub(super) watch: Arc<TaskWatch>,
    /// While they are open.
    pub(super) local_stores: Arc<[LocalStore]>,
    /// Of a task with changelogs.
    pub(super) renewal: Option<Renewal>,
    /// Its stores were found to be damaged, and rebuilt: a second time it is not them.
    pub(super) was_damaged: bool,
}

impl TaskEntry {
    /// The thread where it is, or will be.
    pub(super) fn next_thread(&self) -> usize {
        self.moves_to.unwrap_or(self.thread)
    }
}

/// An idle task commits from time to time all the same, so that its stores do not seem to be older
/// than tombstones are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renewal {
    interval: Duration,
    /// Monotonic time.
    pub(super) due: Duration,
}

impl Renewal {
    pub(super) fn new(tombstone_retention: Duration, now: Duration) -> Self {
        let interval = (tombstone_retention / 3).max(MIN_RENEWAL);
        Self { interval, due: now.saturating_add(interval) }
    }

    /// The stores have just been found complete.
    pub(super) fn renew(&mut self, now: Duration) {
        self.due = now.saturating_add(self.interval);
    }
}

const MIN_RENEWAL: Duration = Duration::from_secs(1);

/// The open stores of a task.
#[derive(Debug, Default)]
pub(super) enum Stores {
    #[default]
    Elsewhere,
    /// With their positions: before they run.
    Step(StoreStep),
    /// After they ran.
    Storages(Vec<Box<dyn TaskStorage>>),
}

/// What a task needs besides its stores.
#[derive(Debug)]
pub(super) struct Startable {
    pub(super) inputs: Vec<(InputStart, OffsetReset)>,
    pub(super) changelogs: Vec<RestorePartition>,
}
