//! Threads as Kafka Streams fills them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::heap::ArrayHeap;
use crate::ids::{MemberId, TaskId};
use crate::index::number;
use crate::lag::Lag;
use crate::lags::as_number;
use crate::state::{ApplicationState, InstanceInfo};
use crate::threads::{Holds, ThreadTasks};

/// Three deals that share one table of loads: stateful actives, standbys, stateless actives.
pub(super) fn assign(
    state: &ApplicationState,
    info: &InstanceInfo,
    holds: &Holds,
) -> BTreeMap<MemberId, ThreadTasks> {
    let previous: Vec<Vec<TaskId>> = info
        .members
        .values()
        .map(|member| {
            let tasks = member.previous_active.iter().chain(&member.previous_standby);
            by_lag(state, info, tasks.copied().collect())
        })
        .collect();
    let nothing = vec![Vec::new(); info.members.len()];
    let mut load = vec![0; info.members.len()];
    let mut stateful = deal(&holds.stateful, &previous, &mut load);
    let standbys = deal(&holds.standbys, &previous, &mut load);
    let stateless = deal(&holds.stateless, &nothing, &mut load);
    for (thread, tasks) in stateful.iter_mut().zip(stateless) {
        thread.extend(tasks);
    }
    let tasks = stateful.into_iter().zip(standbys).map(|(active, standby)| ThreadTasks {
        active: active.into_iter().collect(),
        standby: standby.into_iter().collect(),
    });
    info.members.keys().cloned().zip(tasks).collect()
}

/// The stateful ones of these tasks, the furthest ahead first.
fn by_lag(state: &ApplicationState, info: &InstanceInfo, tasks: BTreeSet<TaskId>) -> Vec<TaskId> {
    let mut by_lag: Vec<(i64, TaskId)> = tasks
        .into_iter()
        .filter_map(|task| {
            let known = state.tasks.get(&task).filter(|task| task.stateful)?;
            let full = known.end_offset.map(|end| Lag::of(None, end));
            Some((info.lags.get(&task).copied().or(full).map_or(0, as_number), task))
        })
        .collect();
    by_lag.sort_unstable();
    by_lag.into_iter().map(|(_, task)| task).collect()
}

/// Deals tasks (in order) out to threads that already have some load, and adds to the load.
fn deal(tasks: &[TaskId], previous: &[Vec<TaskId>], load: &mut [usize]) -> Vec<Vec<TaskId>> {
    let threads = load.len();
    let mut given: Vec<Vec<TaskId>> = vec![Vec::new(); threads];
    if tasks.is_empty() {
        return given;
    }
    let least = (load.iter().sum::<usize>() + tasks.len()) / threads;
    let mut left = Left::new(tasks);
    let mut wanting: VecDeque<usize> = VecDeque::new();
    // Tasks that their thread has no room for, and the thread.
    let mut returning: BTreeMap<TaskId, usize> = BTreeMap::new();
    for thread in 0..threads {
        let room = least.saturating_sub(load[thread]);
        for task in previous[thread].iter().copied() {
            if !left.has(task) {
                continue;
            }
            if given[thread].len() < room {
                left.take(task);
                given[thread].push(task);
            } else {
                returning.insert(task, thread);
            }
        }
        if given[thread].len() < room {
            wanting.push_back(thread);
        }
    }
    while let Some(thread) = wanting.pop_front() {
        let Some(task) = left.next() else { break };
        given[thread].push(task);
        if given[thread].len() + load[thread] < least {
            wanting.push_back(thread);
        }
    }
    wanting.extend((0..threads).filter(|thread| given[*thread].len() + load[*thread] == least));
    for (task, thread) in returning {
        if left.has(task)
            && let Some(at) = wanting.iter().position(|other| *other == thread)
        {
            left.take(task);
            given[thread].push(task);
            wanting.remove(at);
        }
    }
    for (task, thread) in left.in_array_order().zip(wanting) {
        given[thread].push(task);
    }
    for (load, given) in load.iter_mut().zip(&given) {
        *load += given.len();
    }
    given
}

/// Tasks that nobody has yet. The last of them are handed out as they lie in the heap's array.
struct Left<'a> {
    tasks: &'a [TaskId],
    is_left: Vec<bool>,
    heap: ArrayHeap<u32>,
}

impl<'a> Left<'a> {
    fn new(tasks: &'a [TaskId]) -> Self {
        let heap = ArrayHeap::of_sorted((0..number(tasks.len())).collect());
        Self { tasks, is_left: vec![true; tasks.len()], heap }
    }

    fn has(&self, task: TaskId) -> bool {
        self.tasks.binary_search(&task).is_ok_and(|at| self.is_left[at])
    }

    fn take(&mut self, task: TaskId) {
        if let Ok(at) = self.tasks.binary_search(&task) {
            self.is_left[at] = false;
            self.heap.remove(&number(at), |a, b| a < b);
        }
    }

    fn next(&mut self) -> Option<TaskId> {
        let at = self.heap.poll(|a, b| a < b)? as usize;
        self.is_left[at] = false;
        Some(self.tasks[at])
    }

    fn in_array_order(&self) -> impl Iterator<Item = TaskId> {
        self.heap.in_array_order().iter().map(|at| self.tasks[*at as usize])
    }
}
