//! What an instance tells of its threads, and of the stores that follow their changelogs.

use std::collections::BTreeMap;

use headwater_changelog::StoreLag;
use headwater_topology::TaskId;
use tokio::sync::oneshot;

use super::coordinator::InstanceCommand;
use super::{Instance, TaskRole};
use crate::task::TaskState;

/// A stream thread with its tasks (feature row R29).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadMetadata {
    /// Its name.
    pub name: String,
    /// The tasks that it runs, and where each stands. Standbys belong to no thread:
    /// [`Instance::tasks`] has them.
    pub active_tasks: BTreeMap<TaskId, TaskState>,
}

impl Instance {
    /// The stream threads of this instance, in order.
    pub fn local_threads(&self) -> Vec<ThreadMetadata> {
        let tasks = self.tasks();
        let names = self.thread_names.borrow().clone();
        let names = names.into_iter().enumerate();
        let threads =
            names.filter_map(|(index, name)| Some((index, name?))).map(|(index, name)| {
                let own = tasks.iter().filter(|(_, status)| status.thread == Some(index + 1));
                let active_tasks = own.map(|(&task, status)| (task, status.state)).collect();
                ThreadMetadata { name, active_tasks }
            });
        threads.collect()
    }

    /// Starts another stream thread, which gets its share of the tasks of this instance. Answers its
    /// name; `None` when the instance is ending. Other instances hear of the new capacity with the
    /// next rebalance (feature row R25, KIP-663).
    ///
    /// Caches and limits of memory of each thread stay as they were at the start.
    pub async fn add_stream_thread(&self) -> Option<String> {
        let (told, hears) = oneshot::channel();
        self.command(InstanceCommand::AddThread(told));
        hears.await.ok().flatten()
    }

    /// Ends the stream thread of the highest number; its tasks go on on the others, from a commit.
    /// Answers its name when it has let go of them; `None`, and nothing happens, when it is the last
    /// one or the instance is ending.
    pub async fn remove_stream_thread(&self) -> Option<String> {
        let (told, hears) = oneshot::channel();
        self.command(InstanceCommand::RemoveThread(told));
        hears.await.ok().flatten()
    }

    /// How far the stores of standbys and warm-ups are behind their changelogs (KIP-535), by task.
    /// The stores of active tasks that run are not in here: they are what the changelogs say.
    ///
    /// ```no_run
    /// # fn print(instance: &headwater_runtime::Instance) {
    /// for (task, lags) in instance.store_lags() {
    ///     for lag in lags {
    ///         println!("{task} {}: {:?} offsets behind", lag.store, lag.offsets());
    ///     }
    /// }
    /// # }
    /// ```
    pub fn store_lags(&self) -> BTreeMap<TaskId, Vec<StoreLag>> {
        let followed = self.followed.borrow();
        followed.iter().map(|(&task, progress)| (task, progress.lags())).collect()
    }

    /// The tasks that have this role here.
    pub fn tasks_with_role(&self, role: TaskRole) -> Vec<TaskId> {
        let tasks = self.tasks.borrow();
        let with_role = tasks.iter().filter(|(_, status)| status.role == role);
        with_role.map(|(&task, _)| task).collect()
    }
}
