//! A broker's directory: who may use it, and what lies where.
//!
//! ```text
//! lock                                          held while the broker is open; the holder's pid
//! journal                                       topics, committed offsets, beginnings of logs
//! topics/<name>/<id>/<partition>/<offset>.log   segments, named by their first offset
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_broker::{BrokerError, TopicId, TopicName, TopicPartition};
use headwater_records::ControlKind;

use crate::catalog::TopicEntry;
use crate::config::LogConfig;
use crate::error::{OpenError, storage_error};
use crate::journal::{CatalogStore, JOURNAL, sync_directory};
use crate::log::{Log, Place};
use crate::partition::Partition;
use crate::producers::OpenTransaction;
use crate::segment::Segment;
use crate::storage::WriteOptions;
use crate::topics::{Topic, TopicMap};

mod recovery;

const LOCK: &str = "lock";
const TOPICS: &str = "topics";

/// A directory that this broker alone uses, until it is dropped.
#[derive(Debug)]
pub(crate) struct LockedDirectory {
    path: PathBuf,
    lock: File,
}

impl Drop for LockedDirectory {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread is just starting has it
        // too, until it runs its program. If this fails, closing is all that can be done.
        drop(self.lock.unlock());
    }
}

impl LockedDirectory {
    /// Makes the directory if it is not there, and takes it.
    pub(crate) fn lock(path: PathBuf) -> Result<Self, OpenError> {
        fs::create_dir_all(&path).map_err(|error| OpenError::io("create", &path, error))?;
        check_is_own(&path)?;
        let lock_path = path.join(LOCK);
        let failed = |error| OpenError::io("lock", &lock_path, error);
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The pid is a courtesy: the error is the same without it.
                let holder = lock.read_to_string(&mut holder).map(|_| holder.trim().parse().ok());
                let holder = holder.unwrap_or_default();
                return Err(OpenError::DirectoryInUse { directory: path, holder });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        lock.set_len(0).map_err(failed)?;
        writeln!(lock, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { path, lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn topic(&self, name: &TopicName, id: TopicId) -> PathBuf {
        self.path.join(TOPICS).join(name.as_str()).join(id.to_string())
    }
}

/// Refuses a directory with files of somebody else.
fn check_is_own(path: &Path) -> Result<(), OpenError> {
    if path.join(JOURNAL).exists() {
        return Ok(());
    }
    let failed = |error| OpenError::io("read", path, error);
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        // All that a broker writes before it has a journal.
        if name != LOCK && name != "journal.new" {
            return Err(OpenError::ForeignDirectory { directory: path.to_owned() });
        }
    }
    Ok(())
}

/// Makes the directories of a new topic and gives the places of its logs.
pub(crate) fn create_topic(
    directory: &LockedDirectory,
    name: &TopicName,
    entry: &TopicEntry,
) -> Result<Vec<Place>, BrokerError> {
    let topic = directory.topic(name, entry.id);
    let failed = |error: io::Error| storage_error("create", &topic.display().to_string(), &error);
    let mut places = Vec::new();
    for number in 0..entry.partitions {
        let path = topic.join(number.to_string());
        fs::create_dir_all(&path).map_err(failed)?;
        places.push(Place::Directory(path.into()));
    }
    for made in topic.join("0").ancestors().take(4) {
        sync_directory(made).map_err(failed)?;
    }
    Ok(places)
}

/// Removes what a deleted topic leaves behind.
pub(crate) fn delete_topic(directory: &LockedDirectory, name: &TopicName, id: TopicId) {
    remove_directory(&directory.topic(name, id));
    // It stays if another topic of that name lives in it.
    drop(fs::remove_dir(directory.path.join(TOPICS).join(name.as_str())));
}

/// Removes the files of segments that a log does not need any more.
pub(crate) fn delete_segments(segments: &[Segment]) {
    for path in segments.iter().filter_map(|segment| segment.bytes.path()) {
        delete_file(path);
    }
}

/// Removes a file that is not needed any more. One that stays is removed at the next start.
pub(crate) fn delete_file(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => {}
        // The first segment of a log without records was never written.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(
            path = %path.display(), %error, "an old segment could not be removed"
        ),
    }
}

fn remove_directory(path: &Path) {
    if let Err(error) = fs::remove_dir_all(path) {
        tracing::warn!(
            path = %path.display(), %error, "the files of a deleted topic could not be removed"
        );
    }
}

/// Opens all topics of the catalog, and removes what no topic needs.
pub(crate) fn load_topics(
    directory: &LockedDirectory,
    catalog: &CatalogStore,
    fsync: bool,
    now_ms: i64,
) -> Result<TopicMap, OpenError> {
    let entries = catalog.read(|catalog| catalog.topics.clone());
    let mut topics = BTreeMap::new();
    for (name, entry) in &entries {
        let config = Arc::new(LogConfig::new(&entry.configs));
        let path = directory.topic(name, entry.id);
        let mut partitions = Vec::new();
        for number in 0..entry.partitions {
            let at = TopicPartition::new(name.clone(), number);
            let (start, epochs) =
                catalog.read(|catalog| (catalog.log_start(&at), catalog.leader_epochs(&at)));
            let place = path.join(number.to_string());
            let recovered = recovery::recover(&place, start, epochs, now_ms)?;
            let place = Place::Directory(place.into());
            let mut log = Log::new(at, Arc::clone(&config), place, recovered);
            end_transactions(&mut log, catalog, fsync, now_ms)?;
            partitions.push(Arc::new(Partition::new(log)));
        }
        topics.insert(name.clone(), Arc::new(Topic { id: entry.id, partitions }));
    }
    remove_leftovers(directory, &entries)?;
    Ok(TopicMap::new(topics))
}

/// Writes the markers of transactions that were open when the broker ended. Their writers have ended
/// with it: what it had not decided to commit is aborted.
fn end_transactions(
    log: &mut Log,
    catalog: &CatalogStore,
    fsync: bool,
    now_ms: i64,
) -> Result<(), OpenError> {
    for OpenTransaction { producer_id, epoch } in log.producers().open_transactions() {
        let is_committed = catalog.read(|catalog| catalog.is_committed(producer_id, epoch));
        let kind = if is_committed { ControlKind::Commit } else { ControlKind::Abort };
        tracing::info!(
            partition = %log.topic_partition(), producer_id, ?kind, "an open transaction is ended"
        );
        let options = WriteOptions { fsync, disk_full_after: None };
        let written = log.append_marker(kind, producer_id, epoch + 1, now_ms, options);
        written.map_err(|error| OpenError::Transaction {
            topic_partition: log.topic_partition().clone(),
            source: Box::new(error),
        })?;
    }
    Ok(())
}

/// Removes directories of topics that were not quite created or not quite deleted.
fn remove_leftovers(
    directory: &LockedDirectory,
    entries: &BTreeMap<TopicName, TopicEntry>,
) -> Result<(), OpenError> {
    let root = directory.path.join(TOPICS);
    let failed = |error| OpenError::io("read", &root, error);
    let names = match fs::read_dir(&root) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for name in names {
        let name = name.map_err(failed)?;
        let entry = name.file_name().to_str().and_then(|name| entries.get(name));
        for id in fs::read_dir(name.path()).map_err(failed)? {
            let id = id.map_err(failed)?;
            let known = entry.is_some_and(|entry| id.file_name() == *entry.id.to_string());
            if !known {
                tracing::warn!(path = %id.path().display(), "files of no topic are removed");
                remove_directory(&id.path());
            }
        }
        if entry.is_none() {
            remove_directory(&name.path());
        }
    }
    Ok(())
}
