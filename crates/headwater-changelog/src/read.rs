//! What restoring and following have in common: reading a log batch by batch, and handing what was
//! read to the step of its target.

use std::time::Duration;

use headwater_broker::{BrokerError, FetchedData, TopicPartition};
use headwater_records::{Batches, RecordsError};

use crate::{Applied, ApplyStep, Blocking, BlockingExt, ChangelogError, RebuildReason, Stretch};

/// Time between two tries after an error.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How long a log has not been heard of, and whether tombstones may be gone meanwhile that nobody has
/// seen here. As long as a log is read nothing is said, also if that takes long: to begin anew would
/// take no less.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contact {
    retention_ms: Option<i64>,
    /// Wall-clock time in milliseconds since when nothing was heard.
    since_ms: Option<i64>,
}

/// A silence shorter than this is none, however short tombstones are kept: brokers look for what to
/// compact several times a minute at most, and a rebuild has silences of its own.
const MIN_SILENCE_MS: i64 = 60_000;

impl Contact {
    /// Of a store that was last complete, or began to read, at `at_end_ms`.
    pub(crate) fn new(tombstone_retention_ms: Option<i64>, at_end_ms: Option<i64>) -> Self {
        let retention_ms = tombstone_retention_ms.map(|ms| ms.max(MIN_SILENCE_MS));
        Self { retention_ms, since_ms: at_end_ms }
    }

    /// An answer about the log has come. `behind`: there is something that has not been read. Why the
    /// state has to be rebuilt, if it has.
    pub(crate) fn answered(&mut self, now_ms: i64, behind: bool) -> Option<RebuildReason> {
        let too_old = self.too_old(now_ms).filter(|_| behind);
        if too_old.is_none() {
            self.since_ms = Some(now_ms);
        }
        too_old
    }

    /// The log was asked for, and had no news. After too long a silence only an answer counts.
    pub(crate) fn had_no_news(&mut self, now_ms: i64) {
        if self.too_old(now_ms).is_none() {
            self.since_ms = Some(now_ms);
        }
    }

    /// All has been read that is to be read, up to now.
    pub(crate) fn was_at_end(&mut self, now_ms: i64) {
        self.since_ms = Some(now_ms);
    }

    fn too_old(&self, now_ms: i64) -> Option<RebuildReason> {
        let (retention_ms, since_ms) = (self.retention_ms?, self.since_ms?);
        let age_ms = now_ms.saturating_sub(since_ms);
        (age_ms > retention_ms).then_some(RebuildReason::TooOld { age_ms, retention_ms })
    }
}

/// Stretches on their way to the step of their target.
pub(crate) struct ApplyPart<I, S> {
    pub(crate) id: I,
    pub(crate) step: S,
    pub(crate) stretches: Vec<Stretch>,
    /// What it holds is to be written after that.
    pub(crate) finish: Option<Safe>,
}

/// Whether what is written is to outlast a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Safe(pub(crate) bool);

/// The step back from its work.
pub(crate) struct AppliedPart<I, S> {
    pub(crate) id: I,
    /// Which changelogs were applied, up to where.
    pub(crate) reached: Vec<(usize, i64)>,
    /// `None` when the step panicked.
    pub(crate) result: Option<(S, ApplyResult)>,
}

type ApplyResult = Result<Vec<Applied>, ChangelogError>;

/// Lets a step apply its stretches where blocking is allowed.
pub(crate) async fn apply<I: Copy + Send, S: ApplyStep>(
    blocking: &dyn Blocking,
    part: ApplyPart<I, S>,
) -> AppliedPart<I, S> {
    let ApplyPart { id, mut step, stretches, finish } = part;
    let reached =
        stretches.iter().map(|stretch| (stretch.changelog, stretch.next_offset)).collect();
    let result = blocking
        .call(move || {
            let mut applied = step.apply(&stretches);
            if let (Ok(_), Some(Safe(safe))) = (&applied, finish)
                && let Err(error) = step.finish(safe)
            {
                applied = Err(error);
            }
            (step, applied)
        })
        .await;
    AppliedPart { id, reached, result }
}

/// Last offset and leader epoch of the last whole batch.
pub(crate) fn last_batch(
    topic_partition: &TopicPartition,
    data: &FetchedData,
) -> Result<Option<(i64, i32)>, ChangelogError> {
    let last = || -> Result<_, RecordsError> {
        let mut last = None;
        for batch in Batches::new(data.batches.clone()) {
            let batch = batch?;
            last = Some((batch.header().last_offset, batch.header().leader_epoch));
        }
        Ok(last)
    };
    last().map_err(|source| ChangelogError::Records {
        topic_partition: topic_partition.clone(),
        source,
    })
}

/// An epoch older than one that the store has seen is a truncated log.
pub(crate) fn check_epoch(
    topic_partition: &TopicPartition,
    stored: Option<i32>,
    found: i32,
) -> Result<(), ChangelogError> {
    match stored {
        Some(stored) if found >= 0 && found < stored => {
            let reason = RebuildReason::TruncatedEpoch { stored, found };
            Err(ChangelogError::Rebuild { topic_partition: topic_partition.clone(), reason })
        }
        _ => Ok(()),
    }
}

/// Why a log cannot be read at a position any more.
pub(crate) fn out_of_range(next_offset: i64, error: &BrokerError) -> RebuildReason {
    match error {
        BrokerError::OffsetOutOfRange { end_offset, .. } if next_offset > *end_offset => {
            RebuildReason::TruncatedLog { next_offset, end_offset: *end_offset }
        }
        BrokerError::OffsetOutOfRange { log_start_offset, .. } => {
            RebuildReason::DeletedPrefix { next_offset, log_start_offset: *log_start_offset }
        }
        _ => RebuildReason::DeletedPrefix { next_offset, log_start_offset: next_offset },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_silence_that_is_too_long_asks_for_a_rebuild() {
        let too_old = |age_ms, retention_ms| Some(RebuildReason::TooOld { age_ms, retention_ms });
        // Retention, last complete, then what was heard: when, and whether it is behind.
        for (retention_ms, at_end_ms, heard, expected) in [
            (Some(100_000), Some(0), &[(100_000, true), (200_000, true)][..], None),
            (Some(100_000), Some(0), &[(100_001, true)], too_old(100_001, 100_000)),
            (Some(100_000), Some(0), &[(500_000, false), (600_000, true)], None),
            (Some(100_000), Some(0), &[(90_000, true), (190_001, true)], too_old(100_001, 100_000)),
            (Some(0), Some(0), &[(60_000, true)], None),
            (Some(0), Some(0), &[(60_001, true)], too_old(60_001, 60_000)),
            (None, Some(0), &[(i64::MAX, true)], None),
            (Some(100_000), None, &[(i64::MAX, true)], None),
        ] {
            let mut contact = Contact::new(retention_ms, at_end_ms);
            let found = heard.iter().map(|&(now_ms, behind)| contact.answered(now_ms, behind));
            let found: Vec<_> = found.collect();
            assert_eq!(found.last(), Some(&expected), "{retention_ms:?} {at_end_ms:?} {heard:?}");
        }
        let mut contact = Contact::new(Some(100_000), Some(0));
        contact.had_no_news(100_000);
        contact.had_no_news(200_001);
        assert_eq!(contact.answered(200_001, true), too_old(100_001, 100_000));
        contact.was_at_end(200_001);
        assert_eq!(contact.answered(200_002, true), None);
    }
}
