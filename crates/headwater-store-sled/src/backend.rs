//! Opening a task's directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use headwater_store::one_tree::{DirectoryLock, keys, sync_path};
use headwater_store::{Capabilities, Damage, OpenOptions, StoreBackend, StoreError, TaskStorage};

use crate::database::Database;
use crate::storage::SledStorage;

pub(crate) const NAME: &str = "sled";

/// Version of the layout in [`keys`].
const FORMAT_VERSION: u32 = 2;

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
        let lock = DirectoryLock::take(dir, LOCK_FILE)?;
        let database = Database::open(dir, dir.join(SLED_DIR), options.cache_bytes, lock)?;
        check_format(&database, &dir.join(MARKER_FILE))?;
        Ok(Box::new(SledStorage::new(Arc::new(database))?))
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
