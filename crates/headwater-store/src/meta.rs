//! What the meta space of a task's storage holds: positions in changelogs, stream times of
//! operators, and what each store was written with. Every value starts with a version byte.

use std::path::Path;

use crate::{
    Damage, Layout, RecordProblem, SegmentedKind, SegmentedOptions, StorageReader, StoreError,
    TaskStorage, VersionedOptions,
};

/// A write to the meta space. It becomes durable with the data of the same
/// [`apply`](TaskStorage::apply) or after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaUpdate {
    /// Key, made by [`MetaKey`].
    pub key: Vec<u8>,
    /// New value, `None` to delete the key.
    pub value: Option<Vec<u8>>,
}

/// A key of the meta space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetaKey {
    /// Position in a changelog: holds a [`ChangelogPosition`].
    Changelog {
        /// Topic, an internal changelog or a source topic that doubles as one.
        topic: String,
        /// Partition, the one of the task.
        partition: i32,
    },
    /// Observed stream time of an operator: 8 bytes, big-endian, milliseconds.
    StreamTime {
        /// Name of the operator's node.
        node: String,
    },
    /// The newest time in a store of windows or sessions: holds a [`StreamTime`].
    StoreTime {
        /// Name of the store.
        store: String,
    },
    /// The last number in a store of windows with duplicates: holds a [`LastNumber`].
    StoreNumber {
        /// Name of the store.
        store: String,
    },
    /// What a store was written with: holds a [`StoreDescription`].
    Store {
        /// Name of the store.
        name: String,
    },
}

impl MetaKey {
    /// The key's bytes: a letter for the kind, then partition and name.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Changelog { topic, partition } => {
                [&b"c"[..], &partition.to_be_bytes(), topic.as_bytes()].concat()
            }
            Self::StreamTime { node } => [b"t", node.as_bytes()].concat(),
            Self::StoreTime { store } => [b"w", store.as_bytes()].concat(),
            Self::StoreNumber { store } => [b"n", store.as_bytes()].concat(),
            Self::Store { name } => [b"s", name.as_bytes()].concat(),
        }
    }

    /// Reads a key back; `None` for a key of a kind that this version does not know.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_owned()).ok();
        match kind {
            b'c' => {
                let (partition, topic) = rest.split_first_chunk()?;
                Some(Self::Changelog {
                    topic: text(topic)?,
                    partition: i32::from_be_bytes(*partition),
                })
            }
            b't' => Some(Self::StreamTime { node: text(rest)? }),
            b'w' => Some(Self::StoreTime { store: text(rest)? }),
            b'n' => Some(Self::StoreNumber { store: text(rest)? }),
            b's' => Some(Self::Store { name: text(rest)? }),
            _ => None,
        }
    }
}

/// How far a store holds a changelog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChangelogPosition {
    /// Id the broker gave the topic; another id means another topic of the same name, so the state
    /// is rebuilt. All zero when the broker gives no ids.
    pub topic_id: [u8; 16],
    /// Offset of the first record that the store may not hold yet.
    pub next_offset: i64,
    /// The newest leader epoch known to have held everything before the next offset, to notice a
    /// truncated changelog. It may lag behind: then a loss is suspected sooner, never overlooked.
    pub leader_epoch: Option<i32>,
    /// When the state was last known to be at the changelog's end, in milliseconds since the Unix
    /// epoch. Longer ago than the topic's `delete.retention.ms`, tombstones may be gone.
    pub at_end_ms: Option<i64>,
}

impl ChangelogPosition {
    const VERSION: u8 = 1;
    /// Version, topic id, next offset, leader epoch, time; -1 stands for "not known".
    const LENGTH: usize = 1 + 16 + 8 + 4 + 8;
    const RECORD: &str = "changelog position";

    /// The bytes in the meta space: version 1, topic id (16), next offset (8), leader epoch (4, -1
    /// for none), time at end (8, -1 for none), all big-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::LENGTH);
        bytes.push(Self::VERSION);
        bytes.extend_from_slice(&self.topic_id);
        bytes.extend_from_slice(&self.next_offset.to_be_bytes());
        bytes.extend_from_slice(&self.leader_epoch.unwrap_or(-1).to_be_bytes());
        bytes.extend_from_slice(&self.at_end_ms.unwrap_or(-1).to_be_bytes());
        bytes
    }

    /// Reads a position back.
    ///
    /// # Errors
    /// [`Damage::Record`] for an unknown version, a wrong length, or a number that cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let fields = versioned(Self::RECORD, Self::VERSION, bytes)?;
        let (topic_id, rest) = field::<16>(fields).ok_or_else(|| Self::wrong_length(bytes))?;
        let (next_offset, rest) = field(rest).ok_or_else(|| Self::wrong_length(bytes))?;
        let (leader_epoch, rest) = field(rest).ok_or_else(|| Self::wrong_length(bytes))?;
        let (at_end_ms, rest) = field(rest).ok_or_else(|| Self::wrong_length(bytes))?;
        if !rest.is_empty() {
            return Err(Self::wrong_length(bytes));
        }
        let next_offset = i64::from_be_bytes(next_offset);
        if next_offset < 0 {
            let problem = RecordProblem::Field { field: "next offset", found: next_offset };
            return Err(Damage::Record { record: Self::RECORD, problem });
        }
        let leader_epoch = i32::from_be_bytes(leader_epoch);
        let at_end_ms = i64::from_be_bytes(at_end_ms);
        Ok(Self {
            topic_id,
            next_offset,
            leader_epoch: (leader_epoch >= 0).then_some(leader_epoch),
            at_end_ms: (at_end_ms >= 0).then_some(at_end_ms),
        })
    }

    /// The stored position in partition `partition` of `topic`, `None` when the storage never held
    /// any of it.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the record does not decode, and what the backend reports.
    pub fn load(
        storage: &dyn TaskStorage,
        dir: &Path,
        topic: &str,
        partition: i32,
    ) -> Result<Option<Self>, StoreError> {
        let key = MetaKey::Changelog { topic: topic.to_owned(), partition }.encode();
        let stored = storage.meta(&key)?;
        let decode = |bytes: Vec<u8>| Self::decode(&bytes);
        stored.map(decode).transpose().map_err(|damage| StoreError::damaged(dir, damage))
    }

    /// The write that stores this position.
    pub fn update(&self, topic: &str, partition: i32) -> MetaUpdate {
        let key = MetaKey::Changelog { topic: topic.to_owned(), partition }.encode();
        MetaUpdate { key, value: Some(self.encode()) }
    }

    fn wrong_length(bytes: &[u8]) -> Damage {
        let problem = RecordProblem::Length { expected: Self::LENGTH, found: bytes.len() };
        Damage::Record { record: Self::RECORD, problem }
    }
}

/// Observed stream time of an operator, in the meta space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamTime {
    /// Highest timestamp seen, in milliseconds.
    pub ms: i64,
}

impl StreamTime {
    const VERSION: u8 = 1;
    const LENGTH: usize = 1 + 8;
    const RECORD: &str = "stream time";

    /// The bytes in the meta space: version 1, then the time as 8 bytes big-endian.
    pub fn encode(&self) -> Vec<u8> {
        [&[Self::VERSION][..], &self.ms.to_be_bytes()].concat()
    }

    /// Reads a stream time back.
    ///
    /// # Errors
    /// [`Damage::Record`] for an unknown version or a wrong length.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let fields = versioned(Self::RECORD, Self::VERSION, bytes)?;
        let ms = fields.try_into().map_err(|_| Damage::Record {
            record: Self::RECORD,
            problem: RecordProblem::Length { expected: Self::LENGTH, found: bytes.len() },
        })?;
        Ok(Self { ms: i64::from_be_bytes(ms) })
    }

    /// The stored stream time of the operator at `node`.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the record does not decode, and what the backend reports.
    pub fn load(
        storage: &dyn TaskStorage,
        dir: &Path,
        node: &str,
    ) -> Result<Option<Self>, StoreError> {
        let stored = storage.meta(&MetaKey::StreamTime { node: node.to_owned() }.encode())?;
        let decode = |bytes: Vec<u8>| Self::decode(&bytes);
        stored.map(decode).transpose().map_err(|damage| StoreError::damaged(dir, damage))
    }

    /// The stored newest time of store `store`.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn load_of_store(
        storage: &dyn TaskStorage,
        dir: &Path,
        store: &str,
    ) -> Result<Option<Self>, StoreError> {
        let stored = storage.meta(&MetaKey::StoreTime { store: store.to_owned() }.encode())?;
        let decode = |bytes: Vec<u8>| Self::decode(&bytes);
        stored.map(decode).transpose().map_err(|damage| StoreError::damaged(dir, damage))
    }

    /// As [`load_of_store`](Self::load_of_store), through the read half; −1 when nothing was put yet.
    ///
    /// # Errors
    /// [`StoreError::DamagedRow`] when the record does not decode, and what the backend reports.
    pub(crate) fn newest_of_store(
        reader: &dyn StorageReader,
        store: &str,
    ) -> Result<i64, StoreError> {
        let stored = reader.meta(&MetaKey::StoreTime { store: store.to_owned() }.encode())?;
        let time = stored.map(|bytes| Self::decode(&bytes)).transpose();
        let damaged = |damage| StoreError::DamagedRow { store: store.to_owned(), damage };
        Ok(time.map_err(damaged)?.map_or(-1, |time| time.ms))
    }

    /// The write that stores this time for the store called `store`.
    pub fn update_of_store(&self, store: &str) -> MetaUpdate {
        let key = MetaKey::StoreTime { store: store.to_owned() }.encode();
        MetaUpdate { key, value: Some(self.encode()) }
    }

    /// The write that stores this time for the operator at `node`.
    pub fn update(&self, node: &str) -> MetaUpdate {
        let key = MetaKey::StreamTime { node: node.to_owned() }.encode();
        MetaUpdate { key, value: Some(self.encode()) }
    }
}

/// The number that was given last in a store of windows with duplicates (feature row D32), in the meta space:
/// whoever goes on with the store goes on behind it, so that nothing is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LastNumber {
    /// The number.
    pub number: u32,
}

impl LastNumber {
    const VERSION: u8 = 1;
    const LENGTH: usize = 1 + 4;
    const RECORD: &str = "last number";

    /// The bytes in the meta space: version 1, then the number as 4 bytes big-endian.
    pub fn encode(&self) -> Vec<u8> {
        [&[Self::VERSION][..], &self.number.to_be_bytes()].concat()
    }

    /// Reads a number back.
    ///
    /// # Errors
    /// [`Damage::Record`] for an unknown version or a wrong length.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let fields = versioned(Self::RECORD, Self::VERSION, bytes)?;
        let number = fields.try_into().map_err(|_| Damage::Record {
            record: Self::RECORD,
            problem: RecordProblem::Length { expected: Self::LENGTH, found: bytes.len() },
        })?;
        Ok(Self { number: u32::from_be_bytes(number) })
    }

    /// The stored number of store `store`.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the record does not decode, and what the backend reports.
    pub fn load(
        storage: &dyn TaskStorage,
        dir: &Path,
        store: &str,
    ) -> Result<Option<Self>, StoreError> {
        let stored = storage.meta(&MetaKey::StoreNumber { store: store.to_owned() }.encode())?;
        let decode = |bytes: Vec<u8>| Self::decode(&bytes);
        stored.map(decode).transpose().map_err(|damage| StoreError::damaged(dir, damage))
    }

    /// The write that stores this number for the store called `store`.
    pub fn update(&self, store: &str) -> MetaUpdate {
        let key = MetaKey::StoreNumber { store: store.to_owned() }.encode();
        MetaUpdate { key, value: Some(self.encode()) }
    }
}

/// What a store was written with, kept beside it so that a typed view from outside is checked
/// before it reads garbage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreDescription {
    /// Layout of the values.
    pub layout: Layout,
    /// [`Format::format`](crate::serde::Format::format) of the keys' serde.
    pub key_format: String,
    /// [`Format::format`](crate::serde::Format::format) of the values' serde.
    pub value_format: String,
}

impl StoreDescription {
    const VERSION: u8 = 1;
    const RECORD: &str = "store description";

    /// The bytes in the meta space: version 1, layout (1), length of the key format (1), of a versioned
    /// store history and segment interval (8 each, big-endian), of one of windows or sessions retention (8)
    /// and flags (1), key format, value format. Formats are
    /// cut at 255 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let key_format = self.key_format.as_bytes();
        let key_length = u8::try_from(key_format.len()).unwrap_or(u8::MAX);
        let mut bytes = vec![Self::VERSION, tag(self.layout), key_length];
        if let Layout::Versioned(options) = self.layout {
            bytes.extend_from_slice(&options.history_retention_ms.to_be_bytes());
            bytes.extend_from_slice(&options.segment_interval_ms.to_be_bytes());
        }
        if let Layout::Segmented(options) = self.layout {
            bytes.extend_from_slice(&options.retention_ms.to_be_bytes());
            let flags = [
                (options.timestamped, TIMESTAMPED),
                (options.by_time, BY_TIME),
                (options.duplicates, DUPLICATES),
                (options.in_memory, IN_MEMORY),
                (options.with_headers, WITH_HEADERS),
            ];
            bytes.push(flags.iter().map(|(is_set, flag)| if *is_set { *flag } else { 0 }).sum());
        }
        bytes.extend_from_slice(&key_format[..usize::from(key_length)]);
        bytes.extend_from_slice(self.value_format.as_bytes());
        bytes
    }

    /// Reads a description back.
    ///
    /// # Errors
    /// [`Damage::Record`] for an unknown version or layout, a wrong length or text that is not
    /// UTF-8.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let damage = |problem| Damage::Record { record: Self::RECORD, problem };
        let short = |expected| damage(RecordProblem::Length { expected, found: bytes.len() });
        let fields = versioned(Self::RECORD, Self::VERSION, bytes)?;
        let ([tag, key_length], rest) = field::<2>(fields).ok_or_else(|| short(3))?;
        let (layout, formats) = match tag {
            0 => (Layout::KeyValue, rest),
            1 => (Layout::TimestampedKeyValue, rest),
            2 => (Layout::TimestampedKeyValueWithHeaders, rest),
            3 => (Layout::Lru, rest),
            VERSIONED => {
                let (history, rest) = field(rest).ok_or_else(|| short(3 + 16))?;
                let (interval, rest) = field(rest).ok_or_else(|| short(3 + 16))?;
                let interval = i64::from_be_bytes(interval);
                let options = VersionedOptions::new(i64::from_be_bytes(history), Some(interval));
                (Layout::Versioned(options), rest)
            }
            WINDOW | SESSION => {
                let (retention, rest) = field(rest).ok_or_else(|| short(3 + 9))?;
                let ([flags], rest) = field::<1>(rest).ok_or_else(|| short(3 + 9))?;
                let options = SegmentedOptions {
                    kind: if tag == WINDOW {
                        SegmentedKind::Window
                    } else {
                        SegmentedKind::Session
                    },
                    retention_ms: i64::from_be_bytes(retention),
                    timestamped: flags & TIMESTAMPED != 0,
                    by_time: flags & BY_TIME != 0,
                    duplicates: flags & DUPLICATES != 0,
                    in_memory: flags & IN_MEMORY != 0,
                    with_headers: flags & WITH_HEADERS != 0,
                };
                (Layout::Segmented(options), rest)
            }
            unknown => {
                let found = i64::from(unknown);
                return Err(damage(RecordProblem::Field { field: "layout", found }));
            }
        };
        let (key_format, value_format) = formats
            .split_at_checked(usize::from(key_length))
            .ok_or_else(|| short(3 + usize::from(key_length)))?;
        let text = |field, bytes: &[u8]| {
            String::from_utf8(bytes.to_owned()).map_err(|_| damage(RecordProblem::Text { field }))
        };
        Ok(Self {
            layout,
            key_format: text("key format", key_format)?,
            value_format: text("value format", value_format)?,
        })
    }

    /// The stored description of store `name`.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the record does not decode, and what the backend reports.
    pub fn load(
        storage: &dyn TaskStorage,
        dir: &Path,
        name: &str,
    ) -> Result<Option<Self>, StoreError> {
        let stored = storage.meta(&MetaKey::Store { name: name.to_owned() }.encode())?;
        let decode = |bytes: Vec<u8>| Self::decode(&bytes);
        stored.map(decode).transpose().map_err(|damage| StoreError::damaged(dir, damage))
    }

    /// Holds this description of store `store` against what somebody wants to read it as.
    ///
    /// # Errors
    /// [`StoreError::WrongType`] when they differ.
    pub fn expect(&self, store: &str, wanted: &Self) -> Result<(), StoreError> {
        if self == wanted {
            return Ok(());
        }
        Err(StoreError::WrongType {
            store: store.to_owned(),
            expected: wanted.to_string(),
            found: self.to_string(),
        })
    }

    /// The write that stores this description for store `name`.
    pub fn update(&self, name: &str) -> MetaUpdate {
        let key = MetaKey::Store { name: name.to_owned() }.encode();
        MetaUpdate { key, value: Some(self.encode()) }
    }
}

impl std::fmt::Display for StoreDescription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}<{}, {}>", self.layout.name(), self.key_format, self.value_format)
    }
}

const VERSIONED: u8 = 4;
const WINDOW: u8 = 5;
const SESSION: u8 = 6;
const TIMESTAMPED: u8 = 1;
const BY_TIME: u8 = 2;
const DUPLICATES: u8 = 4;
const IN_MEMORY: u8 = 8;
const WITH_HEADERS: u8 = 16;

fn tag(layout: Layout) -> u8 {
    match layout {
        Layout::KeyValue => 0,
        Layout::TimestampedKeyValue => 1,
        Layout::TimestampedKeyValueWithHeaders => 2,
        Layout::Lru => 3,
        Layout::Versioned(_) => VERSIONED,
        Layout::Segmented(options) => match options.kind {
            SegmentedKind::Window => WINDOW,
            SegmentedKind::Session => SESSION,
        },
    }
}

fn versioned<'a>(record: &'static str, version: u8, bytes: &'a [u8]) -> Result<&'a [u8], Damage> {
    match bytes.split_first() {
        Some((&found, fields)) if found == version => Ok(fields),
        Some((&found, _)) => {
            Err(Damage::Record { record, problem: RecordProblem::Version { found } })
        }
        None => {
            Err(Damage::Record { record, problem: RecordProblem::Length { expected: 1, found: 0 } })
        }
    }
}

fn field<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
    bytes.split_first_chunk().map(|(field, rest)| (*field, rest))
}
