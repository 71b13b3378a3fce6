//! Tests that share one Kafka.

mod bad_input;
mod contract;
mod counting;
mod restart;
mod standbys;
mod witnesses;
