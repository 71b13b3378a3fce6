//! Tests that share one Kafka.

mod contract;
mod witnesses;
