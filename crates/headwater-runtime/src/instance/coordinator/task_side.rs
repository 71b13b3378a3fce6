//! The tasks of an instance: opened, restored, run, let go.

use std::sync::Arc;
use std::time::Duration;

use headwater_changelog::{
    BlockingExt, ChangelogError, RestoreCommand, RestoreEnd, RestoreTarget, StoreStep,
};
use headwater_store::{StoreError, TaskStorage};
use headwater_topology::TaskId;

use super::{Coordinator, Ending, Event, Stage, Startable, TaskEntry};
use crate::instance::committer::{CommitterCommand, FollowedChangelog};
use crate::instance::error::InstanceError;
use crate::instance::fetcher::{FetchCommand, FetchFailure, FetchInput};
use crate::instance::opener::{OpenedTask, open_task};
use crate::instance::storages::close_storages;
use crate::task::{NewTask, TaskWatch};
use crate::worker::{ClosedTask, ToWorker};

impl Coordinator {
    /// The plan gives this task to the instance.
    pub(super) fn take(&mut self, task: TaskId) {
        if let Some(entry) = self.tasks.get_mut(&task) {
            entry.wanted = true;
            return;
        }
        let entry = TaskEntry {
            thread: self.least_loaded_thread(),
            stage: Stage::Waiting { until: Duration::ZERO },
            wanted: true,
            rebuild: false,
            failures: 0,
            watch: Arc::new(TaskWatch::default()),
        };
        self.tasks.insert(task, entry);
        self.open(task);
    }

    /// The task is to go: committed, if it runs.
    pub(super) fn release(&mut self, task: TaskId) {
        self.let_go(task, ToWorker::CloseTask(task));
    }

    /// The task is to go, without a commit.
    pub(super) fn drop_task(&mut self, task: TaskId) {
        self.let_go(task, ToWorker::DropTask(task));
    }

    fn let_go(&mut self, task: TaskId, message: ToWorker) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        entry.wanted = false;
        match &entry.stage {
            Stage::Waiting { .. } => {
                self.tasks.remove(&task);
            }
            Stage::Opening | Stage::Closing => {}
            Stage::Restoring(_) => send(&self.restorer, RestoreCommand::Stop(task)),
            Stage::Ready(..) => {
                if let Stage::Ready(_, step) = std::mem::replace(&mut entry.stage, Stage::Closing) {
                    self.close_stores(task, step.into_parts().0, None);
                }
            }
            Stage::Running | Stage::Leaving => self.take_off_thread(task, message),
        }
    }

    /// Tells a task's thread to let it go.
    pub(super) fn take_off_thread(&mut self, task: TaskId, message: ToWorker) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        entry.stage = Stage::Leaving;
        self.threads[entry.thread].tell(message);
        send(&self.fetcher, FetchCommand::Remove(task));
    }

    /// Opens a task that waits for it.
    pub(super) fn open(&mut self, task: TaskId) {
        let soon = self.shared.clock.monotonic().saturating_add(Duration::from_millis(50));
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        if self.cleaning {
            entry.stage = Stage::Waiting { until: soon };
            return;
        }
        entry.stage = Stage::Opening;
        let rebuild = std::mem::take(&mut entry.rebuild);
        let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
        self.jobs.spawn(async move {
            let limit = Duration::from_millis(shared.config.task_timeout_ms);
            let began = shared.clock.monotonic();
            let result = loop {
                let result = open_task(&shared, task, rebuild).await;
                let waited = shared.clock.monotonic().saturating_sub(began);
                // A storage of a thread that has died is let go a moment later.
                let is_locked = matches!(
                    result,
                    Err(InstanceError::Open { source: StoreError::Locked { .. }, .. })
                );
                if !is_locked || waited >= limit {
                    break result;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            };
            send(&events, Event::Opened { task, result: result.map(Box::new) });
        });
    }

    pub(super) fn opened(&mut self, task: TaskId, result: Result<Box<OpenedTask>, InstanceError>) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let opened = match result {
            Ok(opened) => *opened,
            Err(error) => {
                let thread = entry.thread;
                self.closed(task, Ok(()));
                self.uncaught(Some(thread), error);
                return;
            }
        };
        if self.shared.backend.capabilities().persistent {
            self.with_state.insert(task);
        }
        let OpenedTask { id, inputs, places, changelogs, step } = opened;
        if !entry.wanted {
            entry.stage = Stage::Closing;
            self.close_stores(task, step.into_parts().0, None);
            return;
        }
        let startable = Startable { inputs, places, changelogs: changelogs.clone() };
        if changelogs.is_empty() {
            entry.stage = Stage::Ready(startable, step);
            self.run_if_ready(task);
        } else {
            entry.stage = Stage::Restoring(startable);
            let target = RestoreTarget { id, changelogs, step };
            send(&self.restorer, RestoreCommand::Add(target));
        }
    }

    pub(super) fn restored(&mut self, end: RestoreEnd<TaskId, StoreStep>) {
        let RestoreEnd { id: task, step, outcome } = end;
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let Stage::Restoring(startable) = std::mem::replace(&mut entry.stage, Stage::Closing)
        else {
            return;
        };
        let thread = entry.thread;
        let step = match (outcome, step) {
            (Ok(true), Some(step)) if entry.wanted => {
                entry.stage = Stage::Ready(startable, step);
                self.run_if_ready(task);
                return;
            }
            (Err(error), step) => {
                self.restore_failed(task, thread, error);
                step
            }
            (Ok(_), step) => step,
        };
        let storages = step.map_or_else(Vec::new, |step| step.into_parts().0);
        self.close_stores(task, storages, None);
    }

    fn restore_failed(&mut self, task: TaskId, thread: usize, error: ChangelogError) {
        if let ChangelogError::Rebuild { topic_partition, reason } = &error {
            tracing::warn!(%task, %topic_partition, "the state is rebuilt: {reason}");
            if let Some(entry) = self.tasks.get_mut(&task) {
                entry.rebuild = true;
            }
            return;
        }
        self.uncaught(Some(thread), InstanceError::Restore { task, source: error });
    }

    /// Hands a restored task to its thread, when that takes tasks.
    pub(super) fn run_if_ready(&mut self, task: TaskId) {
        let read_cache_bytes = self.read_cache_bytes();
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let thread = &self.threads[entry.thread];
        if !thread.takes_tasks() {
            return;
        }
        let Stage::Ready(startable, step) = std::mem::replace(&mut entry.stage, Stage::Running)
        else {
            return;
        };
        let program = self.shared.program(task);
        let (storages, stores) = step.into_parts();
        let is_source = |topic: &str| {
            program.stores.iter().any(|store| {
                store.source_is_changelog
                    && store.changelog.as_ref().is_some_and(|changelog| changelog.as_str() == topic)
            })
        };
        let followed = stores
            .into_iter()
            .map(|store| FollowedChangelog {
                task,
                is_source: is_source(store.topic_partition.topic.as_str()),
                topic_partition: store.topic_partition,
                position: store.position,
            })
            .collect();
        thread.tell_committer(CommitterCommand::Follow(followed));
        let Startable { inputs, places, changelogs } = startable;
        tracing::info!(%task, thread = entry.thread + 1, changelogs = changelogs.len(), "the task runs");
        let fetch: Vec<FetchInput> = inputs
            .iter()
            .map(|(start, reset)| FetchInput {
                task,
                topic_partition: start.topic_partition.clone(),
                offset: start.offset,
                reset: *reset,
                thread: thread.messages(),
            })
            .collect();
        thread.tell(ToWorker::AddTask(Box::new(NewTask {
            id: task,
            application_id: self.shared.config.application_id.as_str().into(),
            program,
            inputs: inputs.into_iter().map(|(start, _)| start).collect(),
            storages,
            stores: places,
            read_cache_bytes,
            watch: Arc::clone(&entry.watch),
        })));
        // Not before: the thread must know the task when its first records come.
        for input in fetch {
            send(&self.fetcher, FetchCommand::Add(input));
        }
    }

    /// A task has left its thread.
    pub(super) fn left_thread(&mut self, closed: ClosedTask) {
        let ClosedTask { task, storages, clean, .. } = closed;
        send(&self.fetcher, FetchCommand::Remove(task));
        if let Some(entry) = self.tasks.get_mut(&task) {
            entry.stage = Stage::Closing;
            // After its last commit it is known to be at the end: it was the only writer.
            let complete_at_ms = clean.then(|| self.shared.clock.wall_ms());
            self.close_stores(task, storages, complete_at_ms);
        }
    }

    /// Closes storages that are complete as of a wall-clock time, or whose positions know better.
    pub(super) fn close_stores(
        &mut self,
        task: TaskId,
        storages: Vec<Box<dyn TaskStorage>>,
        complete_at_ms: Option<i64>,
    ) {
        let (blocking, events) = (Arc::clone(&self.shared.blocking), self.events.clone());
        self.jobs.spawn(async move {
            let closed =
                blocking.call(move || close_storages(task, storages, complete_at_ms)).await;
            let result = closed.unwrap_or(Err(InstanceError::Blocking { task }));
            send(&events, Event::Closed { task, result });
        });
    }

    pub(super) fn closed(&mut self, task: TaskId, result: Result<(), InstanceError>) {
        if let Err(error) = result {
            // What could not be synced is read from the changelog the next time.
            tracing::warn!(%task, error = &error as &dyn std::error::Error, "closing its state failed");
        }
        let now = self.shared.clock.monotonic();
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        if entry.wanted && self.ending == Ending::No && !self.shutdown_requested {
            let pause = failure_pause(entry.failures);
            entry.failures += 1;
            entry.stage = Stage::Waiting { until: now.saturating_add(pause) };
        } else {
            self.tasks.remove(&task);
        }
    }

    pub(super) fn fetch_failed(&mut self, failure: FetchFailure) {
        let FetchFailure { task, topic_partition, error } = failure;
        let Some(entry) = self.tasks.get(&task) else { return };
        let thread = entry.thread;
        if entry.is_on_thread() {
            self.take_off_thread(task, ToWorker::CloseTask(task));
        }
        let error = match error {
            None => InstanceError::NoOffset { topic_partition },
            Some(source) => InstanceError::Broker { task, operation: "read its input", source },
        };
        self.uncaught(Some(thread), error);
    }

    /// What each task may keep for reading of what it has written.
    fn read_cache_bytes(&self) -> usize {
        let tasks = self.shared.tasks.tasks.len().max(1);
        usize::try_from(self.shared.config.statestore_cache_max_bytes).unwrap_or(usize::MAX) / tasks
    }
}

/// How long a task waits after so many failures in a row.
fn failure_pause(failures: u32) -> Duration {
    let milliseconds = 50_u64.saturating_mul(1 << failures.min(8));
    Duration::from_millis(if failures == 0 { 0 } else { milliseconds.min(10_000) })
}

/// Sends to a part of the instance. It is gone only when the whole instance is being dropped.
pub(super) fn send<T>(channel: &tokio::sync::mpsc::UnboundedSender<T>, message: T) {
    if channel.send(message).is_err() {
        tracing::debug!("a part of the instance is gone already");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_failures() {
        let pauses: Vec<u128> =
            [0, 1, 2, 5, 8, 100].map(|failures| failure_pause(failures).as_millis()).to_vec();
        assert_eq!(pauses, [0, 100, 200, 1600, 10_000, 10_000]);
    }
}
