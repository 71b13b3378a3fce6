//! What restoring and following have in common: reading a log batch by batch, and handing what was
//! read to the step of its target.

use std::time::Duration;

use headwater_broker::{BrokerError, FetchedData, TopicPartition};
use headwater_records::{Batches, RecordsError};

use crate::{Applied, ApplyStep, Blocking, BlockingExt, ChangelogError, RebuildReason, Stretch};

/// Time between two tries after an error.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(100);

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
