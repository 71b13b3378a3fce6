//! The open database: sled itself behind a border where its errors and panics become ours.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use headwater_store::one_tree::{DirectoryLock, LockedFile, guarded, sync_path};
use headwater_store::{Damage, StoreError};

use crate::segments::Segments;

/// sled's file inside its directory.
const LOG_FILE: &str = "db";
/// sled's directory for large values.
const BLOBS_DIR: &str = "blobs";

/// sled refuses to work with next to none.
const MIN_CACHE_BYTES: u64 = 64 * 1024;

/// One sled database.
#[derive(Debug)]
pub(crate) struct Database {
    /// Directory of the task, for errors.
    dir: PathBuf,
    /// Directory of sled.
    path: PathBuf,
    /// Segments of its stores.
    pub(crate) segments: Segments,
    db: sled::Db,
    // Fields are dropped in order: first the trees and the database, then the wait until sled has let go of its
    // file, then the directory's lock. So our own lock is all that a second opening meets.
    _wait: WaitForSled,
    _lock: DirectoryLock,
}

/// Waits, when it is dropped, until no thread of sled's pool has the database's file any more: some
/// still hold it for a moment after the database was dropped.
#[derive(Debug)]
struct WaitForSled {
    log: PathBuf,
}

impl Drop for WaitForSled {
    fn drop(&mut self) {
        // Without the file there is nothing to wait for, and the next opening reports why.
        drop(File::open(&self.log).and_then(|file| file.lock().and_then(|()| file.unlock())));
    }
}

impl Database {
    pub(crate) fn open(
        dir: &Path,
        path: PathBuf,
        cache_bytes: u64,
        lock: DirectoryLock,
    ) -> Result<Self, StoreError> {
        // Everything is flushed by `sync`. Without a period of its own sled starts no thread for
        // each database.
        let config = sled::Config::new()
            .path(&path)
            .cache_capacity(cache_bytes.max(MIN_CACHE_BYTES))
            .flush_every_ms(None)
            .mode(sled::Mode::LowSpace);
        refuse_if_held(dir, &path.join(LOG_FILE))?;
        let db = guard(dir, "open the database", || config.open())?;
        let wait = WaitForSled { log: path.join(LOG_FILE) };
        let segments = Segments::default();
        Ok(Self { dir: dir.to_owned(), path, segments, db, _wait: wait, _lock: lock })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Runs `f` on the tree that holds everything but segments.
    pub(crate) fn tree<T>(
        &self,
        operation: &'static str,
        f: impl FnOnce(&sled::Tree) -> sled::Result<T>,
    ) -> Result<T, StoreError> {
        guard(&self.dir, operation, || f(&self.db))
    }

    /// Runs `f` on all of sled, to make and drop trees.
    pub(crate) fn db<T>(
        &self,
        operation: &'static str,
        f: impl FnOnce(&sled::Db) -> sled::Result<T>,
    ) -> Result<T, StoreError> {
        guard(&self.dir, operation, || f(&self.db))
    }

    /// Hands sled's log to the operating system and makes sure that it reaches the disk. `synced`
    /// are the large values of which that is known.
    pub(crate) fn sync(&self, synced: &mut BTreeSet<OsString>) -> Result<(), StoreError> {
        guard(&self.dir, "flush", || self.db.flush())?;
        let blobs = self.path.join(BLOBS_DIR);
        let present = names_in(&blobs)?;
        let new = present.difference(synced).cloned().collect::<Vec<_>>();
        for name in &new {
            match sync_path(&blobs.join(name)) {
                // A value that was replaced meanwhile is no loss.
                Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        if !new.is_empty() {
            sync_path(&blobs)?;
        }
        *synced = present;
        sync_path(&self.path.join(LOG_FILE))
    }
}

/// Whether somebody works on the database without our lock, with a tool of sled's for instance.
fn refuse_if_held(dir: &Path, log: &Path) -> Result<(), StoreError> {
    let file = match File::open(log) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(StoreError::Io { operation: "open", path: log.to_owned(), source });
        }
    };
    match LockedFile::try_lock(file) {
        Ok(_unlocked_at_once) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => {
            Err(StoreError::Io { operation: "lock", path: log.to_owned(), source })
        }
    }
}

/// Calls into sled; its errors, and its panics, come back as ours.
fn guard<T>(
    dir: &Path,
    operation: &'static str,
    f: impl FnOnce() -> sled::Result<T>,
) -> Result<T, StoreError> {
    guarded(dir, f, |error| translate(dir, operation, error))
}

#[cold]
fn translate(dir: &Path, operation: &'static str, error: sled::Error) -> StoreError {
    match error {
        sled::Error::Io(source) if !is_damage(&source) => {
            StoreError::Io { operation, path: dir.to_owned(), source }
        }
        // We always open with the same options: what sled does not support is its own files.
        sled::Error::Io(_)
        | sled::Error::Unsupported(_)
        | sled::Error::Corruption { .. }
        | sled::Error::ReportableBug(_)
        | sled::Error::CollectionNotFound(_) => {
            StoreError::damaged(dir, Damage::Backend { source: error.into() })
        }
    }
}

/// Whether sled says by an I/O error what its files look like, not what the system refuses.
fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidData
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::NotFound
    )
}

fn names_in(dir: &Path) -> Result<BTreeSet<OsString>, StoreError> {
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    match entries {
        Ok(entries) => Ok(entries.into_iter().map(|entry| entry.file_name()).collect()),
        Err(source) => Err(StoreError::Io { operation: "list", path: dir.to_owned(), source }),
    }
}
