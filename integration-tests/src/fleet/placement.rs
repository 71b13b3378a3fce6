//! Where the copies of tasks are, seen from outside all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater::broker::Broker;
use headwater::{GroupView, TaskDuty, view_group};
use tokio::task::JoinHandle;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What was seen of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Plans that were looked at.
    pub plans: u64,
    /// What must not be: a standby or warm-up in the process that runs its task, or a task that two
    /// members run.
    pub wrong: BTreeSet<String>,
}

/// Looks at the group of an application all the time; ends when it is dropped.
#[derive(Debug)]
pub struct PlacementWatch {
    placement: Arc<Mutex<Placement>>,
    task: JoinHandle<()>,
}

impl PlacementWatch {
    /// Begins to look.
    pub fn start(broker: Arc<dyn Broker>, application: String) -> Self {
        let placement: Arc<Mutex<Placement>> = Arc::default();
        let shared = Arc::clone(&placement);
        let task = tokio::spawn(async move {
            let mut newest = None;
            let mut ticks = tokio::time::interval(LOOK_EVERY);
            loop {
                ticks.tick().await;
                // Brokers that are down are looked at again.
                let Ok(view) = view_group(&*broker, &application).await else { continue };
                if view.generation.is_some() && view.generation != newest {
                    newest = view.generation;
                    let mut placement = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    placement.plans += 1;
                    placement.wrong.extend(wrong(&view));
                }
            }
        });
        Self { placement, task }
    }

    /// What was seen so far.
    pub fn placement(&self) -> Placement {
        self.placement.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for PlacementWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn wrong(view: &GroupView) -> Vec<String> {
    let mut runs: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut follows = Vec::new();
    for member in &view.members {
        for task in &member.tasks {
            match task.duty {
                TaskDuty::Active => runs.entry(task.task).or_default().push(member),
                TaskDuty::Standby | TaskDuty::WarmUp => follows.push((task.task, member)),
                // It follows what it is about to get.
                _ => {}
            }
        }
    }
    let twice = runs.iter().filter(|(_, members)| members.len() > 1);
    let twice = twice.map(|(task, members)| format!("{task} is run by {} members", members.len()));
    let beside = follows.into_iter().filter(|(task, follower)| {
        let runners = runs.get(task).into_iter().flatten();
        follower.process_id.is_some()
            && runners.into_iter().any(|runner| runner.process_id == follower.process_id)
    });
    let beside = beside.map(|(task, member)| {
        format!(
            "generation {:?}: {task} has a copy beside it on {}",
            view.generation, member.client_id
        )
    });
    twice.chain(beside).collect()
}
