//! Damaged files: reported, or harmless.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Ledger, Place, open};
use crate::{Chunk, Direction, KeyRange, OpenOptions, StoreBackend, StoreError};

/// Commits in the storage that is damaged.
const COMMITS: u64 = 40;

/// A directory whose files were all overwritten with garbage, or cut short, is reported as damaged,
/// not taken for an empty one. Skipped for backends without files.
///
/// # Panics
/// When the backend breaks the rule, or panics itself.
pub fn garbage_is_reported(backend: &dyn StoreBackend) {
    type Damage = fn(&[u8]) -> Vec<u8>;
    let damages: [(&str, Damage); 3] = [
        ("overwritten", |bytes| vec![0xa5; bytes.len()]),
        ("zeroed", |bytes| vec![0; bytes.len()]),
        ("emptied", |_| Vec::new()),
    ];
    for (name, damage) in damages {
        let place = Place::new();
        let files = written(backend, &place.dir());
        if files.is_empty() {
            return;
        }
        for file in &files {
            let bytes = fs::read(file).expect("the file can be read");
            fs::write(file, damage(&bytes)).expect("the file can be written");
        }
        let outcome = read_everything(backend, &place.dir());
        assert!(
            matches!(outcome, Err(StoreError::Damaged { .. })),
            "all files {name}: found {outcome:?}"
        );
    }
}

/// One wrong byte anywhere is reported as damage, or the storage is still what it was at some commit,
/// as after a torn write. Skipped for backends without files.
///
/// # Panics
/// When the backend breaks the rule, or panics itself.
pub fn single_wrong_bytes_are_reported_or_harmless(backend: &dyn StoreBackend) {
    const PLACES: usize = 12;
    let place = Place::new();
    let files = written(backend, &place.dir());
    for file in &files {
        let bytes = fs::read(file).expect("the file can be read");
        let used = bytes.len() - bytes.iter().rev().take_while(|&&byte| byte == 0).count();
        for step in 0..PLACES.min(used) {
            let copy = Place::new();
            copy_dir(&place.dir(), &copy.dir());
            let at = used * step / PLACES.min(used);
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x10;
            let relative = file.strip_prefix(place.dir()).expect("a file of the directory");
            fs::write(copy.dir().join(relative), wrong).expect("the file can be written");
            let outcome = read_everything(backend, &copy.dir());
            assert!(
                matches!(outcome, Ok(()) | Err(StoreError::Damaged { .. })),
                "byte {at} of {} wrong: {outcome:?}",
                file.display()
            );
        }
    }
}

/// Writes a storage and closes it; all files it left.
fn written(backend: &dyn StoreBackend, dir: &Path) -> Vec<PathBuf> {
    let mut storage = open(backend, dir);
    let mut ledger = Ledger::default();
    for _ in 0..COMMITS {
        ledger.commit(&mut *storage);
    }
    storage.close().expect("the storage closes");
    let mut files = Vec::new();
    if dir.is_dir() {
        find_files(dir, &mut files);
    }
    files.sort();
    files
}

/// Opens the storage, reads all of it and checks that it makes sense.
fn read_everything(backend: &dyn StoreBackend, dir: &Path) -> Result<(), StoreError> {
    let mut storage = backend.open(dir, &OpenOptions::default())?;
    let reader = storage.reader();
    storage.meta_entries()?;
    let mut chunk = Chunk::new(1000);
    for (_, space) in storage.spaces()? {
        reader.scan(space, &KeyRange::all(), Direction::Forward, &mut chunk)?;
    }
    Ledger::check(&mut *storage, false);
    Ok(())
}

fn find_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("the directory can be read") {
        let path = entry.expect("the directory can be read").path();
        if path.is_dir() {
            find_files(&path, files);
        } else {
            files.push(path);
        }
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the directory can be made");
    for entry in fs::read_dir(from).expect("the directory can be read") {
        let path = entry.expect("the directory can be read").path();
        let target = to.join(path.file_name().expect("an entry has a name"));
        if path.is_dir() {
            copy_dir(&path, &target);
        } else {
            fs::copy(&path, &target).expect("the file can be copied");
        }
    }
}
