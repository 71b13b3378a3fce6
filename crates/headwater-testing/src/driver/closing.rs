//! Ending tasks and beginning them anew.

use headwater_runtime::{ClosedTask, Step, ToWorker};
use headwater_topology::TaskId;

use super::core::Core;
use super::opening::close;
use crate::{Restart, TestDriverError};

impl Core {
    pub(crate) fn restart(
        &mut self,
        tasks: &[TaskId],
        how: Restart,
    ) -> Result<(), TestDriverError> {
        if let Some(task) = tasks.iter().find(|task| !self.tasks.contains_key(task)) {
            return Err(TestDriverError::UnknownTask { task: *task });
        }
        for &task in tasks {
            if self.failed.remove(&task).is_none() {
                self.tell(if how.crash {
                    ToWorker::DropTask(task)
                } else {
                    ToWorker::CloseTask(task)
                });
            }
        }
        while self.step()? == Step::Again {}
        self.check_failed()?;
        // Under exactly once a task that is lost takes the others of the transaction with it.
        for task in self.task_ids() {
            if !self.is_running(task) {
                self.open(task, how.without_state && tasks.contains(&task))?;
            }
        }
        self.settle()
    }

    fn is_running(&self, task: TaskId) -> bool {
        self.worker.task_ids().any(|running| running == task)
    }

    /// A task is no longer on the worker.
    pub(super) fn closed(&self, closed: ClosedTask) -> Result<(), TestDriverError> {
        let ClosedTask { task, storages, clean, .. } = closed;
        self.stores.remove_task(task);
        if clean {
            close(storages).map_err(|source| TestDriverError::Store { task, source })?;
        }
        Ok(())
    }
}
