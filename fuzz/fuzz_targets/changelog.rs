//! Restores a store of each kind from whatever its changelog may hold, and uses it. The same body runs over the kept
//! corpus as a stable test: `tests/fuzzed.rs` of `integration-tests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    headwater_changelog::fuzzing::restore(data);
});
