//! How much memory a plan takes: linear in tasks, instances and copies, whoever makes it.

use std::alloc::System;
use std::collections::BTreeMap;

use headwater_assignor::{
    ApplicationState, HighAvailability, InstanceId, InstanceInfo, Lag, MinimumMovement,
    PartitionRole, RackAwareStrategy, RackId, TaskAssignor, TaskId, TaskInfo, TaskPartition,
    TopicName, TopicPartition,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn rack(number: u32) -> RackId {
    RackId::new(format!("rack{}", number % 3))
}

/// A settled group in three racks, 10 tasks to an instance, one standby each, that one instance has
/// left and one joins.
fn group(instances: u32, by: &dyn TaskAssignor) -> ApplicationState {
    let mut state = ApplicationState::default();
    for number in 0..instances * 10 {
        let id = TaskId::new(number % 10, number / 10);
        let mut info = TaskInfo::stateful();
        info.end_offset = Some(1_000_000 + u64::from(number));
        for (topic, role) in [("in", PartitionRole::Source), ("log", PartitionRole::Changelog)] {
            let topic = TopicName::new(format!("{topic}-{}", id.subtopology));
            let id = TopicPartition { topic, partition: id.partition };
            let mut partition = TaskPartition::new(id, role);
            partition.racks = [rack(number), rack(number + 1)].into();
            info.partitions.push(partition);
        }
        state.tasks.insert(id, info);
    }
    for number in 0..instances {
        let mut info = InstanceInfo::new(1);
        info.racks.push(Some(rack(number)));
        state.instances.insert(InstanceId::new(format!("p{number}")), info);
    }
    state.settings.num_standby_replicas = 1;
    let plan = by.assign(&state).expect("a first plan");
    for (id, info) in &mut state.instances {
        let holds = &plan.instances[id];
        info.previous_active = holds.active.keys().copied().collect();
        info.previous_standby = holds.standby.keys().copied().collect();
        let actives = info.previous_active.iter().map(|task| (*task, Lag::Latest));
        let standbys = info.previous_standby.iter().map(|task| (*task, Lag::Behind(0)));
        info.lags = actives.chain(standbys).collect::<BTreeMap<_, _>>();
    }
    let gone = state.instances.remove(&"p0".into()).expect("it was there");
    let mut new = InstanceInfo::new(1);
    new.racks = gone.racks;
    state.instances.insert(InstanceId::new(format!("p{instances}")), new);
    state
}

/// Everything that is allocated on the way counts, so no peak can hide in it.
fn allocated_per_task(instances: u32, by: &dyn TaskAssignor, racks: bool) -> usize {
    let mut state = group(instances, by);
    if racks {
        state.settings.rack_aware_assignment_strategy = RackAwareStrategy::MinTraffic;
    }
    let region = Region::new(ALLOCATOR);
    let plan = by.assign(&state).expect("a plan");
    let allocated = region.change().bytes_allocated;
    assert_eq!(plan.instances.len(), instances as usize);
    allocated / state.tasks.len()
}

/// One test, so that nobody else allocates meanwhile.
#[test]
fn memory_grows_with_tasks_and_not_with_their_square() {
    let assignors: [(&dyn TaskAssignor, bool); 2] = [
        (&MinimumMovement::default(), true),
        // Its rack optimiser has an edge for every pair of task and instance, as the original has.
        (&HighAvailability::default(), false),
    ];
    for (by, racks) in assignors {
        let small = allocated_per_task(25, by, racks);
        let large = allocated_per_task(200, by, racks);
        println!("{}: {small} and {large} bytes for each task", by.name());
        assert!(
            large <= small * 2,
            "{}: {small} bytes for each of 250 tasks, {large} for each of 2000",
            by.name()
        );
    }
}
