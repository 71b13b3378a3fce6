use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

use headwater_records::{BatchBuilder, Compression, Header, Record, set_base_offset};
use headwater_store::{
    CommittedStore, Direction, KeyRange, KeyValueRead, MemoryBackend, OpenOptions, SegmentedKind,
    SortedBatch, StorageWatch, StoreBackend, VersionedOptions, WatchedStorage, push_window_key,
    read_headers,
};

use super::*;

/// Applies these changelog records, one stretch for each, to a store of a layout.
fn restored(layout: Layout, records: &[(&str, Option<&str>, i64)]) -> CommittedStore {
    let records: Vec<_> =
        records.iter().map(|(key, value, at)| (key.as_bytes(), *value, *at)).collect();
    restored_with_meta(layout, &records).0
}

/// Key, value and time of a changelog record.
type Logged<'r> = (&'r [u8], Option<&'r str>, i64);

/// As [`restored`], of any keys; with what stands beside the store.
fn restored_with_meta(
    layout: Layout,
    records: &[Logged<'_>],
) -> (CommittedStore, Vec<Box<dyn TaskStorage>>) {
    let mut storage = MemoryBackend::new().open(Path::new("0_0"), &OpenOptions::default()).unwrap();
    let space = storage.space("store").unwrap();
    let reader = storage.reader();
    let store = ChangelogStore::unread(space, layout);
    let memory = RestoreMemory::new(1 << 20);
    let mut step = StoreStep::new(vec![storage], vec![store], &memory);
    for (offset, &record) in (0..).zip(records) {
        let is_last = offset + 1 == i64::try_from(records.len()).unwrap();
        let stretch = Stretch { at_end_ms: is_last.then_some(1), ..stretch(offset, record) };
        assert_eq!(step.apply(&[stretch]).unwrap()[0].records, 1);
    }
    (CommittedStore::new("store", space, reader), step.into_parts().0)
}

/// One record of it.
fn stretch(offset: i64, (key, value, timestamp): Logged<'_>) -> Stretch {
    let mut builder = BatchBuilder::new(Compression::None);
    let headers = [Header { name: "h", value: Some(b"1") }];
    let (key, value) = (Some(key), value.map(str::as_bytes));
    builder.append(Record { timestamp, key, value, headers: &headers }).expect("there is room");
    let mut batches = builder.finish().stamp_none().to_vec();
    set_base_offset(&mut batches, offset, 0).expect("it is a batch");
    Stretch {
        changelog: 0,
        batches: batches.into(),
        aborted: Vec::new(),
        from_offset: offset,
        next_offset: offset + 1,
        leader_epoch: None,
        at_end_ms: None,
    }
}

fn stored(store: &mut CommittedStore, key: &str) -> Option<Vec<u8>> {
    store.get(key.as_bytes()).unwrap().map(<[u8]>::to_vec)
}

#[test]
fn a_store_with_headers_gets_them_from_the_records() {
    let layout = Layout::TimestampedKeyValueWithHeaders;
    let mut store = restored(layout, &[("a", Some("x"), 7), ("b", Some("y"), 8), ("b", None, 9)]);
    let found = stored(&mut store, "a").unwrap();
    let part = layout.split(&found);
    assert_eq!((part.timestamp, part.value), (Some(7), &b"x"[..]));
    assert_eq!(read_headers(part.headers).unwrap(), [("h", Some(&b"1"[..]))]);
    assert_eq!(stored(&mut store, "b"), None);
}

/// Whoever goes on with a store of duplicates goes on behind the number that was given last.
#[test]
fn the_last_number_of_a_store_with_duplicates_stands_beside_it() {
    let options =
        SegmentedOptions { duplicates: true, ..SegmentedOptions::new(SegmentedKind::Window, 100) };
    let mut keys = [const { Vec::new() }; 3];
    for (key, (start, number)) in keys.iter_mut().zip([(20, 6), (10, 7), (20, 8)]) {
        push_window_key(b"k", start, number, key);
    }
    let records = [(&*keys[0], Some("x"), 20), (&keys[1], Some("y"), 10), (&keys[2], None, 20)];
    let (mut store, storages) = restored_with_meta(Layout::Segmented(options), &records);
    let number = LastNumber::load(&*storages[0], Path::new(""), "store").unwrap();
    assert_eq!(number, Some(LastNumber { number: 8 }));
    let newest = StreamTime::load_of_store(&*storages[0], Path::new(""), "store").unwrap();
    assert_eq!(newest, Some(StreamTime { ms: 20 }));
    let mut stored_key = Vec::new();
    options.push_stored_key(10, &keys[1], &mut stored_key);
    assert_eq!(store.get(&stored_key).unwrap(), Some(&b"y"[..]));
}

#[test]
fn an_lru_store_begins_with_the_order_of_its_changelog() {
    let records = [("b", Some("1"), 1), ("a", Some("2"), 2), ("b", Some("3"), 3)];
    let mut store = restored(Layout::Lru, &records);
    let [a, b] = ["a", "b"].map(|key| stored(&mut store, key).unwrap());
    assert!(a < b, "the number in front says that a was written before b");
    assert_eq!(Layout::Lru.split(&b).value, b"3");
}

/// A standby applies these records to an LRU store.
fn follows(
    storage: Box<dyn TaskStorage>,
    space: SpaceId,
    records: &[(i64, &str)],
) -> Box<dyn TaskStorage> {
    let store = ChangelogStore::unread(space, Layout::Lru);
    let mut step = StoreStep::new(vec![storage], vec![store], &RestoreMemory::new(1 << 20));
    for &(offset, key) in records {
        step.apply(&[stretch(offset, (key.as_bytes(), Some("v"), 0))]).unwrap();
    }
    step.finish(false).unwrap();
    step.into_parts().0.remove(0)
}

/// An active task works with an LRU store of three entries: it reads a key often, and then writes these. Also which
/// had to go.
fn runs(
    mut storage: Box<dyn TaskStorage>,
    space: SpaceId,
    read: &str,
    written: &[&str],
) -> (Box<dyn TaskStorage>, Vec<String>) {
    let mut store: Overlay =
        Overlay::new("store", space, storage.reader(), OverlayOptions::default());
    let mut lru = LruLayout::new(3);
    for _ in 0..500 {
        lru.get(&mut store, read.as_bytes()).unwrap();
    }
    let mut gone = Vec::new();
    for key in written {
        let evicted = lru.put(&mut store, key.as_bytes(), Some(b"v")).unwrap();
        gone.extend(evicted.iter().map(|key| String::from_utf8_lossy(key).into_owned()));
    }
    let mut batch = WriteBatch::new();
    store.seal(&mut batch).unwrap();
    storage.apply(batch.sort(), &[]).unwrap();
    store.release();
    (storage, gone)
}

/// Its store stays open meanwhile.
#[test]
fn an_lru_store_keeps_its_order_when_its_task_changes_its_role() {
    let mut storage = MemoryBackend::new().open(Path::new("0_0"), &OpenOptions::default()).unwrap();
    let space = storage.space("store").unwrap();
    let storage = follows(storage, space, &[(100, "a"), (101, "b")]);
    let (storage, gone) = runs(storage, space, "none", &["c"]);
    assert_eq!(gone, [""; 0]);
    let storage = follows(storage, space, &[]);
    let (storage, gone) = runs(storage, space, "none", &["d"]);
    assert_eq!(gone, ["a"], "c was written after what was followed");
    let (storage, gone) = runs(storage, space, "b", &["b"]);
    assert_eq!(gone, [""; 0]);
    let storage = follows(storage, space, &[(110, "c")]);
    let (_, gone) = runs(storage, space, "none", &["e", "f"]);
    assert_eq!(gone, ["d", "b"], "c was followed after b was written");
}

/// Late updates find their place among the others, and what the live store has refused is refused.
#[test]
fn a_versioned_store_is_restored_update_by_update() {
    let options = VersionedOptions::new(20, Some(5));
    let records = [
        ("a", Some("1"), 100),
        ("a", Some("2"), 110),
        ("a", Some("3"), 105),
        ("a", Some("5"), 79),
        ("b", Some("6"), 130),
        ("a", None, 131),
    ];
    let mut store = restored(Layout::Versioned(options), &records);
    let mut layout = VersionedLayout::new(options);
    let versions = layout.versions(&mut store, b"a", 0, 1_000).unwrap();
    let found: Vec<_> = versions.iter().map(|it| (it.value.as_slice(), it.timestamp)).collect();
    assert_eq!(found, [(&b"3"[..], 105), (b"2", 110)], "segments go as a whole");
    assert!(layout.get(&mut store, b"a").unwrap().is_none());
    let mut cursor = store.range(KeyRange::all(), Direction::Forward).unwrap();
    let mut entries = 0;
    while store.next(&mut cursor).unwrap().is_some() {
        entries += 1;
    }
    assert_eq!(entries, 4, "two rows of a, the latest value of b, the stream time");
}

/// Tells which segments a storage is asked to drop, and leaves room for so many writes.
#[derive(Debug)]
struct Watch {
    dropped: Mutex<Vec<Range<u64>>>,
    room: AtomicUsize,
}

impl Watch {
    fn with_room(room: usize) -> Arc<Self> {
        Arc::new(Self { dropped: Mutex::default(), room: AtomicUsize::new(room) })
    }
}

impl StorageWatch for Watch {
    fn apply(&self, batch: &SortedBatch<'_>) -> Result<(), StoreError> {
        let room = self.room.load(Ordering::Relaxed);
        let Some(left) = room.checked_sub(1) else {
            let source = std::io::ErrorKind::StorageFull.into();
            return Err(StoreError::Io { operation: "write", path: "the disk".into(), source });
        };
        self.room.store(left, Ordering::Relaxed);
        let mut dropped = self.dropped.lock().expect("one thread");
        dropped.extend(batch.drops().map(|drop| drop.segments.clone()));
        Ok(())
    }
}

/// A standby that follows for days drops each segment once, however often it writes.
#[test]
fn a_segment_is_dropped_once() {
    let options = SegmentedOptions::new(SegmentedKind::Window, 120_000);
    let mut inner = MemoryBackend::new().open(Path::new("0_0"), &OpenOptions::default()).unwrap();
    let space = inner.segmented_space("store").unwrap();
    let watch = Watch::with_room(usize::MAX);
    let storage = WatchedStorage::new(inner, Arc::clone(&watch));
    let store = ChangelogStore::unread(space, Layout::Segmented(options));
    let memory = RestoreMemory::new(1 << 20);
    let mut step = StoreStep::new(vec![Box::new(storage)], vec![store], &memory);
    for (offset, start) in (0..).zip([0, 200_000, 210_000, 220_000, 290_000, 10_000, 295_000]) {
        let mut key = Vec::new();
        push_window_key(b"k", start, 0, &mut key);
        step.apply(&[stretch(offset, (&key, Some("x"), start))]).unwrap();
        step.finish(false).unwrap();
    }
    let mut dropped = watch.dropped.lock().unwrap();
    let dropped: Vec<_> = dropped.drain(..).filter(|it| it.end < 1 << 62).collect();
    assert_eq!(dropped, [0..1, 1..2]);
    assert_eq!(step.storages[0].storage.reader().approximate_entries(space).unwrap(), 5);
}

/// The positions say what the backend has taken, and what it has not is still there to be written.
#[test]
fn a_write_that_fails_moves_no_position_and_loses_nothing() {
    for layout in [Layout::KeyValue, Layout::TimestampedKeyValue] {
        let mut inner =
            MemoryBackend::new().open(Path::new("0_0"), &OpenOptions::default()).unwrap();
        let space = inner.space("store").unwrap();
        let reader = inner.reader();
        let watch = Watch::with_room(0);
        let storage = WatchedStorage::new(inner, Arc::clone(&watch));
        let memory = RestoreMemory::new(1 << 20);
        let store = ChangelogStore::unread(space, layout);
        let mut step = StoreStep::new(vec![Box::new(storage)], vec![store], &memory);
        step.apply(&[stretch(0, (b"a", Some("1"), 7)), stretch(1, (b"b", Some("2"), 8))]).unwrap();
        let held = memory.used();
        assert!(held > 0);
        assert!(matches!(step.finish(true), Err(ChangelogError::Store { .. })));
        let stored = |step: &StoreStep| {
            let storage = &*step.storages[0].storage;
            ChangelogPosition::load(storage, Path::new(""), "changelog", 0).unwrap()
        };
        assert_eq!((step.stores()[0].position.next_offset, stored(&step)), (0, None));
        watch.room.store(usize::MAX, Ordering::Relaxed);
        step.finish(true).unwrap();
        assert_eq!(step.stores()[0].position.next_offset, 2);
        assert_eq!(stored(&step), Some(step.stores()[0].position));
        assert_eq!(reader.approximate_entries(space).unwrap(), 2);
        assert_eq!(memory.used(), 0);
    }
}
