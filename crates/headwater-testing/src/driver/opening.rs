//! Bringing a task up: its stores are opened and restored as those of an instance are.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use headwater_broker::{Clock, Isolation, ListedOffset, TopicId, TopicPartition};
use headwater_changelog::{
    ChangelogError, InlineBlocking, RestoreCommand, RestoreMemory, RestoreOptions,
    RestorePartition, RestoreStart, RestoreTarget, StoreStep, restore,
};
use headwater_runtime::hosting::{
    ChangelogEnds, PreparedRestore, StorageOptions, open_storages, prepare_restore, rebuild,
    restore_starts,
};
use headwater_runtime::{InputStart, NewTask, Now, OffsetMetadata, ToWorker};
use headwater_store::{OpenOptions, StoreBackend, StoreError, TaskStorage};
use headwater_topology::TaskId;
use tempfile::TempDir;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::core::Core;
use crate::TestDriverError;
use crate::logs::LogsReader;

/// Where the stores of the tasks lie.
pub(super) struct StatePlaces {
    backend: Arc<dyn StoreBackend>,
    state_dir: PathBuf,
    /// How often the state of a task was lost: then it goes on in another directory.
    lost: BTreeMap<TaskId, u32>,
    /// Removed with the driver.
    _temporary: Option<TempDir>,
}

impl StatePlaces {
    pub(super) fn new(
        backend: Arc<dyn StoreBackend>,
        state_dir: Option<PathBuf>,
    ) -> Result<Self, TestDriverError> {
        let failed = |source| TestDriverError::StateDirectory { source };
        let (state_dir, temporary) = if let Some(state_dir) = state_dir {
            (state_dir, None)
        } else {
            let temporary = tempfile::tempdir().map_err(failed)?;
            (temporary.path().to_owned(), Some(temporary))
        };
        Ok(Self { backend, state_dir, lost: BTreeMap::new(), _temporary: temporary })
    }

    /// The state of a task is lost.
    fn lose(&mut self, task: TaskId) {
        *self.lost.entry(task).or_default() += 1;
    }

    /// Those of the global stores.
    pub(super) fn global_options(&self) -> StorageOptions {
        StorageOptions {
            task_dir: self.state_dir.join("global"),
            backend: Arc::clone(&self.backend),
            open_options: OpenOptions::default(),
        }
    }

    fn options(&self, task: TaskId) -> StorageOptions {
        let life = self.lost.get(&task).copied().unwrap_or_default();
        StorageOptions {
            task_dir: self.state_dir.join(format!("{task}-{life}")),
            backend: Arc::clone(&self.backend),
            open_options: OpenOptions::default(),
        }
    }
}

impl Core {
    /// Opens and restores the stores of a task and hands it to the worker.
    pub(super) fn open(&mut self, id: TaskId, without_state: bool) -> Result<(), TestDriverError> {
        if without_state {
            self.places.lose(id);
        }
        let Some(entry) = self.tasks.get(&id) else {
            return Err(TestDriverError::UnknownTask { task: id });
        };
        let program = Arc::clone(&entry.program);
        let (inputs, watch) = (entry.inputs.clone(), Arc::clone(&entry.watch));
        let PreparedRestore { places, changelogs, step } = self.prepare(id)?;
        let storages = self.restore(id, changelogs, step)?;
        self.stores.add_task(id, &program, &storages, &places);
        self.tell(ToWorker::AddTask(Box::new(NewTask {
            id,
            application_id: Arc::clone(&self.application_id),
            state_dir: self.places.options(id).task_dir,
            program,
            inputs: inputs.iter().map(|input| self.input_start(input)).collect(),
            storages,
            stores: places,
            global_stores: self.global.as_ref().map(|it| it.state.stores()).unwrap_or_default(),
            read_cache_bytes: 0,
            watch,
        })));
        for input in &inputs {
            let offset = self.committed.get(input).map_or(0, |commit| commit.offset);
            self.fed.insert(input.clone(), offset);
            self.feed_partition(input)?;
        }
        Ok(())
    }

    fn input_start(&self, input: &TopicPartition) -> InputStart {
        let committed = self.committed.get(input);
        let metadata = committed.and_then(|commit| OffsetMetadata::decode(&commit.metadata).ok());
        let OffsetMetadata { partition_time, processor_metadata } = metadata.unwrap_or_default();
        InputStart {
            topic_partition: input.clone(),
            offset: committed.map_or(0, |commit| commit.offset),
            partition_time,
            processor_metadata,
        }
    }

    fn prepare(&self, task: TaskId) -> Result<PreparedRestore, TestDriverError> {
        let failed = |source| TestDriverError::Store { task, source };
        let program = &self.tasks[&task].program;
        let options = self.places.options(task);
        let opened = open_storages(&options, task, program, false);
        let mut opened = opened.map_err(|source| {
            let source = Box::new(source);
            TestDriverError::Open { task, source }
        })?;
        let known = |offset| ListedOffset { offset, leader_epoch: None };
        let ends = opened.positions.iter().map(|store| ChangelogEnds {
            topic_id: TopicId(Uuid::nil()),
            start: known(0),
            end: known(self.logs.end(&store.topic_partition)),
            position_epoch_end: None,
            tombstone_retention_ms: None,
        });
        let ends: Vec<ChangelogEnds> = ends.collect();
        let begins = restore_starts(task, &opened, &ends, self.now.wall_ms);
        let rebuilt = begins.iter().enumerate();
        let rebuilt = rebuilt.filter(|(_, begin)| matches!(begin, RestoreStart::Rebuild { .. }));
        let rebuilt: Vec<usize> = rebuilt.map(|(index, _)| index).collect();
        rebuild(&mut opened, &rebuilt).map_err(failed)?;
        let committed =
            |input: &TopicPartition| self.committed.get(input).map(|commit| commit.offset);
        let memory = RestoreMemory::new(1 << 24);
        Ok(prepare_restore(opened, &begins, &ends, committed, self.now.wall_ms, &memory))
    }

    /// Reads the changelogs to their ends.
    fn restore(
        &self,
        task: TaskId,
        changelogs: Vec<RestorePartition>,
        step: StoreStep,
    ) -> Result<Vec<Box<dyn TaskStorage>>, TestDriverError> {
        if changelogs.is_empty() {
            return Ok(step.into_parts().0);
        }
        let partitions = changelogs.iter().map(|changelog| &changelog.topic_partition);
        let reader = self.logs.reader(partitions);
        let topic = changelogs[0].topic_partition.topic.clone();
        let reader = reader.map_err(|source| TestDriverError::Record { topic, source })?;
        let failed = |source| TestDriverError::Restore { task, source };
        let step = restored(reader, self.now, changelogs, step).map_err(failed)?;
        Ok(step.into_parts().0)
    }
}

/// Runs the restore loop. Nothing in it waits: the logs are in memory, and what blocks runs in place.
fn restored(
    reader: LogsReader,
    now: Now,
    changelogs: Vec<RestorePartition>,
    step: StoreStep,
) -> Result<StoreStep, ChangelogError> {
    let (commands, told) = mpsc::unbounded_channel();
    let (ended, mut ends) = mpsc::unbounded_channel();
    let target = RestoreTarget { id: (), changelogs, step };
    commands.send(RestoreCommand::Add(target)).expect("the loop has the other end");
    // Without commands to come the loop ends with the last restore.
    drop(commands);
    let options = RestoreOptions {
        isolation: Isolation::ReadUncommitted,
        fetch_bytes: 1 << 20,
        pending_bytes: 1 << 24,
        give_up_after: Duration::ZERO,
        clock: Arc::new(StandingClock(now)),
        blocking: Arc::new(InlineBlocking),
        listener: Arc::new(()),
    };
    let mut restoring = pin!(restore(Box::new(reader), told, ended, options));
    let mut context = Context::from_waker(Waker::noop());
    while restoring.as_mut().poll(&mut context).is_pending() {}
    let end = ends.try_recv().expect("the loop tells how a restore ends");
    end.outcome?;
    Ok(end.step.expect("the step did not panic"))
}

/// A clock that stands while a task is restored.
#[derive(Debug)]
struct StandingClock(Now);

impl Clock for StandingClock {
    fn monotonic(&self) -> Duration {
        self.0.monotonic
    }

    fn wall_ms(&self) -> i64 {
        self.0.wall_ms
    }
}

/// Closes storages so that their directories can be opened again.
pub(super) fn close(storages: Vec<Box<dyn TaskStorage>>) -> Result<(), StoreError> {
    storages.into_iter().try_for_each(TaskStorage::close)
}
