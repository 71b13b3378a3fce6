//! Tests that share one Kafka.

mod witnesses;
