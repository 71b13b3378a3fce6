//! Opening a task's directory.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_store::{Capabilities, Damage, OpenOptions, StoreBackend, StoreError, TaskStorage};

use crate::database::{Database, LockedFile, sync_file};
use crate::keys;
use crate::storage::SledStorage;

pub(crate) const NAME: &str = "sled";

/// Version of the layout in [`keys`].
const FORMAT_VERSION: u32 = 1;

/// Held exclusively while the storage is open.
const LOCK_FILE: &str = "sled.lock";
/// There once a database was made: without it, a directory without data is a new one.
const MARKER_FILE: &str = "sled.made";
/// sled's own directory.
const SLED_DIR: &str = "sled";

/// Keeps a task's state on disk, in sled. See the [crate's documentation](crate).
#[derive(Clone, Copy, Debug, Default)]
pub struct SledBackend;

impl SledBackend {
    /// The backend; all it needs to know comes with each opening.
    pub const fn new() -> Self {
        Self
    }
}

impl StoreBackend for SledBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { persistent: true, atomic: false }
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn TaskStorage>, StoreError> {
        io(dir, "create", fs::create_dir_all)?;
        let lock = lock(dir)?;
        let database = Database::open(dir, dir.join(SLED_DIR), options.cache_bytes, lock)?;
        check_format(&database, &dir.join(MARKER_FILE))?;
        Ok(Box::new(SledStorage::new(Arc::new(database))?))
    }
}

/// Takes the directory's lock.
fn lock(dir: &Path) -> Result<LockedFile, StoreError> {
    let file = io(&dir.join(LOCK_FILE), "open", |path| {
        File::options().create(true).truncate(false).write(true).open(path)
    })?;
    match file.try_lock() {
        Ok(()) => Ok(LockedFile(file)),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => {
            Err(StoreError::Io { operation: "lock", path: dir.join(LOCK_FILE), source })
        }
    }
}

/// Writes the format version into a new database and holds that of an old one against ours.
fn check_format(database: &Database, marker: &Path) -> Result<(), StoreError> {
    let supported = FORMAT_VERSION;
    let stored = database.tree("read the format version", |tree| tree.get(keys::FORMAT))?;
    let found = match stored.as_deref() {
        Some(bytes) => <[u8; 4]>::try_from(bytes).map_or(u32::MAX, u32::from_be_bytes),
        None if marker.exists() => 0,
        None => {
            let version = supported.to_be_bytes();
            database
                .tree("write the format version", |tree| tree.insert(keys::FORMAT, &version))?;
            database.sync(&mut BTreeSet::new())?;
            io(marker, "create", |path| fs::write(path, NAME))?;
            sync_file(database.dir())?;
            supported
        }
    };
    if found == supported {
        Ok(())
    } else {
        Err(StoreError::damaged(database.dir(), Damage::FormatVersion { found, supported }))
    }
}

fn io<T>(
    path: &Path,
    operation: &'static str,
    f: impl FnOnce(PathBuf) -> std::io::Result<T>,
) -> Result<T, StoreError> {
    f(path.to_owned()).map_err(|source| StoreError::Io { operation, path: path.to_owned(), source })
}
