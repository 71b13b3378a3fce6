//! What can go wrong.

use crate::ids::{InstanceId, TaskId};

/// Why there is no assignment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssignError {
    /// There is nobody to assign to.
    #[error("the group has no instances; an assignment needs at least one")]
    NoInstances,
    /// All instances together have capacity 0.
    #[error(
        "the {instances} instances have no capacity; give at least one of them a stream thread"
    )]
    NoCapacity {
        /// How many instances there are.
        instances: usize,
    },
    /// Nobody knows how far an instance is behind on a stateful task.
    #[error(
        "the lag of task {task} at instance {instance} is missing; report the lag or the task's end offset"
    )]
    MissingLag {
        /// The task.
        task: TaskId,
        /// The instance.
        instance: InstanceId,
    },
    /// A custom assignor failed.
    #[error("the custom assignor {assignor} failed")]
    Custom {
        /// Its name.
        assignor: String,
        /// What it said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
