//! Stateful stream processing on Apache Kafka.
