//! Runs each operator over stores with damaged entries, and behind internal topics that say anything. The same body
//! runs over the kept corpus as a stable test: `tests/fuzzed.rs` of `integration-tests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    integration_tests::damaged::operate(data);
});
