//! What a stream thread tells the recorder of metrics: between two slices of work, never for a record.

use std::time::Duration;

use headwater_topology::TaskId;

use super::Worker;
use crate::task::Task;

impl Worker {
    /// Whether the time that steps take is wanted: see [`took`](Self::took).
    pub fn is_measured(&self) -> bool {
        self.thread.metrics.is_some()
    }

    /// The last step has taken this long. A worker has no clock of its own; whoever has one says so.
    pub fn took(&mut self, took: Duration) {
        let now = self.thread.now.monotonic;
        let Some(metrics) = &mut self.thread.metrics else { return };
        metrics.took(now, took);
        let Some((task, records)) = metrics.worked_on else { return };
        let slot = self.tasks.get_mut(&task);
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
