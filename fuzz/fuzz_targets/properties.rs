//! Reads a properties file, and what it says of this client. The same body runs over the kept
//! corpus as a stable test: `tests/fuzzed.rs` of `integration-tests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        headwater_runtime::fuzzing::read_properties(text);
        headwater_kafka::fuzzing::read_security(text);
    }
});
