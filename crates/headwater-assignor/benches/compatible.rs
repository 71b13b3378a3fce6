//! The cases in which the original assignors were timed, by the same names.
//!
//! Three histories: nobody has anything; everything is where it should be; the same with the first
//! instance gone. An instance reports lags for what it has; for the rest the end offsets speak.

mod processor_time;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use headwater_assignor::{
    ApplicationState, HighAvailability, InstanceId, InstanceInfo, Lag, LegacySticky, PartitionRole,
    RackAwareStrategy, RackId, Sticky, TaskAssignor, TaskId, TaskInfo, TaskPartition, TopicName,
    TopicPartition,
};
use processor_time::ProcessorTime;

const END: u64 = 100_000;

struct Case {
    name: &'static str,
    assignor: fn() -> Box<dyn TaskAssignor>,
    tasks: u32,
    subtopologies: u32,
    instances: u32,
    threads: u32,
    standbys: u32,
    racks: u32,
    strategy: RackAwareStrategy,
}

impl Case {
    fn new(name: &'static str, tasks: u32, instances: u32, standbys: u32) -> Self {
        Self {
            name,
            assignor: || Box::new(HighAvailability::default()),
            tasks,
            subtopologies: 1,
            instances,
            threads: 1,
            standbys,
            racks: 0,
            strategy: RackAwareStrategy::None,
        }
    }

    fn by(self, assignor: fn() -> Box<dyn TaskAssignor>) -> Self {
        Self { assignor, ..self }
    }

    fn threads(self, threads: u32) -> Self {
        Self { threads, ..self }
    }

    fn subtopologies(self, subtopologies: u32) -> Self {
        Self { subtopologies, ..self }
    }

    fn racks(self, strategy: RackAwareStrategy) -> Self {
        Self { racks: 3, strategy, ..self }
    }

    /// Nobody has anything.
    fn first_start(&self) -> ApplicationState {
        let mut state = ApplicationState::default();
        let each = self.tasks / self.subtopologies;
        for task in 0..self.tasks {
            let id = TaskId::new(task / each, task % each);
            state.tasks.insert(id, self.task(id));
        }
        for number in 1..=self.instances {
            let mut info = InstanceInfo::new(self.threads);
            if self.racks > 0 {
                info.racks.push(Some(rack(number % self.racks)));
            }
            state.instances.insert(InstanceId::new(format!("p{number}")), info);
        }
        state.settings.num_standby_replicas = self.standbys;
        state.settings.rack_aware_assignment_strategy = self.strategy;
        state
    }

    fn task(&self, id: TaskId) -> TaskInfo {
        let mut info = TaskInfo::stateful();
        info.end_offset = Some(END);
        let mut add = |topic: &str, role, racks: [u32; 2]| {
            let topic = TopicName::new(format!("{topic}-{}", id.subtopology));
            let topic_partition = TopicPartition { topic, partition: id.partition };
            let mut partition = TaskPartition::new(topic_partition, role);
            if self.racks > 0 {
                partition.racks = racks.map(|number| rack(number % self.racks)).into();
            }
            info.partitions.push(partition);
        };
        add("in", PartitionRole::Source, [id.partition, id.partition + 1]);
        add("store", PartitionRole::Changelog, [id.partition + 2, id.partition]);
        info
    }

    /// Everything is where it should be.
    fn settled(&self) -> ApplicationState {
        let mut state = self.first_start();
        let plan = (self.assignor)().assign(&state).expect("a first plan");
        for (id, info) in &mut state.instances {
            let holds = &plan.instances[id];
            info.previous_active = holds.active.keys().copied().collect();
            info.previous_standby = holds.standby.keys().copied().collect();
            let actives = info.previous_active.iter().map(|task| (*task, Lag::Latest));
            let standbys = info.previous_standby.iter().map(|task| (*task, Lag::Behind(0)));
            info.lags = actives.chain(standbys).collect::<BTreeMap<_, _>>();
        }
        state
    }
}

fn rack(number: u32) -> RackId {
    RackId::new(format!("rack{number}"))
}

fn cases() -> Vec<Case> {
    use RackAwareStrategy::{BalanceSubtopology, MinTraffic};
    let sticky = || Box::new(Sticky::default()) as Box<dyn TaskAssignor>;
    let legacy = || Box::new(LegacySticky::default()) as Box<dyn TaskAssignor>;
    let hundred = |name, standbys| Case::new(name, 1000, 100, standbys).subtopologies(10);
    vec![
        Case::new("6000x2", 6000, 2, 1),
        Case::new("1000x1000", 1000, 1000, 1),
        Case::new("1000x100-standby50", 1000, 100, 50),
        Case::new("1000x10-threads1000", 1000, 10, 1).threads(1000),
        Case::new("1000x1000-threads10", 1000, 1000, 1).threads(10),
        hundred("1000x100", 1),
        Case::new("10000x100", 10_000, 100, 1).subtopologies(10),
        hundred("1000x100-rack-min-traffic-standby0", 0).racks(MinTraffic),
        hundred("1000x100-rack-balance-standby0", 0).racks(BalanceSubtopology),
        hundred("1000x100-rack-min-traffic", 1).racks(MinTraffic),
        hundred("1000x100-rack-balance", 1).racks(BalanceSubtopology),
        Case::new("200x20-rack-min-traffic", 200, 20, 1).subtopologies(5).racks(MinTraffic),
        Case::new("200x20-rack-balance", 200, 20, 1).subtopologies(5).racks(BalanceSubtopology),
        Case::new("sticky-2000x2", 2000, 2, 1).by(sticky),
        Case::new("sticky-1000x1000", 1000, 1000, 1).by(sticky),
        Case::new("sticky-1000x100-standby20", 1000, 100, 20).by(sticky),
        Case::new("legacy-sticky-2000x2", 2000, 2, 1).by(legacy),
        Case::new("legacy-sticky-1000x1000", 1000, 1000, 1).by(legacy),
        Case::new("legacy-sticky-1000x100-standby20", 1000, 100, 20).by(legacy),
    ]
}

fn compatible(criterion: &mut Criterion<ProcessorTime>) {
    for case in cases() {
        let settled = case.settled();
        let mut one_lost = settled.clone();
        one_lost.instances.remove(&InstanceId::from("p1"));
        let histories =
            [("first-start", case.first_start()), ("settled", settled), ("one-lost", one_lost)];
        let assignor = (case.assignor)();
        let mut group = criterion.benchmark_group(case.name);
        group.sample_size(10).warm_up_time(Duration::from_millis(100));
        group.measurement_time(Duration::from_secs(1));
        for (history, state) in histories {
            group.bench_function(history, |bencher| {
                bencher.iter(|| assignor.assign(black_box(&state)).expect("a plan"));
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = ProcessorTime::criterion();
    targets = compatible
}
criterion_main!(benches);
