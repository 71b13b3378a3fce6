//! Which segments are over the limits of `retention.ms` and `retention.bytes`.

use crate::config::LogConfig;
use crate::segment::Segment;

/// What counts of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentAge {
    pub(super) size: u64,
    /// Highest timestamp, if it has records; when it began, if those have none.
    pub(super) max_timestamp: Option<i64>,
}

impl SegmentAge {
    pub(super) fn of(segment: &Segment) -> Self {
        let known = |timestamp| if timestamp < 0 { segment.began_ms } else { timestamp };
        Self { size: segment.bytes.length(), max_timestamp: segment.max_timestamp.map(known) }
    }
}

/// How many of the oldest segments are to go; the last of `segments` is the active one. As in
/// Kafka, a segment is too old when its newest record is, and one goes for its size only if what
/// stays is still at the limit.
pub(super) fn overdue(segments: &[SegmentAge], config: &LogConfig, now_ms: i64) -> usize {
    let too_old = |segment: &&SegmentAge| match (config.retention_ms, segment.max_timestamp) {
        (Some(limit), Some(newest)) => now_ms.saturating_sub(newest) > limit,
        _ => false,
    };
    let by_time = segments.iter().take_while(too_old).count();
    let mut excess = config.retention_bytes.map_or(0, |limit| {
        let total: u64 = segments.iter().map(|segment| segment.size).sum();
        total.saturating_sub(limit)
    });
    let sealed = segments.len().saturating_sub(1);
    let by_size = segments[..sealed]
        .iter()
        .take_while(|segment| {
            let goes = excess > 0 && segment.size <= excess;
            excess = excess.saturating_sub(segment.size);
            goes
        })
        .count();
    by_time.max(by_size)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::in_force;

    /// Segments as `(size, newest timestamp)`, the last one active.
    fn check(configs: &[(&str, &str)], segments: &[(u64, i64)], now_ms: i64, expected: usize) {
        let given: BTreeMap<_, _> =
            configs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let config = LogConfig::new(&in_force(&given, 1024));
        let segments: Vec<_> = segments
            .iter()
            .map(|(size, newest)| SegmentAge {
                size: *size,
                max_timestamp: (*size > 0).then_some(*newest),
            })
            .collect();
        let result = overdue(&segments, &config, now_ms);
        assert_eq!(result, expected, "{configs:?} {segments:?} at {now_ms}");
    }

    #[test]
    fn limits_of_time() {
        let hour = [("retention.ms", "100")];
        check(&hour, &[(10, 0), (10, 50), (10, 90)], 100, 0);
        check(&hour, &[(10, 0), (10, 50), (10, 90)], 101, 1);
        check(&hour, &[(10, 0), (10, 50), (10, 90)], 191, 3);
        // One that is young enough keeps those behind it.
        check(&hour, &[(10, 80), (10, 50), (0, 0)], 170, 0);
        check(&[("retention.ms", "-1")], &[(10, 0), (0, 0)], i64::MAX, 0);
    }

    #[test]
    fn limits_of_size() {
        let limit = [("retention.ms", "-1"), ("retention.bytes", "25")];
        check(&limit, &[(10, 0), (10, 0), (5, 0)], 0, 0);
        check(&limit, &[(10, 0), (10, 0), (14, 0)], 0, 0);
        check(&limit, &[(10, 0), (10, 0), (15, 0)], 0, 1);
        check(&limit, &[(10, 0), (10, 0), (30, 0)], 0, 2);
    }
}
