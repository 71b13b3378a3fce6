//! How far a state is behind its changelogs.

use headwater_broker::TopicPartition;

/// How far one store is behind its changelog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The changelog.
    pub topic_partition: TopicPartition,
    /// The offset after the last record applied; 0 when there is no state.
    pub position: i64,
    /// The end of the log.
    pub end_offset: i64,
    /// Offsets still to be read: at most as many records, fewer where the log is compacted.
    pub offsets: u64,
}

/// The lag of a store at `position` (`None`: no state) of a log that begins at `log_start_offset`
/// and ends at `end_offset`.
pub fn lag(
    topic_partition: TopicPartition,
    position: Option<i64>,
    log_start_offset: i64,
    end_offset: i64,
) -> Lag {
    let from = position.unwrap_or(0).max(log_start_offset);
    // A position beyond the end is a truncated log: everything is to be read again.
    let behind = if position.is_some_and(|position| position > end_offset) {
        end_offset - log_start_offset
    } else {
        end_offset - from
    };
    Lag {
        topic_partition,
        position: position.unwrap_or(0),
        end_offset,
        offsets: u64::try_from(behind).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_can_still_be_read() {
        for (position, start, end, expected) in [
            (None, 0, 0, 0),
            (None, 0, 10, 10),
            (None, 4, 10, 6),
            (Some(7), 0, 10, 3),
            (Some(2), 4, 10, 6),
            (Some(10), 0, 10, 0),
            (Some(11), 4, 10, 6),
        ] {
            let lag = lag(TopicPartition::new("log", 0), position, start, end);
            assert_eq!(lag.offsets, expected, "{position:?} in {start}..{end}");
        }
    }
}
