//! The trait that every assignor implements, built-in or custom.

use std::sync::Arc;

use crate::assignment::Assignment;
use crate::error::{AssignError, Problem};
use crate::state::ApplicationState;
use crate::threads::ThreadRule;

/// A function from the facts about a group to a plan.
///
/// Implementations must be pure: the same state gives the same assignment, whatever the order in
/// which anything was found out. No clock, no randomness, no I/O, no order of a hash map.
pub trait TaskAssignor {
    /// The name by which it is configured and reported.
    fn name(&self) -> &str;

    /// Decides who runs and who follows what.
    ///
    /// # Errors
    /// [`AssignError`] if the state allows no plan. Custom assignors wrap what failed in
    /// [`AssignError::Custom`].
    fn assign(&self, state: &ApplicationState) -> Result<Assignment, AssignError>;

    /// How the tasks of an instance are given to its threads.
    fn thread_rule(&self) -> ThreadRule {
        ThreadRule::default()
    }

    /// Hears what became of a plan of this assignor (KIP-924): the plan as it goes out and no
    /// problem, or the plan and what is wrong with it. If it names a task or an instance that does
    /// not exist, nothing of it is known to be meant, and the plan given here is empty.
    ///
    /// Called once after each [`assign`](Self::assign) that gave a plan, by
    /// [`assign_checked`](crate::assign_checked). It must not block.
    fn on_assignment_computed(&self, _assignment: &Assignment, _problem: Option<&Problem>) {}
}

macro_rules! by_pointer {
    ($pointer:ident) => {
        impl<T: TaskAssignor + ?Sized> TaskAssignor for $pointer<T> {
            fn name(&self) -> &str {
                (**self).name()
            }

            fn assign(&self, state: &ApplicationState) -> Result<Assignment, AssignError> {
                (**self).assign(state)
            }

            fn thread_rule(&self) -> ThreadRule {
                (**self).thread_rule()
            }

            fn on_assignment_computed(&self, plan: &Assignment, problem: Option<&Problem>) {
                (**self).on_assignment_computed(plan, problem);
            }
        }
    };
}

by_pointer!(Box);
by_pointer!(Arc);
