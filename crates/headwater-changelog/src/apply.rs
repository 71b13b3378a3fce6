//! What a restore does with the records it reads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use headwater_broker::{AbortedTransaction, TopicPartition};
use headwater_records::{Batch, Batches, RecordRef, RecordsError};
use headwater_store::{
    ChangelogPosition, CommittedStore, LastNumber, LatestWrites, Layout, LruLayout, MetaUpdate,
    Overlay, OverlayOptions, SegmentedOptions, SpaceId, StoreError, StreamTime, TaskStorage,
    VersionedLayout, WriteBatch, push_headers, push_timestamped,
};

use crate::{ChangelogError, CommittedFilter};

#[cfg(test)]
mod tests;

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

    /// Writes what it has been given and still holds; with `safe` so that it outlasts a loss of power.
    ///
    /// # Errors
    /// A store that does not take the records.
    fn finish(&mut self, safe: bool) -> Result<(), ChangelogError>;
}

/// A store that is restored.
#[derive(Clone, Debug)]
pub struct ChangelogStore {
    /// Its name.
    pub name: String,
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

#[cfg(any(test, feature = "fuzzing"))]
impl ChangelogStore {
    /// The store of the one changelog of a test, of which nothing has been read.
    pub(crate) fn unread(space: SpaceId, layout: Layout) -> Self {
        let position = ChangelogPosition {
            topic_id: [1; 16],
            next_offset: 0,
            leader_epoch: None,
            at_end_ms: None,
        };
        Self {
            name: "store".to_owned(),
            topic_partition: TopicPartition::new("changelog", 0),
            storage: 0,
            space,
            layout,
            position,
        }
    }
}

/// Memory for records that were read and are not written yet, shared by all that is restored: the
/// more of it, the more records of a key cost only one write.
#[derive(Clone, Debug)]
pub struct RestoreMemory {
    used: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl RestoreMemory {
    /// So many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { used: Arc::default(), bytes_max }
    }

    /// Bytes that are used.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// What one user has of a [`RestoreMemory`]; given back when dropped.
#[derive(Debug)]
struct Hold {
    memory: RestoreMemory,
    bytes: usize,
}

impl Hold {
    /// Now it is so many bytes; whether all together are too many.
    fn set(&mut self, bytes: usize) -> bool {
        let used = &self.memory.used;
        used.fetch_add(bytes, Ordering::Relaxed);
        let before = used.fetch_sub(self.bytes, Ordering::Relaxed);
        let now = before - self.bytes;
        self.bytes = bytes;
        now > self.memory.bytes_max
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Writes changelog records into the stores of one task, in the order of keys.
///
/// Records are gathered in memory, of several of a key only the last one, until the
/// [`RestoreMemory`] is used up or a changelog has been read to its end; then they are written, with
/// the positions that they reach.
#[derive(Debug)]
pub struct StoreStep {
    storages: Vec<Target>,
    stores: Vec<ChangelogStore>,
    /// By store, of those whose updates depend on what is there already.
    histories: Vec<Option<History>>,
    /// By store, what was seen in those of windows and sessions.
    seen: Vec<Seen>,
    /// By store, the place behind the entries that one of the least recently used had, once it is known.
    places: Vec<Option<u64>>,
    value: Vec<u8>,
    stored_key: Vec<u8>,
    hold: Hold,
}

/// What the changelog of a store of windows or sessions has shown.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The newest time; −1 for none.
    newest: i64,
    /// The last number of a value, where there are numbers.
    number: Option<u32>,
}

impl Seen {
    const NOTHING: Self = Self { newest: -1, number: None };

    /// An entry of this key and time.
    fn note(&mut self, options: &SegmentedOptions, key: &[u8], time: i64) {
        self.newest = time.max(self.newest);
        self.number = options.number_of(key).or(self.number);
    }
}

/// A versioned store: its updates are done one after the other, as when they were made.
#[derive(Debug)]
struct History {
    storage: usize,
    layout: VersionedLayout,
    writes: Overlay,
}

impl History {
    fn of(store: &ChangelogStore, storages: &[Box<dyn TaskStorage>]) -> Option<Self> {
        let Layout::Versioned(options) = store.layout else { return None };
        let reader = storages[store.storage].reader();
        let name = store.topic_partition.topic.as_str();
        let writes = Overlay::new(name, store.space, reader, OverlayOptions::default());
        Some(Self { storage: store.storage, layout: VersionedLayout::new(options), writes })
    }

    /// Writes what was gathered; the bytes of it.
    fn write(&mut self, storage: &mut dyn TaskStorage) -> Result<usize, StoreError> {
        let mut batch = WriteBatch::new();
        self.writes.seal(&mut batch)?;
        storage.apply(batch.sort(), &[])?;
        self.writes.release();
        Ok(batch.bytes())
    }
}

#[derive(Debug)]
struct Target {
    storage: Box<dyn TaskStorage>,
    writes: LatestWrites,
    /// How far the gathered writes of each store reach.
    reached: BTreeMap<usize, Reached>,
    /// Bytes written since the last sync.
    unsynced: usize,
}

/// How far a changelog has been read.
#[derive(Clone, Copy, Debug)]
struct Reached {
    next_offset: i64,
    leader_epoch: Option<i32>,
    at_end_ms: Option<i64>,
}

impl Reached {
    /// The position that this makes of the one before.
    fn of(&self, before: &ChangelogPosition) -> ChangelogPosition {
        let Self { next_offset, leader_epoch, at_end_ms } = *self;
        ChangelogPosition { topic_id: before.topic_id, next_offset, leader_epoch, at_end_ms }
    }
}

/// A long restore is made safe in stretches of so many bytes, so that a crash does not cost all.
const SYNC_BYTES: usize = 64 * 1024 * 1024;
/// What is gathered is handed to the backend in batches of this size.
const BATCH_BYTES: usize = 1024 * 1024;

impl StoreStep {
    /// A step for the stores of the task with these storages; the order of the stores is that of
    /// [`Stretch::changelog`].
    pub fn new(
        storages: Vec<Box<dyn TaskStorage>>,
        stores: Vec<ChangelogStore>,
        memory: &RestoreMemory,
    ) -> Self {
        let histories = stores.iter().map(|store| History::of(store, &storages)).collect();
        let target = |storage| Target {
            storage,
            writes: LatestWrites::new(),
            reached: BTreeMap::new(),
            unsynced: 0,
        };
        let hold = Hold { memory: memory.clone(), bytes: 0 };
        let seen = vec![Seen::NOTHING; stores.len()];
        let places = vec![None; stores.len()];
        Self {
            storages: storages.into_iter().map(target).collect(),
            stores,
            histories,
            seen,
            places,
            value: Vec::new(),
            stored_key: Vec::new(),
            hold,
        }
    }

    /// The stores with the positions of what was written.
    pub fn stores(&self) -> &[ChangelogStore] {
        &self.stores
    }

    /// The storages, and the stores with the positions of what was written.
    pub fn into_parts(self) -> (Vec<Box<dyn TaskStorage>>, Vec<ChangelogStore>) {
        (self.storages.into_iter().map(|target| target.storage).collect(), self.stores)
    }

    fn collect(&mut self, stretch: &Stretch) -> Result<Applied, ChangelogError> {
        let Self { storages, stores, histories, seen, places, value, stored_key, .. } = self;
        let seen = &mut seen[stretch.changelog];
        let store = &stores[stretch.changelog];
        let Target { storage, writes, reached, .. } = &mut storages[store.storage];
        let store_error = |source| ChangelogError::Store {
            topic_partition: store.topic_partition.clone(),
            source,
        };
        let first_place = match (store.layout, &mut places[stretch.changelog]) {
            (Layout::Lru, Some(place)) => *place,
            (Layout::Lru, place) => {
                *place.insert(next_place(store, &**storage).map_err(store_error)?)
            }
            _ => 0,
        };
        let mut failed: Result<(), StoreError> = Ok(());
        let history = &mut histories[stretch.changelog];
        let applied = for_each_record(stretch, |record| {
            let Some(key) = record.key else { return false };
            if let Some(History { layout, writes, .. }) = history {
                if failed.is_ok() {
                    let put = layout.put(writes, key, record.value, record.timestamp);
                    failed = put.map(drop);
                }
                return true;
            }
            let stored = record.value.map(|bytes| {
                value.clear();
                lay_out((store.layout, first_place), record, bytes, value);
                value.as_slice()
            });
            let Layout::Segmented(options) = store.layout else {
                writes.put(store.space, key, stored);
                return true;
            };
            let Some(time) = options.time_of(key) else { return false };
            seen.note(&options, key, time);
            stored_key.clear();
            options.push_stored_key(time, key, stored_key);
            writes.put(store.space, stored_key, stored);
            if options.by_time {
                stored_key.clear();
                options.push_index_key(key, stored_key);
                writes.put(store.space, stored_key, stored.map(|_| &[][..]));
            }
            true
        })
        .map_err(|source| ChangelogError::Records {
            topic_partition: store.topic_partition.clone(),
            source,
        })?;
        failed.map_err(store_error)?;
        let position = &store.position;
        let before = reached
            .get(&stretch.changelog)
            .map_or((position.leader_epoch, position.at_end_ms), |reached| {
                (reached.leader_epoch, reached.at_end_ms)
            });
        let (leader_epoch, at_end_ms) = before;
        let now = Reached {
            next_offset: stretch.next_offset,
            leader_epoch: stretch.leader_epoch.or(leader_epoch),
            at_end_ms: stretch.at_end_ms.or(at_end_ms),
        };
        reached.insert(stretch.changelog, now);
        Ok(applied)
    }

    /// Writes what was gathered for one storage, with the new positions of its stores, and makes it
    /// safe at the end. What the backend does not take stays gathered, and the positions what they were.
    fn write(&mut self, storage: usize, at_end: bool) -> Result<(), ChangelogError> {
        let Self { storages, stores, histories, seen, .. } = self;
        let Target { storage: written, writes, reached, unsynced } = &mut storages[storage];
        let in_storage = stores.iter().enumerate().filter(|(_, store)| store.storage == storage);
        let positions: Vec<(usize, ChangelogPosition)> = in_storage
            .map(|(index, store)| {
                let reached = reached.get(&index);
                (index, reached.map_or(store.position, |reached| reached.of(&store.position)))
            })
            .collect();
        let Some(&(first, _)) = positions.first() else { return Ok(()) };
        let failed_store = stores[first].topic_partition.clone();
        let failed =
            |source| ChangelogError::Store { topic_partition: failed_store.clone(), source };
        let mut meta: Vec<_> = positions
            .iter()
            .map(|(index, position)| {
                let TopicPartition { topic, partition } = &stores[*index].topic_partition;
                position.update(topic.as_str(), *partition)
            })
            .collect();
        let seen = stores.iter().zip(&*seen).filter(|(it, _)| it.storage == storage);
        push_seen(&**written, seen.clone(), &mut meta).map_err(failed)?;
        for (store, seen) in seen {
            let Layout::Segmented(options) = store.layout else { continue };
            let lowest = options.lowest_segment(seen.newest).cast_unsigned();
            if lowest > 0 {
                writes.drop_segments_before(store.space, lowest);
            }
        }
        for history in histories.iter_mut().flatten().filter(|it| it.storage == storage) {
            *unsynced += history.write(&mut **written).map_err(failed)?;
        }
        let drained = writes.drain(BATCH_BYTES, |batch, last| {
            *unsynced += batch
                .iter()
                .map(|it| it.key.len() + it.value.map_or(0, <[u8]>::len))
                .sum::<usize>();
            // The positions come after all the data.
            written.apply(batch, if last { &meta } else { &[] })
        });
        drained.map_err(failed)?;
        reached.clear();
        for (index, position) in positions {
            stores[index].position = position;
        }
        if at_end || *unsynced >= SYNC_BYTES {
            written.sync().map_err(failed)?;
            *unsynced = 0;
        }
        Ok(())
    }

    /// Counts what is gathered; whether that is too much.
    fn note_memory(&mut self) -> bool {
        let latest = self.storages.iter().map(|target| target.writes.bytes());
        let histories = self.histories.iter().flatten().map(|it| it.writes.uncommitted_bytes());
        self.hold.set(latest.chain(histories).sum())
    }
}

impl ApplyStep for StoreStep {
    fn apply(&mut self, stretches: &[Stretch]) -> Result<Vec<Applied>, ChangelogError> {
        let mut applied = Vec::with_capacity(stretches.len());
        // The storages in which some changelog ends with this.
        let mut at_end: BTreeSet<usize> = BTreeSet::new();
        for stretch in stretches {
            applied.push(self.collect(stretch)?);
            let storage = self.stores[stretch.changelog].storage;
            if stretch.at_end_ms.is_some() {
                at_end.insert(storage);
            }
            if self.note_memory() {
                self.write(storage, false)?;
                self.note_memory();
            }
        }
        for storage in at_end {
            self.write(storage, true)?;
        }
        self.note_memory();
        Ok(applied)
    }

    fn finish(&mut self, safe: bool) -> Result<(), ChangelogError> {
        for storage in 0..self.storages.len() {
            if !self.storages[storage].reached.is_empty() {
                self.write(storage, safe)?;
            }
        }
        self.note_memory();
        Ok(())
    }
}

/// A place behind those of the entries of a store of the least recently used.
fn next_place(store: &ChangelogStore, storage: &dyn TaskStorage) -> Result<u64, StoreError> {
    let mut stored = CommittedStore::new(store.name.as_str(), store.space, storage.reader());
    LruLayout::next_place(&mut stored)
}

/// The newest times and last numbers of stores of windows and sessions.
fn push_seen<'s>(
    storage: &dyn TaskStorage,
    stores: impl Iterator<Item = (&'s ChangelogStore, &'s Seen)>,
    meta: &mut Vec<MetaUpdate>,
) -> Result<(), StoreError> {
    for (store, &Seen { newest, number }) in stores.filter(|(_, seen)| seen.newest >= 0) {
        let known = StreamTime::load_of_store(storage, Path::new(""), &store.name)?;
        let known = known.map_or(-1, |time| time.ms);
        meta.push(StreamTime { ms: newest.max(known) }.update_of_store(&store.name));
        meta.extend(number.map(|number| LastNumber { number }.update(&store.name)));
    }
    Ok(())
}

/// Appends the value of a changelog record as its store keeps it: the changelog has timestamp and
/// headers in the record (feature rows P8, P33). The order of a store of the least recently used goes on
/// from `first_place` in the order of offsets.
fn lay_out(
    (layout, first_place): (Layout, u64),
    record: &RecordRef<'_>,
    value: &[u8],
    out: &mut Vec<u8>,
) {
    match layout {
        Layout::TimestampedKeyValue => push_timestamped(record.timestamp, value, out),
        Layout::Segmented(SegmentedOptions { timestamped, with_headers, .. }) => {
            if with_headers {
                push_headers(record.headers.iter().map(|header| (header.name, header.value)), out);
            }
            if timestamped {
                push_timestamped(record.timestamp, value, out);
            } else {
                out.extend_from_slice(value);
            }
        }
        Layout::TimestampedKeyValueWithHeaders => {
            push_headers(record.headers.iter().map(|header| (header.name, header.value)), out);
            push_timestamped(record.timestamp, value, out);
        }
        Layout::Lru => {
            let place = first_place.saturating_add(record.offset.cast_unsigned());
            LruLayout::push(place, value, out);
        }
        _ => out.extend_from_slice(value),
    }
}

/// Hands every record of a stretch that counts to `apply`, which says whether it took it.
fn for_each_record(
    stretch: &Stretch,
    mut apply: impl FnMut(&RecordRef<'_>) -> bool,
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
