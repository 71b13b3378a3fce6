//! Tests against a real Apache Kafka. `cargo xtask itest` starts one and runs them.
//!
//! Tests in [`faults`] start nodes of their own, which they kill, stop and freeze; they run one at a
//! time. Those in [`java`] run Kafka Streams itself, and are left out where it cannot be had. All others share the Kafka at `HEADWATER_BOOTSTRAP`, side by side: names of topics and
//! applications come from [`environment::unique`].

#![expect(clippy::unwrap_used, clippy::panic, reason = "all of it is test code, helpers too")]

mod application;
mod counting;
mod environment;
mod faults;
mod fleet;
mod java;
mod logs;
mod proxy;
mod raw;
mod shared;
mod witness;
