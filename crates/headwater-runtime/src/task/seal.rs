//! What a commit takes out of a task, and what it brings back.

use std::collections::BTreeMap;

use headwater_broker::OffsetCommit;
use headwater_store::{LastNumber, StoreError, StreamTime, TaskStorage, WriteBatch};

use crate::process::store::Keeper;
use crate::task::{OffsetMetadata, Task};
use crate::worker::{SealedStorage, SealedTask};

impl Task {
    /// Seals everything since the last commit. The caches are flushed before.
    ///
    /// # Errors
    /// When a seal is in flight already or a cache is not flushed: bugs.
    pub(crate) fn seal(&mut self) -> Result<SealedTask, StoreError> {
        let core = &mut self.core;
        let mut sealed: Vec<SealedStorage> = std::mem::take(&mut core.storages)
            .into_iter()
            .map(|storage| SealedStorage {
                storage,
                batch: WriteBatch::new(),
                changelogs: Vec::new(),
                meta: Vec::new(),
            })
            .collect();
        for store in &mut core.stores {
            let Some(storage) = store.storage else { continue };
            let into = &mut sealed[storage];
            store.overlay.seal(&mut into.batch)?;
            if let Keeper::Segmented(segments) = &mut store.keeper {
                let time = segments.take_newest().map(|ms| StreamTime { ms });
                into.meta.extend(time.map(|time| time.update_of_store(&store.name)));
                let number = segments.take_number().map(|number| LastNumber { number });
                into.meta.extend(number.map(|number| number.update(&store.name)));
            }
            into.changelogs.extend(
                store.changelog.as_ref().map(|changelog| changelog.topic_partition.clone()),
            );
        }
        if let Some(first) = sealed.first_mut() {
            first.meta.append(&mut core.meta);
        }
        core.commit_needed = false;
        core.commit_requested = false;
        let operators = core.program.operators.iter().zip(&core.operators);
        let processor_metadata: BTreeMap<String, i64> = operators
            .filter(|(_, times)| times.emitted >= 0)
            .filter_map(|(operator, times)| Some((operator.metadata_key.clone()?, times.emitted)))
            .collect();
        let offsets = self.inputs.iter().map(|input| {
            let metadata = OffsetMetadata {
                partition_time: input.partition_time,
                processor_metadata: processor_metadata.clone(),
            };
            OffsetCommit {
                topic_partition: input.topic_partition.clone(),
                offset: input.position,
                metadata: metadata.encode(),
            }
        });
        Ok(SealedTask { task: core.id, offsets: offsets.collect(), storages: sealed })
    }

    /// The commit is done: its writes are in the backends.
    pub(crate) fn release(&mut self, storages: Vec<Box<dyn TaskStorage>>) {
        self.core.storages = storages;
        for store in self.core.stores.iter_mut().filter(|store| store.storage.is_some()) {
            store.overlay.release();
        }
    }

    /// Gives up everything since the last commit that is done, and ends the user's processors.
    /// What is left are the storages.
    pub(crate) fn dismantle(mut self) -> Vec<Box<dyn TaskStorage>> {
        for slot in self.core.program.processors_in_order() {
            if let Some(processor) = &mut self.core.processors[slot.index()] {
                processor.close();
            }
        }
        std::mem::take(&mut self.core.storages)
    }
}
