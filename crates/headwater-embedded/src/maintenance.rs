//! What is done to logs from time to time: old records are deleted, compacted topics compacted.

use std::sync::{Arc, Weak};
use std::time::Duration;

use headwater_broker::BrokerError;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::broker::Shared;
use crate::partition::Partition;

use retention::SegmentAge;

mod compaction;
mod retention;

/// What a round of maintenance did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Maintained {
    /// Segments deleted because they were over the limits of time or size.
    pub segments_deleted: usize,
    /// Segments written anew without superseded records.
    pub segments_compacted: usize,
    /// Records that compaction took out.
    pub records_removed: u64,
}

/// Who maintains the logs, and when.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    /// Held during a round: there is one at a time. Taken before all other locks.
    round: Mutex<()>,
    task: Mutex<Option<AbortHandle>>,
}

impl Maintenance {
    /// Does something while there is no round.
    pub(crate) fn between_rounds<T>(&self, work: impl FnOnce() -> T) -> T {
        let _round = self.round.lock();
        work()
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut() {
            task.abort();
        }
    }
}

impl Shared {
    /// Starts the rounds in the background, if they are wanted and not under way. They end with
    /// the broker, or with the runtime; then the next call starts them anew.
    pub(crate) fn start_maintenance(self: &Arc<Self>) {
        let Some(interval) = self.options.maintenance_interval else { return };
        let mut task = self.maintenance.task.lock();
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let rounds = run(Arc::downgrade(self), interval);
        *task = Some(runtime.spawn(rounds).abort_handle());
    }

    /// One round, as of `now_ms`.
    pub(crate) fn maintain(&self, now_ms: i64) -> Result<Maintained, BrokerError> {
        let _round = self.maintenance.round.lock();
        let mut done = Maintained::default();
        for partition in self.topics.all_partitions() {
            match self.maintain_partition(&partition, now_ms, &mut done) {
                // It was deleted meanwhile.
                Ok(()) | Err(BrokerError::UnknownTopic { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn maintain_partition(
        &self,
        partition: &Partition,
        now_ms: i64,
        done: &mut Maintained,
    ) -> Result<(), BrokerError> {
        let config = partition.with_log(|log| Ok(Arc::clone(log.config())))?;
        partition
            .with_log(|log| if log.is_roll_due(now_ms) { log.roll(now_ms) } else { Ok(()) })?;
        if config.delete {
            partition.with_log(|log| {
                let ages: Vec<SegmentAge> = log.segments().iter().map(SegmentAge::of).collect();
                let count = retention::overdue(&ages, &config, now_ms);
                if count == 0 {
                    return Ok(());
                }
                let next = log.segments().get(count).map(|segment| segment.base_offset);
                let start = next.unwrap_or_else(|| log.bounds().end);
                tracing::info!(
                    partition = %partition.topic_partition(),
                    segments = count,
                    log_start = start,
                    "old segments are deleted"
                );
                self.advance_log_start(log, start)?;
                done.segments_deleted += count;
                Ok(())
            })?;
        }
        if config.compact {
            compaction::compact(partition, &config, now_ms, done)?;
        }
        Ok(())
    }
}

async fn run(shared: Weak<Shared>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let Some(shared) = shared.upgrade() else { return };
        let in_memory = shared.directory().is_none();
        let round = move || {
            let result = shared.maintain(shared.options.clock.wall_ms());
            if let Err(error) = result {
                tracing::warn!(%error, "maintenance failed and will be tried again");
            }
        };
        if in_memory {
            round();
        } else if let Err(error) = tokio::task::spawn_blocking(round).await {
            tracing::error!(%error, "maintenance stopped");
            return;
        }
    }
}
