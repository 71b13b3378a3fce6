//! The second level: from an instance to its stream threads.

mod apart;
mod as_original;

use std::collections::{BTreeMap, BTreeSet};

use crate::assignment::{Assignment, InstanceAssignment};
use crate::ids::{InstanceId, MemberId, TaskId};
use crate::state::ApplicationState;

/// How the tasks of an instance are given to its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ThreadRule {
    /// Actives and standbys are each spread within one task, and so is their sum; tasks stay with
    /// their thread as far as that allows; of equally full threads the one with less weight gets
    /// the next task.
    #[default]
    Apart,
    /// As Kafka Streams does it: only the sum is spread within one task, and stateless tasks have
    /// no memory.
    AsKafkaStreams,
}

/// What one thread is to hold when the plan is fully applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadTasks {
    /// The tasks that it runs.
    pub active: BTreeSet<TaskId>,
    /// The tasks that it follows, for good or to take over later.
    pub standby: BTreeSet<TaskId>,
}

/// The tasks of every thread of every instance.
pub type Threads = BTreeMap<InstanceId, BTreeMap<MemberId, ThreadTasks>>;

/// Gives the tasks of each instance to its threads. An instance that named no members is left out.
pub fn assign_threads(
    state: &ApplicationState,
    assignment: &Assignment,
    rule: ThreadRule,
) -> Threads {
    let with_members = state.instances.iter().filter(|(_, info)| !info.members.is_empty());
    with_members
        .filter_map(|(id, info)| {
            let holds = Holds::new(state, assignment.instances.get(id)?);
            let threads = match rule {
                ThreadRule::Apart => apart::assign(state, info, &holds),
                ThreadRule::AsKafkaStreams => as_original::assign(state, info, &holds),
            };
            Some((id.clone(), threads))
        })
        .collect()
}

/// What an instance holds, each in task order.
struct Holds {
    stateful: Vec<TaskId>,
    stateless: Vec<TaskId>,
    standbys: Vec<TaskId>,
}

impl Holds {
    fn new(state: &ApplicationState, assignment: &InstanceAssignment) -> Self {
        let is_stateful = |task: &TaskId| state.tasks.get(task).is_some_and(|info| info.stateful);
        let (stateful, stateless) = assignment.active.keys().copied().partition(is_stateful);
        let mut standbys: Vec<TaskId> =
            assignment.standby.keys().chain(assignment.warmup.keys()).copied().collect();
        standbys.sort_unstable();
        Self { stateful, stateless, standbys }
    }
}
