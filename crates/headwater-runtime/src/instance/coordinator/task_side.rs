//! The tasks of an instance. What follows from what is decided by the
//! [life cycle](crate::instance::life_cycle); here it is carried out: stores opened, restored, given
//! to a thread, closed.

use std::sync::Arc;
use std::time::Duration;

use headwater_changelog::{
    BlockingExt, ChangelogError, RestoreCommand, RestoreEnd, RestorePartition, RestoreTarget,
};
use headwater_store::{StoreError, TaskStorage};
use headwater_topology::TaskId;

use super::entry::{Renewal, Startable, Stores, TaskEntry};
use super::follow_side::standby_failed;
use super::{Coordinator, Ending, Event, TaskRole, watch_of};
use crate::instance::committer::{CommitterCommand, FollowedChangelog, leader_epochs};
use crate::instance::error::InstanceError;
use crate::instance::fetcher::{FetchCommand, FetchFailure, FetchInput};
use crate::instance::life_cycle::{LifeCycle, Moved, Role, Stage, TaskAction, TaskEvent};
use crate::instance::opener::{OpenedTask, open_task, prepare_task};
use crate::instance::stages::{StageChange, TaskStage, reason};
use crate::instance::storages::{Complete, close_storages};
use crate::task::NewTask;
use crate::worker::{ClosedTask, ToWorker};

impl Coordinator {
    /// The plan gives this task to the instance.
    pub(super) fn take(&mut self, task: TaskId, role: Role) {
        let thread = self.least_loaded_thread();
        let now = self.shared.clock.monotonic();
        if let Some(entry) = self.tasks.get_mut(&task) {
            if role == Role::Active && !entry.life.is_owned() {
                entry.thread = thread;
            }
            self.drive(task, TaskEvent::Assigned(role));
            return;
        }
        let entry = TaskEntry {
            thread,
            moves_to: None,
            life: LifeCycle::new(role),
            stage_since: now,
            idle_since: (role == Role::Active).then_some(now),
            startable: None,
            places: Vec::new(),
            progress: None,
            stores: Stores::Elsewhere,
            watch: watch_of(&self.views, task),
            local_stores: Arc::default(),
            renewal: None,
            was_damaged: false,
        };
        self.tasks.insert(task, entry);
        let waits = Stage::Waiting { until: Duration::ZERO };
        self.tell_stage(task, None, (TaskEvent::Assigned(role), Some(waits)), now);
        self.drive(task, TaskEvent::TimePassed { may_open: self.may_open() });
    }

    /// Lets a task go on its way, and does what that asks for.
    pub(super) fn drive(&mut self, task: TaskId, event: TaskEvent) {
        let now = self.shared.clock.monotonic();
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let before = entry.life;
        let Moved { next, actions } = before.on(event, now);
        tracing::trace!(%task, ?before, ?event, ?next, ?actions, "life cycle");
        if let Some(next) = next {
            entry.life = next;
            if !next.has_open_stores() {
                entry.local_stores = Arc::default();
            }
            if next.stage() != Stage::Following {
                entry.progress = None;
            }
            if next.stage() != Stage::Restoring {
                self.views.restoring.send_if_modified(|shown| shown.remove(&task).is_some());
            }
        }
        self.tell_stage(task, Some(before.stage()), (event, next.map(LifeCycle::stage)), now);
        for action in actions {
            self.act(task, action);
        }
        if next.is_none() {
            self.tasks.remove(&task);
        }
        self.run_if_ready(task);
    }

    /// Tells that a task has gone from one stage to another, if it has. A task whose life has ended
    /// is still in the table.
    fn tell_stage(
        &mut self,
        task: TaskId,
        from: Option<Stage>,
        (event, next): (TaskEvent, Option<Stage>),
        now: Duration,
    ) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let (from, to) = (from.map(TaskStage::from), next.map(TaskStage::from));
        let is_idle = entry.life.wanted() == Some(Role::Active) && to != Some(TaskStage::Running);
        let idle_since = if is_idle { entry.idle_since.or(Some(now)) } else { None };
        let idle = std::mem::replace(&mut entry.idle_since, idle_since);
        if from == to {
            return;
        }
        let lasted = now.saturating_sub(std::mem::replace(&mut entry.stage_since, now));
        let role =
            self.tasks.get(&task).map_or(TaskRole::Active, |entry| self.status(task, entry).role);
        let reason = reason(event);
        let name = |stage: Option<TaskStage>| stage.map_or("none", TaskStage::as_str);
        tracing::debug!(
            %task, ?role, from = name(from), to = name(to), reason, lasted_ms = lasted.as_millis(), "stage"
        );
        let idle = idle.filter(|_| to == Some(TaskStage::Running));
        let idle = idle.map(|since| now.saturating_sub(since));
        if let Some(idle) = idle {
            let thread = self.tasks.get(&task).map(|entry| entry.thread + 1);
            tracing::info!(%task, thread, idle_ms = idle.as_millis(), "the task runs");
        }
        if let Some(metrics) = &self.metrics {
            metrics.left_stage((from, to), lasted, idle);
        }
        self.hooks.tasks.on_stage(&StageChange { task, role, from, to, reason, lasted, idle });
    }

    /// Whether tasks that have ended begin anew.
    pub(super) fn goes_on(&self) -> bool {
        self.ending == Ending::No && !self.shutdown_requested
    }

    fn run_if_ready(&mut self, task: TaskId) {
        let is_ready = self.tasks.get(&task).is_some_and(|entry| {
            entry.life.stage() == Stage::Ready && self.threads[entry.thread].takes_tasks()
        });
        if is_ready {
            self.drive(task, TaskEvent::ThreadReady);
        }
    }

    fn act(&mut self, task: TaskId, action: TaskAction) {
        match action {
            TaskAction::Open { role, rebuild } => self.open(task, role, rebuild),
            TaskAction::Prepare(role) => self.prepare(task, role),
            TaskAction::Follow => self.follow_changelogs(task),
            TaskAction::StopFollowing { promoted } => self.stop_following(task, promoted),
            TaskAction::Restore => self.restore(task),
            TaskAction::StopRestoring => send(&self.restorer, RestoreCommand::Stop(task)),
            TaskAction::Run => self.run_on_thread(task),
            TaskAction::TakeOffThread { commit } => self.take_off_thread(task, commit),
            TaskAction::CloseStores { complete } => self.close_stores(task, complete),
        }
    }

    fn open(&mut self, task: TaskId, role: Role, rebuild: bool) {
        let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
        self.jobs.spawn(async move {
            let limit = Duration::from_millis(shared.config.task_timeout_ms);
            let began = shared.clock.monotonic();
            let result = loop {
                let result = open_task(&shared, task, role, rebuild).await;
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

    fn prepare(&mut self, task: TaskId, role: Role) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let storages = match std::mem::take(&mut entry.stores) {
            Stores::Step(step) => step.into_parts().0,
            Stores::Storages(storages) => storages,
            Stores::Elsewhere => unreachable!("a task is prepared while its stores are open"),
        };
        let open = (storages, std::mem::take(&mut entry.places));
        let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
        self.jobs.spawn(async move {
            let result = prepare_task(&shared, task, role, open).await;
            send(&events, Event::Opened { task, result: result.map(Box::new) });
        });
    }

    pub(super) fn opened(&mut self, task: TaskId, result: Result<Box<OpenedTask>, InstanceError>) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let opened = match result {
            Ok(opened) => *opened,
            Err(error) => {
                let (thread, wanted) = (entry.thread, entry.life.wanted());
                let instance_goes_on = self.goes_on();
                let rebuild = matches!(
                    &error,
                    InstanceError::Open { source, .. } if self.is_first_damage(task, source)
                );
                self.drive(task, TaskEvent::OpenFailed { instance_goes_on, rebuild });
                if rebuild || self.is_about_matched_topic(&error) {
                    return;
                }
                if wanted == Some(Role::Standby) {
                    standby_failed(task, &error);
                } else {
                    self.uncaught(Some(thread), error);
                }
                return;
            }
        };
        if self.shared.backend.capabilities().persistent {
            self.held.entry(task).or_default();
        }
        let OpenedTask { inputs, places, changelogs, step, tombstone_retention, local_stores } =
            opened;
        entry.local_stores = local_stores;
        let now = self.shared.clock.monotonic();
        entry.renewal = tombstone_retention.map(|retention| Renewal::new(retention, now));
        let has_changelogs = !changelogs.is_empty();
        entry.places = places;
        entry.startable = Some(Startable { inputs, changelogs });
        entry.stores = Stores::Step(step);
        self.drive(task, TaskEvent::Opened { has_changelogs });
    }

    fn restore(&mut self, task: TaskId) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let (Some(startable), Stores::Step(step)) =
            (&entry.startable, std::mem::take(&mut entry.stores))
        else {
            unreachable!("a task is restored when it has been opened")
        };
        let changelogs = startable.changelogs.clone();
        let left = |changelog: &RestorePartition| changelog.end_offset - changelog.start_offset;
        let offsets: i64 = changelogs.iter().map(left).filter(|left| *left > 0).sum();
        tracing::info!(%task, changelogs = changelogs.len(), offsets, "the restore begins");
        let shown = changelogs.clone();
        self.views.restoring.send_modify(|restoring| drop(restoring.insert(task, shown)));
        send(&self.restorer, RestoreCommand::Add(RestoreTarget { id: task, changelogs, step }));
    }

    pub(super) fn restored(&mut self, end: RestoreEnd<TaskId, headwater_changelog::StoreStep>) {
        let RestoreEnd { id: task, step, outcome } = end;
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let (thread, wanted) = (entry.thread, entry.life.wanted());
        entry.stores = step.map_or(Stores::Elsewhere, Stores::Step);
        match outcome {
            Ok(true) => {
                tracing::info!(%task, "the restore has ended");
                self.drive(task, TaskEvent::Restored);
            }
            Ok(false) => {
                tracing::info!(%task, "the restore was stopped");
                self.drive(task, TaskEvent::ReadingStopped);
            }
            Err(ChangelogError::Rebuild { topic_partition, reason }) => {
                tracing::warn!(%task, %topic_partition, "the state is rebuilt: {reason}");
                self.drive(task, TaskEvent::ReadingFailed { rebuild: true });
            }
            Err(source) if self.is_damage_of(task, &source) => {
                self.drive(task, TaskEvent::ReadingFailed { rebuild: true });
            }
            Err(source) => {
                self.drive(task, TaskEvent::ReadingFailed { rebuild: false });
                let error = InstanceError::Restore { task, source };
                if wanted == Some(Role::Standby) {
                    standby_failed(task, &error);
                } else {
                    self.uncaught(Some(thread), error);
                }
            }
        }
    }

    fn run_on_thread(&mut self, task: TaskId) {
        let read_cache_bytes = self.read_cache_bytes();
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let thread = &self.threads[entry.thread];
        let (Some(startable), Stores::Step(step)) =
            (entry.startable.take(), std::mem::take(&mut entry.stores))
        else {
            unreachable!("a task runs when its stores are complete")
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
        let Startable { inputs, .. } = startable;
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
            state_dir: self.shared.task_dir(task),
            program,
            inputs: inputs.into_iter().map(|(start, _)| start).collect(),
            storages,
            stores: entry.places.clone(),
            global_stores: self.global.stores(),
            read_cache_bytes,
            watch: Arc::clone(&entry.watch),
        })));
        // Not before: the thread must know the task when its first records come.
        for input in fetch {
            send(&self.fetcher, FetchCommand::Add(input));
        }
    }

    fn take_off_thread(&self, task: TaskId, commit: bool) {
        let Some(entry) = self.tasks.get(&task) else { return };
        let message = if commit { ToWorker::CloseTask(task) } else { ToWorker::DropTask(task) };
        self.threads[entry.thread].tell(message);
        send(&self.fetcher, FetchCommand::Remove(task));
    }

    /// Whether a store did not take its changelog because it holds what it never held, and that for the first time
    /// here.
    pub(super) fn is_damage_of(&mut self, task: TaskId, error: &ChangelogError) -> bool {
        let ChangelogError::Store { source, .. } = error else { return false };
        self.is_first_damage(task, source)
    }

    /// Whether the state of a task is damaged, and that for the first time here: a second time it is not the state.
    fn is_first_damage(&mut self, task: TaskId, error: &StoreError) -> bool {
        let Some(entry) = self.tasks.get_mut(&task) else { return false };
        if !error.is_damage() || entry.was_damaged {
            return false;
        }
        entry.was_damaged = true;
        let error = error as &dyn std::error::Error;
        tracing::error!(%task, error, "the state is damaged, and rebuilt");
        true
    }

    /// A task has left its thread.
    pub(super) fn left_thread(&mut self, closed: ClosedTask) {
        let ClosedTask { task, storages, clean, .. } = closed;
        send(&self.fetcher, FetchCommand::Remove(task));
        // A task whose thread has died since it said so has left already.
        if let Some(entry) = self.tasks.get_mut(&task).filter(|entry| entry.life.is_on_thread()) {
            entry.stores = Stores::Storages(storages);
            self.leave_for_next_thread(task);
            self.drive(task, TaskEvent::LeftThread { clean });
        }
    }

    /// Closes a task's stores. Those that are complete note it, with the present epochs of their
    /// changelogs; for others the stored positions know better.
    fn close_stores(&mut self, task: TaskId, complete: bool) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        entry.startable = None;
        let storages: Vec<Box<dyn TaskStorage>> = match std::mem::take(&mut entry.stores) {
            Stores::Elsewhere => Vec::new(),
            Stores::Step(step) => step.into_parts().0,
            Stores::Storages(storages) => storages,
        };
        let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
        self.jobs.spawn(async move {
            let complete = if complete && !storages.is_empty() {
                let at_ms = shared.clock.wall_ms();
                let asked = leader_epochs(&*shared.broker, shared.changelog_partitions(task));
                let epochs = tokio::time::timeout(EPOCHS_WAIT, asked).await.unwrap_or_default();
                Some(Complete { at_ms, epochs })
            } else {
                None
            };
            let (blocking, shared) = (Arc::clone(&shared.blocking), Arc::clone(&shared));
            let closing = move || {
                let changelogs = shared.changelog_partitions(task);
                let sum = close_storages(task, storages, &changelogs, complete.as_ref())?;
                if let Some(state_dir) = &shared.state_dir
                    && let Err(error) = state_dir.note_offset_sum(task, sum)
                {
                    tracing::warn!(%task, %error, "nobody will know how much state it has");
                }
                Ok(sum)
            };
            let closed = blocking.call(closing).await;
            let result = closed.unwrap_or(Err(InstanceError::Blocking { task }));
            send(&events, Event::Closed { task, result });
        });
    }

    pub(super) fn closed(&mut self, task: TaskId, result: Result<u64, InstanceError>) {
        let sum = match result {
            Ok(sum) => Some(sum),
            Err(error) => {
                // What could not be synced is read from the changelog the next time.
                let error = &error as &dyn std::error::Error;
                tracing::warn!(%task, error, "closing its state failed");
                None
            }
        };
        if let Some(held) = self.held.get_mut(&task) {
            *held = sum;
        }
        let instance_goes_on = self.goes_on();
        self.drive(task, TaskEvent::Closed { instance_goes_on });
    }

    pub(super) fn fetch_failed(&mut self, failure: FetchFailure) {
        let FetchFailure { task, topic_partition, error } = failure;
        let Some(entry) = self.tasks.get(&task) else { return };
        let thread = entry.thread;
        let topic = topic_partition.topic.clone();
        let error = match error {
            None => InstanceError::NoOffset { topic_partition },
            Some(error) => {
                InstanceError::Broker { task, operation: "read its input", source: Box::new(error) }
            }
        };
        if self.is_about_matched_topic(&error) {
            self.topics.unread.insert((task, topic));
            return;
        }
        self.drive(task, TaskEvent::Interrupted { commit: true });
        self.uncaught(Some(thread), error);
    }

    /// What each task may keep for reading of what it has written.
    fn read_cache_bytes(&self) -> usize {
        READ_CACHE_BYTES / self.shared.matched.tasks.tasks.len().max(1)
    }
}

/// Of what is written or read and is in the backend too, so much stays in memory, all tasks together,
/// also where record caches are switched off: a read of the backend costs a hundred times as much.
const READ_CACHE_BYTES: usize = 6 * 1024 * 1024;

/// Closing does not wait for longer to learn of epochs that can be asked for the next time.
const EPOCHS_WAIT: Duration = Duration::from_secs(2);

/// Sends to a part of the instance. It is gone only when the whole instance is being dropped.
pub(super) fn send<T>(channel: &tokio::sync::mpsc::UnboundedSender<T>, message: T) {
    if channel.send(message).is_err() {
        tracing::debug!("a part of the instance is gone already");
    }
}
