//! Opening the global stores, and where the reading of their topics begins. It blocks.

use std::path::{Path, PathBuf};

use headwater_broker::TopicPartition;
use headwater_changelog::{RestoreFacts, RestoreStart, restore_start};
use headwater_store::{
    ChangelogPosition, Chunk, Direction, KeyRange, MetaKey, MetaUpdate, StoreError, TaskStorage,
    WriteBatch,
};
use headwater_topology::TaskId;

use crate::instance::{ChangelogEnds, InstanceError, StorageOptions, open_storages};
use crate::process::Program;
use crate::task::StorePlace;

/// A partition of a global topic, and how far its store holds it.
#[derive(Clone, Debug)]
pub struct GlobalPartition {
    /// The partition.
    pub topic_partition: TopicPartition,
    /// Which of the program's stores it feeds.
    pub store: usize,
    /// How far the store holds it; `None` when it never held any of it.
    pub position: Option<ChangelogPosition>,
}

/// The open storages of the global stores.
#[derive(Debug)]
pub struct OpenedGlobal {
    pub(super) state_dir: PathBuf,
    pub(super) storages: Vec<Box<dyn TaskStorage>>,
    pub(super) places: Vec<StorePlace>,
    /// All partitions of all global topics.
    pub partitions: Vec<GlobalPartition>,
}

/// Opens the storages of the global stores. `partitions` are those of each store's topic, by the
/// program's stores.
///
/// # Errors
/// What the backends report.
pub fn open_global_state(
    options: &StorageOptions,
    id: TaskId,
    program: &Program,
    partitions: &[Vec<TopicPartition>],
) -> Result<OpenedGlobal, InstanceError> {
    let opened = open_storages(options, id, program, false)?;
    let (storages, places) = (opened.storages, opened.places);
    let mut found = Vec::new();
    for (store, partitions) in partitions.iter().enumerate() {
        let storage = &*storages[places[store].storage];
        for topic_partition in partitions {
            let (topic, partition) = (topic_partition.topic.as_str(), topic_partition.partition);
            let position =
                match ChangelogPosition::load(storage, &options.task_dir, topic, partition) {
                    Ok(position) => position,
                    // As good as none: the store is read anew.
                    Err(StoreError::Damaged { .. }) => None,
                    Err(source) => return Err(InstanceError::Open { task: id, source }),
                };
            let topic_partition = topic_partition.clone();
            found.push(GlobalPartition { topic_partition, store, position });
        }
    }
    let state_dir = options.task_dir.clone();
    Ok(OpenedGlobal { state_dir, storages, places, partitions: found })
}

impl OpenedGlobal {
    /// Decides where the reading of each partition begins, from what the broker says of it, and empties
    /// the stores that have to be read anew: one partition that cannot be trusted makes its store so.
    ///
    /// # Errors
    /// What the backend reports.
    pub(super) fn begin(
        &mut self,
        ends: &[ChangelogEnds],
        now_ms: i64,
    ) -> Result<Vec<ChangelogPosition>, StoreError> {
        for store in 0..self.places.len() {
            if self.must_be_rebuilt(store, ends, now_ms)? {
                self.empty(store)?;
            }
        }
        let begins = self.partitions.iter().zip(ends).map(|(partition, end)| {
            partition.position.unwrap_or_else(|| ChangelogPosition {
                topic_id: end.topic_id.0.into_bytes(),
                next_offset: end.start.offset,
                leader_epoch: None,
                at_end_ms: Some(now_ms),
            })
        });
        Ok(begins.collect())
    }

    fn must_be_rebuilt(
        &self,
        store: usize,
        ends: &[ChangelogEnds],
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let own = || self.partitions.iter().zip(ends).filter(|(it, _)| it.store == store);
        // A partition that was added to the topic has no position, which says nothing of the others.
        let has_data = self.has_data(store)? && own().all(|(it, _)| it.position.is_none());
        for (partition, end) in own() {
            let start = restore_start(&RestoreFacts {
                position: partition.position,
                has_data,
                damaged: false,
                topic_id: end.topic_id.0.into_bytes(),
                log_start_offset: end.start.offset,
                end_offset: end.end.offset,
                end_epoch: end.end.leader_epoch,
                position_epoch_end: end.position_epoch_end,
                tombstone_retention_ms: end.tombstone_retention_ms,
                now_ms,
            });
            if let RestoreStart::Rebuild { reason } = start {
                tracing::warn!(
                    topic_partition = %partition.topic_partition,
                    "a global store is read from the beginning of its topic: {reason}"
                );
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_data(&self, store: usize) -> Result<bool, StoreError> {
        let place = self.places[store];
        let mut chunk = Chunk::new(1);
        let reader = self.storages[place.storage].reader();
        reader.scan(place.space, &KeyRange::all(), Direction::Forward, &mut chunk)?;
        Ok(!chunk.is_empty())
    }

    /// Empties a store. The positions go first: without them it is known to be incomplete.
    fn empty(&mut self, store: usize) -> Result<(), StoreError> {
        let place = &mut self.places[store];
        let storage = &mut self.storages[place.storage];
        let own = self.partitions.iter_mut().filter(|it| it.store == store);
        let forget: Vec<MetaUpdate> = own
            .map(|partition| {
                partition.position = None;
                let TopicPartition { topic, partition } = &partition.topic_partition;
                let topic = topic.as_str().to_owned();
                let key = MetaKey::Changelog { topic, partition: *partition };
                MetaUpdate { key: key.encode(), value: None }
            })
            .collect();
        storage.apply(WriteBatch::new().sort(), &forget)?;
        let spaces = storage.spaces()?;
        let known = spaces.into_iter().find(|(_, space)| *space == place.space);
        let (name, _) = known.expect("a store that is open has a space");
        storage.drop_space(place.space)?;
        place.space = storage.space(&name)?;
        Ok(())
    }
}

/// The directory of the global state, beside those of the tasks.
pub(crate) fn global_dir(state_dir: &Path) -> PathBuf {
    state_dir.join(GLOBAL_DIR)
}

/// Its name.
pub(crate) const GLOBAL_DIR: &str = "global";
