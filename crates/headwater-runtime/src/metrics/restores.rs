//! What restores and standbys tell the recorder: for each batch that they apply.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use headwater_broker::{TopicName, TopicPartition};
use headwater_changelog::{RestoreListener, StandbyUpdateListener, SuspendReason};
use headwater_topology::TaskId;
use metrics::{Counter, Gauge};
use parking_lot::Mutex;

use super::descriptions as all;
use super::scope::MetricsScope;
use super::task::float;

/// Hears of restores and standbys, counts, and lets the listeners of the user hear it too.
pub(crate) struct RestoreMetrics {
    scope: MetricsScope,
    records: Counter,
    calls: Counter,
    /// The sub-topologies of changelogs.
    owners: BTreeMap<TopicName, u32>,
    tasks: Mutex<BTreeMap<TaskId, OfTask>>,
    restore: Arc<dyn RestoreListener>,
    standby: Arc<dyn StandbyUpdateListener>,
}

struct OfTask {
    restored: Counter,
    updated: Counter,
    remaining: Gauge,
    /// By changelog.
    left: BTreeMap<TopicPartition, u64>,
}

impl fmt::Debug for RestoreMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestoreMetrics")
            .field("restore", &self.restore)
            .field("standby", &self.standby)
            .finish_non_exhaustive()
    }
}

impl RestoreMetrics {
    /// `scope` has the label of the state updater.
    pub(crate) fn new(
        scope: &MetricsScope,
        owners: BTreeMap<TopicName, u32>,
        (restore, standby): (Arc<dyn RestoreListener>, Arc<dyn StandbyUpdateListener>),
    ) -> Self {
        Self {
            scope: scope.clone(),
            records: scope.count(&all::UPDATER_RECORDS),
            calls: scope.count(&all::UPDATER_CALLS),
            owners,
            tasks: Mutex::default(),
            restore,
            standby,
        }
    }

    /// The task of a changelog; `None` for a global store.
    fn with_task(&self, changelog: &TopicPartition, f: impl FnOnce(&mut OfTask)) {
        let Some(&subtopology) = self.owners.get(&changelog.topic) else { return };
        let task = TaskId::new(subtopology, changelog.partition.cast_unsigned());
        let mut tasks = self.tasks.lock();
        let of_task = tasks.entry(task).or_insert_with(|| {
            let scope = self.scope.with("task_id", task.to_string());
            OfTask {
                restored: scope.count(&all::TASK_RESTORED),
                updated: scope.count(&all::TASK_UPDATED),
                remaining: scope.show(&all::TASK_RESTORE_REMAINING),
                left: BTreeMap::new(),
            }
        });
        f(of_task);
    }

    fn remains(&self, changelog: &TopicPartition, records: u64, left: u64) {
        self.with_task(changelog, |task| {
            task.restored.increment(records);
            task.left.insert(changelog.clone(), left);
            task.remaining.set(float(task.left.values().sum()));
        });
    }

    fn applied(&self, records: u64) {
        self.records.increment(records);
        self.calls.increment(1);
    }
}

impl RestoreListener for RestoreMetrics {
    fn on_restore_start(&self, changelog: &TopicPartition, store: &str, start: i64, end: i64) {
        self.remains(changelog, 0, u64::try_from(end.saturating_sub(start)).unwrap_or(0));
        self.restore.on_restore_start(changelog, store, start, end);
    }

    fn on_batch_restored(
        &self,
        changelog: &TopicPartition,
        store: &str,
        records: u64,
        remaining: u64,
    ) {
        self.applied(records);
        self.remains(changelog, records, remaining);
        self.restore.on_batch_restored(changelog, store, records, remaining);
    }

    fn on_restore_end(&self, changelog: &TopicPartition, store: &str, total: u64) {
        self.remains(changelog, 0, 0);
        self.restore.on_restore_end(changelog, store, total);
    }

    fn on_restore_suspended(&self, changelog: &TopicPartition, store: &str, total: u64) {
        self.remains(changelog, 0, 0);
        self.restore.on_restore_suspended(changelog, store, total);
    }
}

impl StandbyUpdateListener for RestoreMetrics {
    fn on_update_start(&self, changelog: &TopicPartition, store: &str, starting_offset: i64) {
        self.standby.on_update_start(changelog, store, starting_offset);
    }

    fn on_batch_loaded(
        &self,
        changelog: &TopicPartition,
        store: &str,
        records: u64,
        offsets: (i64, i64),
    ) {
        self.applied(records);
        self.with_task(changelog, |task| task.updated.increment(records));
        self.standby.on_batch_loaded(changelog, store, records, offsets);
    }

    fn on_update_suspended(
        &self,
        changelog: &TopicPartition,
        store: &str,
        offsets: (i64, i64),
        reason: SuspendReason,
    ) {
        self.standby.on_update_suspended(changelog, store, offsets, reason);
    }
}
