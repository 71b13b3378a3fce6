//! What the fuzz target runs, and the test over the kept corpus: a changelog with whatever in it, and a store
//! whose entries are not what they were.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use headwater_records::{BatchBuilder, Compression, Header, Record, set_base_offset};
use headwater_store::{
    CommittedSegments, CommittedStore, Direction, KeyRange, KeyValueRead, Layout, LruLayout,
    MemoryBackend, OpenOptions, Overlay, OverlayOptions, QueriedKeys, SegmentedEntry,
    SegmentedKind, SegmentedOptions, SegmentedQuery, SpaceId, StorageReader, StoreBackend,
    StoreError, TaskStorage, VersionedLayout, VersionedOptions, WriteBatch,
};

use crate::{ApplyStep, ChangelogStore, RestoreMemory, StoreStep, Stretch};

const STORE: &str = "store";
/// Entries of a store of the least recently used.
const ENTRIES_MAX: usize = 3;

/// Reads bytes as the changelog of a store, which is restored from it, read in all ways and written.
///
/// The first byte is the layout of the store. A record is a byte that says what else there is, the length of
/// its key, the key, the length of its value, the value, and its time:
///
/// - 1: a tombstone, without length and value,
/// - 2: it has no key,
/// - 4: it has a header, which is its value,
/// - 8: its time has 8 bytes, and not 2 in seconds,
/// - 16: it is no record, but lies in the store as it is.
///
/// # Panics
/// If a store panics.
pub fn restore(data: &[u8]) {
    let Some((&number, mut data)) = data.split_first() else { return };
    let layouts = layouts();
    let layout = layouts[usize::from(number) % layouts.len()];
    let backend = MemoryBackend::new();
    let opened = backend.open(Path::new("0_0"), &OpenOptions::default());
    let mut storage = opened.expect("memory can be opened");
    let space = match layout {
        Layout::Segmented(_) => storage.segmented_space(STORE),
        _ => storage.space(STORE),
    };
    let space = space.expect("it is the first");
    let reader = storage.reader();
    let memory = RestoreMemory::new(1 << 16);
    let mut step =
        StoreStep::new(vec![storage], vec![ChangelogStore::unread(space, layout)], &memory);
    let mut batches = Vec::new();
    let (mut entries, mut offset) = (WriteBatch::new(), 0);
    while let Some(taken) = Taken::take(&mut data) {
        if taken.is_entry {
            entries.push(space, taken.key.unwrap_or_default(), taken.value);
        } else if let Some(mut batch) = taken.batch() {
            set_base_offset(&mut batch, offset, 0).expect("it is a batch");
            batches.extend_from_slice(&batch);
            offset += 1;
        }
    }
    let stretch = Stretch {
        changelog: 0,
        batches: batches.into(),
        aborted: Vec::new(),
        from_offset: 0,
        next_offset: offset,
        leader_epoch: Some(0),
        at_end_ms: Some(1),
    };
    // What is refused is told with its changelog.
    let restored = step.apply(&[stretch]).and_then(|_| step.finish(true));
    black_box(restored.map_err(|error| error.to_string()).err());
    let (mut storages, _) = step.into_parts();
    let storage = storages.first_mut().expect("it was handed over");
    // Of these a storage takes all there are.
    storage.apply(entries.sort(), &[]).expect("memory takes all entries");
    let used = use_store(layout, space, &reader, &mut **storage);
    black_box(used.map_err(|error| error.to_string()).err());
}

/// Every layout, and of windows and sessions each property.
fn layouts() -> Vec<Layout> {
    let mut layouts = vec![
        Layout::KeyValue,
        Layout::TimestampedKeyValue,
        Layout::TimestampedKeyValueWithHeaders,
        Layout::Lru,
        Layout::Versioned(VersionedOptions::new(100_000, None)),
        Layout::Versioned(VersionedOptions::new(i64::MAX, Some(1))),
    ];
    for kind in [SegmentedKind::Window, SegmentedKind::Session] {
        let plain = SegmentedOptions::new(kind, 100_000);
        layouts.extend(
            [
                plain,
                SegmentedOptions { timestamped: true, ..plain },
                SegmentedOptions { with_headers: true, timestamped: true, ..plain },
                SegmentedOptions { with_headers: true, ..plain },
                SegmentedOptions { by_time: true, timestamped: true, ..plain },
                SegmentedOptions { duplicates: true, ..plain },
                SegmentedOptions { in_memory: true, by_time: true, ..plain },
                SegmentedOptions { retention_ms: i64::MAX, ..plain },
            ]
            .map(Layout::Segmented),
        );
    }
    layouts
}

/// A record, or an entry, off the front of the data.
struct Taken<'d> {
    is_entry: bool,
    key: Option<&'d [u8]>,
    value: Option<&'d [u8]>,
    header: Option<&'d [u8]>,
    time: i64,
}

impl<'d> Taken<'d> {
    fn take(data: &mut &'d [u8]) -> Option<Self> {
        let has = *data.split_off_first()?;
        let key = take_bytes(data)?;
        let value = if has & 1 == 0 { Some(take_bytes(data)?) } else { None };
        let time = if has & 8 == 0 {
            let seconds = data.split_off(..2)?;
            seconds.iter().fold(0, |time, byte| time << 8 | i64::from(*byte)) * 1000
        } else {
            i64::from_be_bytes(data.split_off(..8)?.try_into().expect("it has 8 bytes"))
        };
        Some(Self {
            is_entry: has & 16 != 0,
            key: (has & 2 == 0).then_some(key),
            value,
            header: value.filter(|_| has & 4 != 0),
            time,
        })
    }

    /// A batch of it; `None` when no batch can hold it.
    fn batch(&self) -> Option<Vec<u8>> {
        let mut builder = BatchBuilder::new(Compression::None);
        let header = [Header { name: "h", value: self.header }];
        let headers = if self.header.is_some() { &header[..] } else { &[] };
        let record = Record { timestamp: self.time, key: self.key, value: self.value, headers };
        builder.append(record).ok()?;
        Some(builder.finish().stamp_none().to_vec())
    }
}

fn take_bytes<'d>(data: &mut &'d [u8]) -> Option<&'d [u8]> {
    let length = usize::from(*data.split_off_first()?).min(data.len());
    data.split_off(..length)
}

/// Reads all that is there, and writes as a processor would.
fn use_store(
    layout: Layout,
    space: SpaceId,
    reader: &Arc<dyn StorageReader>,
    storage: &mut dyn TaskStorage,
) -> Result<(), StoreError> {
    let mut committed = CommittedStore::new(STORE, space, Arc::clone(reader));
    let mut keys = Vec::new();
    let mut cursor = committed.range(KeyRange::all(), Direction::Forward)?;
    while let Some((key, stored)) = committed.next(&mut cursor)? {
        let parts = layout.split(stored);
        assert!(parts.headers.len() + parts.value.len() <= stored.len(), "{layout:?}");
        keys.push(key.to_vec());
    }
    let mut store = Overlay::<()>::new(STORE, space, Arc::clone(reader), OverlayOptions::default());
    let used = match layout {
        Layout::Versioned(options) => use_versions(options, &keys, &mut store),
        Layout::Segmented(options) => use_segments(options, space, reader, (&keys, &mut store)),
        Layout::Lru => use_lru(&keys, &mut store),
        _ => {
            for key in &keys {
                store.get(key)?;
                store.put(key, None, || ());
            }
            Ok(())
        }
    };
    let mut batch = WriteBatch::new();
    store.seal(&mut batch)?;
    storage.apply(batch.sort(), &[])?;
    store.release();
    used
}

fn use_lru(keys: &[Vec<u8>], store: &mut Overlay) -> Result<(), StoreError> {
    let mut layout = LruLayout::new(ENTRIES_MAX);
    for key in keys {
        layout.get(store, key)?;
        layout.put(store, key, Some(b"new"))?;
    }
    layout.put(store, b"new", None).map(drop)
}

const TIMES: [i64; 7] = [i64::MIN, -1, 0, 1_000, 99_000, 10_000_000, i64::MAX];

fn use_versions(
    options: VersionedOptions,
    keys: &[Vec<u8>],
    store: &mut Overlay,
) -> Result<(), StoreError> {
    let mut layout = VersionedLayout::new(options);
    // In front of a key stands the segment.
    let keys = keys.iter().filter_map(|key| key.get(8..));
    let mut done = Ok(());
    for key in keys {
        let mut note = |result: Result<(), StoreError>| {
            if done.is_ok() {
                done = result;
            }
        };
        note(layout.get(store, key).map(drop));
        note(layout.versions(store, key, i64::MIN, i64::MAX).map(drop));
        for time in TIMES {
            note(layout.get_as_of(store, key, time).map(drop));
        }
        for time in TIMES {
            let value = (time % 2 == 0).then_some(&b"new"[..]);
            note(layout.put(store, key, value, time).map(drop));
            note(layout.versions(store, key, i64::MIN, i64::MAX).map(drop));
        }
    }
    done
}

fn use_segments(
    options: SegmentedOptions,
    space: SpaceId,
    reader: &Arc<dyn StorageReader>,
    (keys, store): (&[Vec<u8>], &mut Overlay),
) -> Result<(), StoreError> {
    let mut segments = CommittedSegments::new(STORE, space, Arc::clone(reader), options)?;
    let mut entry = SegmentedEntry::default();
    let one = keys.last().map(|key| QueriedKeys::One(options.bare_key(key).to_vec()));
    for keys in [QueriedKeys::all()].into_iter().chain(one) {
        for (from, to) in [(i64::MIN, i64::MAX), (0, 50_000), (i64::MAX, i64::MIN)] {
            for direction in [Direction::Forward, Direction::Reverse] {
                let query = SegmentedQuery { keys: keys.clone(), from, to };
                let mut scan = segments.scan(query, direction);
                while scan.next(&mut segments, &mut entry)? {
                    black_box(options.kind.read_key(entry.key(), 10_000));
                    black_box(options.number_of(entry.key()));
                }
            }
        }
    }
    for key in keys {
        let key = key.get(8..).unwrap_or_default();
        segments.get(key)?;
        store.put(key, None, || ());
    }
    let mut cursor = Overlay::range(store, options.index_range(0, i64::MAX), Direction::Forward);
    while let Some((key, _)) = store.next(&mut cursor)? {
        options.push_indexed_key(key, &mut Vec::new());
    }
    store.drop_segments_before(options.lowest_segment(i64::MAX).cast_unsigned());
    Ok(())
}
