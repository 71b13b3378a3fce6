//! Changelogs: where restoring a store begins, the restore loop itself, what an acknowledged
//! changelog batch means for the stored position, and lag.
//!
//! A store's position in its changelog lies in the store itself
//! ([`ChangelogPosition`](headwater_store::ChangelogPosition)) and is never ahead of the data. So a
//! crash costs reading the changelog from there; [`restore_start`] lists the few cases in which the
//! state has to be given up and read from the beginning. [`restore`] is the one loop that reads
//! changelogs, for tasks that are about to run and, with another [`ApplyStep`], for global stores; [`follow`] is
//! the one that goes on after their end, for standbys and warm-ups.

mod acknowledgement;
mod apply;
mod blocking;
mod committed;
mod error;
mod follow;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod lag;
mod read;
mod restore;
mod start;
#[cfg(test)]
mod test_logs;

pub use acknowledgement::{Acknowledged, AcknowledgedOffsets, Gap};
pub use apply::{Applied, ApplyStep, ChangelogStore, RestoreMemory, StoreStep, Stretch};
pub use blocking::{Blocking, BlockingExt, InlineBlocking, Job, TokioBlocking};
pub use committed::CommittedFilter;
pub use error::ChangelogError;
pub use follow::{
    FollowCommand, FollowEnd, FollowNews, FollowOptions, FollowPartition, FollowProgress,
    FollowTarget, StandbyUpdateListener, StoreLag, SuspendReason, follow,
};
pub use lag::{Lag, lag};
pub use restore::{
    Limit, RestoreCommand, RestoreEnd, RestoreListener, RestoreOptions, RestorePartition,
    RestoreTarget, restore,
};
pub use start::{RebuildReason, RestoreFacts, RestoreStart, restore_start, tombstone_retention_ms};
