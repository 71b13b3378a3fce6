//! Closing the storages of a task, and what is noted in them then.

use headwater_broker::TopicPartition;
use headwater_store::{ChangelogPosition, MetaKey, StoreError, TaskStorage, WriteBatch};
use headwater_topology::TaskId;

use crate::instance::error::InstanceError;

/// What is noted in the storages of a task that ended well.
#[derive(Debug)]
pub(in crate::instance) struct Complete {
    /// They hold all of their changelogs as of this time, so that one that was idle for long need
    /// not be rebuilt.
    pub(in crate::instance) at_ms: i64,
    /// The leader epochs of the changelogs by then, as far as they are known.
    pub(in crate::instance) epochs: Vec<(TopicPartition, i32)>,
}

/// Closes storages for good: synced, and their directories free for the next. Gives the sum of the
/// changelog offsets that they hold. Only the changelogs that the task has count: what else a storage may
/// say is of stores that are gone.
pub(in crate::instance) fn close_storages(
    task: TaskId,
    storages: Vec<Box<dyn TaskStorage>>,
    changelogs: &[TopicPartition],
    complete: Option<&Complete>,
) -> Result<u64, InstanceError> {
    let mut result = Ok(0);
    for mut storage in storages {
        let held = offset_sum(&*storage, changelogs);
        let noted = complete.map_or(Ok(()), |complete| complete.note(&mut *storage, changelogs));
        let closed = noted
            .and_then(|()| storage.close())
            .map_err(|source| InstanceError::Open { task, source });
        // The first error counts; the others are closed all the same.
        result = result.and_then(|sum| closed.map(|()| sum + held));
    }
    result
}

/// The positions that a storage holds of these changelogs; those that cannot be read are left out.
fn positions_of(
    storage: &dyn TaskStorage,
    changelogs: &[TopicPartition],
) -> Result<Vec<(TopicPartition, ChangelogPosition)>, StoreError> {
    let entries = storage.meta_entries()?;
    let positions = entries.iter().filter_map(|(key, value)| {
        let MetaKey::Changelog { topic, partition } = MetaKey::decode(key)? else { return None };
        let changelog = TopicPartition::new(topic.as_str(), partition);
        let position = ChangelogPosition::decode(value).ok()?;
        changelogs.contains(&changelog).then_some((changelog, position))
    });
    Ok(positions.collect())
}

/// The sum of the changelog offsets that a storage holds; what cannot be read counts as nothing.
fn offset_sum(storage: &dyn TaskStorage, changelogs: &[TopicPartition]) -> u64 {
    let positions = positions_of(storage, changelogs).unwrap_or_default();
    positions.iter().map(|(_, position)| u64::try_from(position.next_offset).unwrap_or(0)).sum()
}

impl Complete {
    fn note(
        &self,
        storage: &mut dyn TaskStorage,
        changelogs: &[TopicPartition],
    ) -> Result<(), StoreError> {
        let noted = |(changelog, mut position): (TopicPartition, ChangelogPosition)| {
            position.at_end_ms = Some(self.at_ms);
            let epoch = self.epochs.iter().find(|(known, _)| *known == changelog);
            position.leader_epoch = position.leader_epoch.max(epoch.map(|(_, epoch)| *epoch));
            position.update(changelog.topic.as_str(), changelog.partition)
        };
        let updates: Vec<_> = positions_of(storage, changelogs)?.into_iter().map(noted).collect();
        storage.apply(WriteBatch::new().sort(), &updates)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use headwater_store::{MemoryBackend, OpenOptions, StoreBackend as _};

    use super::*;

    const OLD_MS: i64 = 5;

    /// The time that a storage notes for a changelog.
    fn noted(storage: &dyn TaskStorage, topic: &str, partition: i32) -> Option<i64> {
        let position = ChangelogPosition::load(storage, Path::new(""), topic, partition);
        position.expect("it can be read").and_then(|position| position.at_end_ms)
    }

    #[test]
    fn only_the_changelogs_of_the_task_count_and_are_complete() {
        let backend = MemoryBackend::durable();
        let open = || backend.open(Path::new("0_0"), &OpenOptions::default()).unwrap();
        let mut storage = open();
        let position = |next_offset| ChangelogPosition {
            topic_id: [1; 16],
            next_offset,
            leader_epoch: Some(2),
            at_end_ms: Some(OLD_MS),
        };
        let held = [("counts", 0, 10), ("sums", 0, 20), ("removed", 0, 400), ("counts", 1, 800)];
        let updates = held.map(|(topic, partition, at)| position(at).update(topic, partition));
        storage.apply(WriteBatch::new().sort(), &updates).unwrap();
        let changelogs = ["counts", "sums"].map(|topic| TopicPartition::new(topic, 0));
        let epochs = vec![(changelogs[0].clone(), 7)];
        let complete = Complete { at_ms: 99, epochs };
        let task = TaskId::new(0, 0);
        let sum = close_storages(task, vec![storage], &changelogs, Some(&complete)).unwrap();
        assert_eq!(sum, 30);
        let storage = open();
        let times = held.map(|(topic, partition, _)| noted(&*storage, topic, partition));
        assert_eq!(times, [Some(99), Some(99), Some(OLD_MS), Some(OLD_MS)]);
    }
}
