//! Why there is no plan.

use headwater_assignor::AssignError;

/// Everything that can go wrong in `headwater plan`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PlanError {
    /// Standard input could not be read.
    #[error("cannot read standard input: {source}")]
    Read {
        /// What the system said.
        source: std::io::Error,
    },
    /// The input is not JSON, or has a key twice.
    #[error("the input is not JSON: {source}")]
    Syntax {
        /// What the parser said, with line and column.
        source: serde_json::Error,
    },
    /// A value is not what belongs there.
    #[error("{place}: {found}, but this must be {wanted}")]
    Value {
        /// Where.
        place: String,
        /// What is there.
        found: String,
        /// What belongs there.
        wanted: &'static str,
    },
    /// Something is missing.
    #[error("{place}: {field:?} is missing")]
    Missing {
        /// Where.
        place: String,
        /// The field.
        field: &'static str,
    },
    /// An id is there twice.
    #[error("{place}: {id:?} is there already; ids must differ")]
    Duplicate {
        /// Where the second one is.
        place: String,
        /// The id.
        id: String,
    },
    /// A field has no meaning (only with `--strict`).
    #[error("{place}: unknown field {field:?}; known are {known}")]
    UnknownField {
        /// Where.
        place: String,
        /// The field.
        field: String,
        /// What would have a meaning.
        known: String,
    },
    /// A task is named that is not among the tasks.
    #[error("{place}: task {task} is not among the tasks")]
    UnknownTask {
        /// Where.
        place: String,
        /// The task.
        task: headwater_assignor::TaskId,
    },
    /// High availability needs every lag.
    #[error(
        "clients: {instance} has no lag for task {task}; high_availability needs one for every stateful task"
    )]
    MissingLag {
        /// The instance.
        instance: headwater_assignor::InstanceId,
        /// The task.
        task: headwater_assignor::TaskId,
    },
    /// There is no assignor of this name.
    #[error("assignor: {name:?} is unknown; known are {known}")]
    UnknownAssignor {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A supposed loss hits nobody.
    #[error(
        "what-if: no instance is called {what:?} or has it as rack or tag; nothing would be lost"
    )]
    NothingToRemove {
        /// What should be lost.
        what: String,
    },
    /// Suppositions about a whole story.
    #[error(
        "what-if and explain look at one plan; this scenario is a trajectory, take its last state"
    )]
    NotForTrajectories,
    /// The assignor found no plan.
    #[error(transparent)]
    Assign(#[from] AssignError),
}

impl PlanError {
    /// The type under which machines know it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::UnknownTask { .. } => "unknown_task",
            Self::MissingLag { .. } | Self::Assign(AssignError::MissingLag { .. }) => "missing_lag",
            Self::Assign(AssignError::NoCapacity { .. }) => "no_capacity",
            _ => "bad_input",
        }
    }
}
