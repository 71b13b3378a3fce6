use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use super::row::Row;
use super::*;
use crate::{MemoryBackend, OpenOptions, Overlay, OverlayOptions, StoreBackend, WriteBatch};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// The states of a row after these steps, as the original writes them (vectors `versioned_segment`).
#[test]
fn rows_are_those_of_the_original() {
    let mut row = Row::default();
    let mut states = Vec::new();
    row.reset(Some(b"a"), 10, 20);
    states.push(hex(row.as_bytes()));
    row.add_newest(Some(b"b"), 20, 30);
    states.push(hex(row.as_bytes()));
    row.add_newest(None, 30, 40);
    states.push(hex(row.as_bytes()));
    row.add_oldest(Some(b"earliest"), 5);
    states.push(hex(row.as_bytes()));
    row.insert(2, 15, Some(b"mid"));
    states.push(hex(row.as_bytes()));
    row.replace(2, 15, Some(b"MIDDLE"));
    states.push(hex(row.as_bytes()));
    row.reset(None, 10, 20);
    states.push(hex(row.as_bytes()));
    row.reset(Some(b""), 0, 1);
    states.push(hex(row.as_bytes()));
    assert_eq!(
        states,
        [
            "0000000000000014000000000000000a000000000000000a0000000161",
            "000000000000001e000000000000000a000000000000001400000001000000000000000a000000016162",
            "0000000000000028000000000000000a000000000000001effffffff000000000000001400000001000000000000000a000000016162",
            "00000000000000280000000000000005000000000000001effffffff000000000000001400000001000000000000000a000000010000000000000005000000086561726c696573746162",
            "00000000000000280000000000000005000000000000001effffffff000000000000001400000001000000000000000f00000003000000000000000a000000010000000000000005000000086561726c69657374616d696462",
            "00000000000000280000000000000005000000000000001effffffff000000000000001400000001000000000000000f00000006000000000000000a000000010000000000000005000000086561726c69657374614d4944444c4562",
            "0000000000000014000000000000000a000000000000000affffffff",
            "00000000000000010000000000000000000000000000000000000000",
        ]
    );
}

/// The row keeps what came before the new version; what a half-done change left behind goes.
#[test]
fn a_newer_version_cuts_what_overlaps() {
    let mut row = Row::default();
    row.reset(Some(b"a"), 10, 20);
    row.add_newest(Some(b"b"), 20, 30);
    row.add_newest(Some(b"B"), 20, 40);
    let versions: Vec<_> = row
        .versions()
        .map(|version| (version.valid_from, version.valid_to, version.value))
        .collect();
    assert_eq!(versions, [(20, 40, Some(&b"B"[..])), (10, 20, Some(&b"a"[..]))]);
    row.add_newest(Some(b"c"), 10, 50);
    let versions: Vec<_> =
        row.versions().map(|version| (version.valid_from, version.value)).collect();
    assert_eq!(versions, [(10, Some(&b"c"[..]))]);
}

#[test]
fn bytes_that_are_no_row_are_damage() {
    let mut row = Row::default();
    row.reset(Some(b"abc"), 10, 20);
    row.add_newest(Some(b"d"), 20, 30);
    let good = row.as_bytes().to_vec();
    let mut other = Row::default();
    assert!(other.load(&good).is_ok());
    for length in 0..good.len() {
        assert!(other.load(&good[..length]).is_err(), "{length} bytes");
    }
    assert!(other.load(&[&good[..], b"x"].concat()).is_err());
}

#[test]
fn the_latest_value_is_laid_out_as_in_the_original() {
    let mut store = overlay();
    let mut layout = VersionedLayout::new(VersionedOptions::new(20, None));
    layout.put(&mut store, b"k", Some(b"v"), 5).unwrap();
    let stored = store.get(&[&[0xff; 8][..], b"k"].concat()).unwrap().map(hex);
    assert_eq!(stored.as_deref(), Some("000000000000000576"));
}

#[test]
fn segments_are_as_long_as_in_the_original() {
    let cases = [
        (0, 2_000),
        (60_000, 20_000),
        (60_001, 20_000),
        (300_000, 60_000),
        (300_001, 60_000),
        (3_600_000, 300_000),
        (3_600_001, 300_000),
        (86_400_000, 3_600_000),
    ];
    for (history, interval) in cases {
        assert_eq!(VersionedOptions::new(history, None).segment_interval_ms, interval, "{history}");
    }
    assert_eq!(VersionedOptions::new(50, Some(7)).segment_interval_ms, 7);
}

/// As in the original, which has no row to note it in: what comes late then counts as the latest.
#[test]
fn a_deletion_in_the_place_of_an_only_version_leaves_no_trace() {
    let mut store = overlay();
    let mut layout = VersionedLayout::new(VersionedOptions::new(20, None));
    let mut put = |value: Option<&[u8]>, time| layout.put(&mut store, b"k", value, time).unwrap();
    assert_eq!(put(Some(b"a"), 72), VersionedPut::Latest);
    assert_eq!(put(None, 72), VersionedPut::Latest);
    assert_eq!(put(Some(b"b"), 61), VersionedPut::Latest);
    assert_eq!(put(Some(b"c"), 51), VersionedPut::NotPut);
}

#[test]
fn a_put_tells_when_a_newer_version_begins() {
    let mut store = overlay();
    let mut layout = VersionedLayout::new(VersionedOptions::new(20, None));
    let mut put = |value: Option<&[u8]>, time| layout.put(&mut store, b"a", value, time).unwrap();
    assert_eq!(put(Some(b"1"), 100), VersionedPut::Latest);
    assert_eq!(put(Some(b"2"), 110), VersionedPut::Latest);
    assert_eq!(put(Some(b"3"), 105), VersionedPut::ValidTo(110));
    assert_eq!(put(Some(b"4"), 90), VersionedPut::ValidTo(100));
    assert_eq!(put(Some(b"5"), 89), VersionedPut::NotPut);
    assert_eq!(put(None, 112), VersionedPut::Latest);
    let versions = layout.versions(&mut store, b"a", 0, 200).unwrap();
    let found: Vec<_> = versions
        .iter()
        .map(|version| (version.value.as_slice(), version.timestamp, version.valid_to))
        .collect();
    assert_eq!(
        found,
        [
            (&b"4"[..], 90, Some(100)),
            (b"1", 100, Some(105)),
            (b"3", 105, Some(110)),
            (b"2", 110, Some(112)),
        ]
    );
    let part = layout.versions(&mut store, b"a", 100, 104).unwrap();
    assert_eq!(part.iter().map(|version| version.timestamp).collect::<Vec<_>>(), [100]);
}

fn overlay() -> Overlay {
    let backend = MemoryBackend::new();
    let mut storage = backend.open(Path::new("0_0"), &OpenOptions::default()).unwrap();
    let space = storage.space("versions").unwrap();
    Overlay::new("versions", space, storage.reader(), OverlayOptions::default())
}

/// What an original store says of these updates, found by its own rules without any layout: all
/// versions of a key in one map.
#[derive(Default)]
struct Model {
    stream_time: i64,
    keys: BTreeMap<u8, BTreeMap<i64, Option<u8>>>,
}

impl Model {
    fn put(&mut self, history: i64, key: u8, value: Option<u8>, time: i64) -> VersionedPut {
        if time < self.stream_time - history {
            return VersionedPut::NotPut;
        }
        self.stream_time = self.stream_time.max(time);
        let versions = self.keys.entry(key).or_default();
        versions.insert(time, value);
        match versions.range(time + 1..).next() {
            Some((&next, _)) => VersionedPut::ValidTo(next),
            None => VersionedPut::Latest,
        }
    }

    /// The original may forget a deletion in the place of a latest value: see
    /// `a_deletion_in_the_place_of_an_only_version_leaves_no_trace`.
    fn may_be_forgotten(&self, key: u8, value: Option<u8>, time: i64) -> bool {
        let latest = self.keys.get(&key).and_then(BTreeMap::last_key_value);
        value.is_none() && latest.is_some_and(|(&latest, _)| latest == time)
    }

    fn as_of(&self, history: i64, key: u8, time: i64) -> Option<(u8, i64)> {
        let versions = self.keys.get(&key)?;
        let (&from, value) = versions.range(..=time).next_back()?;
        let is_latest = versions.range(time + 1..).next().is_none();
        if time < self.stream_time - history && !is_latest {
            return None;
        }
        value.map(|value| (value, from))
    }
}

proptest! {
    /// Whatever the order of the updates: each key has at every time of the history what a map of
    /// all its versions says; before and after a commit, and once more after all of it was done again.
    #[test]
    fn a_history_is_what_a_map_of_versions_says(
        history in 0_i64..60,
        interval in 1_i64..30,
        updates in proptest::collection::vec((0_u8..3, proptest::option::of(0_u8..9), 0_i64..80), 1..60),
        commit_after in 0_usize..60,
    ) {
        let backend = MemoryBackend::new();
        let mut storage = backend.open(Path::new("0_0"), &OpenOptions::default()).unwrap();
        let space = storage.space("versions").unwrap();
        let options = VersionedOptions::new(history, Some(interval));
        let mut store: Overlay =
            Overlay::new("versions", space, storage.reader(), OverlayOptions::default());
        let mut layout = VersionedLayout::new(options);
        let mut model = Model { stream_time: -1, ..Model::default() };
        let mut done = Vec::new();
        for (at, &(key, value, time)) in updates.iter().enumerate() {
            if model.may_be_forgotten(key, value, time) {
                continue;
            }
            done.push((key, value, time));
            let value = value.map(|value| [value]);
            let found = layout.put(&mut store, &[key], value.as_ref().map(<[u8; 1]>::as_slice), time);
            let expected = model.put(history, key, value.map(|[value]| value), time);
            prop_assert_eq!(found.unwrap() == VersionedPut::NotPut, expected == VersionedPut::NotPut);
            if at == commit_after {
                let mut batch = WriteBatch::new();
                store.seal(&mut batch).unwrap();
                storage.apply(batch.sort(), &[]).unwrap();
                store.release();
                // What is known of the store comes back from it.
                layout = VersionedLayout::new(options);
            }
        }
        check(&mut layout, &mut store, &model, history)?;
        for (key, value, time) in done {
            let value = value.map(|value| [value]);
            layout.put(&mut store, &[key], value.as_ref().map(<[u8; 1]>::as_slice), time).unwrap();
        }
    }
}

fn check(
    layout: &mut VersionedLayout,
    store: &mut Overlay,
    model: &Model,
    history: i64,
) -> Result<(), TestCaseError> {
    for key in 0..3 {
        for time in 0..90 {
            let found = layout.get_as_of(store, &[key], time).unwrap();
            let found = found.map(|version| (version.value[0], version.timestamp));
            let expected = model.as_of(history, key, time);
            prop_assert_eq!(found, expected, "key {} at {}", key, time);
        }
        let latest = layout.get(store, &[key]).unwrap();
        let latest = latest.map(|version| (version.value[0], version.timestamp));
        prop_assert_eq!(latest, model.as_of(history, key, 1_000));
    }
    Ok(())
}
