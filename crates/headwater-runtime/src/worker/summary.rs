//! What a stream thread has done, told to the log from time to time (`log.summary.interval.ms`).

use std::time::Duration;

use super::Worker;

/// When that was done last, and what had been done by then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Summary {
    at: Duration,
    processed: u64,
    punctuations: u64,
    /// Tasks in commits that are done since then, each as often as it was in one.
    pub(super) committed_tasks: u64,
}

impl Summary {
    pub(super) fn new(now: Duration) -> Self {
        Self { at: now, ..Self::default() }
    }
}

impl Worker {
    /// Tells what was done since the last time, if it is time. The words are those of the original.
    pub(super) fn summarise(&mut self) {
        let (now, interval) = (self.thread.now.monotonic, self.config.summary_interval);
        if interval.is_none_or(|interval| now.saturating_sub(self.summary.at) < interval) {
            return;
        }
        let (processed, punctuations) = (self.counts.processed, self.thread.punctuations);
        let before = std::mem::replace(
            &mut self.summary,
            Summary { at: now, processed, punctuations, committed_tasks: 0 },
        );
        tracing::info!(
            thread = &*self.config.thread_name,
            "Processed {} total records, ran {} punctuators, and committed {} total tasks since the last update",
            processed - before.processed,
            punctuations - before.punctuations,
            before.committed_tasks,
        );
    }
}
