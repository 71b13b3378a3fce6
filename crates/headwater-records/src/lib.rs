//! Kafka's record batch (v2) and the default partitioner.
