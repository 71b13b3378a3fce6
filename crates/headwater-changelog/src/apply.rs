//! What a restore does with the records it reads.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_broker::{AbortedTransaction, TopicPartition};
use headwater_records::{Batch, Batches, RecordsError};
use headwater_store::{ChangelogPosition, Layout, SpaceId, TaskStorage, WriteBatch};

use crate::{ChangelogError, CommittedFilter};

/// A stretch of one changelog, as it was fetched.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// Which of the target's changelogs.
    pub changelog: usize,
    /// Whole batches; the last may be cut off. Empty when the position moves over nothing.
    pub batches: Bytes,
    /// The aborted transactions among them.
    pub aborted: Vec<AbortedTransaction>,
    /// Records before this offset have been applied already.
    pub from_offset: i64,
    /// Records from this offset on do not belong to the stretch. It is the position afterwards.
    pub next_offset: i64,
    /// The leader epoch of the last batch, or at the end of the restore the newest that is known to
    /// have everything up to here; `None` when there is none.
    pub leader_epoch: Option<i32>,
    /// Wall-clock time in milliseconds when the restore's end is reached with this stretch.
    pub at_end_ms: Option<i64>,
}

/// What applying a stretch came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Records applied.
    pub records: u64,
    /// Records without a key, which no store can hold.
    pub without_key: u64,
}

/// Applies stretches of the changelogs of one restore target. It runs where blocking is allowed.
pub trait ApplyStep: Send + 'static {
    /// Applies stretches, each changelog's in the order of its offsets, and remembers the
    /// positions, never ahead of the data. The answers are in the order of the stretches.
    ///
    /// # Errors
    /// A batch that cannot be read, or a store that does not take the records.
    fn apply(&mut self, stretches: &[Stretch]) -> Result<Vec<Applied>, ChangelogError>;
}

/// A store that is restored.
#[derive(Clone, Debug)]
pub struct ChangelogStore {
    /// Its changelog.
    pub topic_partition: TopicPartition,
    /// Which of the task's storages it lies in.
    pub storage: usize,
    /// Where its entries are there.
    pub space: SpaceId,
    /// How its values are laid out; the changelog of a timestamped store has the time in the
    /// records' timestamps (feature row P8).
    pub layout: Layout,
    /// How far it holds the changelog. The time in it is when the state was last complete; for a
    /// state read from the first offset on, when the reading began.
    pub position: ChangelogPosition,
}

/// Writes changelog records into the stores of one task, in big sorted batches: of several records
/// of a key in the stretches at hand only the last one is written.
#[derive(Debug)]
pub struct StoreStep {
    storages: Vec<Target>,
    stores: Vec<ChangelogStore>,
    value: Vec<u8>,
}

#[derive(Debug)]
struct Target {
    storage: Box<dyn TaskStorage>,
    batch: WriteBatch,
    /// Bytes written since the last sync.
    unsynced: usize,
}

/// A long restore is made safe in stretches of so many bytes, so that a crash does not cost all.
const SYNC_BYTES: usize = 64 * 1024 * 1024;

impl StoreStep {
    /// A step for the stores of the task with these storages; the order of the stores is that of
    /// [`Stretch::changelog`].
    pub fn new(storages: Vec<Box<dyn TaskStorage>>, stores: Vec<ChangelogStore>) -> Self {
        let target = |storage| Target { storage, batch: WriteBatch::new(), unsynced: 0 };
        Self { storages: storages.into_iter().map(target).collect(), stores, value: Vec::new() }
    }

    /// The storages, and the stores with their positions.
    pub fn into_parts(self) -> (Vec<Box<dyn TaskStorage>>, Vec<ChangelogStore>) {
        (self.storages.into_iter().map(|target| target.storage).collect(), self.stores)
    }

    fn collect(&mut self, stretch: &Stretch) -> Result<Applied, ChangelogError> {
        let Self { storages, stores, value } = self;
        let store = &stores[stretch.changelog];
        let batch = &mut storages[store.storage].batch;
        for_each_record(stretch, |record| {
            let Some(key) = record.key else { return false };
            match (store.layout, record.value) {
                (Layout::TimestampedKeyValue, Some(bytes)) => {
                    value.clear();
                    value.extend_from_slice(&record.timestamp.to_be_bytes());
                    value.extend_from_slice(bytes);
                    batch.push(store.space, key, Some(value));
                }
                (Layout::KeyValue, bytes) | (Layout::TimestampedKeyValue, bytes @ None) => {
                    batch.push(store.space, key, bytes);
                }
            }
            true
        })
        .map_err(|source| ChangelogError::Records {
            topic_partition: store.topic_partition.clone(),
            source,
        })
    }

    /// Writes what was collected for one storage, with the new positions of its stores, and makes it
    /// safe at the end.
    fn write(&mut self, storage: usize, at_end: bool) -> Result<(), ChangelogError> {
        let in_storage = self.stores.iter().filter(|store| store.storage == storage);
        let Some(first) = in_storage.clone().next() else { return Ok(()) };
        let meta: Vec<_> = in_storage
            .map(|store| {
                let TopicPartition { topic, partition } = &store.topic_partition;
                store.position.update(topic.as_str(), *partition)
            })
            .collect();
        let Target { storage, batch, unsynced } = &mut self.storages[storage];
        *unsynced += batch.bytes();
        let mut written = storage.apply(batch.sort(), &meta);
        if written.is_ok() && (at_end || *unsynced >= SYNC_BYTES) {
            *unsynced = 0;
            written = storage.sync();
        }
        written.map_err(|source| ChangelogError::Store {
            topic_partition: first.topic_partition.clone(),
            source,
        })
    }
}

impl ApplyStep for StoreStep {
    fn apply(&mut self, stretches: &[Stretch]) -> Result<Vec<Applied>, ChangelogError> {
        for target in &mut self.storages {
            target.batch.clear();
        }
        let mut applied = Vec::with_capacity(stretches.len());
        // Whether some changelog ends with this, by storage.
        let mut touched: BTreeMap<usize, bool> = BTreeMap::new();
        for stretch in stretches {
            applied.push(self.collect(stretch)?);
            let store = &mut self.stores[stretch.changelog];
            let position = &mut store.position;
            position.next_offset = stretch.next_offset;
            position.leader_epoch = stretch.leader_epoch.or(position.leader_epoch);
            position.at_end_ms = stretch.at_end_ms.or(position.at_end_ms);
            *touched.entry(store.storage).or_default() |= stretch.at_end_ms.is_some();
        }
        for (storage, at_end) in touched {
            self.write(storage, at_end)?;
        }
        Ok(applied)
    }
}

/// Hands every record of a stretch that counts to `apply`, which says whether it took it.
fn for_each_record(
    stretch: &Stretch,
    mut apply: impl FnMut(&headwater_records::RecordRef<'_>) -> bool,
) -> Result<Applied, RecordsError> {
    let mut filter = CommittedFilter::new(stretch.aborted.clone());
    let mut applied = Applied::default();
    for batch in Batches::new(stretch.batches.clone()) {
        let batch: Batch = batch?;
        if !filter.counts(&batch)? || batch.header().last_offset < stretch.from_offset {
            continue;
        }
        for record in &batch.decompress(MAX_BATCH_BYTES)? {
            let record = record?;
            if record.offset < stretch.from_offset || record.offset >= stretch.next_offset {
                continue;
            }
            if apply(&record) {
                applied.records += 1;
            } else {
                applied.without_key += 1;
            }
        }
    }
    Ok(applied)
}

/// A compressed batch that grows beyond this is damaged: nobody writes changelog batches like it.
const MAX_BATCH_BYTES: usize = 1 << 30;
