//! How long the default assignor takes: a group that starts, that has settled, that loses an
//! instance, that gets one more. Everything is worked out anew: no target is kept.

mod processor_time;

use std::collections::BTreeSet;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use headwater_assignor::{
    ApplicationState, Assignment, InstanceId, InstanceInfo, Lag, MinimumMovement, PartitionRole,
    RackAwareStrategy, RackId, TaskAssignor, TaskId, TaskInfo, TaskPartition, TopicName,
    TopicPartition,
};
use processor_time::ProcessorTime;

/// Sub-topologies; the tasks are spread over them.
const SUBTOPOLOGIES: u32 = 10;

struct Shape {
    tasks: u32,
    instances: u32,
    racks: u32,
    standbys: u32,
}

fn rack(number: u32) -> RackId {
    RackId::new(format!("rack{number}"))
}

fn instance(number: u32, racks: u32) -> (InstanceId, InstanceInfo) {
    let mut info = InstanceInfo::new(1);
    if racks > 0 {
        info.racks.push(Some(rack(number % racks)));
    }
    (InstanceId::new(format!("p{number}")), info)
}

/// Every task with its own end; every partition with a replica in two of the racks.
fn first_start(shape: &Shape) -> ApplicationState {
    let mut state = ApplicationState::default();
    for number in 0..shape.tasks {
        let id = TaskId::new(number % SUBTOPOLOGIES, number / SUBTOPOLOGIES);
        let mut info = TaskInfo::stateful();
        info.end_offset = Some(1_000_000 + u64::from(number) * 7919 % 500_000);
        for (topic, role) in [("in", PartitionRole::Source), ("log", PartitionRole::Changelog)] {
            let topic = TopicName::new(format!("{topic}-{}", id.subtopology));
            let mut partition =
                TaskPartition::new(TopicPartition { topic, partition: id.partition }, role);
            if shape.racks > 0 {
                let replicas = [number % shape.racks, (number + 1) % shape.racks];
                partition.racks = replicas.into_iter().map(rack).collect();
            }
            info.partitions.push(partition);
        }
        state.tasks.insert(id, info);
    }
    state.instances = (0..shape.instances).map(|number| instance(number, shape.racks)).collect();
    state.settings.num_standby_replicas = shape.standbys;
    if shape.racks > 0 {
        state.settings.rack_aware_assignment_strategy = RackAwareStrategy::MinTraffic;
    }
    state
}

/// The plan carried out: everybody has what it is to have and is up to date.
fn settled(mut state: ApplicationState, plan: &Assignment) -> ApplicationState {
    for (id, info) in &mut state.instances {
        let holds = &plan.instances[id];
        info.previous_active = holds.active.keys().copied().collect();
        let followed: BTreeSet<TaskId> =
            holds.standby.keys().chain(holds.warmup.keys()).copied().collect();
        info.lags = info.previous_active.iter().map(|task| (*task, Lag::Latest)).collect();
        info.lags.extend(followed.iter().map(|task| (*task, Lag::Behind(0))));
        info.previous_standby = followed;
    }
    state
}

fn plan(state: &ApplicationState) -> Assignment {
    MinimumMovement::default().assign(state).expect("the group has instances with capacity")
}

fn shapes(criterion: &mut Criterion<ProcessorTime>) {
    let shapes = [
        Shape { tasks: 1000, instances: 100, racks: 3, standbys: 1 },
        Shape { tasks: 1000, instances: 100, racks: 0, standbys: 20 },
        Shape { tasks: 1000, instances: 1000, racks: 3, standbys: 1 },
        Shape { tasks: 6000, instances: 2, racks: 0, standbys: 1 },
        Shape { tasks: 10_000, instances: 100, racks: 3, standbys: 1 },
        Shape { tasks: 10_000, instances: 1000, racks: 3, standbys: 1 },
    ];
    for shape in &shapes {
        let Shape { tasks, instances, racks, standbys } = shape;
        let name =
            format!("{tasks} tasks x {instances} instances, {racks} racks, {standbys} standbys");
        let mut group = criterion.benchmark_group(name);
        group.sample_size(10);
        let start = first_start(shape);
        let rest = settled(start.clone(), &plan(&start));
        let mut lost = rest.clone();
        lost.instances.remove(&InstanceId::from("p1"));
        let mut joined = rest.clone();
        joined.instances.extend([instance(*instances, *racks)]);
        for (name, state) in
            [("first start", start), ("settled", rest), ("one lost", lost), ("one joined", joined)]
        {
            group.bench_function(name, |bench| bench.iter(|| plan(black_box(&state))));
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = ProcessorTime::criterion();
    targets = shapes
}
criterion_main!(benches);
