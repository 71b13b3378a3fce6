//! Where a task stands, as an instance shows it (feature row R5).

use std::fmt;

/// Where a task stands. A closed task is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskState {
    /// Assigned; its stores are not open yet.
    Created,
    /// Its stores read the changelogs.
    Restoring,
    /// It processes records.
    Running,
    /// It no longer processes; its state is being let go.
    Suspended,
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Restoring => "restoring",
            Self::Running => "running",
            Self::Suspended => "suspended",
        })
    }
}
