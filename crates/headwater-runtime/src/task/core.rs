//! What a task owns apart from its inputs: stores, processors, schedules, counters.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use headwater_broker::TopicPartition;
use headwater_store::{MetaUpdate, TaskStorage};
use headwater_topology::TaskId;

use crate::global::ChangeSeen;
use crate::metrics::{TaskCounts, TaskMetrics};
use crate::process::store::TaskStore;
use crate::process::{Headers, OperatorTimes, Program, Punctuations, TaskProcessor};
use crate::task::TaskWatch;
use crate::worker::TopicIndex;

/// The mutable state that nodes reach through [`Cx`](crate::Cx).
pub(crate) struct TaskCore {
    pub(crate) id: TaskId,
    pub(crate) application_id: Arc<str>,
    /// Where its state lies, if any is on disk.
    pub(crate) state_dir: PathBuf,
    pub(crate) program: Arc<Program>,
    pub(crate) stores: Vec<TaskStore>,
    /// One for each backend the stores use. Empty while a commit is under way: then their write
    /// halves travel with it.
    pub(crate) storages: Vec<Box<dyn TaskStorage>>,
    /// The times of operators, by their slots.
    pub(crate) operators: Vec<OperatorTimes>,
    pub(crate) processors: Vec<Option<Box<dyn TaskProcessor>>>,
    pub(crate) sinks: Vec<TopicIndex>,
    pub(crate) punctuations: Punctuations,
    /// Highest timestamp seen; −1 before the first record.
    pub(crate) stream_time: i64,
    /// Headers of the record being processed.
    pub(crate) headers: Headers,
    pub(crate) commit_requested: bool,
    /// Whether anything happened since the last commit.
    pub(crate) commit_needed: bool,
    /// Whether the record being processed could not be read, and is skipped.
    pub(crate) unreadable: bool,
    pub(crate) watch: Arc<TaskWatch>,
    /// Operators' stream times changed since the last commit, to be stored with the data.
    pub(crate) meta: Vec<MetaUpdate>,
    /// What is counted for the metrics.
    pub(crate) counts: TaskCounts,
    /// Without a recorder there are none.
    pub(crate) metrics: Option<Box<TaskMetrics>>,
    /// Tells when global stores have changed.
    pub(crate) global: ChangeSeen,
}

impl TaskCore {
    /// Bytes written to stores since the last commit.
    pub(crate) fn uncommitted_bytes(&self) -> usize {
        self.stores.iter().map(|store| store.overlay.uncommitted_bytes()).sum()
    }

    /// Bytes written to stores that are not in the backend yet.
    pub(crate) fn written_bytes(&self) -> usize {
        let overlays = self.stores.iter().map(|store| &store.overlay);
        overlays.map(|overlay| overlay.uncommitted_bytes() + overlay.sealed_bytes()).sum()
    }

    /// Forgets what was read of global stores if they have changed since.
    pub(crate) fn refresh_global_stores(&mut self) {
        if self.global.is_changed() {
            let global = self.stores.iter_mut().filter(|store| store.storage.is_none());
            global.for_each(|store| store.overlay.abandon());
        }
    }

    /// The changelog partitions of its stores.
    pub(crate) fn changelogs(&self) -> Vec<TopicPartition> {
        let changelogs = self.stores.iter().filter_map(|store| store.changelog.as_ref());
        changelogs.map(|changelog| changelog.topic_partition.clone()).collect()
    }

    /// Bytes of the record cache that this task's stores hold.
    pub(crate) fn cache_bytes(&self) -> usize {
        self.stores.iter().map(|store| store.overlay.cache_bytes()).sum()
    }
}

impl fmt::Debug for TaskCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskCore")
            .field("id", &self.id)
            .field("stores", &self.stores)
            .field("stream_time", &self.stream_time)
            .finish_non_exhaustive()
    }
}
