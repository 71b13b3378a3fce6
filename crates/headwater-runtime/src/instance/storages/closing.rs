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
/// changelog offsets that they hold.
pub(in crate::instance) fn close_storages(
    task: TaskId,
    storages: Vec<Box<dyn TaskStorage>>,
    complete: Option<&Complete>,
) -> Result<u64, InstanceError> {
    let mut result = Ok(0);
    for mut storage in storages {
        let held = offset_sum(&*storage);
        let noted = complete.map_or(Ok(()), |complete| complete.note(&mut *storage));
        let closed = noted
            .and_then(|()| storage.close())
            .map_err(|source| InstanceError::Open { task, source });
        // The first error counts; the others are closed all the same.
        result = result.and_then(|sum| closed.map(|()| sum + held));
    }
    result
}

/// The sum of the changelog offsets that a storage holds; what cannot be read counts as nothing.
fn offset_sum(storage: &dyn TaskStorage) -> u64 {
    let entries = storage.meta_entries().unwrap_or_default();
    let offsets = entries.iter().filter_map(|(key, value)| match MetaKey::decode(key)? {
        MetaKey::Changelog { .. } => Some(ChangelogPosition::decode(value).ok()?.next_offset),
        _ => None,
    });
    offsets.map(|offset| u64::try_from(offset).unwrap_or(0)).sum()
}

impl Complete {
    fn note(&self, storage: &mut dyn TaskStorage) -> Result<(), StoreError> {
        let mut updates = Vec::new();
        for (key, value) in storage.meta_entries()? {
            if let (Some(MetaKey::Changelog { topic, partition }), Ok(mut position)) =
                (MetaKey::decode(&key), ChangelogPosition::decode(&value))
            {
                position.at_end_ms = Some(self.at_ms);
                let changelog = TopicPartition::new(topic.as_str(), partition);
                let epoch = self.epochs.iter().find(|(known, _)| *known == changelog);
                position.leader_epoch = position.leader_epoch.max(epoch.map(|(_, epoch)| *epoch));
                updates.push(position.update(&topic, partition));
            }
        }
        storage.apply(WriteBatch::new().sort(), &updates)
    }
}
