//! How an instance is closed.

use std::time::Duration;

use super::coordinator::InstanceCommand;
use super::{CloseTimeout, Instance};

/// What becomes of an instance's membership when it is closed, in Kafka Streams' words (feature row
/// R27, KIP-1153, KIP-1284).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupMembership {
    /// It leaves, unless it is a static member: that keeps its place for a quick restart.
    #[default]
    Default,
    /// It leaves, and others take its tasks over at once.
    LeaveGroup,
    /// Its place is kept for as long as its session: if it is back before, its tasks come back to it in
    /// one rebalance, and no other task moves. To be recognized it needs its state directory, where the
    /// place is noted when all is closed; without one (with stores in memory only), or after a crash or
    /// a close that took too long, it comes back as a new member, whose rebalance waits for the end of
    /// the old session. Static members need no note, and no rebalance. Whoever is closed before it has been given
    /// a place, or after it has lost it, leaves, unless it is a static member.
    ///
    /// Nobody runs its tasks meanwhile, and a rebalance that something else starts waits for it, until
    /// it is back or its session has ended. So this is for a restart that takes less time than a
    /// hand-over is worth, with a session time-out that is longer than the restart.
    RemainInGroup,
}

/// How an instance is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseOptions {
    /// How long it may take.
    pub timeout: Duration,
    /// What becomes of its membership.
    pub group_membership: GroupMembership,
}

impl CloseOptions {
    /// Within this time, with the default for the membership.
    pub fn timeout(timeout: Duration) -> Self {
        Self { timeout, group_membership: GroupMembership::Default }
    }

    /// Sets what becomes of the membership.
    pub fn group_membership(self, group_membership: GroupMembership) -> Self {
        Self { group_membership, ..self }
    }
}

impl Instance {
    /// Commits, closes everything and leaves the group (unless it is a static member).
    ///
    /// # Errors
    /// [`CloseTimeout`] when that takes longer than `timeout`; then the rest is given up as in a
    /// crash.
    ///
    /// # Cancel safety
    /// Dropping the future is a crash.
    pub async fn close(self, timeout: Duration) -> Result<(), CloseTimeout> {
        self.close_with(CloseOptions::timeout(timeout)).await
    }

    /// Commits and closes everything.
    ///
    /// If the group is left, the tasks are committed and let go first, so that others go on while the
    /// stores are being closed. In a large group, whose members hear late of a round, they go on here until the
    /// group has decided who gets them, at most for half of the time given.
    ///
    /// After an error too this answers `Ok`; the error is in [`error`](Self::error).
    ///
    /// ```no_run
    /// # async fn stop(instance: headwater_runtime::Instance) -> Result<(), headwater_runtime::CloseTimeout> {
    /// use headwater_runtime::{CloseOptions, GroupMembership};
    /// use std::time::Duration;
    ///
    /// // It is back in a moment: let its tasks wait for it.
    /// let options = CloseOptions::timeout(Duration::from_secs(30))
    ///     .group_membership(GroupMembership::RemainInGroup);
    /// instance.close_with(options).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CloseTimeout`] when that takes longer than the time given; then the rest is given up as in
    /// a crash.
    ///
    /// # Cancel safety
    /// Dropping the future is a crash.
    pub async fn close_with(mut self, options: CloseOptions) -> Result<(), CloseTimeout> {
        self.command(InstanceCommand::Close(options.group_membership, options.timeout));
        let ended = tokio::time::timeout(options.timeout, &mut self.coordinator).await;
        match ended {
            // A panic has been reported by the panic hook.
            Ok(Ok(()) | Err(_)) => Ok(()),
            Err(_) => Err(CloseTimeout {
                limit: options.timeout,
                tasks: self.tasks.borrow().keys().copied().collect(),
            }),
        }
    }
}
