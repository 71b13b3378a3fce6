//! What lies in an application's directory, and whose it is.

use std::fs;
use std::io;
use std::path::Path;

use headwater_topology::TaskId;

use crate::global::GLOBAL_DIR;

use super::{LOCK_FILE, PROCESS_FILE, PROCESS_FILE_NEW, StateDirError};

/// Files that only Java's Kafka Streams makes (feature rows P24, P26), in the directory itself and
/// in the directory of a task. Its `.lock` is left behind even by an application without state.
const JAVA_FILES: &[&str] = &["kafka-streams-process-metadata", ".lock"];
const JAVA_TASK_FILES: &[&str] = &[".checkpoint", "rocksdb"];

/// An entry of the directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A file of ours.
    Ours,
    /// The directory of a task.
    Task(TaskId),
    /// A file of Kafka Streams, relative to the directory.
    Java(String),
    /// Something else.
    Foreign(String),
}

/// Looks at every entry, in the order of their names.
pub(super) fn inspect(directory: &Path) -> Result<Vec<Content>, StateDirError> {
    let names = names(directory)?;
    let mut contents = Vec::with_capacity(names.len());
    for name in names {
        let path = directory.join(&name);
        let is_ours = [LOCK_FILE, PROCESS_FILE, PROCESS_FILE_NEW].contains(&&*name);
        contents.push(
            if is_ours || (name == GLOBAL_DIR && path.is_dir() && java_file_in(&path)?.is_none()) {
                Content::Ours
            } else if JAVA_FILES.contains(&&*name) {
                Content::Java(name)
            } else if !path.is_dir() {
                Content::Foreign(name)
            } else if let Some(file) = java_file_in(&path)? {
                Content::Java(format!("{name}/{file}"))
            } else {
                name.parse().map_or(Content::Foreign(name), Content::Task)
            },
        );
    }
    Ok(contents)
}

fn java_file_in(task: &Path) -> Result<Option<String>, StateDirError> {
    Ok(names(task)?.into_iter().find(|name| JAVA_TASK_FILES.contains(&&**name)))
}

fn names(directory: &Path) -> Result<Vec<String>, StateDirError> {
    let read = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    };
    read().map_err(|source| StateDirError::from_io("read", directory, source))
}
