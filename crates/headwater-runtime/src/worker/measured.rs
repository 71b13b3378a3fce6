//! What a stream thread tells the recorder of metrics: between two slices of work, never for a record.

use std::time::Duration;

use headwater_topology::TaskId;

use super::Worker;
use crate::task::Task;

impl Worker {
    /// What the stopwatch shows, if anybody wants to know how long a slice of work takes.
    pub(super) fn read_stopwatch(&self) -> Option<Duration> {
        self.thread.metrics.as_ref()?;
        Some(self.config.stopwatch.as_ref()?.monotonic())
    }

    /// A task has processed so many records in a slice of work that began when the stopwatch showed that. Its time is
    /// that of this task alone: commits, punctuations by the wall clock and what is told here come before and after it.
    pub(super) fn ran(&mut self, id: TaskId, records: u64, began: Option<Duration>) {
        let took = began.and_then(|began| Some(self.read_stopwatch()?.saturating_sub(began)));
        let now = self.thread.now.monotonic;
        let Some(metrics) = &mut self.thread.metrics else { return };
        metrics.ran(now, records, took);
        let Some(took) = took else { return };
        let slot = self.tasks.get_mut(&id);
        if let Some(metrics) = slot.and_then(|slot| slot.task.core.metrics.as_mut()) {
            metrics.worked(now, took, records);
        }
    }

    /// Tells what has come together, if it is time: once a second while there is something to tell.
    pub(super) fn tell_metrics(&mut self, ran: bool) {
        let now = self.thread.now.monotonic;
        let is_blocked = !ran && self.is_blocked();
        let Some(metrics) = &mut self.thread.metrics else { return };
        if is_blocked {
            metrics.is_blocked(now);
        }
        if metrics.is_due(now) {
            self.publish_metrics();
        }
    }

    /// Tells what has come together.
    pub fn publish_metrics(&mut self) {
        let now = self.thread.now.monotonic;
        let Some(metrics) = &mut self.thread.metrics else { return };
        for slot in self.tasks.values_mut() {
            slot.task.publish_metrics(now);
        }
        metrics.publish(now, self.thread.punctuations);
    }

    /// A task leaves the thread.
    pub(super) fn end_metrics(&mut self, id: TaskId) {
        let now = self.thread.now.monotonic;
        let Some(metrics) = &self.thread.metrics else { return };
        let Some(slot) = self.tasks.get_mut(&id) else { return };
        slot.task.publish_metrics(now);
        metrics.task_left();
        if let Some(metrics) = &slot.task.core.metrics {
            metrics.end();
        }
    }
}

impl Task {
    /// Tells what has come together.
    fn publish_metrics(&mut self, now: Duration) {
        let Some(mut metrics) = self.core.metrics.take() else { return };
        metrics.publish(now, &mut self.core, &mut self.inputs);
        self.core.metrics = Some(metrics);
    }
}
