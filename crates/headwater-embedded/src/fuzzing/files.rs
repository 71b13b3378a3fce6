//! A file system in memory, as small as a broker needs it: nothing of it outlives its last handle, and no
//! sync takes time.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::files::{Files, LockedFile, OpenMode, StoredFile};

/// Files by path; a directory is there when something lies in it, or was made.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryFiles(Arc<Mutex<BTreeMap<PathBuf, Entry>>>);

#[derive(Clone, Debug)]
enum Entry {
    Directory,
    File(Arc<MemoryFile>),
}

#[derive(Debug, Default)]
struct MemoryFile(Mutex<Vec<u8>>);

#[derive(Debug)]
struct Lock;

impl LockedFile for Lock {}

impl MemoryFiles {
    /// Puts a file there, with all directories above it.
    pub(super) fn put(&self, path: &Path, bytes: &[u8]) {
        let above = path.parent().unwrap_or(path);
        self.create_directories(above).expect("memory takes all names");
        let file = Arc::new(MemoryFile(Mutex::new(bytes.to_vec())));
        self.0.lock().insert(path.to_owned(), Entry::File(file));
    }

    /// All files there are.
    pub(super) fn all(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = self.0.lock();
        let files = entries.iter().filter_map(|(path, entry)| match entry {
            Entry::Directory => None,
            Entry::File(file) => Some((path.clone(), file.0.lock().clone())),
        });
        files.collect()
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Files for MemoryFiles {
    fn create_directories(&self, path: &Path) -> io::Result<()> {
        let mut entries = self.0.lock();
        for above in path.ancestors() {
            entries.entry(above.to_owned()).or_insert(Entry::Directory);
        }
        Ok(())
    }

    fn names_in(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let entries = self.0.lock();
        match entries.get(path) {
            None => return Err(not_found()),
            Some(Entry::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
            Some(Entry::Directory) => {}
        }
        let below = entries.keys().filter(|entry| entry.parent() == Some(path));
        Ok(below.filter_map(|entry| entry.file_name()).map(OsString::from).collect())
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.lock().contains_key(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StoredFile>> {
        let mut entries = self.0.lock();
        if mode != OpenMode::Read {
            let is_there = path.parent().is_some_and(|above| entries.contains_key(above));
            if !is_there {
                return Err(not_found());
            }
            let made = || Entry::File(Arc::default());
            entries.entry(path.to_owned()).or_insert_with(made);
        }
        match entries.get(path) {
            None => Err(not_found()),
            Some(Entry::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            Some(Entry::File(file)) => {
                if mode == OpenMode::Anew {
                    file.0.lock().clear();
                }
                Ok(Arc::clone(file) as Arc<dyn StoredFile>)
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut entries = self.0.lock();
        let entry = entries.remove(from).ok_or_else(not_found)?;
        entries.insert(to.to_owned(), entry);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.lock().remove(path).map(drop).ok_or_else(not_found)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        if !self.names_in(path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.remove_file(path)
    }

    fn remove_directory_all(&self, path: &Path) -> io::Result<()> {
        self.0.lock().retain(|entry, _| !entry.starts_with(path));
        Ok(())
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockedFile>>> {
        self.open(path, OpenMode::Write)?;
        Ok(Some(Box::new(Lock)))
    }
}

impl StoredFile for MemoryFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn read_exact_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        let content = self.0.lock();
        let start = usize::try_from(position).map_err(io::Error::other)?;
        let there = content.get(start..).and_then(|rest| rest.get(..bytes.len()));
        bytes.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut content = self.0.lock();
        let start = usize::try_from(position).map_err(io::Error::other)?;
        let end = start + bytes.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.lock().resize(usize::try_from(length).map_err(io::Error::other)?, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
