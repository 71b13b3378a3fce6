//! What can go wrong when a broker is opened.

use std::io;
use std::path::{Path, PathBuf};

use headwater_broker::{BrokerError, TopicPartition};

/// Why a directory could not be opened as a broker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another broker has the directory open.
    #[error(
        "directory {} is in use by {}; a broker's directory belongs to one process at a time",
        directory.display(),
        holder.map_or("another process".to_owned(), |pid| format!("process {pid}"))
    )]
    DirectoryInUse {
        /// The directory.
        directory: PathBuf,
        /// The process id that the holder left there, if it could be read.
        holder: Option<u32>,
    },
    /// The directory holds something else.
    #[error(
        "directory {} has files in it but is not a broker's; choose an empty one",
        directory.display()
    )]
    ForeignDirectory {
        /// The directory.
        directory: PathBuf,
    },
    /// A line of the journal cannot be read, and it is not the last one.
    #[error("line {line} of {} is damaged; restore the file from a copy", path.display())]
    DamagedJournal {
        /// The journal.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A segment that is not the last one of its log cannot be read.
    #[error(
        "{} is damaged at byte {position}; restore the file from a copy, or delete the topic",
        path.display()
    )]
    DamagedSegment {
        /// The segment.
        path: PathBuf,
        /// Where the first batch begins that cannot be read.
        position: u64,
    },
    /// The directory was written by a later version.
    #[error("{} has format {format}; use the version that wrote it, or a later one", path.display())]
    NewerFormat {
        /// The journal.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// A transaction that was open when the broker ended cannot be ended.
    #[error("the open transaction in {topic_partition} cannot be ended")]
    Transaction {
        /// The partition.
        topic_partition: TopicPartition,
        /// Why.
        source: Box<BrokerError>,
    },
    /// New producer ids cannot be given out after a restart.
    #[error("writers of {} cannot be fenced", directory.display())]
    Producers {
        /// The directory.
        directory: PathBuf,
        /// Why.
        source: Box<BrokerError>,
    },
    /// A broker in memory was to be started again.
    #[error(
        "a broker in memory has nothing that it could be started again from; open one in a directory"
    )]
    NoDirectory,
    /// The operating system refused.
    #[error("could not {operation} {}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { operation, path: path.to_owned(), source }
    }
}

/// A failure of the operating system in the middle of work.
pub(crate) fn storage_error(operation: &str, place: &str, error: &io::Error) -> BrokerError {
    BrokerError::Storage { operation: format!("{operation} {place}"), cause: error.to_string() }
}
