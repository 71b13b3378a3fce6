//! Reads whatever comes as record batches. The same body runs over the kept corpus as a stable
//! test of `headwater-records`; start from it:
//! `cargo +nightly fuzz run read_batches ../crates/headwater-records/tests/corpus`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    headwater_records::fuzzing::read_everything(data);
});
