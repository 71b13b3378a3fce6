//! The two shapes of flow network in which the original looks for a cheaper placement.

use crate::index::{Index, InstanceIx, TaskIx, number};
use crate::rack::graph::{Edge, Graph};
use crate::settings::RackAwareStrategy;

/// A question to the optimiser: these copies, on these instances, at these costs.
pub(crate) struct Question<'a> {
    pub(crate) tasks: &'a [TaskIx],
    pub(crate) instances: &'a [InstanceIx],
    /// Where in `instances` each task's copy is now.
    pub(crate) placed: &'a [usize],
    /// Cost of each of the tasks (by position) on each of the instances (by position).
    pub(crate) cost: &'a dyn Fn(usize, usize) -> i64,
}

/// Tasks of one sub-topology among those asked about.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Positions in the question.
    pub(crate) tasks: std::ops::Range<usize>,
    /// Tasks that the sub-topology counts for, which may be more than are asked about.
    pub(crate) size: usize,
}

/// Groups sorted tasks by sub-topology; `size` tells how many tasks a sub-topology counts for.
pub(crate) fn groups(
    index: &Index<'_>,
    tasks: &[TaskIx],
    size: impl Fn(u32) -> usize,
) -> Vec<Group> {
    let subtopology = |task: &TaskIx| index.task_ids[*task as usize].subtopology;
    let mut start = 0;
    tasks
        .chunk_by(|a, b| subtopology(a) == subtopology(b))
        .map(|chunk| {
            let range = start..start + chunk.len();
            start = range.end;
            Group { tasks: range, size: size(subtopology(&chunk[0])) }
        })
        .collect()
}

/// Where each task should be: a position in `instances`.
pub(crate) fn solve(
    question: &Question<'_>,
    strategy: RackAwareStrategy,
    groups: &[Group],
) -> Vec<usize> {
    if strategy == RackAwareStrategy::BalanceSubtopology {
        balance_subtopology(question, groups)
    } else {
        min_traffic(question)
    }
}

fn counts(question: &Question<'_>) -> Vec<u32> {
    let mut counts = vec![0; question.instances.len()];
    for at in question.placed {
        counts[*at] += 1;
    }
    counts
}

/// Source, task, instance, sink; starts from the plan as it is.
fn min_traffic(question: &Question<'_>) -> Vec<usize> {
    let (tasks, instances) = (question.tasks.len(), question.instances.len());
    let task_node = |task: usize| number(1 + task);
    let instance_node = |instance: usize| number(1 + tasks + instance);
    let sink = number(1 + tasks + instances);
    let mut edges = Vec::with_capacity(tasks * (instances + 1) + instances);
    for task in 0..tasks {
        for instance in 0..instances {
            edges.push(Edge {
                from: task_node(task),
                to: instance_node(instance),
                capacity: 1,
                cost: (question.cost)(task, instance),
                flow: u32::from(question.placed[task] == instance),
            });
        }
    }
    for task in 0..tasks {
        edges.push(Edge { from: 0, to: task_node(task), capacity: 1, cost: 0, flow: 1 });
    }
    for (instance, count) in counts(question).into_iter().enumerate() {
        let from = instance_node(instance);
        edges.push(Edge { from, to: sink, capacity: count, cost: 0, flow: count });
    }
    let mut graph = Graph::new(2 + tasks + instances, &edges);
    graph.minimise_cost();
    (0..tasks).map(|task| carrying(&graph, question, task, task * instances)).collect()
}

/// Source, task, instance within sub-topology, instance, sink; starts from a fresh maximum flow.
fn balance_subtopology(question: &Question<'_>, groups: &[Group]) -> Vec<usize> {
    let (tasks, instances) = (question.tasks.len(), question.instances.len());
    let counts = counts(question);
    let task_node = |task: usize| number(1 + task);
    let first = |group: usize, instance: usize| number(1 + tasks + group * instances + instance);
    let second = |instance: usize| number(1 + tasks + groups.len() * instances + instance);
    let sink = second(instances);
    let mut edges = Vec::new();
    for (group_at, group) in groups.iter().enumerate() {
        for task in group.tasks.clone() {
            for instance in 0..instances {
                edges.push(Edge {
                    from: task_node(task),
                    to: first(group_at, instance),
                    capacity: 1,
                    cost: (question.cost)(task, instance),
                    flow: 0,
                });
            }
        }
    }
    for (group_at, group) in groups.iter().enumerate() {
        for (instance, count) in counts.iter().enumerate() {
            edges.push(Edge {
                from: first(group_at, instance),
                to: second(instance),
                capacity: rounded_share(*count, tasks, group.size),
                cost: 0,
                flow: 0,
            });
        }
    }
    for task in 0..tasks {
        edges.push(Edge { from: 0, to: task_node(task), capacity: 1, cost: 0, flow: 0 });
    }
    for (instance, count) in counts.iter().enumerate() {
        let from = second(instance);
        edges.push(Edge { from, to: sink, capacity: *count, cost: 0, flow: 0 });
    }
    let mut graph = Graph::new(sink as usize + 1, &edges);
    graph.send_all(0, sink);
    graph.minimise_cost();
    (0..tasks).map(|task| carrying(&graph, question, task, task * instances)).collect()
}

/// An instance's share of a sub-topology, in the original's floating point: where rounding makes
/// it a hair more than a whole number, it is one more here too.
fn rounded_share(count: u32, tasks: usize, group: usize) -> u32 {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let share = f64::from(count) / tasks as f64 * group as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of at most `group` tasks"
    )]
    let share = share.ceil() as u32;
    share
}

/// The instance to which a task's flow goes; its edges start at `first_edge`.
fn carrying(graph: &Graph, question: &Question<'_>, task: usize, first_edge: usize) -> usize {
    (0..question.instances.len())
        .find(|instance| graph.flow(first_edge + instance) > 0)
        .unwrap_or(question.placed[task])
}
