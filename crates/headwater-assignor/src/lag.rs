//! How far a copy of a task's state is behind.

/// The largest offset there is; sums of offsets stop here instead of overflowing.
pub const MAX_OFFSET: u64 = i64::MAX as u64;

/// How far an instance is behind on a task: the changelog's end less what the instance has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every assignor must say what it does with each case")]
pub enum Lag {
    /// The task runs there as active and its state is at the end (`-2` in Kafka Streams).
    Latest,
    /// The instance has some state, but nobody knows how much (`-3` in Kafka Streams).
    Unknown,
    /// Offsets still to be read, at most [`MAX_OFFSET`]; the full end if there is no state.
    Behind(u64),
}

impl Lag {
    /// The lag of an instance that reported the offset sum `held` (`None`: no state at all) of a
    /// task whose changelogs end at `end`.
    ///
    /// More held than there is means that the state is damaged and must be rebuilt from the start.
    pub fn of(held: Option<u64>, end: u64) -> Self {
        let held = held.unwrap_or(0);
        Self::Behind(if end < held { end } else { end - held }.min(MAX_OFFSET))
    }

    /// Whether a copy with this lag may take over at once.
    ///
    /// [`MAX_OFFSET`] as acceptable lag means that every copy counts as caught up, even none.
    pub fn is_caught_up(self, acceptable: u64) -> bool {
        match self {
            Self::Latest => true,
            Self::Unknown => acceptable >= MAX_OFFSET,
            Self::Behind(offsets) => offsets <= acceptable,
        }
    }

    /// Offsets that a copy with this lag still has to read; `None` if nobody knows.
    pub fn to_restore(self) -> Option<u64> {
        match self {
            Self::Latest => Some(0),
            Self::Unknown => None,
            Self::Behind(offsets) => Some(offsets),
        }
    }
}

/// Adds offsets; the sum stops at [`MAX_OFFSET`].
pub fn add_offsets(a: u64, b: u64) -> u64 {
    a.saturating_add(b).min(MAX_OFFSET)
}
