//! The time of records whose source has no extractor of its own.

use crate::process::{ExtractedTime, NegativeTimestamp, UserError};

/// Where records get their time from, unless their source says so itself (feature row R13; the classes
/// of Kafka Streams with these names). Repartition topics are not asked: their records have valid
/// times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DefaultTimestampExtractor {
    /// Their own time; an invalid one is an error.
    #[default]
    FailOnInvalidTimestamp,
    /// Their own time; those with an invalid one are dropped and counted.
    LogAndSkipOnInvalidTimestamp,
    /// Their own time; instead of an invalid one, the highest so far in the partition.
    UsePartitionTimeOnInvalidTimestamp,
    /// The wall clock, whatever the records say.
    WallclockTimestampExtractor,
}

impl DefaultTimestampExtractor {
    /// The time of a record that says it is of `timestamp`; `partition_time` is the highest so far in
    /// its partition, −1 before the first.
    ///
    /// # Errors
    /// When the time is invalid and nothing is to take its place.
    pub fn time(
        self,
        timestamp: i64,
        partition_time: i64,
        wall_ms: i64,
    ) -> Result<ExtractedTime, UserError> {
        match self {
            Self::WallclockTimestampExtractor => Ok(ExtractedTime::At(wall_ms)),
            _ if timestamp >= 0 => Ok(ExtractedTime::At(timestamp)),
            Self::LogAndSkipOnInvalidTimestamp => Ok(ExtractedTime::Skip),
            Self::UsePartitionTimeOnInvalidTimestamp if partition_time >= 0 => {
                Ok(ExtractedTime::At(partition_time))
            }
            _ => Err(Box::new(NegativeTimestamp { timestamp })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_extractor_has_its_own_answer_to_an_invalid_time() {
        use DefaultTimestampExtractor as Extractor;
        let cases = [
            (Extractor::FailOnInvalidTimestamp, 7, Some(ExtractedTime::At(7))),
            (Extractor::FailOnInvalidTimestamp, -1, None),
            (Extractor::LogAndSkipOnInvalidTimestamp, -1, Some(ExtractedTime::Skip)),
            (Extractor::UsePartitionTimeOnInvalidTimestamp, -1, Some(ExtractedTime::At(5))),
            (Extractor::WallclockTimestampExtractor, 7, Some(ExtractedTime::At(99))),
            (Extractor::WallclockTimestampExtractor, -1, Some(ExtractedTime::At(99))),
        ];
        for (extractor, timestamp, expected) in cases {
            let found = extractor.time(timestamp, 5, 99).ok();
            assert_eq!(found, expected, "{extractor:?} of {timestamp}");
        }
        assert!(Extractor::UsePartitionTimeOnInvalidTimestamp.time(-1, -1, 99).is_err());
    }
}
