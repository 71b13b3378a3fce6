//! How far apart in time the records are that a join of streams brings together.

use std::time::Duration;

use super::{ms, wrong};
use crate::error::DslError;

/// How far apart in time two records may be that a join of streams brings together (feature rows D10, D32).
///
/// A record of the left stream meets those of the right one that are at most `before` earlier and at most `after`
/// later than it, both included. Records may come late by the grace period, by the time of the newest: what is older than
/// both sides and the grace period together is no longer kept. In a left or outer join it is also how long the result of a
/// record without partner waits.
///
/// ```
/// use std::time::Duration;
///
/// use headwater_dsl::JoinWindows;
///
/// let minute = Duration::from_secs(60);
/// // Within five minutes, either way; up to one minute late.
/// let close = JoinWindows::of_time_difference_and_grace(5 * minute, minute);
/// // A payment comes after its order, within an hour.
/// let payment = JoinWindows::of_time_difference_with_no_grace(60 * minute).before(Duration::ZERO);
/// # let _ = (close, payment);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinWindows {
    pub(crate) before_ms: i64,
    pub(crate) after_ms: i64,
    pub(crate) grace_ms: i64,
}

impl JoinWindows {
    /// At most so far apart, either way; nothing may come late.
    pub fn of_time_difference_with_no_grace(difference: Duration) -> Self {
        Self::of_time_difference_and_grace(difference, Duration::ZERO)
    }

    /// At most so far apart, either way; records may come late by the grace period.
    pub fn of_time_difference_and_grace(difference: Duration, grace: Duration) -> Self {
        let difference_ms = ms(difference);
        Self { before_ms: difference_ms, after_ms: difference_ms, grace_ms: ms(grace) }
    }

    /// A record of the right stream may be so much earlier than that of the left one.
    pub fn before(self, difference: Duration) -> Self {
        self.before_ms(ms(difference))
    }

    /// A record of the right stream may be so much later than that of the left one.
    pub fn after(self, difference: Duration) -> Self {
        self.after_ms(ms(difference))
    }

    /// [`before`](Self::before) in milliseconds. A negative number makes the right stream's record later by at least
    /// so much.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use headwater_dsl::JoinWindows;
    ///
    /// // Between one second and one minute later.
    /// let later = JoinWindows::of_time_difference_with_no_grace(Duration::from_secs(60))
    ///     .before_ms(-1_000);
    /// # let _ = later;
    /// ```
    pub const fn before_ms(self, before_ms: i64) -> Self {
        Self { before_ms, ..self }
    }

    /// [`after`](Self::after) in milliseconds. A negative number makes the right stream's record earlier by at least so
    /// much.
    pub const fn after_ms(self, after_ms: i64) -> Self {
        Self { after_ms, ..self }
    }

    /// How wide the windows are.
    pub(crate) const fn size_ms(self) -> i64 {
        self.before_ms.saturating_add(self.after_ms)
    }

    /// How long records have to be kept.
    pub(crate) const fn retention_ms(self) -> i64 {
        self.size_ms().saturating_add(self.grace_ms)
    }

    pub(crate) fn check(self) -> Result<(), DslError> {
        if self.size_ms() < 0 {
            let Self { before_ms, after_ms, .. } = self;
            return Err(wrong(format!(
                "the windows of a join cannot reach from {before_ms} ms before a record to {after_ms} ms after it: that ends before it begins"
            )));
        }
        Ok(())
    }
}
