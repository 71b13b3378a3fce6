//! What an instance measures, told to a recorder of the [`metrics`] crate (feature section Metrics).
//!
//! Counts are kept in plain fields by whoever owns what is counted. A stream thread hands what has come together to the
//! recorder between two slices of work, at most once a second while it works; so a record costs the recorder nothing,
//! and without a recorder there is nobody to hand anything to.
//!
//! The recorder is that of the [builder](crate::InstanceBuilder::metrics_recorder), else the global one of the process if
//! there is one when the instance starts. Names and labels are those that the Prometheus exporter of JMX gives to the
//! metrics of Kafka Streams: `process-total` of group `stream-thread-metrics` is
//! `kafka_streams_stream_thread_metrics_process_total`, with the label `thread_id`. What Kafka Streams does not have
//! begins with `headwater_`. [`ALL`] is the list.

mod client;
mod descriptions;
mod restores;
mod sampled;
mod scope;
mod sensors;
mod task;
mod thread;

pub use descriptions::{ALL, MetricDescription, MetricKind};
pub use scope::{MetricsScope, RecordingLevel, SharedRecorder};
pub use sensors::ProcessorMetrics;

/// The crate whose recorders are used here, for whoever writes one or keeps a handle.
pub use metrics as facade;

pub(crate) use client::{ClientMetrics, InstanceCounts};
pub(crate) use restores::RestoreMetrics;
pub(crate) use task::{StoreCounts, TaskCounts, TaskMetrics};
pub(crate) use thread::ThreadMetrics;
