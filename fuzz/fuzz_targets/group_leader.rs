//! Has the leader of a group plan for whatever members may tell. The same body runs over the kept
//! corpus as a stable test: `tests/fuzzed.rs` of `integration-tests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    headwater_runtime::fuzzing::lead(data);
});
