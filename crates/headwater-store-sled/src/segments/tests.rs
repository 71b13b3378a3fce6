use headwater_store::one_tree::DirectoryLock;
use headwater_store::{OpenOptions, StoreBackend as _};

use super::*;
use crate::SledBackend;

const SPACE: SpaceId = keys::with_segments(1);

fn key(segment: u64) -> [u8; 8] {
    segment.to_be_bytes()
}

fn write(segments: &Segments, database: &Database, numbers: &[u64]) {
    let keys: Vec<_> = numbers.iter().map(|&number| key(number)).collect();
    let writes = keys.iter().map(|key| BatchWrite { space: SPACE, key, value: Some(b"x") });
    segments.write(database, SPACE, &AtomicU64::new(0), writes).expect("it is written");
}

fn has_tree(database: &Database, number: u64) -> bool {
    let names = database.db("list", |db| Ok(db.tree_names())).expect("they are listed");
    names.iter().any(|name| segment_of(name) == Some((SPACE, number)))
}

#[test]
fn a_segment_goes_when_nobody_reads_it_any_more() {
    let home = tempfile::tempdir().unwrap();
    let lock = DirectoryLock::take(home.path(), "lock").unwrap();
    let database = Database::open(home.path(), home.path().join("sled"), 0, lock).unwrap();
    let segments = Segments::default();
    write(&segments, &database, &[1, 2, 3]);
    let read = segments.find((SPACE, 1)).unwrap();
    assert_eq!(segments.drop_range(&database, SPACE, 0..3).unwrap(), 2);
    assert_eq!([1, 2, 3].map(|number| has_tree(&database, number)), [true, false, true]);
    assert!(read.tree.get(key(1)).unwrap().is_some(), "it can still be read");
    assert_eq!(segments.get(&database, SPACE, &key(1)).unwrap(), None);

    drop(read);
    assert_eq!(segments.drop_range(&database, SPACE, 3..4).unwrap(), 1);
    assert_eq!([1, 2, 3].map(|number| has_tree(&database, number)), [false; 3]);
}

#[test]
fn a_segment_that_is_made_anew_under_a_reader_of_the_old_one_is_empty() {
    let home = tempfile::tempdir().unwrap();
    let lock = DirectoryLock::take(home.path(), "lock").unwrap();
    let database = Database::open(home.path(), home.path().join("sled"), 0, lock).unwrap();
    let segments = Segments::default();
    let old = [key(1).as_slice(), b"old"].concat();
    let first = BatchWrite { space: SPACE, key: &old, value: Some(b"x") };
    segments.write(&database, SPACE, &AtomicU64::new(0), [first].into_iter()).unwrap();
    let read = segments.find((SPACE, 1)).unwrap();
    segments.drop_range(&database, SPACE, 1..2).unwrap();
    write(&segments, &database, &[1]);
    assert_eq!(segments.get(&database, SPACE, &old).unwrap(), None);
    assert!(segments.get(&database, SPACE, &key(1)).unwrap().is_some());
    drop(read);
    segments.drop_range(&database, SPACE, 5..6).unwrap();
    assert!(segments.get(&database, SPACE, &key(1)).unwrap().is_some(), "the new one stays");
}

/// A reader that has a segment when the storage is closed keeps its tree, not its entries.
#[test]
fn a_segment_that_was_read_at_the_end_is_not_back_at_the_next_opening() {
    let home = tempfile::tempdir().unwrap();
    let mut storage = SledBackend::new().open(home.path(), &OpenOptions::default()).unwrap();
    let space = storage.segmented_space("windows").unwrap();
    storage.close().unwrap();
    {
        let lock = DirectoryLock::take(home.path(), "sled.lock").unwrap();
        let database = Database::open(home.path(), home.path().join("sled"), 0, lock).unwrap();
        write(&database.segments, &database, &[1, 2]);
        let read = database.segments.find((SPACE, 1)).unwrap();
        assert_eq!(database.segments.drop_range(&database, SPACE, 1..2).unwrap(), 1);
        database.sync(&mut std::collections::BTreeSet::new()).unwrap();
        drop(read);
    }
    let storage = SledBackend::new().open(home.path(), &OpenOptions::default()).unwrap();
    let (reader, mut value) = (storage.reader(), Vec::new());
    assert_eq!(space, SPACE);
    assert!(!reader.get(space, &key(1), &mut value).unwrap());
    assert!(reader.get(space, &key(2), &mut value).unwrap());
    assert_eq!(reader.approximate_entries(space).unwrap(), 1);
}
