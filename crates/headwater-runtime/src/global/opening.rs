//! Opening the global stores, and where the reading of their topics begins. It blocks.

use std::path::{Path, PathBuf};

use headwater_broker::TopicPartition;
use headwater_changelog::{RestoreFacts, RestoreStart, restore_start};
use headwater_store::{ChangelogPosition, Layout, StoreError, TaskStorage};
use headwater_topology::TaskId;

use crate::instance::{
    ChangelogEnds, Contents, InstanceError, StorageOptions, contents, empty, open_storages,
    wipe_storages,
};
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
    /// The names of the stores, and how their entries are laid out.
    stores: Vec<(String, Layout)>,
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
    let open_error = |source| InstanceError::Open { task: id, source };
    let mut opened = open_storages(options, id, program, false)?;
    let mut places = opened.places.iter();
    let is_damaged = places.try_fold(false, |is_damaged, place| {
        let contents = contents(&*opened.storages[place.storage], place.space)?;
        Ok(is_damaged || contents == Contents::Damaged)
    });
    if is_damaged.map_err(open_error)? {
        tracing::error!("the global state is damaged; it is removed, and read anew");
        drop(opened);
        wipe_storages(options, program).map_err(open_error)?;
        opened = open_storages(options, id, program, false)?;
    }
    let stores = program.stores.iter().map(|it| (it.spec.name.clone(), it.layout())).collect();
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
                    Err(source) => return Err(open_error(source)),
                };
            let topic_partition = topic_partition.clone();
            found.push(GlobalPartition { topic_partition, store, position });
        }
    }
    let state_dir = options.task_dir.clone();
    Ok(OpenedGlobal { state_dir, storages, places, stores, partitions: found })
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
        let place = self.places[store];
        let contents = contents(&*self.storages[place.storage], place.space)?;
        let has_data = contents != Contents::Nothing && own().all(|(it, _)| it.position.is_none());
        for (partition, end) in own() {
            let start = restore_start(&RestoreFacts {
                position: partition.position,
                has_data,
                damaged: contents == Contents::Damaged,
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

    /// Empties a store.
    fn empty(&mut self, store: usize) -> Result<(), StoreError> {
        let place = &mut self.places[store];
        let storage = &mut *self.storages[place.storage];
        let (name, layout) = &self.stores[store];
        let mut own: Vec<_> = self.partitions.iter_mut().filter(|it| it.store == store).collect();
        let changelogs = own.iter().map(|partition| &partition.topic_partition);
        place.space = empty(storage, changelogs, (name, *layout), place.space)?;
        for partition in &mut own {
            partition.position = None;
        }
        Ok(())
    }
}

/// The directory of the global state, beside those of the tasks.
pub(crate) fn global_dir(state_dir: &Path) -> PathBuf {
    state_dir.join(GLOBAL_DIR)
}

/// Its name.
pub(crate) const GLOBAL_DIR: &str = "global";
