//! Reads what members of a group tell each other, and what is committed with an offset. The same
//! body runs over the kept corpus as a stable test: `tests/fuzzed.rs` of `integration-tests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    headwater_runtime::fuzzing::read_facts(data);
});
