//! Moving copies to cheaper places without changing how many an instance has.

use std::collections::BTreeMap;

use crate::index::{Index, InstanceIx, Placement, TaskIx};
use crate::rack::network::{Question, groups, solve};
use crate::rack::{CrossRack, RackCosts};
use crate::settings::RackAwareStrategy;

/// How actives are optimised.
#[derive(Debug)]
pub(crate) struct ActiveOptimiser<'a> {
    pub(crate) index: &'a Index<'a>,
    pub(crate) cross_rack: CrossRack,
    pub(crate) strategy: RackAwareStrategy,
    /// Whether a sub-topology counts for all its tasks or only for those being optimised (the
    /// public interface).
    pub(crate) whole_subtopologies: bool,
}

impl ActiveOptimiser<'_> {
    /// Moves these actives, all of which are placed, to where they cost the least together.
    pub(crate) fn run(&self, tasks: &[TaskIx], costs: RackCosts, placement: &mut Placement) {
        if tasks.is_empty() {
            return;
        }
        let instances: Vec<InstanceIx> = self.index.instances().collect();
        let placed: Vec<usize> = tasks
            .iter()
            .filter_map(|task| placement.active_of(*task))
            .map(|instance| instance as usize)
            .collect();
        debug_assert_eq!(placed.len(), tasks.len(), "every active is placed before");
        let sizes = self.subtopology_sizes(tasks);
        let answer = solve(
            &Question {
                tasks,
                instances: &instances,
                placed: &placed,
                cost: &|task, at| {
                    let instance = instances[at];
                    self.cross_rack.cost(tasks[task], instance, placed[task] == at, costs)
                },
            },
            self.strategy,
            &groups(self.index, tasks, |subtopology| sizes[&subtopology]),
        );
        for (task, at) in tasks.iter().zip(answer) {
            placement.set_active(instances[at], *task);
        }
    }

    fn subtopology_sizes(&self, tasks: &[TaskIx]) -> BTreeMap<u32, usize> {
        let mut sizes = BTreeMap::new();
        let mut count = |task: TaskIx| {
            *sizes.entry(self.index.task_ids[task as usize].subtopology).or_default() += 1;
        };
        if self.whole_subtopologies {
            self.index.tasks().for_each(&mut count);
        } else {
            tasks.iter().copied().for_each(&mut count);
        }
        sizes
    }
}

/// Rounds over all pairs of instances at most.
const STANDBY_ROUNDS: usize = 4;

/// Lets instances of different racks exchange standbys, two instances at a time, where that costs
/// less. `may_move(source, destination, task, placement)` has the last word on each.
pub(crate) fn optimise_standbys(
    index: &Index<'_>,
    cross_rack: &CrossRack,
    strategy: RackAwareStrategy,
    costs: RackCosts,
    placement: &mut Placement,
    may_move: impl Fn(InstanceIx, InstanceIx, TaskIx, &Placement) -> bool,
) {
    let mut sizes: BTreeMap<u32, usize> = BTreeMap::new();
    for task in index.tasks().filter(|task| !placement.standbys_of(*task).is_empty()) {
        *sizes.entry(index.task_ids[task as usize].subtopology).or_default() += 1;
    }
    for _ in 0..STANDBY_ROUNDS {
        let mut moved = false;
        for one in index.instances() {
            for other in one + 1..number_of(index) {
                if cross_rack.share_rack(one, other) {
                    continue;
                }
                let movable = |source: InstanceIx, destination: InstanceIx| {
                    placement
                        .standbys(source)
                        .iter()
                        .copied()
                        .filter(|task| !placement.has(destination, *task))
                        .filter(|task| may_move(source, destination, *task, placement))
                        .map(|task| (task, usize::from(source == other)))
                        .collect::<Vec<_>>()
                };
                let (there, back) = (movable(one, other), movable(other, one));
                if there.is_empty() || back.is_empty() {
                    continue;
                }
                let exchange = Exchange { pair: [one, other], cross_rack, costs };
                let answer = match strategy {
                    RackAwareStrategy::BalanceSubtopology => {
                        exchange.solve(there, back, |tasks, question| {
                            let groups = groups(index, tasks, |s| sizes[&s]);
                            solve(question, strategy, &groups)
                        })
                    }
                    _ if exchange.pays_off(&there, &back) => {
                        exchange.solve(there, back, |_, question| solve(question, strategy, &[]))
                    }
                    _ => continue,
                };
                for (task, from, to) in answer {
                    placement.remove_standby([one, other][from], task);
                    placement.add_standby([one, other][to], task);
                    moved = true;
                }
            }
        }
        if !moved {
            break;
        }
    }
}

fn number_of(index: &Index<'_>) -> InstanceIx {
    index.instances().end
}

/// An exchange of standbys between two instances.
struct Exchange<'a> {
    pair: [InstanceIx; 2],
    cross_rack: &'a CrossRack,
    costs: RackCosts,
}

impl Exchange<'_> {
    fn cost(&self, task: TaskIx, at: usize, planned: bool) -> i64 {
        self.cross_rack.cost(task, self.pair[at], planned, self.costs)
    }

    /// Whether there is any cheaper exchange. Counts stay, so it is one task against one, and the
    /// best one of each side decides.
    fn pays_off(&self, there: &[(TaskIx, usize)], back: &[(TaskIx, usize)]) -> bool {
        let best = |tasks: &[(TaskIx, usize)]| {
            let gain = |(task, from): &(TaskIx, usize)| {
                self.cost(*task, 1 - from, false) - self.cost(*task, *from, true)
            };
            tasks.iter().map(gain).min().unwrap_or(0)
        };
        best(there) + best(back) < 0
    }

    /// The tasks that change sides: task, from which side, to which.
    fn solve(
        &self,
        there: Vec<(TaskIx, usize)>,
        back: Vec<(TaskIx, usize)>,
        solver: impl Fn(&[TaskIx], &Question<'_>) -> Vec<usize>,
    ) -> Vec<(TaskIx, usize, usize)> {
        let mut all = there;
        all.extend(back);
        all.sort_unstable();
        let (tasks, placed): (Vec<TaskIx>, Vec<usize>) = all.into_iter().unzip();
        let answer = solver(
            &tasks,
            &Question {
                tasks: &tasks,
                instances: &self.pair,
                placed: &placed,
                cost: &|task, at| self.cost(tasks[task], at, placed[task] == at),
            },
        );
        let changes = tasks.iter().zip(placed.iter()).zip(answer);
        changes
            .filter(|((_, from), to)| *from != to)
            .map(|((task, from), to)| (*task, *from, to))
            .collect()
    }
}
