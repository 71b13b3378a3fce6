//! Where an input begins that has no valid committed offset.

use headwater_broker::{BrokerError, Isolation, OffsetQuery, OffsetSpec, Offsets, TopicPartition};

use crate::process::OffsetReset;

/// What to ask the broker for under a reset policy; `None` when the policy is to fail.
fn spec(reset: OffsetReset, now_ms: i64) -> Option<OffsetSpec> {
    match reset {
        OffsetReset::Earliest => Some(OffsetSpec::Earliest),
        OffsetReset::Latest => Some(OffsetSpec::Latest),
        OffsetReset::ByDuration { ms } => {
            Some(OffsetSpec::AtTimestamp(now_ms.saturating_sub(ms).max(0)))
        }
        OffsetReset::None => None,
    }
}

/// The offset to begin at; `None` when the policy is to fail.
///
/// # Errors
/// When the broker cannot be asked.
pub(super) async fn reset_offset(
    broker: &(impl Offsets + ?Sized),
    topic_partition: &TopicPartition,
    reset: OffsetReset,
    now_ms: i64,
    isolation: Isolation,
) -> Result<Option<i64>, BrokerError> {
    let Some(spec) = spec(reset, now_ms) else { return Ok(None) };
    let query = |spec| [OffsetQuery { topic_partition: topic_partition.clone(), spec }];
    let found = broker.list_offsets(&query(spec), isolation).await?;
    if let Some(Some(found)) = found.first() {
        return Ok(Some(found.offset));
    }
    // Every record is older than asked for: begin behind the newest (KIP-1106).
    let end = broker.list_offsets(&query(OffsetSpec::Latest), isolation).await?;
    Ok(Some(end.first().copied().flatten().map_or(0, |end| end.offset)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies() {
        for (reset, expected) in [
            (OffsetReset::Earliest, Some(OffsetSpec::Earliest)),
            (OffsetReset::Latest, Some(OffsetSpec::Latest)),
            (OffsetReset::ByDuration { ms: 300 }, Some(OffsetSpec::AtTimestamp(700))),
            (OffsetReset::ByDuration { ms: 3000 }, Some(OffsetSpec::AtTimestamp(0))),
            (OffsetReset::None, None),
        ] {
            assert_eq!(spec(reset, 1000), expected, "{reset:?}");
        }
    }
}
