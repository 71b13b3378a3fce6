//! A few schedules, and every seed that has ever found something.

use headwater_runtime::ProcessingGuarantee;
use headwater_testing::sim::FaultKind;
use simulations::{KEPT, Workload};

#[test]
fn a_few_schedules_keep_every_promise() {
    for seed in 0..24 {
        let guarantee = if seed % 2 == 0 {
            ProcessingGuarantee::ExactlyOnceV2
        } else {
            ProcessingGuarantee::AtLeastOnce
        };
        let workload = Workload::of_seed(seed / 2);
        let simulation = workload.simulation(guarantee).unwrap();
        if let Err(error) = simulation.run_all(seed..seed + 1) {
            panic!("{workload}: {error}");
        }
    }
}

#[test]
fn a_few_groups_keep_every_promise() {
    for seed in 0..24 {
        let guarantee = if seed % 2 == 0 {
            ProcessingGuarantee::ExactlyOnceV2
        } else {
            ProcessingGuarantee::AtLeastOnce
        };
        let workload = Workload::of_seed(seed / 2);
        let simulation = workload.group_simulation(guarantee).unwrap();
        if let Err(error) = simulation.run_all(seed..seed + 1) {
            panic!("{workload}: {error}");
        }
    }
}

#[test]
fn ten_instances_that_join_at_once_share_the_work() {
    let simulation = Workload::Count.group_simulation(ProcessingGuarantee::ExactlyOnceV2).unwrap();
    let simulation = simulation.instances(10..=10).faults(3..=3).fault_kinds([FaultKind::Blackout]);
    simulation.run_all(0..3).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn instances_of_another_version_leave_alone_what_they_do_not_have() {
    let kinds = [FaultKind::OtherVersion, FaultKind::LeaderCrash];
    for workload in [Workload::Stateless, Workload::Count] {
        let simulation = workload.group_simulation(ProcessingGuarantee::ExactlyOnceV2).unwrap();
        let simulation = simulation.fault_kinds(kinds);
        simulation.run_all(0..4).unwrap_or_else(|error| panic!("{workload}: {error}"));
    }
}

#[test]
fn seeds_that_found_something_find_nothing_any_more() {
    for &(workload, guarantee, seed) in KEPT {
        if let Err(error) = workload.simulation(guarantee).unwrap().run(seed) {
            panic!("{workload}: {error}");
        }
    }
}
