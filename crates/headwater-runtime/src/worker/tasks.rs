//! How tasks come to a thread and leave it.

use headwater_topology::TaskId;

use super::{ClosedTask, FromWorker, Slot, Worker};
use crate::process::TaskError;
use crate::task::{Input, NewTask};

/// Whether and how a task is about to leave the thread.
#[derive(Debug)]
pub(super) enum Leaving {
    No,
    /// After a commit.
    Clean,
    /// Without one.
    Dropped,
    /// Without one, for this reason.
    Failed(TaskError),
}

impl Worker {
    pub(super) fn add_task(&mut self, new: NewTask) {
        let id = new.id;
        let seen = match new.seen() {
            Ok(seen) => seen,
            Err(error) => {
                let storages = new.storages;
                let closed = ClosedTask { task: id, storages, clean: false, released_bytes: 0 };
                self.messages.push(FromWorker::TaskFailed { closed, error });
                return;
            }
        };
        let mut task = new.build(&seen, &mut self.thread);
        if let Some(metrics) = &mut self.thread.metrics {
            metrics.task_came();
        }
        let leaving = match task.init(&mut self.thread) {
            Ok(()) => Leaving::No,
            Err(error) => Leaving::Failed(error),
        };
        self.tasks.insert(id, Slot { task, leaving, sealed: false, is_new: true });
        self.turns.push_back(id);
    }

    pub(super) fn leave(&mut self, id: TaskId, how: Leaving) {
        let Some(slot) = self.tasks.get_mut(&id) else { return };
        let harder = match (&slot.leaving, &how) {
            (Leaving::No, _) | (Leaving::Clean, Leaving::Dropped | Leaving::Failed(_)) => true,
            (Leaving::Clean | Leaving::Dropped | Leaving::Failed(_), _) => false,
        };
        if harder {
            slot.leaving = how;
        }
    }

    /// A task that leaves without a commit has output in the transaction that must not count, and
    /// there is one transaction for all tasks: so they all leave, and begin anew at the last commit.
    pub(super) fn abort_if_broken(&mut self) {
        let leaves = |slot: &Slot| matches!(slot.leaving, Leaving::Dropped | Leaving::Failed(_));
        if self.aborted || !self.tasks.values().any(leaves) {
            return;
        }
        self.aborted = true;
        self.drop_all();
        self.messages.push(FromWorker::Abort);
    }

    /// Nothing since the last commit counts.
    pub(super) fn drop_all(&mut self) {
        self.thread.outputs.clear();
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        for id in ids {
            self.leave(id, Leaving::Dropped);
        }
    }

    /// Lets tasks go that are about to leave and have nothing under way.
    pub(super) fn let_go(&mut self) {
        let ready = |slot: &Slot| match &slot.leaving {
            Leaving::No => false,
            Leaving::Clean => !slot.sealed && !slot.task.core.commit_needed,
            Leaving::Dropped | Leaving::Failed(_) => !slot.sealed,
        };
        let ids: Vec<TaskId> =
            self.tasks.iter().filter(|(_, slot)| ready(slot)).map(|(id, _)| *id).collect();
        for id in ids {
            self.end_metrics(id);
            let Some(slot) = self.tasks.remove(&id) else { continue };
            self.turns.retain(|turn| *turn != id);
            let released_bytes = slot.task.inputs.iter().map(Input::pinned_bytes).sum();
            self.thread.cache_bytes -= slot.task.core.cache_bytes();
            let clean = matches!(slot.leaving, Leaving::Clean);
            if !clean {
                // It would come to the changelog behind what the next restore reads.
                self.thread.outputs.discard(&slot.task.core.changelogs());
            }
            let storages = slot.task.dismantle();
            let closed = ClosedTask { task: id, storages, clean, released_bytes };
            self.messages.push(match slot.leaving {
                Leaving::Failed(error) => FromWorker::TaskFailed { closed, error },
                Leaving::No | Leaving::Clean | Leaving::Dropped => FromWorker::TaskClosed(closed),
            });
        }
        self.aborted &= !self.tasks.is_empty();
    }
}
