//! One rule a function, each by example.

use std::ops::Bound;
use std::thread;

use super::{KeyWrite, Place, apply, get, open, scan, set_meta};
use crate::{
    Chunk, Direction, KeyRange, KeyValueBytes, MetaUpdate, OpenOptions, SpaceId, StoreBackend,
    StoreError, TaskStorage, WriteBatch,
};

/// Included, excluded and open ends, prefixes that end in FF, empty keys and values, both
/// directions, any size of chunk.
///
/// # Panics
/// When the backend breaks the rule.
pub fn ranges_have_exact_ends(backend: &dyn StoreBackend) {
    let place = Place::new();
    let mut storage = open(backend, &place.dir());
    let (before, space) = (storage.space("a").expect("room"), storage.space("b").expect("room"));
    let after = storage.space("c").expect("room");
    let keys: [&[u8]; 8] = [b"", b"\x00", b"a", b"a\x00", b"ab", b"b", b"\xff", b"\xff\xff"];
    let writes: Vec<_> = keys.iter().map(|&key| (key, Some(key))).collect();
    apply(&mut *storage, space, &writes, &[]);
    // Neighbours that a wrong end would let in.
    for neighbour in [before, after] {
        apply(&mut *storage, neighbour, &[(b"", Some(b"no")), (b"\xff\xff\xff", Some(b"no"))], &[]);
    }
    let reader = storage.reader();
    let check = |range: &KeyRange, expected: &[&[u8]]| {
        for chunk in [1, 2, 100] {
            let pair = |key: &&[u8]| -> KeyValueBytes { (key.to_vec(), key.to_vec()) };
            let mut expected: Vec<_> = expected.iter().map(pair).collect();
            let forward = scan(&reader, space, range.clone(), Direction::Forward, chunk);
            assert_eq!(forward, expected, "{range:?} forward");
            expected.reverse();
            let reverse = scan(&reader, space, range.clone(), Direction::Reverse, chunk);
            assert_eq!(reverse, expected, "{range:?} reverse");
        }
    };
    let included = |key: &[u8]| Bound::Included(key.to_vec());
    let excluded = |key: &[u8]| Bound::Excluded(key.to_vec());
    check(&KeyRange::all(), &keys);
    check(&KeyRange { start: included(b"a"), end: included(b"b") }, &keys[2..6]);
    check(&KeyRange { start: excluded(b"a"), end: excluded(b"b") }, &keys[3..5]);
    check(&KeyRange { start: Bound::Unbounded, end: excluded(b"a") }, &keys[..2]);
    check(&KeyRange { start: excluded(b"b"), end: Bound::Unbounded }, &keys[6..]);
    check(&KeyRange { start: included(b"aa"), end: included(b"aa") }, &[]);
    check(&KeyRange { start: included(b"b"), end: included(b"a") }, &[]);
    check(&KeyRange { start: excluded(b"a"), end: excluded(b"a") }, &[]);
    check(&KeyRange { start: Bound::Unbounded, end: excluded(b"") }, &[]);
    check(&KeyRange::prefix(b""), &keys);
    check(&KeyRange::prefix(b"a"), &keys[2..5]);
    check(&KeyRange::prefix(b"\xff"), &keys[6..]);
    check(&KeyRange::prefix(b"\xff\xff"), &keys[7..]);
    check(&KeyRange::prefix(b"c"), &[]);
    assert_eq!(get(&reader, space, b""), Some(Vec::new()), "an empty value is a value");
    assert_eq!(get(&reader, space, b"c"), None);
}

/// Stores do not see each other's keys, keep their ids over a reopening, and leave nothing behind
/// when they are dropped.
///
/// # Panics
/// When the backend breaks the rule.
pub fn spaces_are_apart(backend: &dyn StoreBackend) {
    let place = Place::new();
    let mut storage = open(backend, &place.dir());
    let names = ["counts", "sums", "\u{e4}"];
    let ids = names.map(|name| storage.space(name).expect("room"));
    assert!(ids.iter().all(|id| id.get() != 0), "space 0 is the meta space");
    assert_eq!(names.map(|name| storage.space(name).expect("room")), ids, "the same id each time");
    for (name, id) in names.iter().zip(ids) {
        apply(&mut *storage, id, &[(b"key", Some(name.as_bytes()))], &[]);
    }
    let unknown = SpaceId::new(4711);
    let mut batch = WriteBatch::new();
    batch.push(unknown, b"key", Some(b"value"));
    let refused = storage.apply(batch.sort(), &[]);
    assert!(
        matches!(refused, Err(StoreError::UnknownSpace { space }) if space == unknown),
        "a space that was never given out is refused, not {refused:?}"
    );
    let mut storage = if backend.capabilities().persistent {
        storage.close().expect("the storage closes");
        open(backend, &place.dir())
    } else {
        storage
    };
    storage.drop_space(ids[1]).expect("the space exists");
    assert_eq!(
        storage.spaces().expect("spaces are listed"),
        [(names[0].to_owned(), ids[0]), (names[2].to_owned(), ids[2])]
    );
    let reader = storage.reader();
    assert_eq!(get(&reader, ids[0], b"key"), Some(b"counts".to_vec()));
    assert_eq!(get(&reader, ids[2], b"key"), Some("\u{e4}".as_bytes().to_vec()));
    let mut value = Vec::new();
    let gone = reader.get(ids[1], b"key", &mut value);
    assert!(matches!(gone, Ok(false) | Err(StoreError::UnknownSpace { .. })), "{gone:?}");
    let again = storage.space(names[1]).expect("room");
    assert!(!ids.contains(&again), "the id of a dropped store is not used again");
    let all = scan(&storage.reader(), again, KeyRange::all(), Direction::Forward, 10);
    assert_eq!(all, [], "a store made anew is empty");
}

/// Segments go as a whole, with what the same batch writes to them, and nothing else goes: not what is near in order, not
/// other stores, and not segments that are made anew.
///
/// # Panics
/// When the backend breaks the rule.
pub fn segments_are_dropped_whole(backend: &dyn StoreBackend) {
    let place = Place::new();
    let mut storage = open(backend, &place.dir());
    let segmented = storage.segmented_space("windows").expect("room");
    let plain = storage.space("plain").expect("room");
    assert_eq!(storage.segmented_space("windows").expect("room"), segmented);
    let key = |segment: u64, key: &[u8]| [&segment.to_be_bytes()[..], key].concat();
    let segments = [0, 1, 255, 256, 1 << 63];
    let keys: Vec<_> =
        segments.iter().flat_map(|&segment| [key(segment, b""), key(segment, b"\xff")]).collect();
    for space in [segmented, plain] {
        let mut batch = WriteBatch::new();
        for key in &keys {
            batch.push(space, key, Some(b"value"));
        }
        storage.apply(batch.sort(), &[]).expect("the writes are applied");
    }
    let all = |storage: &dyn TaskStorage, space, direction| -> Vec<Vec<u8>> {
        let found = scan(&storage.reader(), space, KeyRange::all(), direction, 3);
        found.into_iter().map(|(key, _)| key).collect()
    };
    let check = |storage: &dyn TaskStorage, space, expected: &[Vec<u8>]| {
        assert_eq!(all(storage, space, Direction::Forward), expected);
        let reversed: Vec<_> = expected.iter().rev().cloned().collect();
        assert_eq!(all(storage, space, Direction::Reverse), reversed);
        let reader = storage.reader();
        assert_eq!(reader.approximate_entries(space).expect("counted"), expected.len() as u64);
        for key in &keys {
            let found = get(&reader, space, key).is_some();
            assert_eq!(found, expected.contains(key), "{key:?}");
        }
    };
    check(&*storage, segmented, &keys);
    for space in [segmented, plain] {
        let mut batch = WriteBatch::new();
        batch.push(space, &key(255, b"new"), Some(b"is dropped too"));
        batch.drop_segments(space, 1..256);
        batch.drop_segments(space, 7..7);
        storage.apply(batch.sort(), &[]).expect("the segments are dropped");
        let kept = [&keys[..2], &keys[6..]].concat();
        check(&*storage, space, &kept);
    }
    if backend.capabilities().persistent {
        storage.close().expect("the storage closes");
        storage = open(backend, &place.dir());
    }
    check(&*storage, segmented, &[&keys[..2], &keys[6..]].concat());
    apply(&mut *storage, segmented, &[(&keys[2], Some(b"again"))], &[]);
    check(&*storage, segmented, &[&keys[..3], &keys[6..]].concat());
    storage.drop_space(segmented).expect("the space exists");
    let again = storage.segmented_space("windows").expect("room");
    assert_ne!(again, segmented, "the id of a dropped store is not used again");
    check(&*storage, again, &[]);
    check(&*storage, plain, &[&keys[..2], &keys[6..]].concat());
    let unknown = SpaceId::new(4711);
    let mut batch = WriteBatch::new();
    batch.drop_segments(unknown, 0..1);
    let refused = storage.apply(batch.sort(), &[]);
    assert!(matches!(refused, Err(StoreError::UnknownSpace { space }) if space == unknown));
}

/// The meta space holds what was written, in order, and no store sees it.
///
/// # Panics
/// When the backend breaks the rule.
pub fn meta_is_apart_from_stores(backend: &dyn StoreBackend) {
    let place = Place::new();
    let mut storage = open(backend, &place.dir());
    let space = storage.space("counts").expect("room");
    assert_eq!(storage.meta(b"offset").expect("meta can be read"), None);
    let meta = [set_meta(b"offset", b"7"), set_meta(b"", b"empty key"), set_meta(b"time", b"")];
    apply(&mut *storage, space, &[], &meta);
    let removal = MetaUpdate { key: b"time".to_vec(), value: None };
    apply(&mut *storage, space, &[(b"offset", Some(b"data"))], &[set_meta(b"z", b"1"), removal]);
    assert_eq!(storage.meta(b"offset").expect("meta can be read"), Some(b"7".to_vec()));
    assert_eq!(storage.meta(b"time").expect("meta can be read"), None);
    let entries: [(&[u8], &[u8]); 3] = [(b"", b"empty key"), (b"offset", b"7"), (b"z", b"1")];
    let entries = entries.map(|(key, value)| (key.to_vec(), value.to_vec()));
    assert_eq!(storage.meta_entries().expect("meta can be read"), entries);
    let all = scan(&storage.reader(), space, KeyRange::all(), Direction::Forward, 10);
    assert_eq!(all, [(b"offset".to_vec(), b"data".to_vec())]);
}

/// A reader, also one made before, also on another thread, also while a batch is being applied, sees
/// whole values, and all of them once `apply` has returned.
///
/// # Panics
/// When the backend breaks the rule.
pub fn readers_see_every_applied_write(backend: &dyn StoreBackend) {
    const KEYS: u32 = 200;
    const ROUNDS: u8 = 20;
    let place = Place::new();
    let mut storage = open(backend, &place.dir());
    let space = storage.space("counts").expect("room");
    let reader = storage.reader();
    let elsewhere = storage.reader();
    let watching = thread::spawn(move || {
        let mut chunk = Chunk::new(50);
        let mut value = Vec::new();
        loop {
            let all = KeyRange::all();
            elsewhere.scan(space, &all, Direction::Forward, &mut chunk).expect("it can be read");
            for (_, value) in chunk.iter() {
                assert!(value.len() == 64 && value.iter().all(|byte| *byte == value[0]), "torn");
            }
            let last = (KEYS - 1).to_be_bytes();
            if elsewhere.get(space, &last, &mut value).expect("it can be read")
                && value[0] == ROUNDS
            {
                return;
            }
        }
    });
    for round in 1..=ROUNDS {
        let mut batch = WriteBatch::new();
        for key in 0..KEYS {
            batch.push(space, &key.to_be_bytes(), Some(&[round; 64]));
        }
        storage.apply(batch.sort(), &[]).expect("the writes are applied");
        for key in [0, KEYS / 2, KEYS - 1] {
            assert_eq!(get(&reader, space, &key.to_be_bytes()), Some(vec![round; 64]));
        }
    }
    watching.join().expect("the other thread saw whole values");
}

/// After a close everything is found again, large values too. A backend that is not persistent
/// starts empty.
///
/// # Panics
/// When the backend breaks the rule.
pub fn closing_keeps_everything(backend: &dyn StoreBackend) {
    let place = Place::new();
    let large = vec![0xa5; 3 << 20];
    let mut storage = open(backend, &place.dir());
    let space = storage.space("counts").expect("room");
    let writes: [KeyWrite<'_>; 3] =
        [(b"large", Some(&large)), (b"small", Some(b"1")), (b"deleted", Some(b"2"))];
    apply(&mut *storage, space, &writes, &[set_meta(b"offset", b"3")]);
    apply(&mut *storage, space, &[(b"deleted", None)], &[]);
    storage.close().expect("the storage closes");

    let mut storage = open(backend, &place.dir());
    if !backend.capabilities().persistent {
        assert_eq!(storage.spaces().expect("spaces are listed"), []);
        assert_eq!(storage.meta_entries().expect("meta can be read"), []);
        return;
    }
    assert_eq!(storage.space("counts").expect("room"), space);
    let reader = storage.reader();
    assert!(get(&reader, space, b"large") == Some(large), "the large value is as it was");
    assert_eq!(get(&reader, space, b"small"), Some(b"1".to_vec()));
    assert_eq!(get(&reader, space, b"deleted"), None);
    assert_eq!(storage.meta(b"offset").expect("meta can be read"), Some(b"3".to_vec()));
}

/// A persistent directory is open once at a time; a close or a drop frees it, at the latest when the
/// last reader is gone.
///
/// # Panics
/// When the backend breaks the rule.
pub fn second_opening_is_refused(backend: &dyn StoreBackend) {
    if !backend.capabilities().persistent {
        return;
    }
    let place = Place::new();
    let dir = place.dir();
    let refused = || {
        let second = backend.open(&dir, &OpenOptions::default());
        matches!(second, Err(StoreError::Locked { dir: named }) if named == dir)
    };
    let first = open(backend, &dir);
    assert!(refused(), "the directory is open already");
    assert!(refused(), "and a refused opening does not free it");
    first.close().expect("the storage closes");
    let mut second = open(backend, &dir);
    let windows = second.segmented_space("windows").expect("room");
    apply(&mut *second, windows, &[(b"in a segment", Some(b"1"))], &[]);
    let reader = second.reader();
    assert!(refused(), "the directory is open again");
    drop(second);
    let beside_reader = backend.open(&dir, &OpenOptions::default());
    assert!(
        matches!(beside_reader, Ok(_) | Err(StoreError::Locked { .. })),
        "a reader is no damage: {beside_reader:?}"
    );
    drop((beside_reader, reader));
    drop(open(backend, &dir));
}
