//! The file that holds the catalog: one entry a line, each with its own checksum, appended; from
//! time to time written anew. It can be read with a text editor.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_broker::BrokerError;
use parking_lot::Mutex;

use crate::catalog::{Catalog, Entry, FORMAT};
use crate::error::{OpenError, storage_error};
use crate::faults::Faults;
use crate::files::{Files, OpenMode, StoredFile};
use crate::storage::sync_directory_of;

/// The name of the file.
pub(crate) const JOURNAL: &str = "journal";
/// The journal is written anew when it is larger than this and than four times what is needed.
const REWRITE_ABOVE: u64 = 1024 * 1024;
/// Checksum in hexadecimal, and a space.
const PREFIX: usize = 9;

/// The catalog, and the file it lives in if it lives in one. The lock is held only to read or
/// change it; no other lock is taken meanwhile.
#[derive(Debug)]
pub(crate) struct CatalogStore {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    catalog: Catalog,
    journal: Option<Journal>,
}

#[derive(Debug)]
struct Journal {
    files: Arc<dyn Files>,
    path: PathBuf,
    file: Arc<dyn StoredFile>,
    length: u64,
    /// Length after it was written anew the last time.
    compact_length: u64,
    /// Bytes of a failed write may lie behind the end and could not be cut off yet.
    torn: bool,
    /// After a loss of power its name could be that of the file before it.
    is_name_loose: bool,
    fsync: bool,
}

impl CatalogStore {
    /// A catalog that lives in memory.
    pub(crate) fn in_memory(catalog: Catalog) -> Self {
        Self { state: Mutex::new(State { catalog, journal: None }) }
    }

    /// The catalog in `directory`. A torn end is cut off; without a journal `fresh` is written.
    pub(crate) fn open(
        files: &Arc<dyn Files>,
        directory: &Path,
        fsync: bool,
        fresh: Catalog,
    ) -> Result<Self, OpenError> {
        Ok(Self { state: Mutex::new(State::open(files, directory, fsync, fresh)?) })
    }

    /// What is in `directory` now, instead of what was known.
    pub(crate) fn reload(
        &self,
        files: &Arc<dyn Files>,
        directory: &Path,
        fsync: bool,
        fresh: Catalog,
    ) -> Result<(), OpenError> {
        let mut state = self.state.lock();
        *state = State::open(files, directory, fsync, fresh)?;
        Ok(())
    }

    /// Looks something up.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Catalog) -> T) -> T {
        look(&self.state.lock().catalog)
    }

    /// The number of this opening, which no other one has: a loss of power does not take it back any more.
    pub(crate) fn opening(&self) -> Result<u64, BrokerError> {
        let State { catalog, journal } = &mut *self.state.lock();
        if let Some(journal) = journal.as_mut().filter(|journal| journal.is_name_loose) {
            let fixed = journal.fix_name();
            let path = || journal.path.display().to_string();
            fixed.map_err(|error| storage_error("write", &path(), &error))?;
        }
        Ok(catalog.openings())
    }

    /// Decides on an entry with the catalog at hand and makes it durable. After an error nothing
    /// has changed.
    pub(crate) fn change<T>(
        &self,
        faults: &Faults,
        decide: impl FnOnce(&Catalog) -> Result<(Entry, T), BrokerError>,
    ) -> Result<T, BrokerError> {
        let State { catalog, journal } = &mut *self.state.lock();
        let (entry, result) = decide(catalog)?;
        if let Some(journal) = journal {
            let path = journal.path.clone();
            let failed = |error| storage_error("write", &path.display().to_string(), &error);
            journal.append(&entry, faults).map_err(failed)?;
            catalog.apply(entry);
            if journal.length > REWRITE_ABOVE && journal.length / 4 > journal.compact_length {
                match Journal::create(&journal.files, path.clone(), catalog, journal.fsync) {
                    Ok(rewritten) => *journal = rewritten,
                    // The long one holds the same.
                    Err(error) => tracing::warn!(
                        path = %path.display(), %error, "the journal could not be written anew"
                    ),
                }
            }
        } else {
            catalog.apply(entry);
        }
        Ok(result)
    }
}

impl State {
    fn open(
        files: &Arc<dyn Files>,
        directory: &Path,
        fsync: bool,
        fresh: Catalog,
    ) -> Result<Self, OpenError> {
        let path = directory.join(JOURNAL);
        let mut catalog = match read_whole(&**files, &path) {
            Ok(bytes) => read(&path, &bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => fresh,
            Err(error) => return Err(OpenError::io("read", &path, error)),
        };
        catalog.open();
        // Written anew at every start: so it is short, and a torn end is gone for good.
        let journal = Journal::create(files, path.clone(), &catalog, fsync)
            .map_err(|error| OpenError::io("write", &path, error))?;
        Ok(Self { catalog, journal: Some(journal) })
    }
}

impl Journal {
    /// Writes the catalog into a new file and puts it in the place of the old one. When it is there nothing
    /// may be written to the old one any more; until its name is durable nothing is written to the new one
    /// either, and both hold the same.
    fn create(
        files: &Arc<dyn Files>,
        path: PathBuf,
        catalog: &Catalog,
        fsync: bool,
    ) -> io::Result<Self> {
        let text: String = catalog.entries().iter().map(line).collect();
        let new_path = path.with_extension("new");
        let file = files.open(&new_path, OpenMode::Anew)?;
        file.write_all_at(text.as_bytes(), 0)?;
        file.sync()?;
        files.rename(&new_path, &path)?;
        let mut journal = Self {
            files: Arc::clone(files),
            path,
            file,
            length: text.len() as u64,
            compact_length: text.len() as u64,
            torn: false,
            is_name_loose: true,
            fsync,
        };
        if let Err(error) = journal.fix_name() {
            let path = journal.path.display();
            tracing::warn!(%path, %error, "nothing is written until the name of the journal is durable");
        }
        Ok(journal)
    }

    fn fix_name(&mut self) -> io::Result<()> {
        sync_directory_of(&*self.files, &self.path)?;
        self.is_name_loose = false;
        Ok(())
    }

    fn append(&mut self, entry: &Entry, faults: &Faults) -> io::Result<()> {
        if self.is_name_loose {
            self.fix_name()?;
        }
        if self.torn {
            self.file.set_length(self.length)?;
            self.torn = false;
        }
        let line = line(entry);
        let written = match faults.decide_write(&JOURNAL) {
            None => self.file.write_all_at(line.as_bytes(), self.length),
            Some(count) => self
                .file
                .write_all_at(&line.as_bytes()[..count.min(line.len())], self.length)
                .and_then(|()| Err(io::ErrorKind::StorageFull.into())),
        };
        let synced = if self.fsync { written.and_then(|()| self.file.sync()) } else { written };
        match synced {
            Ok(()) => self.length += line.len() as u64,
            Err(_) => self.torn = self.file.set_length(self.length).is_err(),
        }
        synced
    }
}

/// All bytes of a file.
pub(crate) fn read_whole(files: &dyn Files, path: &Path) -> io::Result<Vec<u8>> {
    let file = files.open(path, OpenMode::Read)?;
    let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn line(entry: &Entry) -> String {
    let json = serde_json::to_string(entry).expect("an entry has only text keys");
    format!("{:08x} {json}\n", crc32c::crc32c(json.as_bytes()))
}

/// The catalog of a journal. A last line that is not whole is a write that a crash cut off; any
/// other damage is an error.
fn read(path: &Path, bytes: &[u8]) -> Result<Catalog, OpenError> {
    let mut catalog = Catalog::default();
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').zip(1..).peekable();
    while let Some((text, number)) = lines.next() {
        match parse(text) {
            Some(Entry::Cluster { format, .. }) if format > FORMAT => {
                return Err(OpenError::NewerFormat { path: path.to_owned(), format });
            }
            Some(entry) if entry.is_sound() => catalog.apply(entry),
            None if lines.peek().is_none() && number > 1 => {
                tracing::warn!(
                    path = %path.display(),
                    bytes = text.len(),
                    "a torn end of the journal was cut off"
                );
            }
            Some(_) | None => {
                return Err(OpenError::DamagedJournal { path: path.to_owned(), line: number });
            }
        }
    }
    Ok(catalog)
}

fn parse(line: &[u8]) -> Option<Entry> {
    let (prefix, json) = line.strip_suffix(b"\n")?.split_at_checked(PREFIX)?;
    let checksum = std::str::from_utf8(prefix).ok()?.strip_suffix(' ')?;
    let checksum = u32::from_str_radix(checksum, 16).ok()?;
    if crc32c::crc32c(json) != checksum {
        return None;
    }
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::sync::atomic::{AtomicBool, Ordering};

    use uuid::Uuid;

    use super::*;
    use crate::files::{LockedFile, SystemFiles};

    /// The operating system's, with a directory that cannot be synced at times.
    #[derive(Debug, Default)]
    struct Unsteady {
        fails: AtomicBool,
    }

    impl Files for Unsteady {
        fn create_directories(&self, path: &Path) -> io::Result<()> {
            SystemFiles.create_directories(path)
        }

        fn names_in(&self, path: &Path) -> io::Result<Vec<OsString>> {
            SystemFiles.names_in(path)
        }

        fn exists(&self, path: &Path) -> bool {
            SystemFiles.exists(path)
        }

        fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StoredFile>> {
            SystemFiles.open(path, mode)
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            SystemFiles.rename(from, to)
        }

        fn remove_file(&self, path: &Path) -> io::Result<()> {
            SystemFiles.remove_file(path)
        }

        fn remove_directory(&self, path: &Path) -> io::Result<()> {
            SystemFiles.remove_directory(path)
        }

        fn remove_directory_all(&self, path: &Path) -> io::Result<()> {
            SystemFiles.remove_directory_all(path)
        }

        fn sync_directory(&self, path: &Path) -> io::Result<()> {
            if self.fails.load(Ordering::Relaxed) {
                return Err(io::Error::other("the disk does not answer"));
            }
            SystemFiles.sync_directory(path)
        }

        fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockedFile>>> {
            SystemFiles.lock(path)
        }
    }

    #[test]
    fn what_is_acknowledged_is_in_the_file_of_that_name() {
        let home = tempfile::tempdir().unwrap();
        let unsteady = Arc::new(Unsteady::default());
        let files: Arc<dyn Files> = Arc::clone(&unsteady) as _;
        let fresh = || Catalog::new(Uuid::nil());
        let store = CatalogStore::open(&files, home.path(), false, fresh()).unwrap();
        let give_id = || {
            store.change(&Faults::default(), |catalog| {
                let next = catalog.next_producer_id + 1;
                Ok((Entry::ProducerIds { next }, next))
            })
        };
        let first = give_id().unwrap();
        unsteady.fails.store(true, Ordering::Relaxed);
        // Whether it can be loaded then or not.
        drop(store.reload(&files, home.path(), false, fresh()));
        assert!(give_id().is_err());
        unsteady.fails.store(false, Ordering::Relaxed);
        assert_eq!(give_id().unwrap(), first + 1);
        let again = CatalogStore::open(&files, home.path(), false, fresh()).unwrap();
        assert_eq!(again.read(|catalog| catalog.next_producer_id), first + 1);
    }
}
