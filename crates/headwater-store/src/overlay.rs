//! The in-memory overlay of one store of one task.

use std::fmt;
use std::sync::Arc;

use crate::segmented::{is_before_segment, with_index};
use crate::table::{KeyHash, KeyTable, Slot, Value};
use crate::{Direction, KeyRange, SpaceId, StorageReader, StoreError, WriteBatch};

mod cache;
mod cursor;
mod flush;
mod list;
mod order;
#[cfg(test)]
mod tests;

pub use cache::CacheContext;
pub use cursor::OverlayCursor;
pub use flush::{CacheFlush, CachedChange};

use cache::{Forwarded, RecordCache};
use list::SlotList;
use order::SlotOrder;

/// Memory that an entry takes beside its key and value, in the counts of the overlay.
pub const ENTRY_OVERHEAD_BYTES: usize = 64;

/// How an overlay behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlayOptions {
    /// Whether changes wait in the record cache to be forwarded once per key and flush.
    pub caching: Caching,
    /// Clean entries stay readable without the backend while they take no more than this.
    pub read_cache_bytes: usize,
}

impl Default for OverlayOptions {
    /// Without caching, with a read cache of 4 MiB.
    fn default() -> Self {
        Self { caching: Caching::Off, read_cache_bytes: 4 * 1024 * 1024 }
    }
}

/// Whether a store has a record cache (feature row P17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Every write is forwarded by the caller at once.
    Off,
    /// Writes wait for [`Overlay::evict_oldest`] or [`Overlay::take_unforwarded`].
    On(OldValues),
}

/// Which old values a flush of the cache has to find out. Each costs a read of the backend when the
/// key was not in memory before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldValues {
    /// None: nobody listens to the flush but the changelog. Every change is handed out.
    Unread,
    /// Only below a delete, to skip one that deletes nothing. For a listener that does not want old
    /// values.
    BelowDeletes,
    /// All. A delete that deletes nothing is skipped.
    All,
}

/// Writes of one store that are not in its backend yet, and a read cache of what is.
///
/// See the [crate's documentation](crate) for the three levels and the two budgets. `C` is the
/// context that a cached change keeps for the caller: the record context of its last update.
///
/// One thread owns an overlay; a point read or write that finds its key in memory takes no lock and
/// allocates nothing. After an error of the backend the overlay must be
/// [abandoned](Self::abandon).
pub struct Overlay<C = ()> {
    store: String,
    space: SpaceId,
    reader: Arc<dyn StorageReader>,
    table: KeyTable<State>,
    /// Entries that differ from the backend (`Open`, `Sealed`), each once, in order of key.
    sorted: SlotOrder,
    /// The same, not sorted in yet.
    unsorted: Vec<Slot>,
    /// Changes whenever `sorted` does, so that cursors find their place again.
    order: u64,
    /// Changes at every release, so that cursors read the backend again.
    releases: u64,
    /// Clean entries that are not in the record cache, in order of eviction.
    clean: SlotList,
    open_bytes: usize,
    sealed_bytes: usize,
    clean_bytes: usize,
    clean_bytes_max: usize,
    sealed: bool,
    old_values: OldValues,
    cache: Option<RecordCache<C>>,
    /// Reads that the record cache has answered.
    cache_hits: u64,
    /// The entry read last: most writes follow a read of their key.
    last_read: Option<Slot>,
    /// In a store with segments: those before this one are gone, and what is written to them is not kept.
    lowest_segment: u64,
    /// The backend was told to drop those before this one.
    told_segment: u64,
    /// A value that was read from the backend and does not stay.
    scratch: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    status: Status,
    /// Read since it last came up for eviction.
    referenced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// As in the backend.
    Clean,
    /// Written since the last seal.
    Open,
    /// Written before the seal that is in flight, not since.
    Sealed,
}

/// What a read of the backend brought.
enum Fetched {
    Nothing,
    /// A clean entry.
    Kept(Slot),
    /// A value for which there is no room.
    InScratch,
}

impl<C: CacheContext> Overlay<C> {
    /// An empty overlay for the store `store`, over its space in a task's storage.
    pub fn new(
        store: impl Into<String>,
        space: SpaceId,
        reader: Arc<dyn StorageReader>,
        options: OverlayOptions,
    ) -> Self {
        let (cache, old_values) = match options.caching {
            Caching::Off => (None, OldValues::Unread),
            Caching::On(old_values) => (Some(RecordCache::new()), old_values),
        };
        Self {
            store: store.into(),
            space,
            reader,
            table: KeyTable::new(),
            sorted: SlotOrder::new(),
            unsorted: Vec::new(),
            order: 0,
            releases: 0,
            clean: SlotList::new(),
            open_bytes: 0,
            sealed_bytes: 0,
            clean_bytes: 0,
            clean_bytes_max: options.read_cache_bytes,
            sealed: false,
            old_values,
            cache,
            cache_hits: 0,
            last_read: None,
            lowest_segment: 0,
            told_segment: 0,
            scratch: Vec::new(),
        }
    }

    /// Name of the store.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// The store's space in the task's storage.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// The current value of `key`.
    ///
    /// With caching on, a read counts as a use of the entry, and an entry read from the backend joins
    /// the record cache; so compare [`cache_bytes`](Self::cache_bytes) with the budget afterwards.
    ///
    /// # Errors
    /// What the backend reports.
    #[inline]
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        let hash = self.table.hash(key);
        let slot = match self.table.find(hash, key) {
            Some(slot) => {
                self.table.get_mut(slot).state.referenced = true;
                slot
            }
            None => match self.fetch(hash, key)? {
                Fetched::Kept(slot) => slot,
                Fetched::InScratch => return Ok(Some(&self.scratch)),
                Fetched::Nothing => return Ok(None),
            },
        };
        if self.cache.is_some() {
            self.join_cache(slot);
        }
        self.last_read = Some(slot);
        Ok(self.table.get(slot).value())
    }

    /// Reads a key that is not in memory from the backend.
    fn fetch(&mut self, hash: KeyHash, key: &[u8]) -> Result<Fetched, StoreError> {
        if !self.reader.get(self.space, key, &mut self.scratch)? {
            return Ok(Fetched::Nothing);
        }
        let size = key.len() + self.scratch.len() + ENTRY_OVERHEAD_BYTES;
        if self.cache.is_none() && !self.make_room(size) {
            return Ok(Fetched::InScratch);
        }
        let state = State { status: Status::Clean, referenced: false };
        let slot = self.table.insert(hash, key, Some(Value::plain(&self.scratch)), state);
        self.clean.push_back(slot);
        self.clean_bytes += size;
        Ok(Fetched::Kept(slot))
    }

    /// Gives `key` a new value, or deletes it with `None`.
    ///
    /// With caching on, the change waits to be forwarded, with the `context` of this update; compare
    /// [`cache_bytes`](Self::cache_bytes) with the budget afterwards. Without caching the caller
    /// forwards and logs the change itself and `context` is not called.
    #[inline]
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>, context: impl FnOnce() -> C) {
        self.write(key, value.map(Value::plain), context);
    }

    /// As [`put`](Self::put), for a value in the timestamped layout (feature row P7).
    #[inline]
    pub fn put_timestamped(
        &mut self,
        key: &[u8],
        value: &[u8],
        timestamp: i64,
        context: impl FnOnce() -> C,
    ) {
        let timestamp = Some(timestamp.to_be_bytes());
        self.write(key, Some(Value { timestamp, bytes: value }), context);
    }

    #[inline]
    fn write(&mut self, key: &[u8], value: Option<Value<'_>>, context: impl FnOnce() -> C) {
        let slot = match self.find_to_write(key) {
            Ok(slot) => {
                self.begin_write(slot);
                let entry = self.table.get_mut(slot);
                self.open_bytes -= entry.len();
                entry.set_value(value);
                self.open_bytes += entry.len();
                slot
            }
            Err(hash) => self.insert(hash, key, value),
        };
        if let Some(cache) = &mut self.cache {
            cache.written(slot, self.table.get(slot), context());
        }
    }

    fn insert(&mut self, hash: KeyHash, key: &[u8], value: Option<Value<'_>>) -> Slot {
        let state = State { status: Status::Open, referenced: false };
        let slot = self.table.insert(hash, key, value, state);
        self.open_bytes += self.table.get(slot).len() + ENTRY_OVERHEAD_BYTES;
        self.unsorted.push(slot);
        slot
    }

    /// As [`put`](Self::put), past the record cache: the change is neither forwarded nor counted there.
    /// For entries that only the layout of a store knows of.
    pub fn put_past_cache(&mut self, key: &[u8], value: Option<&[u8]>) {
        let value = value.map(Value::plain);
        match self.find_to_write(key) {
            Ok(slot) => {
                self.begin_write(slot);
                let entry = self.table.get_mut(slot);
                self.open_bytes -= entry.len();
                entry.set_value(value);
                self.open_bytes += entry.len();
            }
            Err(hash) => {
                self.insert(hash, key, value);
            }
        }
    }

    /// Drops the [segments](crate::SegmentedOptions) before this one, with the next seal. Their entries are not to be read
    /// any more; those that wait in the record cache can be as long as they do.
    pub fn drop_segments_before(&mut self, lowest: u64) {
        self.lowest_segment = lowest;
    }

    fn is_dropped(&self, slot: Slot) -> bool {
        self.lowest_segment > 0
            && is_before_segment(self.table.get(slot).key(), self.lowest_segment)
    }

    /// Whether the record cache has `key`.
    pub fn is_cached(&self, key: &[u8]) -> bool {
        self.cache.as_ref().is_some_and(|cache| {
            self.table.find(self.table.hash(key), key).is_some_and(|slot| cache.contains(slot))
        })
    }

    /// How many reads by [`get`](Self::get) the record cache has answered since this was last asked.
    pub fn take_cache_hits(&mut self) -> u64 {
        std::mem::take(&mut self.cache_hits)
    }

    /// Size of the record cache as Kafka Streams counts it, clean entries included. A stream
    /// thread adds this up over its stores and holds the sum under `statestore_cache_max_bytes` with
    /// [`evict_oldest`](Self::evict_oldest).
    pub fn cache_bytes(&self) -> usize {
        self.cache.as_ref().map_or(0, RecordCache::bytes)
    }

    /// The part of [`cache_bytes`](Self::cache_bytes) that waits to be forwarded.
    pub fn unforwarded_bytes(&self) -> usize {
        self.cache.as_ref().map_or(0, RecordCache::dirty_bytes)
    }

    /// Bytes written since the last seal, [`ENTRY_OVERHEAD_BYTES`] included: what counts against
    /// `statestore_uncommitted_max_bytes`.
    pub fn uncommitted_bytes(&self) -> usize {
        self.open_bytes
    }

    /// Bytes of the sealed writes in flight.
    pub fn sealed_bytes(&self) -> usize {
        self.sealed_bytes
    }

    /// Bytes of clean entries in the read cache, those of the record cache not included.
    pub fn read_cache_bytes(&self) -> usize {
        self.clean_bytes
    }

    /// Takes the least recently used entry out of the record cache; false when the cache is empty.
    ///
    /// When that entry waits to be forwarded, *all* waiting changes of this store are added to
    /// `flush`: the evicted one first, then the others by the age of their last update. Kafka Streams
    /// calls this for the store that was just written to, again and again while the sum over all
    /// stores is over the budget, and forwards each flush before the next call.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn evict_oldest(&mut self, flush: &mut CacheFlush<C>) -> Result<bool, StoreError> {
        let Some(oldest) = self.cache.as_ref().and_then(RecordCache::oldest) else {
            return Ok(false);
        };
        let dirty = self.cache.as_ref().is_some_and(|cache| cache.is_dirty(oldest));
        if dirty {
            self.flush_entry(oldest, flush)?;
        }
        self.leave_cache(oldest);
        if dirty {
            self.take_unforwarded(flush)?;
        }
        Ok(true)
    }

    /// Adds all waiting changes to `flush`, by the age of their last update, as a commit does. The
    /// entries stay in the record cache.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn take_unforwarded(&mut self, flush: &mut CacheFlush<C>) -> Result<(), StoreError> {
        while let Some(slot) = self.cache.as_ref().and_then(RecordCache::oldest_dirty) {
            self.flush_entry(slot, flush)?;
            let deleted = self.table.get(slot).value().is_none();
            if deleted && self.cache.as_ref().is_some_and(|cache| cache.contains(slot)) {
                self.leave_cache(slot);
            }
        }
        Ok(())
    }

    /// Adds everything written since the last seal to `batch` and starts anew. Reads go on seeing
    /// the sealed writes: they stay in memory until [`release`](Self::release).
    ///
    /// At most one seal is in flight: what it wrote must be released or abandoned before the next.
    ///
    /// # Errors
    /// [`StoreError::Unforwarded`] and [`StoreError::SealInFlight`]; nothing has happened then.
    pub fn seal(&mut self, batch: &mut WriteBatch) -> Result<(), StoreError> {
        if self.sealed {
            return Err(StoreError::SealInFlight { store: self.store.clone() });
        }
        let entries = self.cache.as_ref().map_or(0, RecordCache::dirty_len);
        if entries > 0 {
            return Err(StoreError::Unforwarded { store: self.store.clone(), entries });
        }
        let lowest = self.lowest_segment;
        for slot in self.sorted.iter().chain(self.unsorted.iter().copied()) {
            let entry = self.table.get_mut(slot);
            entry.state.status = Status::Sealed;
            if lowest == 0 || !is_before_segment(entry.key(), lowest) {
                batch.push(self.space, entry.key(), entry.value());
            }
        }
        if lowest > self.told_segment {
            for segments in with_index(self.told_segment..lowest) {
                batch.drop_segments(self.space, segments);
            }
            self.told_segment = lowest;
        }
        self.sealed_bytes = std::mem::take(&mut self.open_bytes);
        self.sealed = true;
        Ok(())
    }

    /// The sealed writes are in the backend: their entries become clean and stay while there is room.
    pub fn release(&mut self) {
        let mut differing = std::mem::take(&mut self.sorted);
        differing.retain(|slot| self.release_entry(slot));
        self.sorted = differing;
        let mut differing = std::mem::take(&mut self.unsorted);
        differing.retain(|&slot| self.release_entry(slot));
        self.unsorted = differing;
        self.sealed_bytes = 0;
        self.sealed = false;
        self.order += 1;
        self.releases += 1;
        self.make_room(0);
    }

    /// Forgets everything, written, sealed or clean: the commit failed, the task starts again from
    /// what the backend holds.
    pub fn abandon(&mut self) {
        self.table.clear();
        self.last_read = None;
        self.sorted.clear();
        self.unsorted.clear();
        self.clean.clear();
        if let Some(cache) = &mut self.cache {
            cache.clear();
        }
        (self.open_bytes, self.sealed_bytes, self.clean_bytes) = (0, 0, 0);
        self.sealed = false;
        self.told_segment = 0;
        self.order += 1;
        self.releases += 1;
    }

    /// Starts reading a range. Uncommitted and sealed writes are part of it, deleted keys are not.
    pub fn range(&self, range: KeyRange, direction: Direction) -> OverlayCursor {
        OverlayCursor::new(range, direction)
    }

    /// About how many entries the store has: the larger of what the backend says and of what is
    /// uncommitted.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn approximate_entries(&self) -> Result<u64, StoreError> {
        let stored = self.reader.approximate_entries(self.space)?;
        Ok(stored.max((self.sorted.len() + self.unsorted.len()) as u64))
    }

    /// The entry of `key`, or the key's hash when there is none.
    #[inline]
    fn find_to_write(&self, key: &[u8]) -> Result<Slot, KeyHash> {
        if let Some(slot) = self.last_read
            && self.table.get(slot).key() == key
        {
            return Ok(slot);
        }
        let hash = self.table.hash(key);
        self.table.find(hash, key).ok_or(hash)
    }

    fn remove(&mut self, slot: Slot) {
        self.last_read = None;
        self.table.remove(slot);
    }

    /// Brings an entry to `Open`, and remembers what it held for the cache's listener.
    #[inline]
    fn begin_write(&mut self, slot: Slot) {
        let entry = self.table.get_mut(slot);
        let size = entry.len() + ENTRY_OVERHEAD_BYTES;
        match std::mem::replace(&mut entry.state.status, Status::Open) {
            Status::Open => {}
            Status::Sealed => {
                self.sealed_bytes -= size;
                self.open_bytes += size;
            }
            Status::Clean => {
                if !self.cache.as_ref().is_some_and(|cache| cache.contains(slot)) {
                    self.clean.remove(slot);
                    self.clean_bytes -= size;
                }
                self.open_bytes += size;
                self.unsorted.push(slot);
            }
        }
        if let Some(cache) = &mut self.cache
            && !cache.is_dirty(slot)
        {
            cache.note_forwarded(slot, self.table.get(slot).value());
        }
    }

    /// Whether the entry still differs from the backend after the release of the sealed writes.
    fn release_entry(&mut self, slot: Slot) -> bool {
        let entry = self.table.get_mut(slot);
        if entry.state.status == Status::Open {
            return true;
        }
        entry.state.status = Status::Clean;
        let size = entry.len() + ENTRY_OVERHEAD_BYTES;
        if self.cache.as_ref().is_some_and(|cache| cache.contains(slot)) {
            return false;
        }
        if entry.value().is_none() || self.is_dropped(slot) {
            self.remove(slot);
        } else {
            self.clean.push_back(slot);
            self.clean_bytes += size;
        }
        false
    }

    /// Evicts clean entries until `size` more bytes fit; false when they cannot.
    fn make_room(&mut self, size: usize) -> bool {
        if size > self.clean_bytes_max {
            return false;
        }
        while self.clean_bytes + size > self.clean_bytes_max {
            let Some(slot) = self.clean.first() else {
                return false;
            };
            let entry = self.table.get_mut(slot);
            if std::mem::take(&mut entry.state.referenced) {
                self.clean.move_to_back(slot);
                continue;
            }
            self.clean_bytes -= entry.len() + ENTRY_OVERHEAD_BYTES;
            self.clean.remove(slot);
            self.remove(slot);
        }
        true
    }

    /// Counts a read of `slot` in the record cache.
    fn join_cache(&mut self, slot: Slot) {
        let Some(cache) = &mut self.cache else { return };
        let entry = self.table.get(slot);
        let was_outside = !cache.contains(slot);
        cache.read(slot, entry);
        self.cache_hits += u64::from(!was_outside);
        if was_outside && entry.state.status == Status::Clean {
            self.clean.remove(slot);
            self.clean_bytes -= entry.len() + ENTRY_OVERHEAD_BYTES;
        }
    }

    /// Takes `slot` out of the record cache; a clean entry goes over to the read cache.
    fn leave_cache(&mut self, slot: Slot) {
        let Some(cache) = &mut self.cache else { return };
        cache.leave(slot);
        let entry = self.table.get(slot);
        if entry.state.status != Status::Clean {
            return;
        }
        if entry.value().is_none() {
            self.remove(slot);
        } else {
            self.clean_bytes += entry.len() + ENTRY_OVERHEAD_BYTES;
            self.clean.push_back(slot);
            self.make_room(0);
        }
    }

    /// Makes a dirty entry clean and adds its change to `flush`.
    fn flush_entry(&mut self, slot: Slot, flush: &mut CacheFlush<C>) -> Result<(), StoreError> {
        let Some(cache) = &mut self.cache else { return Ok(()) };
        let entry = self.table.get(slot);
        let (context, forwarded, old) = cache.take_dirty(slot);
        let new = entry.value();
        let wanted = match self.old_values {
            OldValues::Unread => false,
            OldValues::BelowDeletes => new.is_none(),
            OldValues::All => true,
        };
        let has_old = wanted
            && match forwarded {
                Forwarded::InBackend => self.reader.get(self.space, entry.key(), old)?,
                Forwarded::Nothing => false,
                Forwarded::Value => true,
            };
        let old = has_old.then_some(old.as_slice());
        let deletes_nothing = wanted && new.is_none() && old.is_none();
        if !deletes_nothing {
            flush.push(entry.key(), new, old, context);
        }
        Ok(())
    }
}

impl<C> fmt::Debug for Overlay<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay")
            .field("store", &self.store)
            .field("space", &self.space)
            .field("entries", &self.table.len())
            .field("uncommitted_bytes", &self.open_bytes)
            .field("sealed_bytes", &self.sealed_bytes)
            .finish_non_exhaustive()
    }
}
