//! How tasks are restarted.

/// How a task ends before it begins anew, and what is left of it.
///
/// ```
/// use headwater_testing::Restart;
///
/// let moved = Restart::in_good_order().without_state();
/// let killed = Restart::crash();
/// # drop((moved, killed));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    pub(crate) crash: bool,
    pub(crate) without_state: bool,
}

impl Restart {
    /// The task commits and closes its stores, as at a rebalance or the end of an instance.
    pub const fn in_good_order() -> Self {
        Self { crash: false, without_state: false }
    }

    /// The task is lost at once. What it had not committed is processed again (at least once); what it had sent until
    /// then stays.
    pub const fn crash() -> Self {
        Self { crash: true, without_state: false }
    }

    /// Its state on disk is lost too, as when it moves to another machine: everything is restored from the
    /// changelogs. State in memory always is.
    #[must_use]
    pub const fn without_state(self) -> Self {
        Self { without_state: true, ..self }
    }
}
