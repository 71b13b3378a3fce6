//! Settings of a stream thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{Clock, TopicName};

use super::OutputLimits;
use crate::config::StreamsConfig;
use crate::metrics::MetricsScope;
use crate::process::{DefaultTimestampExtractor, Handlers, NullRecords, UserError};
use crate::task::MaxTaskIdle;

/// Settings of a stream thread.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// All settings of the application, for processors to look at.
    pub streams: Arc<StreamsConfig>,
    /// All tasks share one transaction: what one of them has done counts with all others, or not.
    pub exactly_once: bool,
    /// Time between two commits.
    pub commit_interval: Duration,
    /// How long a task waits for an input that is at its end.
    pub max_task_idle: MaxTaskIdle,
    /// Memory of this thread's record caches; 0 switches caching off.
    pub cache_bytes_max: usize,
    /// Uncommitted writes of this thread's stores before it commits early. While a commit is under
    /// way, the thread waits for it when it has written as much again.
    pub uncommitted_bytes_max: usize,
    /// Bytes handed over and not yet acknowledged before the thread waits.
    pub unacknowledged_bytes_max: usize,
    /// Records of a task before the next task's turn.
    pub slice_records: usize,
    /// Limits of output batches.
    pub outputs: OutputLimits,
    /// What to do with failures.
    pub handlers: Handlers,
    /// The time of records whose source has no extractor of its own.
    pub default_timestamp_extractor: DefaultTimestampExtractor,
    /// What happens to records that are null where a node has no form for it.
    pub null_records: NullRecords,
    /// Wall-clock time between two emissions of an operator that waits for windows to close.
    pub window_emit_interval: Duration,
    /// Wall-clock time between two looks of a join for records that have stayed without partner.
    pub outer_join_emit_interval: Duration,
    /// How many partitions each output topic has: sinks, changelogs, dead-letter topics.
    pub partition_counts: Arc<BTreeMap<TopicName, i32>>,
    /// The largest batch that a topic takes, where that is known (`max.message.bytes`).
    pub message_bytes: Arc<BTreeMap<TopicName, usize>>,
    /// Knows other topics, for sinks that choose one for each record. Without it they find those above.
    pub topic_lookup: Option<Arc<dyn TopicLookup>>,
    /// The name of the thread, a label of its metrics.
    pub thread_name: Arc<str>,
    /// Time between two summaries in the log; zero: none.
    pub summary_interval: Option<Duration>,
    /// Where metrics go; without it none are told.
    pub metrics: Option<MetricsScope>,
    /// What slices of work are timed with, for the metrics; without it they tell no times of them. It is read for
    /// nothing else: what a worker does hangs on the time that a step is told.
    pub stopwatch: Option<Arc<dyn Clock>>,
}

/// Knows topics whose names come up while records are processed.
pub trait TopicLookup: fmt::Debug + Send + Sync {
    /// How many partitions a topic has; `None` if it does not exist. Called on the stream thread, which
    /// waits for the answer, once for each topic that exists.
    ///
    /// # Errors
    /// When it cannot be found out.
    fn partitions(&self, topic: &TopicName) -> Result<Option<i32>, UserError>;
}

impl WorkerConfig {
    /// The settings of one of the stream threads of an instance.
    pub fn of_thread(
        config: &StreamsConfig,
        handlers: Handlers,
        partition_counts: Arc<BTreeMap<TopicName, i32>>,
    ) -> Self {
        let share = |bytes: u64| {
            usize::try_from(bytes).unwrap_or(usize::MAX) / config.num_stream_threads.max(1)
        };
        Self {
            streams: Arc::new(config.clone()),
            exactly_once: config.is_exactly_once(),
            commit_interval: Duration::from_millis(config.commit_interval_in_force_ms()),
            max_task_idle: config.max_task_idle_ms,
            cache_bytes_max: share(config.statestore_cache_max_bytes),
            uncommitted_bytes_max: share(config.statestore_uncommitted_max_bytes),
            outputs: OutputLimits {
                batch_bytes: usize::try_from(config.batch_size).unwrap_or(usize::MAX),
                compression: config.compression_type,
                request_bytes: usize::try_from(config.max_request_size).unwrap_or(usize::MAX),
            },
            handlers,
            default_timestamp_extractor: config.default_timestamp_extractor,
            null_records: config.null_records,
            window_emit_interval: Duration::from_millis(config.window_emit_interval_ms),
            outer_join_emit_interval: Duration::from_millis(config.outer_join_emit_interval_ms),
            partition_counts,
            summary_interval: u64::try_from(config.log_summary_interval_ms)
                .ok()
                .map(Duration::from_millis),
            ..Self::default()
        }
    }
}

impl Default for WorkerConfig {
    /// Kafka Streams' defaults where it has the setting.
    fn default() -> Self {
        Self {
            streams: Arc::new(StreamsConfig::new("")),
            exactly_once: false,
            commit_interval: Duration::from_secs(30),
            max_task_idle: MaxTaskIdle::AtMost(Duration::ZERO),
            cache_bytes_max: 10 * 1024 * 1024,
            uncommitted_bytes_max: 32 * 1024 * 1024,
            unacknowledged_bytes_max: 8 * 1024 * 1024,
            slice_records: 1_000,
            outputs: OutputLimits::default(),
            handlers: Handlers::default(),
            default_timestamp_extractor: DefaultTimestampExtractor::default(),
            null_records: NullRecords::Drop,
            window_emit_interval: Duration::from_secs(1),
            outer_join_emit_interval: Duration::from_secs(1),
            partition_counts: Arc::default(),
            message_bytes: Arc::default(),
            topic_lookup: None,
            thread_name: "".into(),
            summary_interval: None,
            metrics: None,
            stopwatch: None,
        }
    }
}
