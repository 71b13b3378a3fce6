//! A task's directory, held by one storage.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::path::Path;

use crate::StoreError;

/// A task's directory that nobody else can open as long as this lives.
#[derive(Debug)]
pub struct DirectoryLock(#[expect(dead_code, reason = "unlocks when it is dropped")] LockedFile);

impl DirectoryLock {
    /// Makes the directory if need be, for this user only, and locks the file `name` in it.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when somebody else has it, [`StoreError::Io`] for everything else.
    pub fn take(dir: &Path, name: &str) -> Result<Self, StoreError> {
        let failed = |operation, path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| StoreError::Io { operation, path, source }
        };
        let (mut directory, mut options) = (DirBuilder::new(), File::options());
        directory.recursive(true);
        options.create(true).truncate(false).write(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
            directory.mode(0o700);
            options.mode(0o600);
        }
        directory.create(dir).map_err(failed("create", dir))?;
        let path = dir.join(name);
        let file = options.open(&path);
        match LockedFile::try_lock(file.map_err(failed("open", &path))?) {
            Ok(file) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked { dir: dir.to_owned() }),
            Err(TryLockError::Error(source)) => Err(failed("lock", &path)(source)),
        }
    }
}

/// A file that is locked until this is dropped.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Locks the file, unless somebody else has.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn try_lock(file: File) -> Result<Self, TryLockError> {
        file.try_lock()?;
        Ok(Self(file))
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread is just starting has it
        // too, until it runs its program. If this fails, closing is all that can be done.
        drop(self.0.unlock());
    }
}

/// Syncs a file or the entries of a directory.
///
/// # Errors
/// [`StoreError::Io`] with what the operating system answers.
pub fn sync_path(path: &Path) -> Result<(), StoreError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|source| StoreError::Io {
        operation: "sync",
        path: path.to_owned(),
        source,
    })
}
