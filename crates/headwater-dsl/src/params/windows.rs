//! Kinds of windows (feature row D10).

use std::time::Duration;

use crate::error::DslError;

/// Windows of one size that begin at multiples of an interval: tumbling ones next to each other, or
/// hopping ones that overlap (feature row D26). The end of a window does not belong to it.
///
/// ```
/// use std::time::Duration;
///
/// use headwater_dsl::TimeWindows;
///
/// let minutes = TimeWindows::of_size_with_no_grace(Duration::from_secs(60));
/// let last_five_minutes_every_minute = TimeWindows::of_size_and_grace(
///     Duration::from_secs(5 * 60),
///     Duration::from_secs(10),
/// )
/// .advance_by(Duration::from_secs(60));
/// # let _ = (minutes, last_five_minutes_every_minute);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWindows {
    pub(crate) size_ms: i64,
    pub(crate) advance_ms: i64,
    pub(crate) grace_ms: i64,
}

impl TimeWindows {
    /// Tumbling windows of this size that take no late records.
    pub fn of_size_with_no_grace(size: Duration) -> Self {
        Self::of_size_and_grace(size, Duration::ZERO)
    }

    /// Tumbling windows of this size that take late records until stream time is past their end by
    /// the grace period.
    pub fn of_size_and_grace(size: Duration, grace: Duration) -> Self {
        let size_ms = ms(size);
        Self { size_ms, advance_ms: size_ms, grace_ms: ms(grace) }
    }

    /// Hopping windows: one begins at each multiple of this interval.
    pub fn advance_by(self, advance: Duration) -> Self {
        Self { advance_ms: ms(advance), ..self }
    }

    pub(crate) fn check(&self) -> Result<(), DslError> {
        let Self { size_ms, advance_ms, .. } = *self;
        if size_ms <= 0 {
            return Err(wrong("the size of time windows must be at least 1 ms".to_owned()));
        }
        if advance_ms <= 0 || advance_ms > size_ms {
            return Err(wrong(format!(
                "time windows of {size_ms} ms cannot advance by {advance_ms} ms; it must be 1 to {size_ms}"
            )));
        }
        Ok(())
    }
}

/// One window that begins at a time and never ends (feature row D28).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnlimitedWindows {
    pub(crate) start_ms: i64,
}

impl UnlimitedWindows {
    /// From 1970 on.
    pub const fn of() -> Self {
        Self { start_ms: 0 }
    }

    /// From this time on, in milliseconds since 1970.
    pub const fn start_on(self, start_ms: i64) -> Self {
        Self { start_ms }
    }

    pub(crate) fn check(self) -> Result<(), DslError> {
        if self.start_ms < 0 {
            return Err(wrong(format!(
                "unlimited windows cannot begin at {} ms, before 1970",
                self.start_ms
            )));
        }
        Ok(())
    }
}

/// Windows that end or begin with a record: two records are in one when they are no further apart than
/// the time difference (feature row D29). Both ends belong to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindows {
    pub(crate) difference_ms: i64,
    pub(crate) grace_ms: i64,
}

impl SlidingWindows {
    /// Windows of this time difference that take no late records.
    pub fn of_time_difference_with_no_grace(difference: Duration) -> Self {
        Self::of_time_difference_and_grace(difference, Duration::ZERO)
    }

    /// Windows of this time difference that take late records until stream time is past their end by
    /// the grace period.
    pub fn of_time_difference_and_grace(difference: Duration, grace: Duration) -> Self {
        Self { difference_ms: ms(difference), grace_ms: ms(grace) }
    }
}

/// Sessions: records of one key belong together as long as there is no gap between them that is longer
/// than the inactivity gap (feature row D30). Both ends belong to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionWindows {
    pub(crate) gap_ms: i64,
    pub(crate) grace_ms: i64,
}

impl SessionWindows {
    /// Sessions of this inactivity gap that take no late records.
    pub fn of_inactivity_gap_with_no_grace(gap: Duration) -> Self {
        Self::of_inactivity_gap_and_grace(gap, Duration::ZERO)
    }

    /// Sessions of this inactivity gap that take late records until stream time is past their end by the
    /// gap and the grace period.
    pub fn of_inactivity_gap_and_grace(gap: Duration, grace: Duration) -> Self {
        Self { gap_ms: ms(gap), grace_ms: ms(grace) }
    }
}

/// When a windowed aggregation sends results on (KIP-825, feature row D31).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmitStrategy {
    /// Each update at once, or with the next flush of the cache; the default.
    #[default]
    OnWindowUpdate,
    /// Only the last result of a window, when it is closed: stream time is past its end by the grace
    /// period. Looked for when a record comes, at most once a second.
    OnWindowClose,
}

pub(crate) fn wrong(problem: String) -> DslError {
    DslError::WrongWindows { problem }
}

pub(crate) fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
