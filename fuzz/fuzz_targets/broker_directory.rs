//! Reads whatever an embedded broker may find in its directory. The same body runs over the kept
//! corpus as a stable test: `tests/fuzzed.rs` of `integration-tests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    headwater_embedded::fuzzing::open_directory(data);
});
