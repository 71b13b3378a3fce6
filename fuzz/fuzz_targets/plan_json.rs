//! Reads the scenario of a plan, and plans. The same body runs over the kept corpus as a stable test:
//! `tests/fuzzed.rs` of `integration-tests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        headwater_cli::fuzzing::read_plan(text);
    }
});
