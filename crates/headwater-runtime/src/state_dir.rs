//! The state directory of an application on this machine:
//!
//! ```text
//! <state_dir>/<application_id>/
//!     headwater.lock     locked by the running process, with its pid
//!     headwater.json     format, application id, process id, kept for good; while no process runs,
//!                        the member of the group that is still waited for, if there is one
//!     0_0/ 0_1/ ...      one directory per task
//!     global/            the global stores
//! ```
//!
//! One process at a time works in it. A directory with the files of Java's Kafka Streams, or of
//! anybody else, is refused and left as it is.

mod cleanup;
mod error;
mod inspect;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use headwater_topology::TaskId;
use uuid::Uuid;

use crate::global::global_dir;
use cleanup::TaskDirectory;
use inspect::{Content, inspect};

pub use error::StateDirError;

const LOCK_FILE: &str = "headwater.lock";
const PROCESS_FILE: &str = "headwater.json";
/// In the directory of a task.
const OFFSETS_FILE: &str = "offsets";
const PROCESS_FILE_NEW: &str = "headwater.json.new";
/// The format of the directory. Storages have format versions of their own.
const FORMAT: u32 = 1;

/// The state directory of an application, held by this process until it is dropped.
#[derive(Debug)]
pub struct StateDirectory {
    directory: PathBuf,
    application_id: String,
    process_id: Uuid,
    left_member: Option<String>,
    lock: File,
}

/// What [`PROCESS_FILE`] holds. Versions that do not know a field pass it over.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct ProcessFile {
    format: u32,
    application_id: String,
    process_id: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_member: Option<String>,
}

/// What every version of [`PROCESS_FILE`] holds, to be looked at before the rest.
#[derive(serde::Deserialize)]
struct Format {
    format: u32,
}

impl StateDirectory {
    /// Opens the application's directory below `state_dir`, creating it when it is absent, and locks
    /// it. `new_process_id` is written down when the directory has none yet.
    ///
    /// # Errors
    /// The directory is in use, belongs to somebody else, or cannot be written; in all these cases
    /// nothing in it has been changed.
    pub fn open(
        state_dir: &Path,
        application_id: &str,
        new_process_id: Uuid,
    ) -> Result<Self, StateDirError> {
        let directory = state_dir.join(application_id);
        let created = !directory.exists();
        create(state_dir, &directory)
            .map_err(|source| StateDirError::from_io("create", &directory, source))?;
        refuse_foreign(&directory)?;
        let lock = lock(&directory)?;
        // Again, now that nobody else can be at work in it.
        refuse_foreign(&directory)?;
        let found = read_process_file(&directory, application_id)?;
        let is_new = found.is_none();
        let ProcessFile { application_id, process_id, left_member, .. } =
            found.unwrap_or_else(|| ProcessFile {
                format: FORMAT,
                application_id: application_id.to_owned(),
                process_id: new_process_id,
                left_member: None,
            });
        let opened = Self { directory, application_id, process_id, left_member, lock };
        if is_new {
            opened.write_process_file(None)?;
        }
        tracing::debug!(directory = %opened.directory.display(), created, %process_id, "state directory");
        Ok(opened)
    }

    /// The member of the group as which the process before this one had ended, if it was to remain
    /// in the group.
    pub(crate) fn left_member(&self) -> Option<&str> {
        self.left_member.as_deref()
    }

    /// Writes that down for the next one, or that there is none.
    ///
    /// # Errors
    /// When it cannot be written; then what was there before holds.
    pub(crate) fn note_left_member(&self, member: Option<&str>) -> Result<(), StateDirError> {
        self.write_process_file(member)
    }

    /// The process id: the same over restarts, as long as the directory lives.
    pub fn process_id(&self) -> Uuid {
        self.process_id
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// The directory of a task, whether it exists or not.
    pub fn task(&self, task: TaskId) -> PathBuf {
        self.directory.join(task.to_string())
    }

    /// The tasks that have a directory here.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn tasks(&self) -> Result<BTreeSet<TaskId>, StateDirError> {
        Ok(inspect(&self.directory)?
            .into_iter()
            .filter_map(|content| match content {
                Content::Task(task) => Some(task),
                Content::Ours | Content::Java(_) | Content::Foreign(_) => None,
            })
            .collect())
    }

    /// The sum of the changelog offsets that a task's stores held when they were closed last; `None`
    /// when nobody has written it down. A hint for whoever places tasks: the stores know better.
    pub fn offset_sum(&self, task: TaskId) -> Option<u64> {
        fs::read_to_string(self.task(task).join(OFFSETS_FILE)).ok()?.trim().parse().ok()
    }

    /// Writes that sum down, if the task has a directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note_offset_sum(&self, task: TaskId, sum: u64) -> Result<(), StateDirError> {
        let directory = self.task(task);
        if !directory.exists() {
            return Ok(());
        }
        let path = directory.join(OFFSETS_FILE);
        fs::write(&path, sum.to_string())
            .map_err(|source| StateDirError::from_io("write", &path, source))
    }

    /// Removes the directories of tasks that are not in `owned` and have not been touched for
    /// `cleanup_delay_ms` at wall-clock time `now_ms`, and says which (feature row P28).
    ///
    /// # Errors
    /// When a directory cannot be read or removed; those before it are gone.
    pub fn clean(
        &self,
        owned: &BTreeSet<TaskId>,
        cleanup_delay_ms: u64,
        now_ms: i64,
    ) -> Result<Vec<TaskId>, StateDirError> {
        let mut directories = Vec::new();
        for task in self.tasks()? {
            directories.push(TaskDirectory {
                task,
                owned: owned.contains(&task),
                touched_ms: last_touched_ms(&self.task(task))?,
            });
        }
        let removable = cleanup::removable(&directories, cleanup_delay_ms, now_ms);
        for &task in &removable {
            self.remove_task(task)?;
        }
        Ok(removable)
    }

    /// Removes a task's directory with all its state.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove_task(&self, task: TaskId) -> Result<(), StateDirError> {
        remove(&self.task(task))
    }

    /// Removes the state of all tasks and of global stores, for instance before an application reads everything again
    /// from the beginning. Lock and process id stay (feature row R28).
    ///
    /// # Errors
    /// When a directory cannot be removed.
    pub fn clean_up(&self) -> Result<(), StateDirError> {
        for task in self.tasks()? {
            self.remove_task(task)?;
        }
        remove(&global_dir(&self.directory))
    }

    fn write_process_file(&self, left_member: Option<&str>) -> Result<(), StateDirError> {
        let file = ProcessFile {
            format: FORMAT,
            application_id: self.application_id.clone(),
            process_id: self.process_id,
            left_member: left_member.map(str::to_owned),
        };
        let text = serde_json::to_string(&file).expect("plain fields become JSON");
        let new = self.directory.join(PROCESS_FILE_NEW);
        let write = || {
            let mut file = private_file().truncate(true).open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, self.directory.join(PROCESS_FILE))
        };
        write().map_err(|source| StateDirError::from_io("write", &new, source))
    }
}

/// Makes the application's directory, for this user only: state is what records were made of. Where it
/// lies may be shared with other users, and one that is there keeps the mode that somebody gave it.
fn create(state_dir: &Path, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(state_dir)?;
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// How a file of the directory is opened for writing: made for this user only.
fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Removes a directory, if there is one.
fn remove(path: &Path) -> Result<(), StateDirError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| StateDirError::from_io("remove", path, source)),
    }
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        // The pid is only for the message of the next one; a stale one does no harm.
        if let Err(error) = self.lock.set_len(0) {
            tracing::debug!(%error, "the lock file keeps our pid");
        }
        // Closing the file is not enough: a process that another thread is just starting has it
        // too, until it runs its program. If this fails, closing is all that can be done.
        drop(self.lock.unlock());
    }
}

fn refuse_foreign(directory: &Path) -> Result<(), StateDirError> {
    for content in inspect(directory)? {
        match content {
            Content::Java(file) => {
                return Err(StateDirError::KafkaStreams { directory: directory.to_owned(), file });
            }
            Content::Foreign(file) => {
                return Err(StateDirError::Foreign { directory: directory.to_owned(), file });
            }
            Content::Ours | Content::Task(_) => {}
        }
    }
    Ok(())
}

fn lock(directory: &Path) -> Result<File, StateDirError> {
    let path = directory.join(LOCK_FILE);
    let io = |operation, source| StateDirError::from_io(operation, &path, source);
    let mut file =
        private_file().truncate(false).open(&path).map_err(|source| io("create", source))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // Without a readable pid the message is still right.
            let holder_pid =
                file.read_to_string(&mut pid).ok().and_then(|_| pid.trim().parse().ok());
            return Err(StateDirError::Locked { directory: directory.to_owned(), holder_pid });
        }
        Err(TryLockError::Error(source)) => return Err(io("lock", source)),
    }
    let pid = std::process::id().to_string();
    file.set_len(0)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .and_then(|_| file.write_all(pid.as_bytes()))
        .map_err(|source| io("write", source))?;
    Ok(file)
}

fn read_process_file(
    directory: &Path,
    application_id: &str,
) -> Result<Option<ProcessFile>, StateDirError> {
    let path = directory.join(PROCESS_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StateDirError::from_io("read", &path, source)),
    };
    kept_in(&text, directory, application_id).map(Some)
}

/// What the text of a [`PROCESS_FILE`] says.
pub(crate) fn kept_in(
    text: &str,
    directory: &Path,
    application_id: &str,
) -> Result<ProcessFile, StateDirError> {
    let path = directory.join(PROCESS_FILE);
    let unreadable = |source| StateDirError::Unreadable { path: path.clone(), source };
    let Format { format } = serde_json::from_str(text).map_err(unreadable)?;
    if format != FORMAT {
        return Err(StateDirError::UnknownFormat { directory: directory.to_owned(), format });
    }
    let file: ProcessFile = serde_json::from_str(text).map_err(unreadable)?;
    if file.application_id != application_id {
        return Err(StateDirError::OtherApplication {
            directory: directory.to_owned(),
            found: file.application_id,
            expected: application_id.to_owned(),
        });
    }
    Ok(file)
}

/// When anything directly in a task's directory was written last.
fn last_touched_ms(path: &Path) -> Result<i64, StateDirError> {
    let read = || {
        let mut latest = fs::metadata(path)?.modified()?;
        for entry in fs::read_dir(path)? {
            latest = latest.max(entry?.metadata()?.modified()?);
        }
        Ok(latest)
    };
    let latest = read().map_err(|source| StateDirError::from_io("read", path, source))?;
    let since = latest.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
