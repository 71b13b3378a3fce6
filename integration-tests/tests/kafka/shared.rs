//! Tests that share one Kafka.

mod bad_input;
mod contract;
mod counting;
mod patterns;
mod standbys;
mod witnesses;
