//! The bodies of the fuzz targets over the kept corpora: no damage does harm, and no length that lies
//! takes memory. Its own program, since it counts what all of it allocates.

use std::alloc::System;
use std::fs;
use std::path::Path;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What reading may allocate in all, whatever the bytes say: so much, and so often their length.
const BYTES_MAX: usize = 32 << 20;
const TIMES_MAX: usize = 4_096;
type Body = fn(&[u8]);

fn text(data: &[u8], body: fn(&str)) {
    if let Ok(text) = std::str::from_utf8(data) {
        body(text);
    }
}

/// What is kept of `read_batches` is that of its crate's own tests.
const BATCHES: &str = "../../crates/headwater-records/tests/corpus";

/// The targets, by the names of their corpora, and at how many places of a file damage is done at most.
const TARGETS: [(&str, usize, Body); 11] = [
    ("answers", 400, headwater_kafka::fuzzing::read_answer),
    // Each of them starts three brokers.
    ("broker_directory", 20, headwater_embedded::fuzzing::open_directory),
    ("changelog", 100, headwater_changelog::fuzzing::restore),
    ("damaged_stores", 8, integration_tests::damaged::operate),
    ("facts", 400, headwater_runtime::fuzzing::read_facts),
    ("group_leader", 100, headwater_runtime::fuzzing::lead),
    ("plan_json", 50, |data| text(data, headwater_cli::fuzzing::read_plan)),
    ("properties", 100, |data| {
        text(data, headwater_runtime::fuzzing::read_properties);
        text(data, headwater_kafka::fuzzing::read_security);
    }),
    (BATCHES, 50, |data| drop(headwater_records::fuzzing::read_everything(data))),
    ("stored_state", 400, |data| {
        headwater_store::fuzzing::read_stored(data);
        text(data, headwater_runtime::fuzzing::read_process_file);
    }),
    ("topology_json", 100, |data| text(data, headwater_topology::fuzzing::read_json)),
];

fn check(name: &str, body: Body, data: &[u8]) {
    let region = Region::new(ALLOCATOR);
    body(data);
    let taken = region.change().bytes_allocated;
    let allowed = BYTES_MAX + TIMES_MAX * data.len();
    assert!(taken <= allowed, "{name}: {taken} bytes for {data:?}");
}

#[test]
fn no_damage_does_harm_and_no_length_that_lies_takes_memory() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/kept");
    for (name, places, body) in TARGETS {
        let mut files = 0;
        for entry in fs::read_dir(corpora.join(name)).unwrap() {
            let kept = fs::read(entry.unwrap().path()).unwrap();
            files += 1;
            check(name, body, &kept);
            let step = kept.len().div_ceil(places).max(1);
            let flips = [0x01, 0x80, 0xff].into_iter().cycle();
            for (at, flip) in (0..kept.len()).step_by(step).zip(flips) {
                check(name, body, &kept[..at]);
                let mut damaged = kept.clone();
                damaged[at] ^= flip;
                check(name, body, &damaged);
            }
        }
        assert!(files > 1, "{name} has a corpus");
    }
}
