//! The life of a task, as a pure state machine (feature row R5).

use std::fmt;

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskState {
    /// Assigned; nothing is open yet.
    Created,
    /// Its stores read the changelogs.
    Restoring,
    /// It processes records.
    Running,
    /// It no longer processes; its state is still open.
    Suspended,
    /// All is closed.
    Closed,
}

/// What happens to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskEvent {
    /// Its storage is open and its changelogs are to be read.
    Opened,
    /// All its stores are at their ends.
    Restored,
    /// It is to stop: revoked, lost, failed, or the instance closes.
    Stopped,
    /// It is assigned again before it was closed.
    Resumed,
    /// Its state is released.
    Released,
    /// A closed task is set up anew after its state was given up.
    Revived,
}

/// An event that a state does not allow: a bug of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a task that is {state} cannot be {event}; this is a bug")]
pub struct IllegalTransition {
    /// Where the task stood.
    pub state: TaskState,
    /// What was to happen.
    pub event: TaskEvent,
}

impl TaskState {
    /// The state after `event`.
    ///
    /// # Errors
    /// [`IllegalTransition`] when the event is not allowed here.
    pub fn after(self, event: TaskEvent) -> Result<Self, IllegalTransition> {
        match (self, event) {
            (Self::Created, TaskEvent::Opened) | (Self::Suspended, TaskEvent::Resumed) => {
                Ok(Self::Restoring)
            }
            (Self::Restoring, TaskEvent::Restored) => Ok(Self::Running),
            (Self::Created | Self::Restoring | Self::Running, TaskEvent::Stopped) => {
                Ok(Self::Suspended)
            }
            (Self::Suspended, TaskEvent::Released) => Ok(Self::Closed),
            (Self::Closed, TaskEvent::Revived) => Ok(Self::Created),
            (state, event) => Err(IllegalTransition { state, event }),
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Restoring => "restoring",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Closed => "closed",
        })
    }
}

impl fmt::Display for TaskEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Opened => "opened",
            Self::Restored => "restored",
            Self::Stopped => "stopped",
            Self::Resumed => "resumed",
            Self::Released => "released",
            Self::Revived => "revived",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use expect_test::expect;

    use super::{TaskEvent, TaskState};

    #[test]
    fn all_transitions() {
        let states = [
            TaskState::Created,
            TaskState::Restoring,
            TaskState::Running,
            TaskState::Suspended,
            TaskState::Closed,
        ];
        let events = [
            TaskEvent::Opened,
            TaskEvent::Restored,
            TaskEvent::Stopped,
            TaskEvent::Resumed,
            TaskEvent::Released,
            TaskEvent::Revived,
        ];
        let mut table = String::new();
        for state in states {
            for event in events {
                if let Ok(next) = state.after(event) {
                    writeln!(table, "{state} -- {event} --> {next}").unwrap();
                }
            }
        }
        expect![[r"
            created -- opened --> restoring
            created -- stopped --> suspended
            restoring -- restored --> running
            restoring -- stopped --> suspended
            running -- stopped --> suspended
            suspended -- resumed --> restoring
            suspended -- released --> closed
            closed -- revived --> created
        "]]
        .assert_eq(&table);
    }

    #[test]
    fn an_illegal_event_names_both() {
        let error = TaskState::Closed.after(TaskEvent::Restored).unwrap_err();
        assert_eq!(error.to_string(), "a task that is closed cannot be restored; this is a bug");
    }
}
