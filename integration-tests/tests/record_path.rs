//! The record path does not allocate: counted by an allocator that counts, in a binary of its own.

use std::alloc::System;
use std::time::Duration;

use headwater::store::MemoryBackend;
use integration_tests::{OneTask, OneTaskOptions, Work};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Allocations per thousand records between two commits: what a batch of 500 records costs when it
/// comes and goes. A commit is not the stream thread's work.
#[track_caller]
fn check(work: Work, cache_bytes: usize, allocations_max: u64) {
    check_recorded(work, cache_bytes, allocations_max, None);
}

#[track_caller]
fn check_recorded(
    work: Work,
    cache_bytes: usize,
    allocations_max: u64,
    recorded: Option<Duration>,
) {
    let options = OneTaskOptions {
        work,
        // Few enough that nearly all records find their windows made.
        keys: if work == Work::Count { 10_000 } else { 20 },
        cache_bytes,
        commit_records: u64::MAX,
        // Time does not go back.
        batches: 220,
        recorded,
        ..OneTaskOptions::default()
    };
    let mut task = OneTask::new(&MemoryBackend::new(), "0_0".as_ref(), options)
        .expect("memory needs no directory");
    // All keys are known and all buffers have grown.
    task.run(120);
    let region = Region::new(COUNTING);
    let records = task.run(100);
    let change = region.change();
    let allocations = (change.allocations + change.reallocations) as u64;
    let per_thousand = allocations * 1_000 / records;
    assert!(
        per_thousand <= allocations_max,
        "{work:?}: {per_thousand} allocations per thousand records, of {allocations} in {records} records"
    );
    task.commit();
    assert!(task.written() > 0, "the task writes");
}

/// Twelve for each batch in: the batch itself, its message, and its share of the batches out.
const ALLOCATIONS_MAX: u64 = 24;

/// One test, so that nothing else allocates meanwhile.
#[test]
fn no_allocation_per_record() {
    check(Work::Count, 0, ALLOCATIONS_MAX);
    check(Work::Count, 10 << 20, ALLOCATIONS_MAX);
    // Told with every fourth batch, and so 25 times.
    let often = Some(Duration::from_millis(250));
    check_recorded(Work::Count, 0, ALLOCATIONS_MAX, often);
    check(Work::TumblingCount, 0, ALLOCATIONS_MAX);
    check(Work::TumblingCount, 10 << 20, ALLOCATIONS_MAX);
    // A record is in several windows: so many more batches out.
    check(Work::HoppingCount, 0, 2 * ALLOCATIONS_MAX);
    check(Work::HoppingCount, 10 << 20, ALLOCATIONS_MAX);
}
