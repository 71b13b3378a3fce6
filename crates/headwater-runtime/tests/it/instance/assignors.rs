//! Who decides where tasks go.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use headwater_assignor::{
    ApplicationState, AssignError, Assignment, HighAvailability, InstanceAssignment,
    MinimumMovement, Problem, Reason, TaskAssignor, TaskId,
};
use headwater_runtime::{
    BuiltInAssignor, Instance, InstanceError, InstanceState, UncaughtReaction,
};

use super::group::tasks_settle;
use super::harness::{WordCount, World, close, running};

/// Puts each sub-topology on an instance of its own, as far as there are enough.
#[derive(Debug, Default)]
struct BySubtopology {
    /// The tags of all instances, when last asked.
    tags: Mutex<Vec<String>>,
    /// Plans that went out.
    computed: AtomicUsize,
}

impl TaskAssignor for BySubtopology {
    fn name(&self) -> &'static str {
        "by_subtopology"
    }

    fn assign(&self, state: &ApplicationState) -> Result<Assignment, AssignError> {
        let tags = state.instances.values().flat_map(|info| info.tags.values());
        *self.tags.lock().unwrap() = tags.cloned().collect();
        let ids: Vec<_> = state.instances.keys().collect();
        let mut plan = Assignment::default();
        for id in &ids {
            plan.instances.insert((*id).clone(), InstanceAssignment::default());
        }
        for task in state.tasks.keys() {
            let id = ids[task.subtopology as usize % ids.len()];
            let reason = if state.instances[id].previous_active.contains(task) {
                Reason::Stays
            } else {
                Reason::Balance
            };
            plan.instances.entry(id.clone()).or_default().active.insert(*task, reason);
        }
        Ok(plan)
    }

    fn on_assignment_computed(&self, plan: &Assignment, problem: Option<&Problem>) {
        assert!(problem.is_none() && !plan.instances.is_empty());
        self.computed.fetch_add(1, Ordering::Relaxed);
    }
}

fn subtopologies(instance: &Instance) -> BTreeSet<u32> {
    instance.tasks().keys().map(|task| task.subtopology.0).collect()
}

#[tokio::test(start_paused = true)]
async fn an_assignor_of_the_users_decides() {
    let world = World::new().await;
    let assignor = Arc::new(BySubtopology::default());
    let start = async |directory: &tempfile::TempDir, zone: &str| {
        let config = world.config().state_dir(directory.path()).client_tag("zone", zone);
        let builder = world.builder(WordCount::default()).config(config);
        builder.task_assignor(Arc::clone(&assignor)).start().await.unwrap()
    };
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let one = start(&directories[0], "eu").await;
    running(&one).await;
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    let two = start(&directories[1], "us").await;
    tasks_settle(&[&one, &two], &[2, 2]).await;
    let both = [subtopologies(&one), subtopologies(&two)];
    assert!(both.iter().all(|subtopologies| subtopologies.len() == 1), "{both:?}");
    assert_ne!(both[0], both[1]);
    assert_eq!(assignor.tags.lock().unwrap().iter().collect::<BTreeSet<_>>().len(), 2);
    // One for each round: alone, the second joins, the first has released.
    assert!(assignor.computed.load(Ordering::Relaxed) >= 3);
    world.write("a b").await;
    world.wait_for_counts(&[("a", 3), ("b", 2)]).await;
    close(one).await;
    close(two).await;
}

#[tokio::test(start_paused = true)]
async fn every_built_in_assignor_runs_an_instance() {
    for choice in [
        BuiltInAssignor::MinimumMovement,
        BuiltInAssignor::HighAvailability,
        BuiltInAssignor::Sticky,
        BuiltInAssignor::LegacySticky,
        BuiltInAssignor::FallbackPrior,
    ] {
        let world = World::new().await;
        let config = world.config().task_assignor(choice);
        let one = world.builder(WordCount::default()).config(config).start().await.unwrap();
        tasks_settle(&[&one], &[4]).await;
        world.write("a").await;
        world.wait_for_counts(&[("a", 1)]).await;
        close(one).await;
    }
}

/// Has nobody run the first task, or panics.
#[derive(Debug)]
struct Careless {
    panics: bool,
}

impl TaskAssignor for Careless {
    fn name(&self) -> &'static str {
        "careless"
    }

    fn assign(&self, state: &ApplicationState) -> Result<Assignment, AssignError> {
        assert!(!self.panics, "out of ideas");
        let mut plan = HighAvailability::default().assign(state)?;
        for holds in plan.instances.values_mut() {
            holds.active.remove(&TaskId::new(0, 0));
        }
        Ok(plan)
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_plan_reaches_the_uncaught_handler() {
    for (panics, expected) in [
        (
            false,
            "the plan of careless is rejected: nobody is to run task 0_0; every task needs one instance",
        ),
        (true, "the custom assignor careless failed: user code panicked: out of ideas"),
    ] {
        let world = World::new().await;
        let instance = world
            .builder(WordCount::default())
            .config(world.config())
            .task_assignor(Careless { panics })
            .uncaught_exception_handler(|_| UncaughtReaction::ShutdownClient)
            .start()
            .await
            .unwrap();
        instance.wait_for(|state| state == InstanceState::Error).await;
        let error = instance.error().unwrap();
        let InstanceError::Assign(error) = &*error else { panic!("{error:?}") };
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        assert_eq!(text, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn the_fallback_steps_in() {
    for panics in [false, true] {
        let world = World::new().await;
        let instance = world
            .builder(WordCount::default())
            .config(world.config())
            .task_assignor(Careless { panics })
            .fallback_task_assignor(MinimumMovement::default())
            .start()
            .await
            .unwrap();
        tasks_settle(&[&instance], &[4]).await;
        close(instance).await;
    }
}
