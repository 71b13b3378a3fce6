//! Sealed writes into the stores. Runs where blocking is allowed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use headwater_broker::TopicPartition;
use headwater_store::{MetaUpdate, StoreError, TaskStorage, WriteBatch};
use headwater_topology::TaskId;

use crate::instance::error::InstanceError;
use crate::worker::{CommittedTask, SealedStorage};

/// The sealed writes of one task, with the positions that go with them.
pub(super) struct TaskWrites {
    pub(super) task: TaskId,
    /// Whether the writes are to be made safe against a loss of power.
    sync: bool,
    storages: Vec<StorageWrites>,
}

struct StorageWrites {
    storage: Box<dyn TaskStorage>,
    batch: WriteBatch,
    meta: Vec<MetaUpdate>,
}

impl TaskWrites {
    pub(super) fn new(
        task: TaskId,
        sync: bool,
        storages: Vec<SealedStorage>,
        mut positions: impl FnMut(&[TopicPartition]) -> Vec<MetaUpdate>,
    ) -> Self {
        let storages = storages
            .into_iter()
            .map(|SealedStorage { storage, batch, changelogs, mut meta }| {
                meta.extend(positions(&changelogs));
                StorageWrites { storage, batch, meta }
            })
            .collect();
        Self { task, sync, storages }
    }

    pub(super) fn back(self) -> CommittedTask {
        let storages = self.storages.into_iter().map(|writes| writes.storage).collect();
        CommittedTask { task: self.task, storages }
    }
}

/// Applies everything; the storages come back either way, also when a backend panics.
pub(super) fn apply(
    thread: usize,
    tasks: Vec<TaskWrites>,
) -> (Vec<CommittedTask>, Result<(), InstanceError>) {
    let mut result = Ok(());
    let mut back = Vec::with_capacity(tasks.len());
    for mut writes in tasks {
        if result.is_ok() {
            let task = writes.task;
            let apply = AssertUnwindSafe(|| apply_one(&mut writes));
            result = match catch_unwind(apply) {
                Ok(applied) => applied.map_err(|source| InstanceError::Apply {
                    thread: thread + 1,
                    task,
                    source,
                }),
                Err(_) => Err(InstanceError::Blocking { task }),
            };
        }
        back.push(writes.back());
    }
    (back, result)
}

fn apply_one(writes: &mut TaskWrites) -> Result<(), StoreError> {
    for StorageWrites { storage, batch, meta } in &mut writes.storages {
        storage.apply(batch.sort(), meta)?;
        if writes.sync {
            storage.sync()?;
        }
    }
    Ok(())
}
