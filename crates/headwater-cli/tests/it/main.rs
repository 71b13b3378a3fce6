//! The program as its users see it.
#![expect(
    clippy::needless_raw_string_hashes,
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "expected texts are written and passed as their library does it; tables are long"
)]

mod plan;
