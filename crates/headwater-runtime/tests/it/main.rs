//! Tests of the runtime through its public border.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by them")]

mod instance;
mod worker;
