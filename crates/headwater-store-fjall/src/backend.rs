//! Opening a task's directory.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use headwater_store::one_tree::{DirectoryLock, keys, sync_path};
use headwater_store::{Capabilities, Damage, OpenOptions, StoreBackend, StoreError, TaskStorage};

use crate::database::Database;
use crate::storage::FjallStorage;

pub(crate) const NAME: &str = "fjall";

/// Version of the layout in [`keys`].
const FORMAT_VERSION: u32 = 1;

/// Held exclusively while the storage is open.
const LOCK_FILE: &str = "fjall.lock";
/// There once a database was made: without it, a directory without data is a new one.
const MARKER_FILE: &str = "fjall.made";
/// The tree's own directory.
const TREE_DIR: &str = "fjall";

/// Keeps a task's state on disk, in a tree of fjall's. See the [crate's documentation](crate).
#[derive(Clone, Copy, Debug, Default)]
pub struct FjallBackend;

impl FjallBackend {
    /// The backend; all it needs to know comes with each opening.
    pub const fn new() -> Self {
        Self
    }
}

impl StoreBackend for FjallBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { persistent: true, atomic: true }
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn TaskStorage>, StoreError> {
        let lock = DirectoryLock::take(dir, LOCK_FILE)?;
        let database = Database::open(dir, &dir.join(TREE_DIR), options.cache_bytes, lock)?;
        check_format(&database, &dir.join(MARKER_FILE))?;
        Ok(Box::new(FjallStorage::new(Arc::new(database))?))
    }
}

/// Writes the format version into a new database and holds that of an old one against ours.
fn check_format(database: &Database, marker: &Path) -> Result<(), StoreError> {
    let supported = FORMAT_VERSION;
    let stored = database.get("read the format version", keys::FORMAT)?;
    let found = match stored.as_deref() {
        Some(bytes) => <[u8; 4]>::try_from(bytes).map_or(u32::MAX, u32::from_be_bytes),
        None if marker.exists() => 0,
        None => {
            database.write("write the format version", |writes| {
                writes.put(keys::FORMAT, Some(&supported.to_be_bytes()));
            })?;
            database.flush()?;
            fs::write(marker, NAME).map_err(|source| StoreError::Io {
                operation: "create",
                path: marker.to_owned(),
                source,
            })?;
            sync_path(database.dir())?;
            supported
        }
    };
    if found == supported {
        Ok(())
    } else {
        Err(StoreError::damaged(database.dir(), Damage::FormatVersion { found, supported }))
    }
}
