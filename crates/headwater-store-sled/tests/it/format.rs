//! What the backend makes of files that it did not write as they are.

use std::path::Path;

use headwater_store::{
    Damage, Direction, KeyRange, OpenOptions, SpaceId, StoreBackend, StoreError, TaskStorage,
    WriteBatch,
};
use headwater_store_sled::SledBackend;

fn open(dir: &Path) -> Result<Box<dyn TaskStorage>, StoreError> {
    SledBackend::new().open(dir, &OpenOptions::default())
}

/// Works on the database itself.
fn raw(dir: &Path, change: impl FnOnce(&sled::Db)) {
    let db = sled::open(dir.join("sled")).expect("nobody has it open");
    change(&db);
    db.flush().expect("it can be flushed");
    drop(db);
    // Threads of sled hold the file for a moment longer.
    let file = std::fs::File::open(dir.join("sled/db")).expect("sled made it");
    file.lock().expect("sled lets go of it");
}

fn put(storage: &mut dyn TaskStorage, space: SpaceId, keys: u16) {
    let mut batch = WriteBatch::new();
    for key in 0..keys {
        batch.push(space, &key.to_be_bytes(), Some(b"value"));
    }
    storage.apply(batch.sort(), &[]).expect("the writes are applied");
}

#[test]
fn an_unknown_format_version_is_refused() {
    let home = tempfile::tempdir().unwrap();
    open(home.path()).unwrap().close().unwrap();
    raw(home.path(), |db| {
        db.insert([0, 0, b'f'], &7_u32.to_be_bytes()).unwrap();
    });
    let error = open(home.path()).unwrap_err();
    let StoreError::Damaged { damage: Damage::FormatVersion { found, supported }, .. } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!((found, supported), (7, 2));
}

#[test]
fn a_database_that_lost_everything_is_not_a_new_one() {
    let home = tempfile::tempdir().unwrap();
    open(home.path()).unwrap().close().unwrap();
    std::fs::remove_dir_all(home.path().join("sled")).unwrap();
    let error = open(home.path()).unwrap_err();
    assert!(error.is_damage(), "{error:?}");
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    std::fs::write(&file, b"in the way").unwrap();
    let error = open(&file.join("0_0")).unwrap_err();
    assert!(matches!(&error, StoreError::Io { operation: "create", .. }), "{error:?}");
}

#[test]
fn a_drop_that_was_cut_short_is_finished_by_the_next_opening() {
    let home = tempfile::tempdir().unwrap();
    let mut storage = open(home.path()).unwrap();
    let space = storage.space("old").unwrap();
    put(&mut *storage, space, 300);
    storage.close().unwrap();
    // As `drop_space` leaves it when it is killed after its first write.
    raw(home.path(), |db| {
        db.remove([&[0, 0, b's'], &b"old"[..]].concat()).unwrap().expect("the store's name");
    });
    let mut storage = open(home.path()).unwrap();
    assert_eq!(storage.spaces().unwrap(), []);
    let again = storage.space("old").unwrap();
    assert_ne!(again, space);
    storage.close().unwrap();
    raw(home.path(), |db| {
        assert_eq!(db.scan_prefix(space.get().to_be_bytes()).count(), 0);
    });
}

#[test]
fn the_number_of_entries_outlives_a_close() {
    let home = tempfile::tempdir().unwrap();
    let mut storage = open(home.path()).unwrap();
    let space = storage.space("counts").unwrap();
    put(&mut *storage, space, 300);
    put(&mut *storage, space, 310);
    storage.close().unwrap();
    let storage = open(home.path()).unwrap();
    let reader = storage.reader();
    assert_eq!(reader.approximate_entries(space).unwrap(), 310);
    let mut chunk = headwater_store::Chunk::new(1000);
    reader.scan(space, &KeyRange::all(), Direction::Reverse, &mut chunk).unwrap();
    assert_eq!(chunk.len(), 310);
}

/// A kill between the number of a segment and that of its store.
#[test]
fn the_number_of_entries_of_a_store_is_that_of_its_segments() {
    let home = tempfile::tempdir().unwrap();
    let mut storage = open(home.path()).unwrap();
    let space = storage.segmented_space("windows").unwrap();
    put(&mut *storage, space, 30);
    storage.close().unwrap();
    raw(home.path(), |db| {
        let count = [&[0, 0, b'n'][..], &space.get().to_be_bytes()].concat();
        db.insert(count, &10_u64.to_be_bytes()).unwrap().expect("the store's number");
    });
    let mut storage = open(home.path()).unwrap();
    let reader = storage.reader();
    assert_eq!(reader.approximate_entries(space).unwrap(), 30);
    let mut batch = WriteBatch::new();
    batch.drop_segments(space, 0..20 << 48);
    storage.apply(batch.sort(), &[]).unwrap();
    assert_eq!(reader.approximate_entries(space).unwrap(), 10);
}

/// A kill between the entries and their number leaves a number that is too low, never one without bounds.
#[test]
fn a_number_of_entries_that_is_too_low_does_not_fall_below_none() {
    let home = tempfile::tempdir().unwrap();
    for (name, prefix) in [("plain", &[0, 0, b'n'][..]), ("windows", &[0, 0, b'c'])] {
        let mut storage = open(home.path()).unwrap();
        let space = match name {
            "plain" => storage.space(name).unwrap(),
            _ => storage.segmented_space(name).unwrap(),
        };
        let keys = [0, 1, 2].map(|number| [0, 0, 0, 0, 0, 0, 0, 0, number]);
        let mut batch = WriteBatch::new();
        for key in &keys {
            batch.push(space, key, Some(b"value"));
        }
        storage.apply(batch.sort(), &[]).unwrap();
        storage.close().unwrap();
        raw(home.path(), |db| {
            let prefix = [prefix, &space.get().to_be_bytes()].concat();
            let (count, _) = db.scan_prefix(prefix).next().unwrap().unwrap();
            db.insert(count, &1_u64.to_be_bytes()).unwrap();
        });
        let mut storage = open(home.path()).unwrap();
        let mut batch = WriteBatch::new();
        for key in &keys {
            batch.push(space, key, None);
        }
        storage.apply(batch.sort(), &[]).unwrap();
        assert_eq!(storage.reader().approximate_entries(space).unwrap(), 0, "{name}");
        storage.close().unwrap();
    }
}

#[test]
fn a_database_that_somebody_else_works_on_is_locked_not_damaged() {
    let home = tempfile::tempdir().unwrap();
    open(home.path()).unwrap().close().unwrap();
    let elsewhere = sled::open(home.path().join("sled")).unwrap();
    let error = open(home.path()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error:?}");
    drop(elsewhere);
}

#[test]
fn a_directory_can_be_opened_again_as_soon_as_it_is_closed() {
    let home = tempfile::tempdir().unwrap();
    for round in 0..60 {
        let mut storage = open(home.path()).unwrap();
        let space = storage.space("counts").unwrap();
        put(&mut *storage, space, 50);
        if round % 2 == 0 {
            storage.close().unwrap();
        }
    }
}
