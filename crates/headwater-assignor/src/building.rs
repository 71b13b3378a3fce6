//! Pieces for assignors of one's own: what Kafka Streams offers as `TaskAssignmentUtils` (KIP-924).

use std::collections::BTreeSet;

use crate::assignment::{Assignment, InstanceAssignment, Reason};
use crate::ids::TaskId;
use crate::index::{Index, Placement, TaskIx, number};
use crate::rack::{
    ActiveOptimiser, Counted, CrossRack, RackCosts, optimise_standbys, racks_are_known,
};
use crate::settings::RackAwareStrategy;
use crate::standby::StandbyPlacer;
use crate::state::ApplicationState;

/// The plan that leaves everything where it is: every instance goes on running what it ran and
/// following what it had state of. Tasks that nobody ran are not in it.
///
/// ```
/// use headwater_assignor::{ApplicationState, InstanceInfo, TaskId, TaskInfo, identity_assignment};
///
/// let task = TaskId::new(0, 0);
/// let mut state = ApplicationState::default();
/// state.tasks.insert(task, TaskInfo::stateful());
/// let mut info = InstanceInfo::new(1);
/// info.previous_active.insert(task);
/// state.instances.insert("app-1".into(), info);
///
/// let plan = identity_assignment(&state);
/// assert!(plan.instances[&"app-1".into()].active.contains_key(&task));
/// ```
pub fn identity_assignment(state: &ApplicationState) -> Assignment {
    let mut assignment = Assignment::default();
    for (id, info) in &state.instances {
        let known = |task: &&TaskId| state.tasks.contains_key(*task);
        let stays = |task: &TaskId| (*task, Reason::Stays);
        let follows = |task: &&TaskId| {
            !info.previous_active.contains(*task)
                && state.tasks.get(*task).is_some_and(|info| info.stateful)
        };
        let holds = InstanceAssignment {
            active: info.previous_active.iter().filter(known).map(stays).collect(),
            standby: info.previous_standby.iter().filter(follows).map(stays).collect(),
            ..InstanceAssignment::default()
        };
        assignment.instances.insert(id.clone(), holds);
    }
    assignment
}

/// Adds [`num_standby_replicas`](crate::Settings::num_standby_replicas) standbys of each stateful
/// task that the plan has somebody run: each on the least loaded instance without a copy, and if
/// there are [`rack_aware_assignment_tags`](crate::Settings::rack_aware_assignment_tags), on
/// instances that differ in these from the other copies, as far as there are enough values.
///
/// Standbys that are in the plan already stay and are not counted.
pub fn default_standbys(state: &ApplicationState, assignment: &mut Assignment) {
    let index = Index::new(state);
    let mut placement = read(&index, assignment);
    let placer = StandbyPlacer::for_keys(&index, &state.settings.rack_aware_assignment_tags);
    let runs = |task: &TaskIx| placement.active_of(*task).is_some();
    let tasks: Vec<TaskIx> = index.stateful().into_iter().filter(runs).collect();
    placer.place(&tasks, state.settings.num_standby_replicas, &mut placement);
    write(&index, &placement, Reason::Replica, assignment);
}

/// What [`optimise_racks_of_actives`] and [`optimise_racks_of_standbys`] look at.
///
/// A cost that is neither given here nor set in the application's settings is that of Kafka
/// Streams' sticky assignor: 1 for a partition read across racks, 10 for a copy that is not where
/// the plan had it. (Kafka Streams optimises nothing unless both settings are there.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RackOptimisation {
    /// The tasks that may be moved; `None`: all.
    pub tasks: Option<BTreeSet<TaskId>>,
    /// In the place of [`rack_aware_assignment_traffic_cost`](crate::Settings::rack_aware_assignment_traffic_cost).
    pub traffic_cost: Option<u32>,
    /// In the place of [`rack_aware_assignment_non_overlap_cost`](crate::Settings::rack_aware_assignment_non_overlap_cost).
    pub non_overlap_cost: Option<u32>,
}

impl RackOptimisation {
    const DEFAULT: RackCosts = RackCosts { traffic: 1, non_overlap: 10 };

    /// All tasks, with the costs that are set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The tasks that have state.
    pub fn of_stateful(state: &ApplicationState) -> Self {
        Self { tasks: Some(tasks_with(state, true)), ..Self::default() }
    }

    /// The tasks that have none.
    pub fn of_stateless(state: &ApplicationState) -> Self {
        Self { tasks: Some(tasks_with(state, false)), ..Self::default() }
    }

    fn costs(&self, state: &ApplicationState) -> RackCosts {
        let set = RackCosts::or(&state.settings, Self::DEFAULT);
        RackCosts {
            traffic: self.traffic_cost.unwrap_or(set.traffic),
            non_overlap: self.non_overlap_cost.unwrap_or(set.non_overlap),
        }
    }

    fn may_move(&self, task: TaskId) -> bool {
        self.tasks.as_ref().is_none_or(|tasks| tasks.contains(&task))
    }
}

fn tasks_with(state: &ApplicationState, stateful: bool) -> BTreeSet<TaskId> {
    let tasks = state.tasks.iter().filter(|(_, info)| info.stateful == stateful);
    tasks.map(|(task, _)| *task).collect()
}

/// Moves actives to where they cost the least together, by the rack-aware strategy that is set
/// (KIP-925). No instance gets more or fewer of them than it had. Where one is to run what it
/// followed, the two copies change roles.
///
/// False if nothing was looked at: no strategy is set, or an instance's or a partition's rack is
/// not known.
pub fn optimise_racks_of_actives(
    state: &ApplicationState,
    how: &RackOptimisation,
    assignment: &mut Assignment,
) -> bool {
    let index = Index::new(state);
    if !racks_are_known(&index, &state.settings, Counted::All) {
        return false;
    }
    let mut placement = read(&index, assignment);
    let may_move = |task: &TaskIx| {
        placement.active_of(*task).is_some() && how.may_move(index.task_ids[*task as usize])
    };
    let tasks: Vec<TaskIx> = index.tasks().filter(may_move).collect();
    let optimiser = ActiveOptimiser {
        index: &index,
        cross_rack: CrossRack::new(&index, Counted::All),
        strategy: state.settings.rack_aware_assignment_strategy,
        whole_subtopologies: false,
    };
    let before = placement.clone();
    optimiser.run(&tasks, how.costs(state), &mut placement);
    for &task in &tasks {
        let clashes =
            placement.active_of(task).is_some_and(|instance| placement.has_standby(instance, task));
        if let (true, Some(old), Some(new)) =
            (clashes, before.active_of(task), placement.active_of(task))
        {
            // The two change roles.
            placement.remove_standby(new, task);
            placement.add_standby(old, task);
        }
    }
    write(&index, &placement, Reason::Rack, assignment);
    true
}

/// Lets instances of different racks exchange standbys where that costs less, by the rack-aware
/// strategy that is set. Counts stay, and the copies of a task come to cover no fewer tags.
///
/// False if nothing was looked at: no strategy is set, or an instance's or a changelog's rack is
/// not known.
pub fn optimise_racks_of_standbys(
    state: &ApplicationState,
    how: &RackOptimisation,
    assignment: &mut Assignment,
) -> bool {
    let index = Index::new(state);
    if !racks_are_known(&index, &state.settings, Counted::Changelogs) {
        return false;
    }
    let mut placement = read(&index, assignment);
    let placer = StandbyPlacer::for_keys(&index, &state.settings.rack_aware_assignment_tags);
    let may_move = |source, destination, task: TaskIx, placement: &Placement| {
        how.may_move(index.task_ids[task as usize])
            && placer.allows_task(source, destination, task, placement)
    };
    let strategy = RackAwareStrategy::MinTraffic;
    let changelogs = CrossRack::new(&index, Counted::Changelogs);
    optimise_standbys(&index, &changelogs, strategy, how.costs(state), &mut placement, may_move);
    write(&index, &placement, Reason::Rack, assignment);
    true
}

/// The copies that the plan has of tasks and on instances that exist.
fn read(index: &Index<'_>, assignment: &Assignment) -> Placement {
    let mut placement = Placement::empty(index);
    for (id, holds) in &assignment.instances {
        let Ok(instance) = index.instance_ids.binary_search(&id) else { continue };
        let instance = number(instance);
        for task in holds.active.keys().filter_map(|task| index.task(*task)) {
            placement.set_active(instance, task);
        }
        let follows = holds.standby.keys().chain(holds.warmup.keys());
        for task in follows.filter_map(|task| index.task(*task)) {
            placement.add_standby(instance, task);
        }
    }
    placement
}

/// Brings the plan to what is placed; a copy that was not there gets this reason.
fn write(index: &Index<'_>, placement: &Placement, why: Reason, assignment: &mut Assignment) {
    for instance in index.instances() {
        let id = index.instance_ids[instance as usize].clone();
        let holds = assignment.instances.entry(id).or_default();
        let is_known = |task: &TaskId| index.task(*task).is_some();
        let ids = |tasks: &BTreeSet<TaskIx>| -> BTreeSet<TaskId> {
            tasks.iter().map(|task| index.task_ids[*task as usize]).collect()
        };
        let active = ids(placement.actives(instance));
        holds.active.retain(|task, _| !is_known(task) || active.contains(task));
        for task in active {
            holds.active.entry(task).or_insert(why);
        }
        let follows = ids(placement.standbys(instance));
        holds.standby.retain(|task, _| !is_known(task) || follows.contains(task));
        holds.warmup.retain(|task, _| !is_known(task) || follows.contains(task));
        for task in follows {
            if !holds.warmup.contains_key(&task) {
                holds.standby.entry(task).or_insert(why);
            }
        }
    }
}
