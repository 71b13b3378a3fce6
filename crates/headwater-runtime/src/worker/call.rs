//! Code that is called by hand in the context of a task, for kits that test processors and stores.

use headwater_broker::TopicName;
use headwater_topology::TaskId;

use super::Worker;
use crate::process::{Cx, Headers, Origin, ScheduledPunctuation};
use crate::worker::Now;

/// What the context of a record says to code that is called by hand ([`Worker::call`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CalledRecord {
    /// Where the record comes from: topic, partition, offset; `None`: there is no record, as in a punctuation.
    pub source: Option<(TopicName, i32, i64)>,
    /// The time of the record or of the punctuation, in milliseconds since 1970.
    pub timestamp: i64,
    /// Its headers.
    pub headers: Headers,
}

/// # Kits that test processors and stores
impl Worker {
    /// Runs code as if a record of a task had come to it; `None` if there is no such task here. What it writes belongs
    /// to the next commit.
    pub fn call<R>(
        &mut self,
        task: TaskId,
        called: &CalledRecord,
        code: impl FnOnce(&mut Cx<'_>) -> R,
    ) -> Option<R> {
        let core = &mut self.tasks.get_mut(&task)?.task.core;
        core.headers.clone_from(&called.headers);
        core.commit_needed = true;
        let mut origin = Origin::punctuation(called.timestamp);
        if let Some((topic, partition, offset)) = &called.source {
            origin =
                Origin { topic: Some(topic), partition: *partition, offset: *offset, ..origin };
        }
        Some(code(&mut Cx { task: core, thread: &mut self.thread, origin }))
    }

    /// What time it is until the next [`step`](Self::step).
    pub fn set_now(&mut self, now: Now) {
        self.thread.now = now;
    }

    /// The highest timestamp that a task has seen is this from now on.
    pub fn set_stream_time(&mut self, task: TaskId, ms: i64) {
        if let Some(slot) = self.tasks.get_mut(&task) {
            slot.task.core.stream_time = ms;
        }
    }

    /// The schedules of a task, in the order in which they were made.
    pub fn scheduled_punctuations(&self, task: TaskId) -> Vec<ScheduledPunctuation> {
        self.tasks.get(&task).map_or_else(Vec::new, |slot| slot.task.core.punctuations.scheduled())
    }

    /// Whether a processor of a task has asked for a commit that has not begun yet.
    pub fn is_commit_requested(&self, task: TaskId) -> bool {
        self.tasks.get(&task).is_some_and(|slot| slot.task.core.commit_requested)
    }

    /// Forgets that one has.
    pub fn forget_commit_request(&mut self, task: TaskId) {
        if let Some(slot) = self.tasks.get_mut(&task) {
            slot.task.core.commit_requested = false;
        }
    }
}
