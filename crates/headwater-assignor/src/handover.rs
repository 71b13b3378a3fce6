//! The filter that makes cooperative rebalancing safe: nobody starts what another still owns.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{InstanceId, MemberId, TaskId, TopicPartition};
use crate::state::{ApplicationState, InstanceInfo, TaskInfo};
use crate::threads::{ThreadTasks, Threads};

/// What one member is told in this round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandOver {
    /// The tasks that it may run now.
    pub active: BTreeSet<TaskId>,
    /// The tasks that it follows now; withheld tasks that its instance followed before among them,
    /// so that their stores stay open.
    pub standby: BTreeSet<TaskId>,
    /// The tasks that it will run once their owner has released them.
    pub withheld: BTreeSet<TaskId>,
}

/// What every member is told in this round.
pub type HandOvers = BTreeMap<InstanceId, BTreeMap<MemberId, HandOver>>;

/// Withholds each task of which another member still owns a partition.
///
/// The old owner does not find the task in its answer and releases it; in the next round nobody
/// owns it any more and it is handed over. So if the facts do not change otherwise, the second
/// round withholds nothing.
pub fn hand_over(state: &ApplicationState, threads: &Threads) -> HandOvers {
    let owned: BTreeSet<&TopicPartition> = state
        .instances
        .values()
        .flat_map(|info| info.members.values())
        .flat_map(|member| &member.owned_partitions)
        .collect();
    threads
        .iter()
        .filter_map(|(id, members)| {
            let instance = state.instances.get(id)?;
            let owners = owners(instance);
            let told = members.iter().map(|(member, tasks)| {
                let is_withheld = |task: &TaskInfo| {
                    let sources = task.partitions.iter().filter(|p| p.role.is_source());
                    sources.map(|partition| &partition.id).any(|partition| {
                        owned.contains(partition) && owners.get(partition) != Some(&member)
                    })
                };
                (member.clone(), tell(state, instance, tasks, is_withheld))
            });
            Some((id.clone(), told.collect()))
        })
        .collect()
}

/// Who of an instance owns which partition; of several that claim it, the last.
fn owners(instance: &InstanceInfo) -> BTreeMap<&TopicPartition, &MemberId> {
    let members = instance.members.iter();
    members
        .flat_map(|(id, member)| member.owned_partitions.iter().map(move |owned| (owned, id)))
        .collect()
}

fn tell(
    state: &ApplicationState,
    instance: &InstanceInfo,
    tasks: &ThreadTasks,
    is_withheld: impl Fn(&TaskInfo) -> bool,
) -> HandOver {
    let info = |task: &TaskId| state.tasks.get(task);
    let (withheld, active): (BTreeSet<TaskId>, BTreeSet<TaskId>) =
        tasks.active.iter().copied().partition(|task| info(task).is_some_and(&is_withheld));
    let followed = |task: &&TaskId| {
        info(task).is_some_and(|info| info.stateful) && instance.previous_standby.contains(*task)
    };
    let standby = tasks.standby.iter().chain(withheld.iter().filter(followed)).copied().collect();
    HandOver { active, standby, withheld }
}
