//! A broker's directory: who may use it, and what lies where.
//!
//! ```text
//! lock                                          held while the broker is open; the holder's pid
//! journal                                       topics, committed offsets, beginnings of logs
//! topics/<name>/<id>/<partition>/<offset>.log   segments, named by their first offset
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_broker::{BrokerError, TopicId, TopicName, TopicPartition};
use headwater_records::ControlKind;

use crate::catalog::TopicEntry;
use crate::config::LogConfig;
use crate::error::{OpenError, storage_error};
use crate::files::{Files, LockedFile, OpenMode};
use crate::journal::{CatalogStore, JOURNAL, read_whole};
use crate::log::{Log, Place};
use crate::partition::Partition;
use crate::producers::OpenTransaction;
use crate::segment::Segment;
use crate::storage::{WriteOptions, sync_directory_of};
use crate::topics::Topic;

mod recovery;

const LOCK: &str = "lock";
const TOPICS: &str = "topics";

/// A directory that this broker alone uses, until it is dropped.
#[derive(Debug)]
pub(crate) struct LockedDirectory {
    files: Arc<dyn Files>,
    path: PathBuf,
    _lock: Box<dyn LockedFile>,
}

impl LockedDirectory {
    /// Makes the directory if it is not there, for this user only, and takes it.
    pub(crate) fn lock(files: Arc<dyn Files>, path: PathBuf) -> Result<Self, OpenError> {
        files.create_directories(&path).map_err(|error| OpenError::io("create", &path, error))?;
        check_is_own(&*files, &path)?;
        let lock_path = path.join(LOCK);
        let failed = |error| OpenError::io("lock", &lock_path, error);
        let Some(lock) = files.lock(&lock_path).map_err(failed)? else {
            // The pid is a courtesy: the error is the same without it.
            let holder = read_whole(&*files, &lock_path).ok();
            let holder = holder.and_then(|text| String::from_utf8(text).ok()?.trim().parse().ok());
            return Err(OpenError::DirectoryInUse { directory: path, holder });
        };
        let text = format!("{}\n", std::process::id());
        let file = files.open(&lock_path, OpenMode::Anew).map_err(failed)?;
        file.write_all_at(text.as_bytes(), 0).map_err(failed)?;
        Ok(Self { files, path, _lock: lock })
    }

    pub(crate) fn files(&self) -> &Arc<dyn Files> {
        &self.files
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn topic(&self, name: &TopicName, id: TopicId) -> PathBuf {
        self.path.join(TOPICS).join(name.as_str()).join(id.to_string())
    }
}

/// Refuses a directory with files of somebody else.
fn check_is_own(files: &dyn Files, path: &Path) -> Result<(), OpenError> {
    if files.exists(&path.join(JOURNAL)) {
        return Ok(());
    }
    let failed = |error| OpenError::io("read", path, error);
    for name in files.names_in(path).map_err(failed)? {
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
    let files = &directory.files;
    let failed = |error: io::Error| storage_error("create", &topic.display().to_string(), &error);
    let mut places = Vec::new();
    for number in 0..entry.partitions {
        let path = topic.join(number.to_string());
        files.create_directories(&path).map_err(failed)?;
        places.push(Place::Directory { files: Arc::clone(files), path: path.into() });
    }
    for made in topic.join("0").ancestors().take(4) {
        sync_directory_of(&**files, made).map_err(failed)?;
    }
    Ok(places)
}

/// Removes what a deleted topic leaves behind.
pub(crate) fn delete_topic(directory: &LockedDirectory, name: &TopicName, id: TopicId) {
    remove_directory(&*directory.files, &directory.topic(name, id));
    // It stays if another topic of that name lives in it.
    drop(directory.files.remove_directory(&directory.path.join(TOPICS).join(name.as_str())));
}

/// Removes the files of segments that a log does not need any more.
pub(crate) fn delete_segments(segments: &[Segment]) {
    for segment in segments {
        segment.bytes.delete();
    }
}

/// Removes a file that is not needed any more. One that stays is removed at the next start.
pub(crate) fn delete_file(files: &dyn Files, path: &Path) {
    match files.remove_file(path) {
        Ok(()) => {}
        // The first segment of a log without records was never written.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(
            path = %path.display(), %error, "an old segment could not be removed"
        ),
    }
}

fn remove_directory(files: &dyn Files, path: &Path) {
    if let Err(error) = files.remove_directory_all(path) {
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
) -> Result<BTreeMap<TopicName, Arc<Topic>>, OpenError> {
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
            let recovered = recovery::recover(&directory.files, &place, start, epochs, now_ms)?;
            let files = Arc::clone(&directory.files);
            let place = Place::Directory { files, path: place.into() };
            let mut log = Log::new(at, Arc::clone(&config), place, recovered);
            end_transactions(&mut log, catalog, fsync, now_ms)?;
            partitions.push(Arc::new(Partition::new(log)));
        }
        topics.insert(name.clone(), Arc::new(Topic { id: entry.id, partitions }));
    }
    remove_leftovers(directory, &entries)?;
    Ok(topics)
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
        let written =
            log.append_marker(kind, producer_id, epoch.saturating_add(1), now_ms, options);
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
    let files = &*directory.files;
    let root = directory.path.join(TOPICS);
    let failed = |error| OpenError::io("read", &root, error);
    let names = match files.names_in(&root) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for name in names {
        let entry = name.to_str().and_then(|name| entries.get(name));
        let topic = root.join(&name);
        for id in files.names_in(&topic).map_err(failed)? {
            let known = entry.is_some_and(|entry| id == *entry.id.to_string());
            if !known {
                let path = topic.join(&id);
                tracing::warn!(path = %path.display(), "files of no topic are removed");
                remove_directory(files, &path);
            }
        }
        if entry.is_none() {
            remove_directory(files, &topic);
        }
    }
    Ok(())
}
