//! Reads whatever may lie in a state directory: in stores, and in its own file. The same body runs over the kept
//! corpus as a stable test: `tests/fuzzed.rs` of `integration-tests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    headwater_store::fuzzing::read_stored(data);
    if let Ok(text) = std::str::from_utf8(data) {
        headwater_runtime::fuzzing::read_process_file(text);
    }
});
