//! Reads whatever a Kafka may answer. The same body runs over the kept corpus as a stable test:
//! `tests/fuzzed.rs` of `integration-tests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    headwater_kafka::fuzzing::read_answer(data);
});
