//! Where restoring a store from its changelog begins. Pure: facts in, decision out.

use std::collections::BTreeMap;
use std::fmt;

use headwater_store::ChangelogPosition;

/// What is known of a store and its changelog before a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreFacts {
    /// The position in the store; `None` when it never held any of the changelog.
    pub position: Option<ChangelogPosition>,
    /// Whether the store holds any entry.
    pub has_data: bool,
    /// Whether the backend called its bytes damaged.
    pub damaged: bool,
    /// The topic's id now; all zero when the broker gives no ids.
    pub topic_id: [u8; 16],
    /// First offset that can be read.
    pub log_start_offset: i64,
    /// The offset after the last record.
    pub end_offset: i64,
    /// Leader epoch of the end of the log, where it is known.
    pub end_epoch: Option<i32>,
    /// Where the leader epoch of the position ends in the log, where that is known (KIP-320).
    pub position_epoch_end: Option<i64>,
    /// How long the broker keeps tombstones; `None` when the topic is not compacted.
    pub tombstone_retention_ms: Option<i64>,
    /// Wall-clock time, in milliseconds since 1970.
    pub now_ms: i64,
}

/// Where a restore begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreStart {
    /// At this offset, on top of what the store holds.
    FromOffset(i64),
    /// The store is emptied and read from the first offset of the log.
    Rebuild {
        /// Why; to be logged.
        reason: RebuildReason,
    },
}

/// Why a store is rebuilt from the beginning of its changelog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RebuildReason {
    /// The backend reports that its bytes cannot be trusted.
    Damaged,
    /// The store has entries but no position: a first restore was cut off before it noted one, at
    /// a time nobody knows.
    NoPosition,
    /// The topic was deleted and created again.
    OtherTopic {
        /// Id of the topic that the store holds.
        stored: [u8; 16],
        /// Id of the topic now.
        found: [u8; 16],
    },
    /// The state was last at the end for so long ago that tombstones may be gone that it has not
    /// seen: a deleted key would come back.
    TooOld {
        /// Time since then, in milliseconds.
        age_ms: i64,
        /// The topic's `delete.retention.ms`.
        retention_ms: i64,
    },
    /// The log ends before the stored position: it was truncated (an unclean leader election), and
    /// what the store holds beyond is nowhere else.
    TruncatedLog {
        /// The stored position.
        next_offset: i64,
        /// The end of the log.
        end_offset: i64,
    },
    /// The log's newest leader epoch is older than the one the store has seen.
    TruncatedEpoch {
        /// The stored epoch.
        stored: i32,
        /// The epoch found.
        found: i32,
    },
    /// The log has lost records that the store has applied, and has grown since: another leader took
    /// over that did not have them.
    LostRecords {
        /// The stored epoch.
        leader_epoch: i32,
        /// Where the records of that epoch end now.
        end_offset: i64,
        /// The stored position.
        next_offset: i64,
    },
    /// The records from the stored position on have been deleted, and nobody knows what they
    /// changed. Kafka Streams does the same (`TaskCorruptedException`): every copy of the state is
    /// then what the log says.
    DeletedPrefix {
        /// The stored position.
        next_offset: i64,
        /// First offset that can be read.
        log_start_offset: i64,
    },
}

impl fmt::Display for RebuildReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged => write!(f, "the store is damaged"),
            Self::NoPosition => write!(f, "the store has entries but no position"),
            Self::OtherTopic { .. } => write!(f, "the topic was deleted and created again"),
            Self::TooOld { age_ms, retention_ms } => write!(
                f,
                "the state was last complete {age_ms} ms ago and tombstones are kept for only {retention_ms} ms"
            ),
            Self::TruncatedLog { next_offset, end_offset } => write!(
                f,
                "the store is at offset {next_offset} but the log ends at {end_offset}: it was truncated"
            ),
            Self::TruncatedEpoch { stored, found } => write!(
                f,
                "the store has seen leader epoch {stored} but the log is at {found}: it was truncated"
            ),
            Self::LostRecords { leader_epoch, end_offset, next_offset } => write!(
                f,
                "the store is at offset {next_offset}, in leader epoch {leader_epoch}, but the records of that epoch end at {end_offset}: what followed was lost, and others were written in its place"
            ),
            Self::DeletedPrefix { next_offset, log_start_offset } => write!(
                f,
                "the store is at offset {next_offset} but the log begins at {log_start_offset}"
            ),
        }
    }
}

/// Decides where a restore begins.
///
/// A position is good as long as the log still says everything that happened after it. What a
/// tombstone deleted must be in that: the time in the position
/// ([`at_end_ms`](ChangelogPosition::at_end_ms)) is when the state was last complete, or, until it
/// has been complete once, when its first read began, and every tombstone written later lives for
/// the topic's `delete.retention.ms`.
pub fn restore_start(facts: &RestoreFacts) -> RestoreStart {
    match rebuild_reason(facts) {
        Some(reason) => RestoreStart::Rebuild { reason },
        None => RestoreStart::FromOffset(
            facts.position.map_or(facts.log_start_offset, |position| position.next_offset),
        ),
    }
}

fn rebuild_reason(facts: &RestoreFacts) -> Option<RebuildReason> {
    if facts.damaged {
        return Some(RebuildReason::Damaged);
    }
    let Some(position) = facts.position else {
        return facts.has_data.then_some(RebuildReason::NoPosition);
    };
    let unknown = [0; 16];
    if position.topic_id != facts.topic_id
        && position.topic_id != unknown
        && facts.topic_id != unknown
    {
        let (stored, found) = (position.topic_id, facts.topic_id);
        return Some(RebuildReason::OtherTopic { stored, found });
    }
    let next_offset = position.next_offset;
    if next_offset > facts.end_offset {
        let end_offset = facts.end_offset;
        return Some(RebuildReason::TruncatedLog { next_offset, end_offset });
    }
    if let (Some(stored), Some(found)) = (position.leader_epoch, facts.end_epoch)
        && found < stored
    {
        return Some(RebuildReason::TruncatedEpoch { stored, found });
    }
    if let (Some(leader_epoch), Some(end_offset)) =
        (position.leader_epoch, facts.position_epoch_end)
        && end_offset < next_offset
    {
        return Some(RebuildReason::LostRecords { leader_epoch, end_offset, next_offset });
    }
    if next_offset < facts.log_start_offset {
        let log_start_offset = facts.log_start_offset;
        return Some(RebuildReason::DeletedPrefix { next_offset, log_start_offset });
    }
    too_old(facts, position)
}

fn too_old(facts: &RestoreFacts, position: ChangelogPosition) -> Option<RebuildReason> {
    let retention_ms = facts.tombstone_retention_ms?;
    let Some(at_end_ms) = position.at_end_ms else { return Some(RebuildReason::NoPosition) };
    let age_ms = facts.now_ms.saturating_sub(at_end_ms);
    (age_ms > retention_ms).then_some(RebuildReason::TooOld { age_ms, retention_ms })
}

/// Kafka's default of `delete.retention.ms`: one day.
const DEFAULT_DELETE_RETENTION_MS: i64 = 86_400_000;

/// How long a topic of these settings keeps tombstones: its `delete.retention.ms`, `None` when it
/// is not compacted.
pub fn tombstone_retention_ms(configs: &BTreeMap<String, String>) -> Option<i64> {
    let policy = configs.get("cleanup.policy").map_or("delete", String::as_str);
    policy.split(',').any(|policy| policy.trim() == "compact").then(|| {
        configs
            .get("delete.retention.ms")
            .and_then(|value| value.parse().ok())
            .unwrap_or(DEFAULT_DELETE_RETENTION_MS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: [u8; 16] = [7; 16];

    fn position(next_offset: i64) -> ChangelogPosition {
        ChangelogPosition {
            topic_id: ID,
            next_offset,
            leader_epoch: Some(3),
            at_end_ms: Some(1000),
        }
    }

    fn facts() -> RestoreFacts {
        RestoreFacts {
            position: Some(position(50)),
            has_data: true,
            damaged: false,
            topic_id: ID,
            log_start_offset: 10,
            end_offset: 100,
            end_epoch: Some(3),
            position_epoch_end: Some(100),
            tombstone_retention_ms: Some(5000),
            now_ms: 2000,
        }
    }

    #[track_caller]
    fn check(facts: RestoreFacts, expected: RestoreStart) {
        assert_eq!(restore_start(&facts), expected, "{facts:?}");
    }

    #[track_caller]
    fn rebuilds(facts: RestoreFacts, reason: RebuildReason) {
        check(facts, RestoreStart::Rebuild { reason });
    }

    #[test]
    fn a_good_position_is_where_it_begins() {
        check(facts(), RestoreStart::FromOffset(50));
        for next_offset in [10, 100] {
            let position = Some(position(next_offset));
            check(RestoreFacts { position, ..facts() }, RestoreStart::FromOffset(next_offset));
        }
        check(RestoreFacts { end_epoch: Some(4), ..facts() }, RestoreStart::FromOffset(50));
        check(RestoreFacts { end_epoch: None, ..facts() }, RestoreStart::FromOffset(50));
        check(RestoreFacts { topic_id: [0; 16], ..facts() }, RestoreStart::FromOffset(50));
    }

    #[test]
    fn a_new_store_begins_at_the_start_of_the_log() {
        let fresh = RestoreFacts { position: None, has_data: false, ..facts() };
        check(fresh, RestoreStart::FromOffset(10));
        check(
            RestoreFacts { log_start_offset: 0, end_offset: 0, ..fresh },
            RestoreStart::FromOffset(0),
        );
        rebuilds(RestoreFacts { has_data: true, ..fresh }, RebuildReason::NoPosition);
    }

    #[test]
    fn damage_counts_before_all_else() {
        rebuilds(RestoreFacts { damaged: true, position: None, ..facts() }, RebuildReason::Damaged);
    }

    #[test]
    fn another_topic_of_the_same_name() {
        let found = [8; 16];
        rebuilds(
            RestoreFacts { topic_id: found, ..facts() },
            RebuildReason::OtherTopic { stored: ID, found },
        );
    }

    #[test]
    fn a_truncated_log() {
        rebuilds(
            RestoreFacts { end_offset: 49, ..facts() },
            RebuildReason::TruncatedLog { next_offset: 50, end_offset: 49 },
        );
        rebuilds(
            RestoreFacts { end_epoch: Some(2), ..facts() },
            RebuildReason::TruncatedEpoch { stored: 3, found: 2 },
        );
    }

    #[test]
    fn a_log_that_was_truncated_and_has_grown() {
        let newer = RestoreFacts { end_epoch: Some(5), ..facts() };
        for position_epoch_end in [None, Some(50), Some(60)] {
            let facts = RestoreFacts { position_epoch_end, ..newer };
            check(facts, RestoreStart::FromOffset(50));
        }
        rebuilds(
            RestoreFacts { position_epoch_end: Some(49), ..newer },
            RebuildReason::LostRecords { leader_epoch: 3, end_offset: 49, next_offset: 50 },
        );
        let position = Some(ChangelogPosition { leader_epoch: None, ..position(50) });
        let facts = RestoreFacts { position, position_epoch_end: Some(49), ..newer };
        check(facts, RestoreStart::FromOffset(50));
    }

    #[test]
    fn a_deleted_prefix() {
        rebuilds(
            RestoreFacts { log_start_offset: 51, ..facts() },
            RebuildReason::DeletedPrefix { next_offset: 50, log_start_offset: 51 },
        );
    }

    #[test]
    fn older_than_the_tombstones() {
        check(RestoreFacts { now_ms: 6000, ..facts() }, RestoreStart::FromOffset(50));
        rebuilds(
            RestoreFacts { now_ms: 6001, ..facts() },
            RebuildReason::TooOld { age_ms: 5001, retention_ms: 5000 },
        );
        let not_compacted =
            RestoreFacts { tombstone_retention_ms: None, now_ms: 99_999, ..facts() };
        check(not_compacted, RestoreStart::FromOffset(50));
        let clock_went_back = RestoreFacts { now_ms: 0, ..facts() };
        check(clock_went_back, RestoreStart::FromOffset(50));
        let position = Some(ChangelogPosition { at_end_ms: None, ..position(50) });
        rebuilds(RestoreFacts { position, ..facts() }, RebuildReason::NoPosition);
    }

    #[test]
    fn retention_of_tombstones_by_topic_settings() {
        for (configs, expected) in [
            (&[][..], None),
            (&[("cleanup.policy", "delete"), ("delete.retention.ms", "7")], None),
            (&[("cleanup.policy", "compact")], Some(86_400_000)),
            (&[("cleanup.policy", "compact"), ("delete.retention.ms", "7")], Some(7)),
            (&[("cleanup.policy", "delete, compact"), ("delete.retention.ms", "0")], Some(0)),
        ] {
            let configs =
                configs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
            assert_eq!(tombstone_retention_ms(&configs), expected, "{configs:?}");
        }
    }
}
