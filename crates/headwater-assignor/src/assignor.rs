//! The trait that every assignor implements, built-in or custom.

use crate::assignment::Assignment;
use crate::error::AssignError;
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
}
