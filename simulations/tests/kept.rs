//! A few schedules, and every seed that has ever found something.

use headwater_runtime::ProcessingGuarantee;
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
fn seeds_that_found_something_find_nothing_any_more() {
    for &(workload, guarantee, seed) in KEPT {
        if let Err(error) = workload.simulation(guarantee).unwrap().run(seed) {
            panic!("{workload}: {error}");
        }
    }
}
