//! What to do when a thread of the instance cannot go on (feature row E5, KIP-671).

mod guarded;

use std::fmt;
use std::sync::Arc;

use super::error::InstanceError;

/// What to do after an error that no other handler took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UncaughtReaction {
    /// A new thread takes over the tasks of the one that failed, from their last commit.
    ReplaceThread,
    /// This instance closes and ends in [`InstanceState::Error`](crate::InstanceState::Error).
    #[default]
    ShutdownClient,
    /// All instances of the application do.
    ShutdownApplication,
}

/// Asked about errors that no other handler took.
pub(super) type UncaughtHandler = dyn Fn(&InstanceError) -> UncaughtReaction + Send + Sync;

/// Hears of changes of an instance's state: the new one, then the old one.
pub(super) type StateListener = dyn Fn(super::InstanceState, super::InstanceState) + Send + Sync;

/// What the user wants to hear, and to decide.
#[derive(Clone)]
pub(super) struct Hooks {
    pub(super) uncaught: Arc<UncaughtHandler>,
    pub(super) state: Option<Arc<StateListener>>,
    pub(super) restore: Arc<dyn headwater_changelog::RestoreListener>,
    pub(super) standby: Arc<dyn headwater_changelog::StandbyUpdateListener>,
    pub(super) tasks: Arc<dyn super::TaskListener>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}
