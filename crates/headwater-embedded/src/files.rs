//! The file system as a broker in a directory uses it: a port, so that a simulation can say what a crash
//! leaves behind.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened. All can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenMode {
    /// It must be there, and is not written.
    Read,
    /// It is written, and made if it is not there.
    Write,
    /// It is written, and empty at first.
    Anew,
}

/// The file system as a broker in a directory uses it; the operating system's unless
/// [`EmbeddedOptions::files`](crate::EmbeddedOptions::files) says otherwise.
///
/// What a broker relies on, as on a POSIX file system:
///
/// - What was written outlives the process, not a loss of power. What was written before
///   [`StoredFile::sync`] returned outlives both.
/// - A file that was made, renamed or removed is so after a loss of power too once its directory was
///   [synced](Self::sync_directory). A rename is whole or not at all.
/// - A write that a crash interrupts may have arrived in part.
///
/// Errors are those that [`std::fs`] gives for the same.
pub trait Files: fmt::Debug + Send + Sync + 'static {
    /// Makes a directory with all above it, for this user only; fine when they are there.
    ///
    /// # Errors
    /// As [`fs::create_dir_all`].
    fn create_directories(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, in any order.
    ///
    /// # Errors
    /// As [`fs::read_dir`].
    fn names_in(&self, path: &Path) -> io::Result<Vec<OsString>>;

    /// Whether there is such a file or directory.
    fn exists(&self, path: &Path) -> bool;

    /// Opens a file.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StoredFile>>;

    /// Puts a file in the place of another one, or where there was none.
    ///
    /// # Errors
    /// As [`fs::rename`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Who has it open goes on with it.
    ///
    /// # Errors
    /// As [`fs::remove_file`].
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`fs::remove_dir`].
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and what is in it.
    ///
    /// # Errors
    /// As [`fs::remove_dir_all`].
    fn remove_directory_all(&self, path: &Path) -> io::Result<()>;

    /// Makes sure that names in this directory outlive a loss of power.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Takes a file, which is made if it is not there, for this process alone until what is given is
    /// dropped; `None` when another process has it.
    ///
    /// # Errors
    /// As [`File::try_lock`].
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockedFile>>>;
}

/// A file that is open.
pub trait StoredFile: fmt::Debug + Send + Sync + 'static {
    /// Its length in bytes.
    ///
    /// # Errors
    /// As [`File::metadata`].
    fn length(&self) -> io::Result<u64>;

    /// Fills the buffer from a position on.
    ///
    /// # Errors
    /// As [`FileExt::read_exact_at`].
    fn read_exact_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()>;

    /// Writes all of it at a position.
    ///
    /// # Errors
    /// As [`FileExt::write_all_at`]; a part may have been written.
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;

    /// Cuts it off, or fills it up with zeros, to this length.
    ///
    /// # Errors
    /// As [`File::set_len`].
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Makes sure that what was written outlives a loss of power.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    fn sync(&self) -> io::Result<()>;
}

/// A file that this process alone has, until this is dropped.
pub trait LockedFile: fmt::Debug + Send + Sync + 'static {}

/// The operating system's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemFiles;

impl Files for SystemFiles {
    fn create_directories(&self, path: &Path) -> io::Result<()> {
        let mut directory = fs::DirBuilder::new();
        directory.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut directory, 0o700);
        directory.create(path)
    }

    fn names_in(&self, path: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StoredFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        if mode != OpenMode::Read {
            options.write(true).create(true).truncate(mode == OpenMode::Anew);
        }
        Ok(Arc::new(SystemFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn remove_directory_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockedFile>>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(SystemLock(file)))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

#[derive(Debug)]
struct SystemFile(File);

impl StoredFile for SystemFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_exact_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, position)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[derive(Debug)]
struct SystemLock(File);

impl LockedFile for SystemLock {}

impl Drop for SystemLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread is just starting has it
        // too, until it runs its program. If this fails, closing is all that can be done.
        drop(self.0.unlock());
    }
}
