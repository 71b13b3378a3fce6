//! What can go wrong with a store, as data.

use std::io;
use std::path::{Path, PathBuf};

use crate::SpaceId;
use crate::serde::SerdeError;

/// A failure of a backend, of a stored record or of a typed view.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process, or another storage of this process, has the directory open.
    #[error("state of {} is in use: another storage holds its lock; stop the other process or choose another state directory", dir.display())]
    Locked {
        /// Directory of the task.
        dir: PathBuf,
    },
    /// The stored bytes cannot be trusted. The task rebuilds its state from the changelogs.
    #[error("state in {} is damaged; delete the directory to rebuild it from the changelogs", dir.display())]
    Damaged {
        /// Directory of the task.
        dir: PathBuf,
        /// What was found.
        #[source]
        damage: Damage,
    },
    /// The operating system refused a file operation.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was tried, as a verb: "create", "open", "sync".
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The answer of the operating system.
        #[source]
        source: io::Error,
    },
    /// The backend failed in a way of its own.
    #[error("backend {backend} failed to {operation}")]
    Backend {
        /// [`StoreBackend::name`](crate::StoreBackend::name) of the backend.
        backend: &'static str,
        /// What was tried, as a verb.
        operation: &'static str,
        /// The backend's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A storage was asked for a space it never gave out, or that was dropped.
    #[error("space {} does not exist; open it by name first", space.get())]
    UnknownSpace {
        /// The space asked for.
        space: SpaceId,
    },
    /// A storage cannot hold more stores.
    #[error("no room for store {store}: a task's storage holds at most {limit} stores")]
    TooManySpaces {
        /// Name of the store.
        store: String,
        /// Largest number of spaces.
        limit: usize,
    },
    /// An overlay was sealed while changes still wait to be forwarded.
    #[error("store {store} holds {entries} unforwarded changes; flush its cache before sealing")]
    Unforwarded {
        /// Name of the store.
        store: String,
        /// Number of waiting changes.
        entries: usize,
    },
    /// An overlay was sealed again before the sealed writes were released.
    #[error("store {store} has a sealed commit in flight; release or abandon it before sealing")]
    SealInFlight {
        /// Name of the store.
        store: String,
    },
    /// A key or value could not be read or written by the serde of a typed view.
    #[error("store {store}: {part} does not fit the serde")]
    Serde {
        /// Name of the store.
        store: String,
        /// Which half of the entry.
        part: Part,
        /// The serde's own error.
        #[source]
        source: SerdeError,
    },
    /// What a store holds for a key, or beside its entries, is not of its layout. A task that finds it rebuilds its state
    /// from the changelogs.
    #[error(
        "store {store} holds bytes that are not of its layout; delete its state to rebuild it from the changelog"
    )]
    DamagedRow {
        /// Name of the store.
        store: String,
        /// What was found.
        #[source]
        damage: Damage,
    },
    /// A typed view was opened with another layout or other types than the store was written with.
    #[error("store {store} holds {found}, not {expected}; open it with the types it was made with")]
    WrongType {
        /// Name of the store.
        store: String,
        /// What the caller asked for.
        expected: String,
        /// What the storage says about the store.
        found: String,
    },
    /// A typed view was asked for a store that the storage does not have.
    #[error("no store {store} in {}", dir.display())]
    NoSuchStore {
        /// Name of the store.
        store: String,
        /// Directory of the task.
        dir: PathBuf,
    },
}

impl StoreError {
    /// A damage report about the storage in `dir`.
    pub fn damaged(dir: &Path, damage: Damage) -> Self {
        Self::Damaged { dir: dir.to_owned(), damage }
    }

    /// Whether the state must be rebuilt from the changelogs: the stored bytes cannot be trusted.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::DamagedRow { .. })
    }
}

/// Which half of an entry an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The key.
    Key,
    /// The value.
    Value,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Key => "key",
            Self::Value => "value",
        })
    }
}

/// What is wrong with stored bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The storage was written by a version of Headwater that this one does not know.
    #[error("format version {found} is unknown, this version reads {supported}")]
    FormatVersion {
        /// Version in the storage.
        found: u32,
        /// Version of this program.
        supported: u32,
    },
    /// A record of the meta space does not decode.
    #[error("{record}: {problem}")]
    Record {
        /// Kind of record, for instance "changelog position".
        record: &'static str,
        /// What is wrong with its bytes.
        problem: RecordProblem,
    },
    /// The backend itself reports broken files.
    #[error("the backend cannot read its files")]
    Backend {
        /// The backend's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The backend panicked while it read its files.
    #[error("the backend panicked: {message}")]
    Panic {
        /// Message of the panic, empty when it had none.
        message: String,
    },
}

/// Why a stored record does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordProblem {
    /// Fewer or more bytes than the format has.
    #[error("{found} bytes where the format has {expected}")]
    Length {
        /// Bytes of the format.
        expected: usize,
        /// Bytes in the storage.
        found: usize,
    },
    /// The version byte is not known.
    #[error("unknown version {found}")]
    Version {
        /// Version byte in the storage.
        found: u8,
    },
    /// A field holds a number that its meaning excludes.
    #[error("{field} is {found}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// The number found.
        found: i64,
    },
    /// A text field is not UTF-8.
    #[error("{field} is not UTF-8")]
    Text {
        /// Name of the field.
        field: &'static str,
    },
}
