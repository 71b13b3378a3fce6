//! The commits of a thread: when one is due, what it seals, and what follows when it is done or has failed.

use std::time::Duration;

use super::tasks::Leaving;
use super::{CommittedTask, FromWorker, SealedCommit, Worker};

/// Where the commits of a thread stand.
#[derive(Clone, Copy, Debug)]
pub(super) enum Commit {
    /// None under way; the last one began then.
    Idle { last: Duration },
    /// Under way since then.
    Sealed { since: Duration },
}

impl Worker {
    pub(super) fn commit_if_due(&mut self) {
        let Commit::Idle { last } = self.commit else { return };
        let now = self.thread.now.monotonic;
        let is_due = self.commit_wanted
            || now.saturating_sub(last) >= self.config.commit_interval
            || self.tasks.values().any(|slot| matches!(slot.leaving, Leaving::Clean))
            || self.is_uncommitted_full();
        if !is_due {
            return;
        }
        self.commit = Commit::Idle { last: now };
        self.commit_wanted = false;
        self.flush_caches();
        if self.config.exactly_once {
            // A cache could not be flushed: then nothing is sealed.
            self.abort_if_broken();
        }
        let mut sealed = Vec::new();
        for slot in self.tasks.values_mut() {
            let stays = matches!(slot.leaving, Leaving::No | Leaving::Clean);
            if !stays || !slot.task.core.commit_needed {
                continue;
            }
            sealed.push(slot.task.seal().expect("caches are flushed and no commit is under way"));
            slot.sealed = true;
        }
        if sealed.is_empty() {
            return;
        }
        self.hand_over(true);
        self.messages.push(FromWorker::Commit(SealedCommit { tasks: sealed }));
        self.commit = Commit::Sealed { since: now };
    }

    fn flush_caches(&mut self) {
        for slot in self.tasks.values_mut() {
            if !matches!(slot.leaving, Leaving::No | Leaving::Clean) {
                continue;
            }
            if let Err(error) = slot.task.flush_caches(&mut self.thread) {
                slot.leaving = Leaving::Failed(error);
            }
        }
    }

    pub(super) fn is_uncommitted_full(&self) -> bool {
        self.uncommitted_bytes() >= self.config.uncommitted_bytes_max
    }

    pub(super) fn uncommitted_bytes(&self) -> usize {
        self.tasks.values().map(|slot| slot.task.core.uncommitted_bytes()).sum()
    }

    pub(super) fn committed(&mut self, tasks: Vec<CommittedTask>) {
        if let (Some(metrics), Commit::Sealed { since }) = (&mut self.thread.metrics, self.commit) {
            metrics.committed(since);
        }
        self.end_commit();
        self.counts.commits += 1;
        self.summary.committed_tasks += tasks.len() as u64;
        for CommittedTask { task, storages } in tasks {
            if let Some(slot) = self.tasks.get_mut(&task) {
                slot.task.release(storages);
                slot.sealed = false;
            }
        }
    }

    pub(super) fn commit_failed(&mut self, tasks: Vec<CommittedTask>) {
        self.end_commit();
        for CommittedTask { task, storages } in tasks {
            if let Some(slot) = self.tasks.get_mut(&task) {
                slot.task.core.storages = storages;
                slot.sealed = false;
            }
        }
        self.drop_all();
    }

    fn end_commit(&mut self) {
        if let Commit::Sealed { since } = self.commit {
            self.commit = Commit::Idle { last: since };
        }
    }
}
