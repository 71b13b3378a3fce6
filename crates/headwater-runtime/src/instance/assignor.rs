//! The assignor that an instance was given.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use headwater_assignor::{
    ApplicationState, AssignError, Assignment, Problem, TaskAssignor, ThreadRule,
};

use crate::process::UserPanic;

/// An assignor, built in or the user's, whose panics are errors.
#[derive(Clone)]
pub(super) struct ChosenAssignor(Arc<dyn TaskAssignor + Send + Sync>);

impl ChosenAssignor {
    pub(super) fn new(assignor: impl TaskAssignor + Send + Sync + 'static) -> Self {
        Self(Arc::new(assignor))
    }
}

impl fmt::Debug for ChosenAssignor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChosenAssignor").field(&self.0.name()).finish()
    }
}

impl TaskAssignor for ChosenAssignor {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn assign(&self, state: &ApplicationState) -> Result<Assignment, AssignError> {
        // The assignor decides anew from the next state, so nothing half-done is looked at again.
        catch_unwind(AssertUnwindSafe(|| self.0.assign(state))).unwrap_or_else(|payload| {
            Err(AssignError::Custom {
                assignor: self.0.name().to_owned(),
                source: Box::new(UserPanic::new(&*payload)),
            })
        })
    }

    fn thread_rule(&self) -> ThreadRule {
        self.0.thread_rule()
    }

    fn on_assignment_computed(&self, assignment: &Assignment, problem: Option<&Problem>) {
        let hear = || self.0.on_assignment_computed(assignment, problem);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(hear)) {
            let panic = UserPanic::new(&*payload);
            tracing::error!(assignor = self.0.name(), %panic, "on_assignment_computed");
        }
    }
}
