//! A few schedules, and every seed that has ever found something.

use headwater_dsl::DslError;
use headwater_runtime::ProcessingGuarantee;
use headwater_testing::sim::{FaultKind, Simulation};
use simulations::{KEPT, Workload};

/// Runs a few seeds of one kind of simulation; the first that breaks a promise is told.
fn run_a_few(
    simulation: fn(Workload, ProcessingGuarantee) -> Result<Simulation, DslError>,
) -> Result<(), String> {
    for seed in 0..24 {
        let (workload, guarantee) = Workload::of_seed(seed);
        let simulation = simulation(workload, guarantee).map_err(|error| error.to_string())?;
        simulation.run_all(seed..seed + 1).map_err(|error| format!("{workload}: {error}"))?;
    }
    Ok(())
}

#[test]
fn a_few_schedules_keep_every_promise() {
    run_a_few(Workload::simulation).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_few_groups_keep_every_promise() {
    run_a_few(Workload::group_simulation).unwrap_or_else(|error| panic!("{error}"));
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
    for kept in KEPT {
        let seeds = kept.seed..kept.seed + 1;
        if let Err(error) = kept.simulation().unwrap().run_all(seeds) {
            panic!("{}: {error}", kept.workload);
        }
    }
}
