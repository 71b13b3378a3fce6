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
    /// An event of a trajectory names an instance that has never been there.
    #[error("instance {instance} has never been in the group; let it join first")]
    UnknownInstance {
        /// The instance.
        instance: InstanceId,
    },
    /// The plan of a custom assignor cannot be carried out.
    #[error("the plan of {assignor} is rejected: {problem}")]
    Rejected {
        /// The assignor's name.
        assignor: String,
        /// What is wrong with its plan.
        problem: Problem,
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

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Two instances are to run one task.
    #[error("{first} and {second} are both to run task {task}; name one")]
    ActiveTwice {
        /// The task.
        task: TaskId,
        /// One of them.
        first: InstanceId,
        /// The other.
        second: InstanceId,
    },
    /// Nobody is to run a task.
    #[error("nobody is to run task {task}; every task needs one instance")]
    NotAssigned {
        /// The task.
        task: TaskId,
    },
    /// There is no such task.
    #[error("{instance} is to hold task {task}, which does not exist")]
    UnknownTask {
        /// The task.
        task: TaskId,
        /// Where it is to be.
        instance: InstanceId,
    },
    /// There is no such instance.
    #[error("{instance} is not in the group; assign to its instances only")]
    UnknownInstance {
        /// The instance.
        instance: InstanceId,
    },
    /// The plan does not mention an instance.
    #[error("{instance} is missing in the plan; mention idle instances too")]
    InstanceForgotten {
        /// The instance.
        instance: InstanceId,
    },
    /// An instance is to both run and follow a task.
    #[error("{instance} is to follow task {task} and to run it; a copy there is of no use")]
    StandbyBesideActive {
        /// The task.
        task: TaskId,
        /// The instance.
        instance: InstanceId,
    },
    /// A task without state is to be followed.
    #[error("{instance} is to follow task {task}, which has no state")]
    StandbyOfStatelessTask {
        /// The task.
        task: TaskId,
        /// The instance.
        instance: InstanceId,
    },
}

impl Problem {
    /// The name of Kafka Streams' `AssignmentError` (KIP-924) for this problem, if it has one.
    pub fn kafka_name(&self) -> Option<&'static str> {
        match self {
            Self::ActiveTwice { .. } => Some("ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES"),
            Self::UnknownTask { .. } => Some("UNKNOWN_TASK_ID"),
            Self::UnknownInstance { .. } => Some("UNKNOWN_PROCESS_ID"),
            Self::InstanceForgotten { .. } => Some("MISSING_PROCESS_ID"),
            Self::StandbyOfStatelessTask { .. } => Some("INVALID_STANDBY_TASK"),
            Self::NotAssigned { .. } | Self::StandbyBesideActive { .. } => None,
        }
    }
}
