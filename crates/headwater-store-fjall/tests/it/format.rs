//! What the backend makes of files that it did not write as they are, and of what it cannot hold.

use std::path::Path;

use headwater_store::{
    Chunk, Damage, Direction, KeyRange, OpenOptions, SpaceId, StoreBackend, StoreError,
    TaskStorage, WriteBatch,
};
use headwater_store_fjall::FjallBackend;
use lsm_tree::{AbstractTree as _, AnyTree, Config, SeqNo};

fn open(dir: &Path) -> Result<Box<dyn TaskStorage>, StoreError> {
    FjallBackend::new().open(dir, &OpenOptions::default())
}

/// Works on the tree itself; what `change` writes is newer than all that is there.
fn raw(dir: &Path, change: impl FnOnce(&AnyTree, SeqNo)) {
    let config = Config::new(
        dir.join("fjall"),
        lsm_tree::SequenceNumberCounter::default(),
        lsm_tree::SequenceNumberCounter::default(),
    );
    let tree = config.open().expect("nobody has it open");
    change(&tree, 1_000_000);
    tree.flush_active_memtable(0).expect("it can be flushed");
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
    raw(home.path(), |tree, seqno| {
        tree.insert([0, 0, b'f'], 7_u32.to_be_bytes(), seqno);
    });
    let error = open(home.path()).unwrap_err();
    let StoreError::Damaged { damage: Damage::FormatVersion { found, supported }, .. } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!((found, supported), (7, 1));
}

#[test]
fn a_tree_that_lost_everything_is_not_a_new_one() {
    let home = tempfile::tempdir().unwrap();
    open(home.path()).unwrap().close().unwrap();
    std::fs::remove_dir_all(home.path().join("fjall")).unwrap();
    let error = open(home.path()).unwrap_err();
    assert!(error.is_damage(), "{error:?}");
}

#[test]
fn a_table_that_is_gone_is_damage() {
    let home = tempfile::tempdir().unwrap();
    let mut storage = open(home.path()).unwrap();
    let space = storage.space("counts").unwrap();
    put(&mut *storage, space, 300);
    storage.close().unwrap();
    for table in std::fs::read_dir(home.path().join("fjall/tables")).unwrap() {
        std::fs::remove_file(table.unwrap().path()).unwrap();
    }
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
    raw(home.path(), |tree, seqno| {
        tree.remove([&[0, 0, b's'], &b"old"[..]].concat(), seqno);
    });
    let mut storage = open(home.path()).unwrap();
    assert_eq!(storage.spaces().unwrap(), []);
    let again = storage.space("old").unwrap();
    assert_ne!(again, space);
    storage.close().unwrap();
    raw(home.path(), |tree, _| {
        let mut left = tree.prefix(space.get().to_be_bytes(), SeqNo::MAX, None);
        assert!(left.next().is_none());
    });
}

#[test]
fn a_drop_of_segments_that_was_cut_short_is_finished_by_the_next_opening() {
    let home = tempfile::tempdir().unwrap();
    let mut storage = open(home.path()).unwrap();
    let space = storage.segmented_space("windows").unwrap();
    put(&mut *storage, space, 300);
    storage.close().unwrap();
    let segment = |key: u64| key << 48;
    let word = [&[0, 0, b'd'][..], &space.get().to_be_bytes(), &segment(50).to_be_bytes()].concat();
    let count = [&[0, 0, b'n'][..], &space.get().to_be_bytes()].concat();
    // As a commit leaves it that drops 100 segments and is killed when 10 keys are deleted.
    raw(home.path(), |tree, seqno| {
        tree.insert(word.as_slice(), segment(150).to_be_bytes(), seqno);
        for key in 50..60_u16 {
            tree.remove([space.get().to_be_bytes(), key.to_be_bytes()].concat(), seqno + 1);
        }
        tree.insert(count.as_slice(), 290_u64.to_be_bytes(), seqno + 1);
    });
    let storage = open(home.path()).unwrap();
    let reader = storage.reader();
    assert_eq!(reader.approximate_entries(space).unwrap(), 200);
    let mut chunk = Chunk::new(1000);
    reader.scan(space, &KeyRange::all(), Direction::Forward, &mut chunk).unwrap();
    let left: Vec<_> = chunk.iter().map(|(key, _)| [key[0], key[1]]).collect();
    let expected: Vec<_> = (0..50_u16).chain(150..300).map(u16::to_be_bytes).collect();
    assert_eq!(left, expected);
    drop(reader);
    storage.close().unwrap();
    raw(home.path(), |tree, _| {
        assert!(tree.get(word.as_slice(), SeqNo::MAX).unwrap().is_none());
    });
}

#[test]
fn word_of_a_drop_that_makes_no_sense_is_damage() {
    let home = tempfile::tempdir().unwrap();
    open(home.path()).unwrap().close().unwrap();
    raw(home.path(), |tree, seqno| {
        tree.insert([0, 0, b'd', 0], [0; 8], seqno);
    });
    let error = open(home.path()).unwrap_err();
    assert!(error.is_damage(), "{error:?}");
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
    let mut chunk = Chunk::new(1000);
    reader.scan(space, &KeyRange::all(), Direction::Reverse, &mut chunk).unwrap();
    assert_eq!(chunk.len(), 310);
}

#[test]
fn a_key_that_fits_no_table_is_refused_and_nothing_of_its_commit_is_written() {
    const LONGEST: usize = 65_533;
    let home = tempfile::tempdir().unwrap();
    let mut storage = open(home.path()).unwrap();
    let space = storage.space("counts").unwrap();
    let (longest, longer) = (vec![1; LONGEST], vec![1; LONGEST + 1]);
    let mut batch = WriteBatch::new();
    batch.push(space, &longest, Some(b"fits"));
    storage.apply(batch.sort(), &[]).unwrap();
    batch.clear();
    batch.push(space, b"short", Some(b"fits"));
    batch.push(space, &longer, Some(b"does not"));
    let error = storage.apply(batch.sort(), &[]).unwrap_err();
    let StoreError::Backend { backend: "fjall", source, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(
        source.to_string(),
        "the key has 65534 bytes, fjall holds keys of up to 65533 bytes; keep stores with longer \
         keys in another backend"
    );
    let (reader, mut value) = (storage.reader(), Vec::new());
    assert!(reader.get(space, &longest, &mut value).unwrap());
    assert!(!reader.get(space, b"short", &mut value).unwrap());
    assert!(!reader.get(space, &longer, &mut value).unwrap());
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

#[cfg(unix)]
#[test]
fn only_its_user_can_look_into_a_new_directory() {
    use std::os::unix::fs::PermissionsExt as _;

    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("0_0");
    open(&dir).unwrap().close().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&dir.join("fjall.lock"))), (0o700, 0o600));
}
