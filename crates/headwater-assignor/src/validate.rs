//! Whether a plan can be carried out at all, and what happens if a custom assignor's cannot.

use std::collections::BTreeMap;

use crate::assignment::Assignment;
use crate::assignor::TaskAssignor;
use crate::error::{AssignError, Problem};
use crate::ids::{InstanceId, TaskId};
use crate::state::ApplicationState;
use crate::threads::ThreadRule;

/// Checks a plan against the facts it was made from.
///
/// # Errors
/// The first problem, in Kafka Streams' order (KIP-924): instance by instance an unknown task, an
/// active that another instance runs too, or a task that the instance both runs and follows; then
/// a standby of a stateless task, an instance that was forgotten, one that is unknown, and last,
/// which Kafka Streams does not check, a task that nobody runs.
pub fn validate(state: &ApplicationState, assignment: &Assignment) -> Result<(), Problem> {
    let runs = check_copies(state, assignment)?;
    for (instance, holds) in &assignment.instances {
        let stateless = |task: &&TaskId| state.tasks.get(*task).is_some_and(|info| !info.stateful);
        if let Some(task) = holds.standby.keys().chain(holds.warmup.keys()).find(stateless) {
            let instance = instance.clone();
            return Err(Problem::StandbyOfStatelessTask { task: *task, instance });
        }
    }
    for instance in state.instances.keys() {
        if !assignment.instances.contains_key(instance) {
            return Err(Problem::InstanceForgotten { instance: instance.clone() });
        }
    }
    for instance in assignment.instances.keys() {
        if !state.instances.contains_key(instance) {
            return Err(Problem::UnknownInstance { instance: instance.clone() });
        }
    }
    match state.tasks.keys().find(|task| !runs.contains_key(task)) {
        Some(task) => Err(Problem::NotAssigned { task: *task }),
        None => Ok(()),
    }
}

/// Returns who runs what.
fn check_copies<'a>(
    state: &ApplicationState,
    assignment: &'a Assignment,
) -> Result<BTreeMap<TaskId, &'a InstanceId>, Problem> {
    let mut runs = BTreeMap::new();
    for (instance, holds) in &assignment.instances {
        let follows = holds.standby.keys().chain(holds.warmup.keys());
        if let Some(task) =
            holds.active.keys().chain(follows).find(|task| !state.tasks.contains_key(task))
        {
            return Err(Problem::UnknownTask { task: *task, instance: instance.clone() });
        }
        for task in holds.active.keys().copied() {
            if holds.follows(&task) {
                return Err(Problem::StandbyBesideActive { task, instance: instance.clone() });
            }
            if let Some(first) = runs.insert(task, instance) {
                let (first, second) = (first.clone(), instance.clone());
                return Err(Problem::ActiveTwice { task, first, second });
            }
        }
    }
    Ok(runs)
}

/// A plan that can be carried out, and whose it is.
#[derive(Debug)]
#[non_exhaustive]
pub struct Checked {
    /// The plan.
    pub assignment: Assignment,
    /// How the tasks of an instance are given to its threads.
    pub thread_rule: ThreadRule,
    /// What was wrong with the custom assignor or its plan, if the fallback had to step in.
    pub rejected: Option<AssignError>,
}

/// Asks a custom assignor and checks its plan. If it fails, or its plan does not hold, the
/// fallback is asked, if there is one.
///
/// # Errors
/// Without a fallback what the custom assignor failed with, or [`AssignError::Rejected`]; with one
/// what that failed with.
pub fn assign_checked(
    state: &ApplicationState,
    custom: &dyn TaskAssignor,
    fallback: Option<&dyn TaskAssignor>,
) -> Result<Checked, AssignError> {
    let answer = custom.assign(state).and_then(|assignment| match validate(state, &assignment) {
        Ok(()) => {
            custom.on_assignment_computed(&assignment, None);
            Ok(assignment)
        }
        Err(problem) => {
            let is_readable =
                !matches!(problem, Problem::UnknownTask { .. } | Problem::UnknownInstance { .. });
            let heard = if is_readable { assignment } else { Assignment::default() };
            custom.on_assignment_computed(&heard, Some(&problem));
            Err(AssignError::Rejected { assignor: custom.name().to_owned(), problem })
        }
    });
    match (answer, fallback) {
        (Ok(assignment), _) => {
            Ok(Checked { assignment, thread_rule: custom.thread_rule(), rejected: None })
        }
        (Err(error), None) => Err(error),
        (Err(error), Some(fallback)) => Ok(Checked {
            assignment: fallback.assign(state)?,
            thread_rule: fallback.thread_rule(),
            rejected: Some(error),
        }),
    }
}
