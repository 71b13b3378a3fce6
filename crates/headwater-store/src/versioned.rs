//! Stores that keep a history: values by key and time (KIP-889, feature rows P12, P13).
//!
//! Bytes in Kafka Streams' layout, all in one space: every key has 8 bytes in front. `-1` there stands
//! for the latest values (timestamp, then value). A number from 0 on is a segment of older versions,
//! by the time at which a version *ends* divided by the segment interval, so that a whole segment can
//! go at once when the history passes it by. One row of a segment has all versions of a key in it.
//! `-2` stands for the stream time that the store has seen; that one is ours.

use std::collections::BTreeSet;

use crate::{
    Damage, Direction, KeyRange, KeyValueAccess, KeyValueRead, OverlayCursor, RecordProblem,
    StoreError, split_timestamp,
};

mod row;
#[cfg(test)]
mod tests;

use row::{Row, RowVersion};

#[cfg(feature = "fuzzing")]
pub(crate) use row::check_row;

/// How a versioned store keeps its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct VersionedOptions {
    /// How long versions stay readable after they ended, in milliseconds of stream time. Updates that
    /// are older are refused.
    pub history_retention_ms: i64,
    /// How much time one segment of old versions covers, in milliseconds; at least 1.
    pub segment_interval_ms: i64,
}

impl VersionedOptions {
    /// This history, in segments of this length; `None` takes what Kafka Streams would (feature row
    /// P12): the longer the history, the more segments, up to 24.
    pub fn new(history_retention_ms: i64, segment_interval_ms: Option<i64>) -> Self {
        let history = history_retention_ms.max(0);
        let derived = match history {
            0..=60_000 => (history / 3).max(2_000),
            60_001..=300_000 => (history / 5).max(20_000),
            300_001..=3_600_000 => (history / 12).max(60_000),
            _ => (history / 24).max(300_000),
        };
        let segment_interval_ms = segment_interval_ms.unwrap_or(derived).max(1);
        Self { history_retention_ms: history, segment_interval_ms }
    }

    fn segment_of(&self, time: i64) -> i64 {
        time / self.segment_interval_ms
    }

    /// The oldest time that can be asked for.
    fn history_start(&self, stream_time: i64) -> i64 {
        stream_time.saturating_sub(self.history_retention_ms)
    }
}

/// What became of an update of a versioned store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VersionedPut {
    /// It is the latest version of its key.
    Latest,
    /// A newer version was there already, which begins at this time.
    ValidTo(i64),
    /// It is older than the history of the store, and nothing was changed.
    NotPut,
}

/// A version of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionedRecord<V> {
    /// The value.
    pub value: V,
    /// Since when it is valid: the timestamp of its record, in milliseconds since the Unix epoch.
    pub timestamp: i64,
    /// Until when it was valid, that time not included; `None` for the latest version.
    pub valid_to: Option<i64>,
}

const LATEST: i64 = -1;
const STREAM_TIME: i64 = -2;
const PREFIX: usize = 8;

/// The work of a versioned store over a store of bytes, and what it knows of that store's contents.
///
/// Every update gives the same as in Kafka Streams' `RocksDBVersionedStore`, in the store and in the
/// answer. Updates that are done once more in the same order, as after a crash, change nothing.
#[derive(Debug)]
pub struct VersionedLayout {
    options: VersionedOptions,
    /// Read from the store before anything else.
    known: Option<Known>,
    key: Vec<u8>,
    value: Vec<u8>,
    row: Row,
    older_row: Row,
}

#[derive(Debug)]
struct Known {
    /// The highest timestamp of an update; −1 before the first.
    stream_time: i64,
    segments: BTreeSet<i64>,
}

impl VersionedLayout {
    /// For a store with these options.
    pub fn new(options: VersionedOptions) -> Self {
        Self {
            options,
            known: None,
            key: Vec::new(),
            value: Vec::new(),
            row: Row::default(),
            older_row: Row::default(),
        }
    }

    /// Gives `key` the value from `timestamp` on, until its next newer version; `None` deletes it from
    /// then on.
    ///
    /// # Errors
    /// [`StoreError::DamagedRow`], and what the store reports.
    pub fn put(
        &mut self,
        store: &mut impl KeyValueAccess,
        key: &[u8],
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<VersionedPut, StoreError> {
        let before = self.known(store)?.stream_time;
        if timestamp < self.options.history_start(before) {
            return Ok(VersionedPut::NotPut);
        }
        if timestamp > before {
            self.known(store)?.stream_time = timestamp;
            store.put(&STREAM_TIME.to_be_bytes(), Some(&timestamp.to_be_bytes()))?;
            self.drop_expired(store)?;
        }
        let next = match self.read_latest(store, key)? {
            Some(latest) if timestamp >= latest => {
                if timestamp > latest {
                    self.move_latest(store, key, latest, timestamp)?;
                }
                self.put_latest(store, key, value, timestamp)?;
                return Ok(VersionedPut::Latest);
            }
            newer => newer,
        };
        match self.put_into_segments(store, key, value, timestamp, next)? {
            Ok(valid_to) => Ok(VersionedPut::ValidTo(valid_to)),
            Err(None) => {
                self.put_where_nothing_is_newer(store, key, value, timestamp)?;
                Ok(VersionedPut::Latest)
            }
            Err(Some(next)) => {
                self.put_before(store, key, value, (timestamp, next))?;
                Ok(VersionedPut::ValidTo(next))
            }
        }
    }

    /// The latest version of `key`.
    ///
    /// # Errors
    /// [`StoreError::DamagedRow`], and what the store reports.
    pub fn get<'s>(
        &mut self,
        store: &'s mut impl KeyValueRead,
        key: &[u8],
    ) -> Result<Option<VersionedRecord<&'s [u8]>>, StoreError> {
        let stored = self.get_stored(store, key)?.and_then(split_timestamp);
        Ok(stored.map(|(timestamp, value)| VersionedRecord { value, timestamp, valid_to: None }))
    }

    /// The latest version of `key` as it is stored: timestamp, then value.
    ///
    /// # Errors
    /// What the store reports.
    pub fn get_stored<'s>(
        &mut self,
        store: &'s mut impl KeyValueRead,
        key: &[u8],
    ) -> Result<Option<&'s [u8]>, StoreError> {
        prefixed(&mut self.key, LATEST, key);
        store.get(&self.key)
    }

    /// The version of `key` that was valid at `as_of`; `None` if there was none, or if the history
    /// does not reach back so far.
    ///
    /// # Errors
    /// [`StoreError::DamagedRow`], and what the store reports.
    pub fn get_as_of(
        &mut self,
        store: &mut impl KeyValueRead,
        key: &[u8],
        as_of: i64,
    ) -> Result<Option<VersionedRecord<&[u8]>>, StoreError> {
        if self.read_latest(store, key)?.is_some_and(|timestamp| timestamp <= as_of) {
            let latest = split_timestamp(&self.value);
            return Ok(latest.map(|(timestamp, value)| VersionedRecord {
                value,
                timestamp,
                valid_to: None,
            }));
        }
        if as_of < self.history_start(store)? {
            return Ok(None);
        }
        let mut segments = self.segments_from(store, self.options.segment_of(as_of))?;
        let is_in_row = loop {
            let Some(segment) = segments.pop() else { break false };
            if self.load_row(store, segment, key)? && self.row.lowest_time() <= as_of {
                break self.row.next_time() > as_of;
            }
        };
        let found = if is_in_row { self.row.find(as_of) } else { None };
        Ok(found.and_then(|version| {
            let valid_to = Some(version.valid_to);
            Some(VersionedRecord { value: version.value?, timestamp: version.valid_from, valid_to })
        }))
    }

    /// Every version of `key` that was valid at some time from `from` to `to`, both included, in the
    /// order of time (KIP-968).
    ///
    /// # Errors
    /// [`StoreError::DamagedRow`], and what the store reports.
    pub fn versions(
        &mut self,
        store: &mut impl KeyValueRead,
        key: &[u8],
        from: i64,
        to: i64,
    ) -> Result<Vec<VersionedRecord<Vec<u8>>>, StoreError> {
        let mut found = Vec::new();
        self.read_latest(store, key)?;
        if let Some((timestamp, value)) = split_timestamp(&self.value)
            && timestamp <= to
        {
            found.push(VersionedRecord { value: value.to_vec(), timestamp, valid_to: None });
        }
        if to >= self.history_start(store)? {
            for segment in self.segments_from(store, 0)?.into_iter().rev() {
                if self.load_row(store, segment, key)? {
                    let overlaps = self.row.versions().filter_map(|version| {
                        let overlaps = version.valid_from <= to && version.valid_to > from;
                        let value = version.value.filter(|_| overlaps)?.to_vec();
                        let valid_to = Some(version.valid_to);
                        Some(VersionedRecord { value, timestamp: version.valid_from, valid_to })
                    });
                    found.extend(overlaps);
                }
            }
        }
        found.reverse();
        Ok(found)
    }
}

/// # The parts of an update
impl VersionedLayout {
    /// The latest version becomes an older one, which ends at `valid_to`.
    fn move_latest(
        &mut self,
        store: &mut impl KeyValueAccess,
        key: &[u8],
        latest: i64,
        valid_to: i64,
    ) -> Result<(), StoreError> {
        let segment = self.options.segment_of(valid_to);
        let loaded = self.load_row(store, segment, key)?;
        let (_, value) = split_timestamp(&self.value).expect("the latest version was read");
        if loaded {
            self.row.add_newest(Some(value), latest, valid_to);
        } else {
            self.row.reset(Some(value), latest, valid_to);
        }
        self.store_row(store, segment, key)
    }

    fn put_latest(
        &mut self,
        store: &mut impl KeyValueAccess,
        key: &[u8],
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<(), StoreError> {
        prefixed(&mut self.key, LATEST, key);
        let Some(value) = value else { return store.put(&self.key, None) };
        self.value.clear();
        crate::push_timestamped(timestamp, value, &mut self.value);
        store.put(&self.key, Some(&self.value))
    }

    /// Puts a version into the row that has its time, and answers when it ends. Without such a row the
    /// answer is the error: when the next newer version begins, if there is one.
    fn put_into_segments(
        &mut self,
        store: &mut impl KeyValueAccess,
        key: &[u8],
        value: Option<&[u8]>,
        timestamp: i64,
        mut next: Option<i64>,
    ) -> Result<Result<i64, Option<i64>>, StoreError> {
        let mut segments = self.segments_from(store, self.options.segment_of(timestamp))?;
        while let Some(segment) = segments.pop() {
            if !self.load_row(store, segment, key)? {
                continue;
            }
            if self.row.next_time() <= timestamp {
                break;
            }
            if self.row.lowest_time() <= timestamp {
                return self.put_into_row(store, (segment, key), value, timestamp).map(Ok);
            }
            next = Some(self.row.lowest_time());
        }
        Ok(Err(next))
    }

    /// Puts a version into the loaded row. The version before it ends then, and belongs into an older
    /// segment if its new end does.
    fn put_into_row(
        &mut self,
        store: &mut impl KeyValueAccess,
        (segment, key): (i64, &[u8]),
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<i64, StoreError> {
        let found = self.row.find(timestamp).expect("the row has this time");
        let RowVersion { index, valid_from, valid_to, value: moved } = found;
        let older_segment = self.options.segment_of(timestamp);
        if valid_from == timestamp {
            self.row.replace(index, timestamp, value);
        } else if older_segment == segment {
            self.row.insert(index, timestamp, value);
        } else {
            prefixed(&mut self.key, older_segment, key);
            match store.get(&self.key)? {
                Some(stored) => {
                    let loaded = self.older_row.load(stored);
                    loaded.map_err(|damage| damaged_row(store, damage))?;
                    self.older_row.add_newest(moved, valid_from, timestamp);
                }
                None => self.older_row.reset(moved, valid_from, timestamp),
            }
            store.put(&self.key, Some(self.older_row.as_bytes()))?;
            self.row.replace(index, timestamp, value);
            self.known(store)?.segments.insert(older_segment);
        }
        self.store_row(store, segment, key)?;
        Ok(valid_to)
    }

    /// The version is the latest, and there was none before it. A deletion is noted in the segment of
    /// its own time, for versions that may still come late.
    fn put_where_nothing_is_newer(
        &mut self,
        store: &mut impl KeyValueAccess,
        key: &[u8],
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<(), StoreError> {
        if value.is_some() {
            return self.put_latest(store, key, value, timestamp);
        }
        let segment = self.options.segment_of(timestamp);
        if self.load_row(store, segment, key)? {
            let next_time = self.row.next_time();
            if next_time == timestamp {
                // The row ends here already.
                return Ok(());
            }
            self.row.add_newest(None, next_time, timestamp);
        } else {
            self.row.reset(None, timestamp, timestamp);
        }
        self.store_row(store, segment, key)
    }

    /// The version lies before one that begins at `next`, and after or before all of a row.
    fn put_before(
        &mut self,
        store: &mut impl KeyValueAccess,
        key: &[u8],
        value: Option<&[u8]>,
        (timestamp, next): (i64, i64),
    ) -> Result<(), StoreError> {
        let segment = self.options.segment_of(next);
        if !self.load_row(store, segment, key)? {
            self.row.reset(value, timestamp, next);
        } else if self.row.next_time() <= timestamp {
            self.row.add_newest(value, timestamp, next);
        } else {
            self.row.add_oldest(value, timestamp);
        }
        self.store_row(store, segment, key)
    }
}

/// # Segments and rows
impl VersionedLayout {
    /// What is known of the store; read from it the first time.
    fn known(&mut self, store: &mut impl KeyValueRead) -> Result<&mut Known, StoreError> {
        if self.known.is_none() {
            let time = store.get(&STREAM_TIME.to_be_bytes())?;
            let time = time.and_then(|stored| stored.first_chunk()).copied();
            let stream_time = time.map_or(-1, i64::from_be_bytes);
            let mut segments = BTreeSet::new();
            let mut from = 0_i64;
            while let Some(segment) = first_segment(store, from)? {
                segments.insert(segment);
                // No time has the last number there is; damage may.
                let Some(next) = segment.checked_add(1) else { break };
                from = next;
            }
            self.known = Some(Known { stream_time, segments });
        }
        Ok(self.known.as_mut().expect("it was just read"))
    }

    /// The oldest time that can be asked for.
    fn history_start(&mut self, store: &mut impl KeyValueRead) -> Result<i64, StoreError> {
        let options = self.options;
        Ok(options.history_start(self.known(store)?.stream_time))
    }

    /// The segments from this one on, in ascending order.
    fn segments_from(
        &mut self,
        store: &mut impl KeyValueRead,
        from: i64,
    ) -> Result<Vec<i64>, StoreError> {
        Ok(self.known(store)?.segments.range(from..).copied().collect())
    }

    /// Drops the segments that the history has left behind.
    fn drop_expired(&mut self, store: &mut impl KeyValueAccess) -> Result<(), StoreError> {
        let options = self.options;
        let known = self.known(store)?;
        let oldest = options.segment_of(options.history_start(known.stream_time));
        while let Some(&segment) = known.segments.first().filter(|segment| **segment < oldest) {
            let mut keys = Vec::new();
            let range = KeyRange::prefix(&segment.to_be_bytes());
            let mut cursor = store.range(range, Direction::Forward)?;
            while let Some((key, _)) = store.next(&mut cursor)? {
                keys.push(key.to_vec());
            }
            for key in keys {
                store.put(&key, None)?;
            }
            known.segments.remove(&segment);
        }
        Ok(())
    }

    /// Reads the latest version into `self.value`, and answers its time.
    fn read_latest(
        &mut self,
        store: &mut impl KeyValueRead,
        key: &[u8],
    ) -> Result<Option<i64>, StoreError> {
        self.value.clear();
        prefixed(&mut self.key, LATEST, key);
        let Some(stored) = store.get(&self.key)? else { return Ok(None) };
        self.value.extend_from_slice(stored);
        let Some((timestamp, _)) = split_timestamp(&self.value) else {
            let problem = RecordProblem::Length { expected: PREFIX, found: self.value.len() };
            return Err(damaged_row(store, Damage::Record { record: "latest version", problem }));
        };
        Ok(Some(timestamp))
    }

    /// Reads a row into `self.row`; answers whether there is one.
    fn load_row(
        &mut self,
        store: &mut impl KeyValueRead,
        segment: i64,
        key: &[u8],
    ) -> Result<bool, StoreError> {
        prefixed(&mut self.key, segment, key);
        let Some(stored) = store.get(&self.key)? else { return Ok(false) };
        self.row.load(stored).map_err(|damage| damaged_row(store, damage))?;
        Ok(true)
    }

    /// Writes `self.row`. Its segment is live: the update that is under way is not older than the
    /// history, and no version that it touches ends before it.
    fn store_row(
        &mut self,
        store: &mut impl KeyValueAccess,
        segment: i64,
        key: &[u8],
    ) -> Result<(), StoreError> {
        self.known(store)?.segments.insert(segment);
        prefixed(&mut self.key, segment, key);
        store.put(&self.key, Some(self.row.as_bytes()))
    }
}

fn prefixed(buffer: &mut Vec<u8>, prefix: i64, key: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(&prefix.to_be_bytes());
    buffer.extend_from_slice(key);
}

/// The first segment from this one on that has anything in it.
fn first_segment(store: &mut impl KeyValueRead, from: i64) -> Result<Option<i64>, StoreError> {
    let (from, to) = (from.to_be_bytes(), i64::MAX.to_be_bytes());
    let mut cursor: OverlayCursor =
        store.range(KeyRange::inclusive(Some(&from), Some(&to)), Direction::Forward)?;
    let found = store.next(&mut cursor)?.and_then(|(key, _)| key.first_chunk::<PREFIX>().copied());
    Ok(found.map(i64::from_be_bytes))
}

#[cold]
fn damaged_row(store: &impl KeyValueRead, damage: Damage) -> StoreError {
    StoreError::DamagedRow { store: store.name().to_owned(), damage }
}
