use std::path::Path;

use proptest::prelude::*;

use super::{QueriedKeys, SegmentedEntry, SegmentedQuery};
use crate::{
    CommittedSegments, Direction, MemoryBackend, OpenOptions, SegmentedKind, SegmentedOptions,
    StoreBackend, StreamTime, WriteBatch, push_session_key, push_window_key,
};

/// A key, and the start and end of its window.
type Entry = (Vec<u8>, i64, i64);

/// The entries that a query finds in a store that holds these.
fn found(
    options: SegmentedOptions,
    entries: &[Entry],
    query: SegmentedQuery,
    direction: Direction,
) -> Vec<Entry> {
    let mut storage = MemoryBackend::new()
        .open(Path::new("scan"), &OpenOptions::default())
        .expect("a storage in memory opens");
    let space = storage.space("windows").expect("there is room for a store");
    let mut batch = WriteBatch::new();
    let mut newest = -1;
    for (key, start, end) in entries {
        let (mut full, mut stored) = (Vec::new(), Vec::new());
        let time = match options.kind {
            SegmentedKind::Window => {
                push_window_key(key, *start, 0, &mut full);
                *start
            }
            SegmentedKind::Session => {
                push_session_key(key, *start, *end, &mut full);
                *end
            }
        };
        newest = newest.max(time);
        options.push_stored_key(time, &full, &mut stored);
        batch.push(space, &stored, Some(b"value"));
    }
    let meta = [StreamTime { ms: newest }.update_of_store("windows")];
    storage.apply(batch.sort(), &meta).expect("a storage in memory takes writes");
    let mut store = CommittedSegments::new("windows", space, storage.reader(), options)
        .expect("a storage in memory is read");
    let mut scan = store.scan(query, direction);
    let mut entry = SegmentedEntry::default();
    let mut found = Vec::new();
    while scan.next(&mut store, &mut entry).expect("a storage in memory is read") {
        let ((time, start), key) = super::times_and_key(options.kind, &entry.stored_key);
        let end = if options.kind == SegmentedKind::Session { time } else { 0 };
        found.push((key.to_owned(), start, end));
    }
    found
}

#[track_caller]
fn check(entries: &[(&str, i64)], query: (&str, i64, i64), expected: &[(&str, i64)]) {
    let owned = |entries: &[(&str, i64)]| -> Vec<Entry> {
        entries.iter().map(|(key, start)| (key.as_bytes().to_owned(), *start, 0)).collect()
    };
    let (key, from, to) = query;
    let query = SegmentedQuery { keys: QueriedKeys::One(key.into()), from, to };
    let options = SegmentedOptions::new(SegmentedKind::Window, 1_000_000);
    let found = found(options, &owned(entries), query, Direction::Forward);
    assert_eq!(found, owned(expected));
}

#[test]
fn a_key_is_not_mistaken_for_one_that_begins_with_it() {
    // The longer key with its start looks like the shorter one with another.
    let entries = [("a", 5), ("a\0", 5), ("a\0\0\0\0", 7), ("b", 5)];
    check(&entries, ("a", 0, 1 << 40), &[("a", 5)]);
    check(&entries, ("a\0", 0, 1 << 40), &[("a\0", 5)]);
}

#[test]
fn millions_of_empty_segments_cost_nothing() {
    let day = 86_400_000;
    let entries = [("a", 0), ("a", 20_000 * day), ("b", 20_000 * day)];
    let owned: Vec<Entry> =
        entries.iter().map(|(key, start)| (key.as_bytes().to_owned(), *start, 0)).collect();
    for direction in [Direction::Forward, Direction::Reverse] {
        let query = SegmentedQuery { keys: QueriedKeys::One(b"a".to_vec()), from: 0, to: i64::MAX };
        // Nothing is out of the retention, but segments are narrow.
        let options = SegmentedOptions::new(SegmentedKind::Window, 30_000 * day);
        let mut found = found(options, &owned, query, direction);
        if direction == Direction::Reverse {
            found.reverse();
        }
        assert_eq!(found, owned[..2]);
    }
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(
        prop_oneof![Just(0_u8), Just(1), Just(b'a'), Just(0x7f), Just(0xff)],
        0..4,
    )
}

fn entry() -> impl Strategy<Value = Entry> {
    (keys(), 0_i64..400_000, 0_i64..30_000).prop_map(|(key, start, length)| {
        // Some in the same segment, some at its edges.
        (key, start, start + length)
    })
}

proptest! {
    /// What a scan finds is what looking at every entry finds, in the documented order.
    #[test]
    fn a_scan_finds_what_looking_at_all_finds(
        entries in prop::collection::vec(entry(), 0..40),
        one in any::<bool>(),
        bounds in (prop::option::of(keys()), prop::option::of(keys())),
        times in (0_i64..400_000, 0_i64..400_000),
        session in any::<bool>(),
        reverse in any::<bool>(),
        by_time in any::<bool>(),
        retention in prop_oneof![Just(100_000_i64), Just(10), Just(1_000_000)],
    ) {
        let kind = if session { SegmentedKind::Session } else { SegmentedKind::Window };
        let options =
            SegmentedOptions { in_memory: by_time, ..SegmentedOptions::new(kind, retention) };
        let mut entries: Vec<Entry> = entries
            .into_iter()
            .map(|(key, start, end)| (key, start, if session { end } else { 0 }))
            .collect();
        entries.sort();
        entries.dedup();
        let keys = match (one, bounds) {
            (true, (Some(key), _)) => QueriedKeys::One(key),
            (_, (from, to)) => QueriedKeys::Between(from, to),
        };
        let query = SegmentedQuery { keys, from: times.0, to: times.1 };
        let direction = if reverse { Direction::Reverse } else { Direction::Forward };
        let time = |entry: &Entry| if session { entry.2 } else { entry.1 };
        let newest = entries.iter().map(time).max().unwrap_or(-1);
        let mut expected: Vec<Entry> = entries
            .iter()
            .filter(|it| time(it) >= query.from && it.1 <= query.to)
            .filter(|it| query.keys.contains(&it.0))
            .filter(|it| time(it) >= options.visible_from(newest))
            .cloned()
            .collect();
        let in_memory = by_time && !matches!(query.keys, QueriedKeys::One(_));
        expected.sort_by_key(|it| {
            let (key, start, end) = it;
            let stored = if session {
                [&key[..], &end.to_be_bytes(), &start.to_be_bytes()].concat()
            } else {
                [&key[..], &start.to_be_bytes()].concat()
            };
            if in_memory {
                (time(it), [&key[..], &start.to_be_bytes()].concat())
            } else {
                (options.segment(time(it)), stored)
            }
        });
        if reverse {
            expected.reverse();
        }
        prop_assert_eq!(found(options, &entries, query, direction), expected);
    }
}
