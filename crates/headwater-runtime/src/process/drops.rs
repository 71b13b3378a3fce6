//! Records that end without being processed: every one is counted, by reason.

use std::fmt;

/// Why a record was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// An operator that needs a key got none.
    NullKey,
    /// An operator that needs a value got none.
    NullValue,
    /// It could not be read, and the handler said to go on.
    Deserialization,
    /// Its timestamp is invalid, and the extractor said to skip it.
    InvalidTimestamp,
    /// A user function failed on it, and the handler said to go on.
    Processing,
    /// It could not be written, and the handler said to go on.
    Production,
    /// A partitioner chose no partition for it.
    NoPartition,
}

impl DropReason {
    /// All reasons, in order.
    pub const ALL: [Self; 7] = [
        Self::NullKey,
        Self::NullValue,
        Self::Deserialization,
        Self::InvalidTimestamp,
        Self::Processing,
        Self::Production,
        Self::NoPartition,
    ];

    /// Its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NullKey => "null-key",
            Self::NullValue => "null-value",
            Self::Deserialization => "deserialization",
            Self::InvalidTimestamp => "invalid-timestamp",
            Self::Processing => "processing",
            Self::Production => "production",
            Self::NoPartition => "no-partition",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many records were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts([u64; DropReason::ALL.len()]);

impl DropCounts {
    /// Dropped for one reason.
    pub fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Dropped for any reason: `dropped-records-total`.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Counts one more.
    pub(crate) fn add(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{DropCounts, DropReason};

    #[test]
    fn each_reason_has_a_count_of_its_own() {
        let mut counts = DropCounts::default();
        for (times, reason) in DropReason::ALL.into_iter().enumerate() {
            for _ in 0..times {
                counts.add(reason);
            }
        }
        for (times, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(counts.of(reason), times as u64, "{reason}");
        }
        assert_eq!(counts.total(), 21);
    }
}
