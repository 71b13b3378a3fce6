//! What can be wrong with a state directory.

use std::io;
use std::path::{Path, PathBuf};

/// A state directory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateDirError {
    /// Another process works in it.
    #[error(
        "state directory {} is in use by process {}; stop that process, or give each process of the application its own state.dir",
        directory.display(), Pid(*holder_pid)
    )]
    Locked {
        /// The application's directory.
        directory: PathBuf,
        /// The other process, when it could be found out.
        holder_pid: Option<u32>,
    },
    /// It holds state of Java's Kafka Streams, which has other formats.
    #[error(
        "state directory {} belongs to Kafka Streams for Java (it has {file}); choose another state.dir, the state comes back from the changelogs",
        directory.display()
    )]
    KafkaStreams {
        /// The application's directory.
        directory: PathBuf,
        /// What gave it away, relative to the directory.
        file: String,
    },
    /// It holds something that Headwater has not put there.
    #[error("state directory {} holds {file}, which is not Headwater's; choose another state.dir", directory.display())]
    Foreign {
        /// The application's directory.
        directory: PathBuf,
        /// What was found, relative to the directory.
        file: String,
    },
    /// It was made for another application.
    #[error(
        "state directory {} belongs to application {found}, not to {expected}; choose another state.dir",
        directory.display()
    )]
    OtherApplication {
        /// The application's directory.
        directory: PathBuf,
        /// The application it was made for.
        found: String,
        /// The one that wants it.
        expected: String,
    },
    /// It was made by a version with another format.
    #[error(
        "state directory {} has format {format}, this version knows only format 1; use the version that made it, or delete it",
        directory.display()
    )]
    UnknownFormat {
        /// The application's directory.
        directory: PathBuf,
        /// The format found.
        format: u32,
    },
    /// Its process file makes no sense.
    #[error("{} is damaged; delete it, the state can stay", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// This process may not write there.
    #[error("cannot {operation} {}: this process may not write there", path.display())]
    NotWritable {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The answer of the operating system.
        source: io::Error,
    },
    /// The disk is full.
    #[error("cannot {operation} {}: the disk is full", path.display())]
    Full {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The answer of the operating system.
        source: io::Error,
    },
    /// The operating system refused for another reason.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The answer of the operating system.
        source: io::Error,
    },
}

impl StateDirError {
    pub(super) fn from_io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable { operation, path, source }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { operation, path, source }
            }
            _ => Self::Io { operation, path, source },
        }
    }
}

struct Pid(Option<u32>);

impl std::fmt::Display for Pid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "{pid}"),
            None => f.write_str("(unknown)"),
        }
    }
}
