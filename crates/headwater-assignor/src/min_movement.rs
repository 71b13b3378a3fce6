//! The default assignor: a balanced plan that moves as little as possible.

mod actives;
mod approach;
mod facts;
mod fingerprint;
mod reasons;
mod spread;
mod standbys;
mod target;

use crate::assignment::Assignment;
use crate::assignor::TaskAssignor;
use crate::error::AssignError;
use crate::state::ApplicationState;
use approach::Approach;
use facts::Facts;
use target::Plan;

/// Places tasks evenly and moves as few of them as an even placement allows.
///
/// The *target* is a minimum-cost flow from the present owners. These hold without exception, with
/// shares proportional to capacity and rounded down and up:
///
/// - every task is active once, its copies are on different instances;
/// - every instance has its share of all tasks, of those with state, and of each sub-topology;
/// - the copies of a task differ in every configured tag for which there are enough values.
///
/// Among the plans that keep these, the one is chosen that makes the fewest tasks stand still or
/// move, then restores the fewest offsets, then reads the least across racks. Copies are spread
/// evenly as well, and so that the standbys of what one instance runs are spread over all others.
/// Tasks without state have owners, too, and stay with them.
///
/// The target is kept until members, capacities, tags, tasks or settings change. Until the state is
/// where the target wants it, a task runs where its state is: never on an instance that is behind
/// while another is caught up. Warm-ups get there the copies that are missing: the nearest to done
/// first, receiving instances in turns, at most
/// [`max_warmup_replicas`](crate::Settings::max_warmup_replicas) in the group. When one has caught up,
/// the next round hands the task over. One that makes no progress is given up and its task is
/// planned anew.
///
/// # Examples
/// ```
/// use headwater_assignor::{
///     ApplicationState, InstanceInfo, MinimumMovement, TaskAssignor, TaskId, TaskInfo,
/// };
///
/// let mut state = ApplicationState::default();
/// for partition in 0..4 {
///     state.tasks.insert(TaskId::new(0, partition), TaskInfo::stateless());
/// }
/// state.instances.insert("app-1".into(), InstanceInfo::new(1));
/// state.instances.insert("app-2".into(), InstanceInfo::new(1));
///
/// let plan = MinimumMovement::default().assign(&state)?;
/// assert!(plan.instances.values().all(|instance| instance.active.len() == 2));
/// # Ok::<(), headwater_assignor::AssignError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MinimumMovement {
    /// Warm-ups that one instance gets at one time, per stream thread, so that a large
    /// `max.warmup.replicas` does not make a new instance restore everything at once. Default 16.
    pub warmups_per_thread: u32,
    /// Rounds in a row in which a warm-up must have got no closer before it is given up. Default 3.
    pub rounds_without_progress: u32,
}

impl Default for MinimumMovement {
    fn default() -> Self {
        Self { warmups_per_thread: 16, rounds_without_progress: 3 }
    }
}

impl MinimumMovement {
    /// The name by which it is configured.
    pub const NAME: &str = "minimum_movement";
}

impl TaskAssignor for MinimumMovement {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn assign(&self, state: &ApplicationState) -> Result<Assignment, AssignError> {
        let facts = Facts::new(state)?;
        let plan = Plan::new(&facts, self.rounds_without_progress);
        Ok(Approach::new(&facts, &plan, self.warmups_per_thread).assignment())
    }
}
