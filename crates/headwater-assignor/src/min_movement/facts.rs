//! What the placement is decided on: the application state under small numbers, state first.

use std::ops::Range;

use crate::error::AssignError;
use crate::ids::{RackId, TaskId};
use crate::index::{Index, InstanceIx, TaskIx, number};
use crate::lag::{Lag, MAX_OFFSET};
use crate::settings::RackAwareStrategy;
use crate::state::{ApplicationState, InstanceInfo, PartitionRole};

/// Offsets above this are not told apart, so that sums of costs stay far from overflow.
const MOST_OFFSETS: u64 = 1 << 48;

/// An instance that has some state of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) instance: InstanceIx,
    /// Offsets that it still has to read.
    pub(super) missing: u64,
    caught_up: bool,
    /// Whether anybody knows how much that is.
    pub(super) is_known: bool,
    /// Whether it may run the task at once: caught up, or as far ahead as anybody.
    pub(super) ready: bool,
}

#[derive(Clone, Debug)]
struct TaskFacts {
    /// The instance that ran the task, if it is still here.
    owner: Option<InstanceIx>,
    holders: Range<usize>,
    /// What an instance without any state has to read.
    full: u64,
    /// Whether an instance without any state may run the task at once.
    anyone_is_ready: bool,
    anyone_is_caught_up: bool,
}

/// The facts about tasks, instances and the state that these have of those. Linear in what was
/// reported: a pair of task and instance without state takes no room.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) index: Index<'a>,
    pub(super) state: &'a ApplicationState,
    pub(super) capacity: Vec<u32>,
    pub(super) total_capacity: u64,
    tasks: Vec<TaskFacts>,
    /// Holders of all tasks, those of one task side by side and in the order of instances.
    holders: Vec<Holder>,
    pub(super) racks: Racks,
    /// Number of the sub-topology of each task, counted without gaps.
    pub(super) subtopology: Vec<u32>,
    /// First task of each sub-topology, and the end.
    subtopology_starts: Vec<TaskIx>,
}

impl<'a> Facts<'a> {
    /// # Errors
    /// [`AssignError::NoInstances`] and [`AssignError::NoCapacity`].
    pub(super) fn new(state: &'a ApplicationState) -> Result<Self, AssignError> {
        let index = Index::new(state);
        let capacity: Vec<u32> = index.instances.iter().map(|info| info.capacity).collect();
        let total_capacity = index.total_capacity();
        if capacity.is_empty() {
            return Err(AssignError::NoInstances);
        }
        if total_capacity == 0 {
            return Err(AssignError::NoCapacity { instances: capacity.len() });
        }
        let (subtopology, subtopology_starts) = number_subtopologies(&index);
        let racks = Racks::new(&index, state);
        let mut facts = Self {
            index,
            state,
            capacity,
            total_capacity,
            tasks: Vec::new(),
            holders: Vec::new(),
            racks,
            subtopology,
            subtopology_starts,
        };
        facts.gather_tasks();
        Ok(facts)
    }

    fn gather_tasks(&mut self) {
        let mut reports = self.reports();
        reports.sort_unstable_by_key(|report| (report.task, report.instance));
        let mut rest = reports.as_slice();
        for task in self.index.tasks() {
            let (mine, others) = rest.split_at(rest.partition_point(|r| r.task == task));
            rest = others;
            self.gather_task(task, mine);
        }
    }

    /// Everything that instances said about stateful tasks, and who ran stateless ones.
    fn reports(&self) -> Vec<Report> {
        let mut reports = Vec::new();
        for (instance, info) in self.index.instances.iter().enumerate() {
            let known = |task: &TaskId| self.index.task(*task);
            let has_state = |task: &TaskIx| self.index.is_stateful(*task);
            let said = info.lags.keys().chain(&info.previous_standby);
            let said = said.filter_map(known).filter(has_state);
            let ran = info.previous_active.iter().filter_map(known);
            let mut tasks: Vec<TaskIx> = said.chain(ran).collect();
            tasks.sort_unstable();
            tasks.dedup();
            let instance = number(instance);
            reports.extend(tasks.into_iter().map(|task| Report { task, instance }));
        }
        reports
    }

    fn gather_task(&mut self, task: TaskIx, reports: &[Report]) {
        let first = self.holders.len();
        if !self.index.is_stateful(task) {
            self.tasks.push(TaskFacts {
                owner: reports.iter().map(|report| report.instance).next(),
                holders: first..first,
                full: 0,
                anyone_is_ready: true,
                anyone_is_caught_up: true,
            });
            return;
        }
        let acceptable = self.state.settings.acceptable_recovery_lag;
        let full = self.full_end(task, reports);
        let anyone_is_caught_up = Lag::Behind(full).is_caught_up(acceptable);
        let mut ran: Vec<InstanceIx> = Vec::new();
        for report in reports {
            let info = self.info(report.instance);
            let id = self.index.task_ids[task as usize];
            let runs = info.previous_active.contains(&id);
            let listed = runs || info.previous_standby.contains(&id);
            let lag = info.lags.get(&id).copied();
            let lag = lag.unwrap_or(if runs { Lag::Latest } else { Lag::Unknown });
            let missing = lag.to_restore().unwrap_or(full).min(full);
            if listed || missing < full || lag == Lag::Unknown {
                let caught_up = lag.is_caught_up(acceptable);
                let instance = report.instance;
                let is_known = lag != Lag::Unknown;
                let ready = caught_up;
                self.holders.push(Holder { instance, missing, caught_up, is_known, ready });
            }
            if runs {
                ran.push(report.instance);
            }
        }
        let anyone_is_ready = anyone_is_caught_up | self.find_ready(first, full);
        let holders = first..self.holders.len();
        let owner = self.holders[holders.clone()]
            .iter()
            .filter(|holder| ran.contains(&holder.instance))
            .min_by_key(|holder| (!holder.ready, holder.missing))
            .map(|holder| holder.instance);
        let full = full.min(MOST_OFFSETS);
        self.tasks.push(TaskFacts { owner, holders, full, anyone_is_ready, anyone_is_caught_up });
    }

    /// If nobody is caught up, whoever is the furthest ahead is ready. True if that is everybody,
    /// since nobody is further than an instance without any state.
    fn find_ready(&mut self, first: usize, full: u64) -> bool {
        let holders = &mut self.holders[first..];
        if holders.iter().any(|holder| holder.caught_up) {
            return false;
        }
        let least = holders.iter().map(|holder| holder.missing).min().unwrap_or(full);
        for holder in holders.iter_mut() {
            holder.ready = holder.missing == least;
        }
        least >= full
    }

    /// What an instance without state must read: the end if known, else the largest lag there is.
    fn full_end(&self, task: TaskIx, reports: &[Report]) -> u64 {
        let id = self.index.task_ids[task as usize];
        self.index.tasks[task as usize].end_offset.unwrap_or_else(|| {
            let lag = |report: &Report| self.info(report.instance).lags.get(&id)?.to_restore();
            reports.iter().filter_map(lag).max().filter(|most| *most > 0).unwrap_or(MAX_OFFSET)
        })
    }

    fn info(&self, instance: InstanceIx) -> &'a InstanceInfo {
        self.index.instances[instance as usize]
    }

    pub(super) fn holders(&self, task: TaskIx) -> &[Holder] {
        &self.holders[self.tasks[task as usize].holders.clone()]
    }

    pub(super) fn holder(&self, task: TaskIx, instance: InstanceIx) -> Option<&Holder> {
        let holders = self.holders(task);
        let at = holders.binary_search_by_key(&instance, |holder| holder.instance).ok()?;
        Some(&holders[at])
    }

    /// The instance that ran the task in the last round, if it is still here.
    pub(super) fn owner(&self, task: TaskIx) -> Option<InstanceIx> {
        self.tasks[task as usize].owner
    }

    /// What the instance would have to read to be up to date.
    pub(super) fn missing(&self, task: TaskIx, instance: InstanceIx) -> u64 {
        let full = self.tasks[task as usize].full;
        self.holder(task, instance).map_or(full, |holder| holder.missing.min(full))
    }

    /// What an instance without any state would have to read.
    pub(super) fn full(&self, task: TaskIx) -> u64 {
        self.tasks[task as usize].full
    }

    /// Whether the instance may run the task at once.
    pub(super) fn is_ready(&self, task: TaskIx, instance: InstanceIx) -> bool {
        let anyone = self.tasks[task as usize].anyone_is_ready;
        anyone || self.holder(task, instance).is_some_and(|holder| holder.ready)
    }

    /// Whether even an instance without any state may run the task at once.
    pub(super) fn anyone_is_ready(&self, task: TaskIx) -> bool {
        self.tasks[task as usize].anyone_is_ready
    }

    /// Whether the instance is within the acceptable lag.
    pub(super) fn is_caught_up(&self, task: TaskIx, instance: InstanceIx) -> bool {
        let anyone = self.tasks[task as usize].anyone_is_caught_up;
        anyone || self.holder(task, instance).is_some_and(|holder| holder.caught_up)
    }

    /// The lag that the instance reported, or what its silence means.
    pub(super) fn lag(&self, task: TaskIx, instance: InstanceIx) -> Lag {
        let id = self.index.task_ids[task as usize];
        let reported = self.info(instance).lags.get(&id).copied();
        reported.unwrap_or_else(|| Lag::Behind(self.missing(task, instance)))
    }

    /// The instances that take work, in order.
    pub(super) fn usable(&self) -> impl Iterator<Item = InstanceIx> + '_ {
        self.index.instances().filter(|instance| self.capacity[*instance as usize] > 0)
    }

    /// The tasks of each sub-topology.
    pub(super) fn subtopologies(&self) -> impl Iterator<Item = Range<TaskIx>> + '_ {
        self.subtopology_starts.windows(2).map(|bounds| bounds[0]..bounds[1])
    }

    /// Number of tasks in the sub-topology of this task.
    pub(super) fn subtopology_size(&self, task: TaskIx) -> usize {
        let at = self.subtopology[task as usize] as usize;
        (self.subtopology_starts[at + 1] - self.subtopology_starts[at]) as usize
    }

    /// Whether any of the tasks has state.
    pub(super) fn has_state(&self, mut tasks: Range<TaskIx>) -> bool {
        tasks.any(|task| self.index.is_stateful(task))
    }

    /// The instance's share of `n`, proportional to its capacity: rounded down and rounded up.
    pub(super) fn share(&self, n: usize, instance: InstanceIx) -> (u32, u32) {
        share(n as u64, self.capacity[instance as usize], self.total_capacity)
    }
}

/// `n * capacity / total`, rounded down and rounded up.
pub(super) fn share(n: u64, capacity: u32, total: u64) -> (u32, u32) {
    let product = u128::from(n) * u128::from(capacity);
    let total = u128::from(total.max(1));
    let fits = |share| u32::try_from(share).expect("a share is not more than the whole");
    (fits(product / total), fits(product.div_ceil(total)))
}

#[derive(Clone, Copy, Debug)]
struct Report {
    task: TaskIx,
    instance: InstanceIx,
}

fn number_subtopologies(index: &Index<'_>) -> (Vec<u32>, Vec<TaskIx>) {
    let mut numbers = Vec::with_capacity(index.task_ids.len());
    let mut starts = Vec::new();
    let mut last = None;
    for (task, id) in index.task_ids.iter().enumerate() {
        if last != Some(id.subtopology) {
            last = Some(id.subtopology);
            starts.push(number(task));
        }
        numbers.push(number(starts.len() - 1));
    }
    starts.push(number(index.task_ids.len()));
    (numbers, starts)
}

/// The racks of the instances; a single one if racks are to play no part or are not all known.
#[derive(Debug)]
pub(super) struct Racks {
    ids: Vec<RackId>,
    of: Vec<u32>,
    traffic_cost: i64,
}

impl Racks {
    fn new(index: &Index<'_>, state: &ApplicationState) -> Self {
        let none = Self { ids: Vec::new(), of: vec![0; index.instances.len()], traffic_cost: 0 };
        let settings = &state.settings;
        if settings.rack_aware_assignment_strategy == RackAwareStrategy::None {
            return none;
        }
        let racks: Option<Vec<&RackId>> = index.instances.iter().map(|info| info.rack()).collect();
        let Some(racks) = racks else { return none };
        let mut ids: Vec<RackId> = racks.iter().map(|rack| (*rack).clone()).collect();
        ids.sort_unstable();
        ids.dedup();
        let number_of = |rack| number(ids.binary_search(rack).expect("every rack is listed"));
        let of = racks.into_iter().map(number_of).collect();
        let traffic_cost = i64::from(settings.rack_aware_assignment_traffic_cost.unwrap_or(1));
        Self { ids, of, traffic_cost }
    }

    /// Whether racks play a part.
    pub(super) fn matter(&self) -> bool {
        !self.ids.is_empty()
    }

    /// Number of racks, at least 1.
    pub(super) fn count(&self) -> u32 {
        number(self.ids.len().max(1))
    }

    pub(super) fn of(&self, instance: InstanceIx) -> u32 {
        self.of[instance as usize]
    }

    /// Cost of what an active copy of the task would read from other racks.
    pub(super) fn active_cost(&self, facts: &Facts<'_>, task: TaskIx, rack: u32) -> i64 {
        self.cost(facts, task, rack, PartitionRole::is_source)
    }

    /// Cost of what a standby of the task would read from other racks.
    pub(super) fn standby_cost(&self, facts: &Facts<'_>, task: TaskIx, rack: u32) -> i64 {
        self.cost(facts, task, rack, PartitionRole::is_changelog)
    }

    fn cost(
        &self,
        facts: &Facts<'_>,
        task: TaskIx,
        rack: u32,
        reads: impl Fn(PartitionRole) -> bool,
    ) -> i64 {
        let Some(rack) = self.ids.get(rack as usize) else { return 0 };
        let partitions = &facts.index.tasks[task as usize].partitions;
        let remote = partitions.iter().filter(|p| reads(p.role) && !p.racks.contains(rack)).count();
        i64::try_from(remote).unwrap_or(i64::MAX).saturating_mul(self.traffic_cost)
    }
}
