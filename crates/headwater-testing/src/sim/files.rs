//! The disk of the broker: files that remember what a loss of power would leave of them.
//!
//! Directories themselves count as durable at once; the names in them, and the bytes of files, do when they
//! are synced.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_embedded::{Files, LockedFile, OpenMode, StoredFile};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::chance::Chance;

/// The disk of the broker. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimFiles {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Never held while anything is awaited.
    state: Mutex<State>,
    /// Rung when the broker dies in the middle of a write.
    died: Notify,
}

#[derive(Debug, Default)]
struct State {
    is_dead: bool,
    /// It dies when so many writes more have been done.
    dies_after: Option<u64>,
    /// Of the write that it dies in, so many sixteenths arrive.
    arrives: usize,
    /// It does not die now.
    is_spared: bool,
    directories: BTreeSet<PathBuf>,
    names: BTreeMap<PathBuf, usize>,
    contents: Vec<Vec<u8>>,
    /// As a loss of power would leave it, if nothing that is not synced was kept.
    durable_names: BTreeMap<PathBuf, usize>,
    durable_contents: Vec<Vec<u8>>,
    /// What is not synced, oldest first.
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Written { file: usize, position: usize, bytes: Vec<u8> },
    Cut { file: usize, length: usize },
    Named { path: PathBuf, file: Option<usize> },
    Renamed { from: PathBuf, to: PathBuf, file: usize },
}

impl Change {
    /// The file or the directory that a sync of makes it durable.
    fn belongs_to(&self, file: usize) -> bool {
        match self {
            Self::Written { file: of, .. } | Self::Cut { file: of, .. } => *of == file,
            Self::Named { .. } | Self::Renamed { .. } => false,
        }
    }

    fn is_in(&self, directory: &Path) -> bool {
        match self {
            Self::Written { .. } | Self::Cut { .. } => false,
            Self::Named { path, .. } | Self::Renamed { to: path, .. } => {
                path.parent() == Some(directory)
            }
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>, contents: &mut [Vec<u8>]) {
        match self {
            Self::Written { file, position, bytes } => {
                write(&mut contents[*file], *position, bytes);
            }
            Self::Cut { file, length } => contents[*file].resize(*length, 0),
            Self::Named { path, file: Some(file) } => drop(names.insert(path.clone(), *file)),
            Self::Named { path, file: None } => drop(names.remove(path)),
            Self::Renamed { from, to, file } => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
        }
    }
}

fn write(content: &mut Vec<u8>, position: usize, bytes: &[u8]) {
    let end = position + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[position..end].copy_from_slice(bytes);
}

impl SimFiles {
    /// The broker is to die in the middle of a write: after so many, of it so many sixteenths arrive.
    pub(crate) fn die_in_a_write(&self, after: u64, arrives: usize) {
        let mut state = self.shared.state.lock();
        state.dies_after = Some(after);
        state.arrives = arrives;
    }

    /// The broker dies, or does not start.
    pub(crate) fn die(&self) {
        let mut state = self.shared.state.lock();
        state.is_dead = true;
        state.dies_after = None;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.shared.state.lock().is_dead
    }

    /// Until the broker has died in the middle of a write.
    pub(crate) async fn died(&self) {
        self.shared.died.notified().await;
    }

    /// Whether it does not die for a while.
    pub(crate) fn spare(&self, is_spared: bool) {
        self.shared.state.lock().is_spared = is_spared;
    }

    /// It does not die by itself any more.
    pub(crate) fn calm(&self) {
        self.shared.state.lock().dies_after = None;
    }

    /// A broker can start.
    pub(crate) fn revive(&self) {
        self.shared.state.lock().is_dead = false;
    }

    /// Without power: of what was not synced a part is kept, for each file and directory from the oldest on, and of
    /// the first write that is not a part may be.
    pub(crate) fn lose_power(&self, chance: &mut Chance) {
        let state = &mut *self.shared.state.lock();
        let mut lost: BTreeSet<Owner> = BTreeSet::new();
        for change in std::mem::take(&mut state.unsynced) {
            let owner = Owner::of(&change);
            if lost.contains(&owner) {
                continue;
            }
            let kept = match (chance.one_in(3), change) {
                (false, change) => change,
                (true, change) => {
                    lost.insert(owner);
                    let Change::Written { file, position, mut bytes } = change else { continue };
                    bytes.truncate(chance.index(0..bytes.len() + 1));
                    Change::Written { file, position, bytes }
                }
            };
            kept.apply(&mut state.durable_names, &mut state.durable_contents);
        }
        state.names.clone_from(&state.durable_names);
        state.contents.clone_from(&state.durable_contents);
    }
}

/// What is synced as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    File(usize),
    Directory(PathBuf),
}

impl Owner {
    fn of(change: &Change) -> Self {
        match change {
            Change::Written { file, .. } | Change::Cut { file, .. } => Self::File(*file),
            Change::Named { path, .. } | Change::Renamed { to: path, .. } => {
                Self::Directory(path.parent().unwrap_or(path).to_owned())
            }
        }
    }
}

impl State {
    fn check(&self) -> io::Result<()> {
        if self.is_dead { Err(io::Error::other("the broker is dead")) } else { Ok(()) }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.names, &mut self.contents);
        self.unsynced.push(change);
    }

    /// Whether it dies here.
    fn is_last(&mut self) -> bool {
        match &mut self.dies_after {
            _ if self.is_spared => false,
            Some(0) => {
                self.dies_after = None;
                self.is_dead = true;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn sync(&mut self, is_synced: impl Fn(&Change) -> bool) {
        let (synced, left) = std::mem::take(&mut self.unsynced).into_iter().partition(is_synced);
        self.unsynced = left;
        let synced: Vec<Change> = synced;
        for change in synced {
            change.apply(&mut self.durable_names, &mut self.durable_contents);
        }
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Files for SimFiles {
    fn create_directories(&self, path: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.check()?;
        state.directories.extend(path.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn names_in(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let state = self.shared.state.lock();
        state.check()?;
        if !state.directories.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let all = state.directories.iter().chain(state.names.keys());
        let here = all.filter(|it| it.parent() == Some(path)).filter_map(|it| it.file_name());
        Ok(here.map(OsString::from).collect())
    }

    fn exists(&self, path: &Path) -> bool {
        let state = self.shared.state.lock();
        state.directories.contains(path) || state.names.contains_key(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StoredFile>> {
        let mut state = self.shared.state.lock();
        state.check()?;
        let file = match (state.file(path), mode) {
            (Ok(file), OpenMode::Anew) => {
                state.change(Change::Cut { file, length: 0 });
                file
            }
            (Ok(file), _) => file,
            (Err(error), OpenMode::Read) => return Err(error),
            (Err(_), _) => {
                let file = state.contents.len();
                state.contents.push(Vec::new());
                state.durable_contents.push(Vec::new());
                state.change(Change::Named { path: path.to_owned(), file: Some(file) });
                file
            }
        };
        Ok(Arc::new(SimFile { files: self.clone(), file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.check()?;
        let file = state.file(from)?;
        let (from, to) = (from.to_owned(), to.to_owned());
        state.change(Change::Renamed { from, to, file });
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.check()?;
        state.file(path)?;
        state.change(Change::Named { path: path.to_owned(), file: None });
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        if !self.names_in(path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.shared.state.lock().directories.remove(path);
        Ok(())
    }

    fn remove_directory_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.check()?;
        let gone: Vec<PathBuf> =
            state.names.keys().filter(|name| name.starts_with(path)).cloned().collect();
        for path in gone {
            state.change(Change::Named { path, file: None });
        }
        state.directories.retain(|directory| !directory.starts_with(path));
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.check()?;
        state.sync(|change| change.is_in(path));
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Option<Box<dyn LockedFile>>> {
        Ok(Some(Box::new(SimLock)))
    }
}

/// A file that is open.
#[derive(Debug)]
struct SimFile {
    files: SimFiles,
    file: usize,
}

impl StoredFile for SimFile {
    fn length(&self) -> io::Result<u64> {
        let state = self.files.shared.state.lock();
        state.check()?;
        u64::try_from(state.contents[self.file].len()).map_err(io::Error::other)
    }

    fn read_exact_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        let state = self.files.shared.state.lock();
        state.check()?;
        let from = usize::try_from(position).map_err(io::Error::other)?;
        let found = state.contents[self.file].get(from..from + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut state = self.files.shared.state.lock();
        state.check()?;
        let dies = state.is_last();
        let arrived = if dies { bytes.len() * state.arrives / 16 } else { bytes.len() };
        state.change(Change::Written {
            file: self.file,
            position: usize::try_from(position).map_err(io::Error::other)?,
            bytes: bytes[..arrived].to_vec(),
        });
        if dies {
            self.files.shared.died.notify_one();
        }
        state.check()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut state = self.files.shared.state.lock();
        state.check()?;
        let length = usize::try_from(length).map_err(io::Error::other)?;
        state.change(Change::Cut { file: self.file, length });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.files.shared.state.lock();
        state.check()?;
        if state.is_last() {
            self.files.shared.died.notify_one();
            return state.check();
        }
        state.sync(|change| change.belongs_to(self.file));
        Ok(())
    }
}

#[derive(Debug)]
struct SimLock;

impl LockedFile for SimLock {}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(files: &SimFiles, path: &Path) -> Option<Vec<u8>> {
        let file = files.open(path, OpenMode::Read).ok()?;
        let mut bytes = vec![0; usize::try_from(file.length().unwrap()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        Some(bytes)
    }

    fn disk() -> (SimFiles, PathBuf) {
        let files = SimFiles::default();
        files.create_directories(Path::new("/disk")).unwrap();
        (files, PathBuf::from("/disk/log"))
    }

    #[test]
    fn what_was_synced_outlives_a_loss_of_power_and_the_rest_in_part() {
        let mut lengths = BTreeSet::new();
        for seed in 0..50 {
            let (files, path) = disk();
            let file = files.open(&path, OpenMode::Write).unwrap();
            file.write_all_at(b"synced ", 0).unwrap();
            file.sync().unwrap();
            files.sync_directory(Path::new("/disk")).unwrap();
            file.write_all_at(b"written", 7).unwrap();
            files.lose_power(&mut Chance::new(seed));
            let left = content(&files, &path).unwrap();
            assert!(b"synced written".starts_with(&left), "{left:?}");
            lengths.insert(left.len());
        }
        assert!(lengths.iter().all(|length| (7..=14).contains(length)), "{lengths:?}");
        assert!(lengths.len() > 2, "a part of a write is left now and then: {lengths:?}");
    }

    #[test]
    fn a_name_needs_its_directory_synced() {
        let is_there = |seed| {
            let (files, path) = disk();
            let file = files.open(&path, OpenMode::Write).unwrap();
            file.write_all_at(b"all", 0).unwrap();
            file.sync().unwrap();
            files.lose_power(&mut Chance::new(seed));
            files.exists(&path)
        };
        let there = (0..50).filter(|seed| is_there(*seed)).count();
        assert!((1..50).contains(&there), "{there} of 50");
    }

    #[test]
    fn it_dies_in_the_middle_of_a_write_and_does_nothing_more() {
        let (files, path) = disk();
        let file = files.open(&path, OpenMode::Write).unwrap();
        files.die_in_a_write(1, 8);
        file.write_all_at(b"first", 0).unwrap();
        assert!(file.write_all_at(b"second", 5).is_err());
        assert!(files.is_dead());
        assert!(file.write_all_at(b"third", 8).is_err() && file.sync().is_err());
        files.revive();
        assert_eq!(content(&files, &path).unwrap(), b"firstsec");
    }

    #[test]
    fn who_has_a_removed_file_open_goes_on_with_it() {
        let (files, path) = disk();
        let file = files.open(&path, OpenMode::Write).unwrap();
        file.write_all_at(b"old", 0).unwrap();
        files.remove_file(&path).unwrap();
        assert!(!files.exists(&path));
        assert_eq!(file.length().unwrap(), 3);
        let other = files.open(&path, OpenMode::Write).unwrap();
        assert_eq!(other.length().unwrap(), 0);
    }
}
