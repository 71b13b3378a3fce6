//! Looking whether everything holds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headwater_broker::{Broker, GroupId};
use headwater_runtime::{TaskDuty, TaskRole, TaskState, view_group};
use headwater_topology::TaskId;

use super::acts::{chain, undisturbed};
use super::{Due, Process, RETRY_MS, World, Wrong};
use crate::sim::invariant::Seen;
use crate::sim::stores::StoresError;

/// For so long two instances may both think that a task is theirs: until the one that has lost it must have
/// heard, or would have found out by itself.
const SHARED_MS_MAX: u64 = 12_000;

/// So often an instance may stop when nothing goes wrong any more.
const STOPS_IN_PEACE_MAX: usize = 5;

impl World<'_> {
    /// Looks once; whether the run is at rest.
    pub(super) async fn look(&mut self) -> Result<bool, Wrong> {
        self.bury_stopped()?;
        if let Some(what) = self.ground.committed_twice() {
            return Err(("each task is granted to one instance".to_owned(), what));
        }
        self.look_at_owners()?;
        self.look_at_memory().await?;
        self.look_at_group().await?;
        self.outputs.read(&self.broker).await.map_err(|error| undisturbed(&error))?;
        let now_ms = self.ground.now_ms();
        for machine in &self.machines {
            self.stores
                .check(&self.broker, machine, now_ms)
                .await
                .map_err(|error| of_stores(&error))?;
        }
        self.look_at_invariants(false)?;
        self.look_for_rest().await
    }

    pub(super) fn look_at_invariants(&mut self, is_at_rest: bool) -> Result<(), Wrong> {
        let seen = Seen {
            guarantee: self.simulation.shape.guarantee,
            written: &self.written,
            output: &self.outputs.records,
            is_overwritten: self.ground.writers.lock().are_overwritten(),
            is_at_rest,
        };
        for invariant in &mut self.invariants {
            if let Err(broken) = invariant.check(&seen) {
                return Err((invariant.name().to_owned(), broken.what));
            }
        }
        Ok(())
    }

    /// Instances that have stopped by themselves come back, as they do where something watches over them.
    fn bury_stopped(&mut self) -> Result<(), Wrong> {
        for number in 0..self.processes.len() {
            let Process::Up(instance) = &self.processes[number] else { continue };
            if !instance.state().is_final() {
                continue;
            }
            let why =
                instance.error().map_or_else(|| "it does not say why".to_owned(), |it| chain(&*it));
            self.tell(format!("instance {number} has stopped: {why}"));
            self.put_down(number, 16);
            self.put_after(Duration::from_millis(RETRY_MS), Due::Start(number));
            if let Some((_, stops)) = &mut self.peace {
                *stops += 1;
                if *stops > STOPS_IN_PEACE_MAX {
                    let name = "nothing is stuck without a reason".to_owned();
                    return Err((name, format!("instance {number} stops again and again: {why}")));
                }
            }
        }
        Ok(())
    }

    /// No task is processed by two instances for longer than it takes to find out.
    fn look_at_owners(&mut self) -> Result<(), Wrong> {
        let now_ms = self.ground.now_ms();
        let mut owners: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (number, process) in self.processes.iter().enumerate() {
            let Process::Up(instance) = process else { continue };
            if self.machines[number].stands_still() {
                continue;
            }
            for (task, status) in instance.tasks() {
                if status.role == TaskRole::Active && status.state == TaskState::Running {
                    owners.entry(task.to_string()).or_default().push(number);
                }
            }
        }
        let shared: BTreeSet<&String> =
            owners.iter().filter(|(_, by)| by.len() > 1).map(|(task, _)| task).collect();
        self.shared_tasks.retain(|task, _| shared.contains(task));
        for task in shared {
            let since = *self.shared_tasks.entry(task.clone()).or_insert(now_ms);
            if now_ms - since > SHARED_MS_MAX {
                let what = format!(
                    "instances {:?} both process task {task}, since {}.{:03}",
                    owners[task],
                    since / 1_000,
                    since % 1_000
                );
                return Err(("each task is granted to one instance".to_owned(), what));
            }
        }
        Ok(())
    }
}

impl World<'_> {
    /// As the group has it, seen from outside: no task has two owners, and no copy of a task is where it
    /// runs, or twice on one machine.
    async fn look_at_group(&mut self) -> Result<(), Wrong> {
        let application = &self.simulation.config.application_id;
        let described = self.broker.describe_group(&GroupId::from(application.as_str())).await;
        let described = described.map_err(|error| undisturbed(&error))?;
        if self.group.as_ref() == Some(&described) {
            return Ok(());
        }
        self.group = Some(described);
        let looked = view_group(&self.broker, application).await;
        let group = looked.map_err(|error| undisturbed(&error))?;
        let mut owners: BTreeMap<TaskId, &str> = BTreeMap::new();
        for member in &group.members {
            let mut here: BTreeSet<TaskId> = BTreeSet::new();
            let id = member.member_id.as_str();
            // Who waits for a task goes on to follow it.
            for view in member.tasks.iter().filter(|view| view.duty != TaskDuty::Withheld) {
                if !here.insert(view.task) {
                    let what = format!("{id} is to run and to follow task {}", view.task);
                    return Err(("no copy is beside its active task".to_owned(), what));
                }
                if view.duty == TaskDuty::Active
                    && let Some(other) = owners.insert(view.task, id)
                {
                    let what = format!("{other} and {id} are both to run task {}", view.task);
                    return Err(("each task is granted to one instance".to_owned(), what));
                }
            }
        }
        Ok(())
    }
}

pub(super) fn of_stores(error: &StoresError) -> Wrong {
    ("stores hold what their changelogs have".to_owned(), chain(error))
}
