//! Threads filled evenly with actives and with standbys, each by itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{MemberId, TaskId};
use crate::state::{ApplicationState, InstanceInfo, MemberInfo};
use crate::threads::{Holds, ThreadTasks};

pub(super) fn assign(
    state: &ApplicationState,
    info: &InstanceInfo,
    holds: &Holds,
) -> BTreeMap<MemberId, ThreadTasks> {
    let mut fill = Fill {
        state,
        members: info.members.values().collect(),
        weight: vec![0; info.members.len()],
    };
    let mut actives: Vec<TaskId> = holds.stateful.iter().chain(&holds.stateless).copied().collect();
    actives.sort_unstable();
    let nobody = vec![false; info.members.len()];
    let active =
        fill.fill(&actives, &nobody, |member, task| member.previous_active.contains(&task));
    // A thread with one active more is the last to get one standby more, so that sums are even too.
    let most = active.iter().map(BTreeSet::len).max().unwrap_or(0);
    let least = active.iter().map(BTreeSet::len).min().unwrap_or(0);
    let fuller: Vec<bool> =
        active.iter().map(|tasks| tasks.len() == most && most > least).collect();
    let standby = fill.fill(&holds.standbys, &fuller, |member, task| {
        member.previous_standby.contains(&task) || member.previous_active.contains(&task)
    });
    let tasks = active.into_iter().zip(standby);
    let tasks = tasks.map(|(active, standby)| ThreadTasks { active, standby });
    info.members.keys().cloned().zip(tasks).collect()
}

struct Fill<'a> {
    state: &'a ApplicationState,
    members: Vec<&'a MemberInfo>,
    /// Weight of what each thread has been given so far.
    weight: Vec<u64>,
}

impl Fill<'_> {
    /// Spreads the tasks within one. `last` threads are the last to get the odd ones.
    fn fill(
        &mut self,
        tasks: &[TaskId],
        last: &[bool],
        had: impl Fn(&MemberInfo, TaskId) -> bool,
    ) -> Vec<BTreeSet<TaskId>> {
        let threads = self.members.len();
        let mut owner: Vec<Option<usize>> = Vec::with_capacity(tasks.len());
        let mut owned = vec![0; threads];
        for task in tasks {
            let thread = (0..threads).find(|thread| had(self.members[*thread], *task));
            owner.push(thread);
            if let Some(thread) = thread {
                owned[thread] += 1;
            }
        }
        let quota = quotas(tasks.len(), last, &owned);
        let mut given: Vec<BTreeSet<TaskId>> = vec![BTreeSet::new(); threads];
        let mut homeless = Vec::new();
        for (task, owner) in tasks.iter().zip(owner) {
            match owner.filter(|thread| given[*thread].len() < quota[*thread]) {
                Some(thread) => self.give(&mut given, thread, *task),
                None => homeless.push(*task),
            }
        }
        homeless.sort_by_key(|task| (Reverse(self.weight_of(*task)), *task));
        for task in homeless {
            let open = (0..threads).filter(|thread| given[*thread].len() < quota[*thread]);
            let thread = open.min_by_key(|thread| {
                let same =
                    TaskId::new(task.subtopology, 0)..=TaskId::new(task.subtopology, u32::MAX);
                (self.weight[*thread], given[*thread].range(same).count(), *thread)
            });
            let thread = thread.expect("the quotas add up to the number of tasks");
            self.give(&mut given, thread, task);
        }
        given
    }

    fn give(&mut self, given: &mut [BTreeSet<TaskId>], thread: usize, task: TaskId) {
        given[thread].insert(task);
        self.weight[thread] += self.weight_of(task);
    }

    fn weight_of(&self, task: TaskId) -> u64 {
        self.state.tasks.get(&task).map_or(1, |info| u64::from(info.weight))
    }
}

/// How many tasks each thread gets: all the same, and one more for as many as are left over,
/// preferably for threads that would otherwise have to give one away.
fn quotas(tasks: usize, last: &[bool], owned: &[usize]) -> Vec<usize> {
    let threads = owned.len();
    let even = tasks / threads;
    let mut order: Vec<usize> = (0..threads).collect();
    order.sort_by_key(|thread| (last[*thread], owned[*thread] <= even, *thread));
    let mut quota = vec![even; threads];
    for thread in order.into_iter().take(tasks % threads) {
        quota[thread] += 1;
    }
    quota
}
