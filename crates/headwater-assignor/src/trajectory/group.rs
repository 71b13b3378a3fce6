//! The group of a trajectory between two rounds.

use std::collections::{BTreeMap, BTreeSet};

use crate::assignment::{Assignment, InstanceAssignment};
use crate::assignor::TaskAssignor;
use crate::error::AssignError;
use crate::ids::{InstanceId, TaskId};
use crate::lag::{Lag, MAX_OFFSET, add_offsets};
use crate::state::{ApplicationState, InstanceInfo};
use crate::traffic::cross_rack_reads;
use crate::trajectory::{Event, Model, Round, Trajectory};
use crate::validate::validate;

/// An instance that is or was there.
#[derive(Debug, Default)]
struct Known {
    info: InstanceInfo,
    present: bool,
    /// Whether it has been through a round since it (re)started; before that it runs nothing.
    running: bool,
    offsets: BTreeMap<TaskId, u64>,
    active: BTreeSet<TaskId>,
    followed: BTreeSet<TaskId>,
}

impl Known {
    fn stop(&mut self) {
        self.present = false;
        self.running = false;
        self.active.clear();
        self.followed.clear();
    }

    fn lag(&self, task: TaskId, end: u64) -> Lag {
        let offset = self.offsets.get(&task).copied();
        let at_end = offset.unwrap_or(0) == end;
        if self.running && self.active.contains(&task) && at_end {
            Lag::Latest
        } else {
            Lag::of(offset, end)
        }
    }
}

#[derive(Debug)]
pub(super) struct Group {
    state: ApplicationState,
    known: BTreeMap<InstanceId, Known>,
    owner: BTreeMap<TaskId, InstanceId>,
}

impl Group {
    pub(super) fn new(trajectory: &Trajectory) -> Self {
        let mut state = ApplicationState {
            tasks: trajectory.tasks.clone(),
            settings: trajectory.settings.clone(),
            ..ApplicationState::default()
        };
        for task in state.tasks.values_mut().filter(|task| task.stateful) {
            task.end_offset.get_or_insert(0);
        }
        let known = trajectory.instances.iter().map(|(id, info)| {
            (id.clone(), Known { info: info.clone(), present: true, ..Known::default() })
        });
        Self { state, known: known.collect(), owner: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.known.values().any(|known| known.present)
    }

    fn known(&mut self, instance: &InstanceId) -> Result<&mut Known, AssignError> {
        self.known
            .get_mut(instance)
            .ok_or_else(|| AssignError::UnknownInstance { instance: instance.clone() })
    }

    pub(super) fn apply(&mut self, event: &Event) -> Result<(), AssignError> {
        match event {
            Event::Join { instance, info, offsets, empty } => {
                let known = self.known.entry(instance.clone()).or_default();
                known.info = info.clone();
                known.present = true;
                known.running = false;
                if *empty {
                    known.offsets.clear();
                }
                known.offsets.extend(offsets);
            }
            Event::Leave { instance } => self.known(instance)?.stop(),
            Event::Bounce { instance, empty } => {
                let known = self.known(instance)?;
                known.stop();
                known.present = true;
                if *empty {
                    known.offsets.clear();
                }
            }
            Event::Capacity { instance, to } => self.known(instance)?.info.capacity = *to,
            Event::Append { offsets, tasks } => self.append(*offsets, tasks),
        }
        Ok(())
    }

    fn append(&mut self, offsets: u64, only: &BTreeSet<TaskId>) {
        for (id, task) in &mut self.state.tasks {
            let Some(end) = task.end_offset.as_mut().filter(|_| task.stateful) else { continue };
            if !only.is_empty() && !only.contains(id) {
                continue;
            }
            let before = *end;
            *end = add_offsets(before, offsets);
            for known in self.known.values_mut() {
                let runs = known.present && known.running && known.active.contains(id);
                if runs && known.offsets.get(id).copied().unwrap_or(0) == before {
                    known.offsets.insert(*id, *end);
                }
            }
        }
    }

    /// Asks the assignor, applies its plan, and lets the copies read on.
    pub(super) fn round(
        &mut self,
        assignor: &dyn TaskAssignor,
        model: Model,
    ) -> Result<Round, AssignError> {
        self.report();
        let assignment = assignor.assign(&self.state)?;
        let mut round = self.compare(&assignment);
        round.problem = validate(&self.state, &assignment).err();
        round.restored_offsets = self.carry_out(&assignment, model);
        self.state.standing_plan.clone_from(&assignment.standing_plan);
        round.assignment = assignment;
        Ok(round)
    }

    /// Every present instance says what it has.
    fn report(&mut self) {
        let ends = |task: &TaskId| self.state.tasks.get(task).and_then(|task| task.end_offset);
        let present = self.known.iter().filter(|(_, known)| known.present);
        let reports = present.map(|(id, known)| {
            let mut info = known.info.clone();
            info.previous_active.clone_from(&known.active);
            let with_state = known.offsets.keys().chain(&known.active);
            info.lags = with_state
                .filter_map(|task| Some((*task, known.lag(*task, ends(task)?))))
                .collect();
            info.previous_standby =
                known.offsets.keys().filter(|task| !known.active.contains(task)).copied().collect();
            (id.clone(), info)
        });
        self.state.instances = reports.collect();
    }

    fn holds<'a>(
        &'a self,
        assignment: &'a Assignment,
    ) -> impl Iterator<Item = (&'a InstanceId, &'a Known, &'a InstanceAssignment)> {
        assignment.instances.iter().filter_map(|(id, holds)| Some((id, self.known.get(id)?, holds)))
    }

    /// Counts how the plan differs from the last round.
    fn compare(&mut self, assignment: &Assignment) -> Round {
        let mut round = Round {
            assignment: Assignment::default(),
            stateful_active_moves: 0,
            stateless_active_moves: 0,
            new_standby_copies: 0,
            problem: None,
            actives_not_ready: 0,
            restored_offsets: 0,
            cross_rack: cross_rack_reads(&self.state, assignment),
        };
        let acceptable = self.state.settings.acceptable_recovery_lag;
        let mut owner = BTreeMap::new();
        for (id, known, holds) in self.holds(assignment) {
            for task in holds.active.keys() {
                let end = self.end(*task);
                if self.owner.get(task).is_some_and(|before| before != id) {
                    *match end {
                        Some(_) => &mut round.stateful_active_moves,
                        None => &mut round.stateless_active_moves,
                    } += 1;
                }
                if end.is_some_and(|end| !known.lag(*task, end).is_caught_up(acceptable)) {
                    round.actives_not_ready += 1;
                }
                owner.insert(*task, id.clone());
            }
            let follows = holds.standby.keys().chain(holds.warmup.keys());
            let new = follows
                .filter(|task| !known.active.contains(task) && !known.followed.contains(task));
            round.new_standby_copies += new.count() as u64;
        }
        self.owner = owner;
        round
    }

    /// The end of a stateful task.
    fn end(&self, task: TaskId) -> Option<u64> {
        self.state.tasks.get(&task).filter(|task| task.stateful)?.end_offset
    }

    /// Applies the plan and lets every copy read on. Returns how much was read.
    fn carry_out(&mut self, assignment: &Assignment, model: Model) -> u64 {
        let at_most = model.restore_per_round.unwrap_or(MAX_OFFSET);
        let mut restored = 0;
        for (id, holds) in &assignment.instances {
            let Some(known) = self.known.get_mut(id) else { continue };
            known.running = true;
            known.active = holds.active.keys().copied().collect();
            known.followed = holds.standby.keys().chain(holds.warmup.keys()).copied().collect();
            if !model.keep_unassigned_state {
                known.offsets.retain(|task, _| holds.has(task));
            }
            for task in known.active.iter().chain(&known.followed) {
                let Some(info) = self.state.tasks.get(task).filter(|task| task.stateful) else {
                    continue;
                };
                let end = info.end_offset.unwrap_or(0);
                let offset = known.offsets.entry(*task).or_insert(0);
                let read = end.saturating_sub(*offset).min(at_most);
                restored = add_offsets(restored, read);
                *offset = end.min(add_offsets(*offset, read));
            }
        }
        restored
    }
}
