//! Tests that share one Kafka.

mod bad_input;
mod contract;
mod counting;
mod standbys;
mod witnesses;
