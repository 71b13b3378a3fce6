//! What the tasks of a stream thread share while it works on one of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::TopicName;

use crate::config::StreamsConfig;
use crate::metrics::ThreadMetrics;
use crate::process::{
    DefaultTimestampExtractor, FetchedEntries, Handlers, Headers, NullRecords, UserError,
    WindowFetch,
};
use crate::task::MaxTaskIdle;
use crate::worker::outputs::{OutputLimits, Outputs, TopicIndex};
use crate::worker::{Now, TopicLookup, WorkerConfig};

/// Shared by all tasks of a thread; reached through [`Cx`](crate::Cx).
#[derive(Debug)]
pub(crate) struct ThreadCore {
    pub(crate) config: Arc<StreamsConfig>,
    pub(crate) now: Now,
    pub(crate) outputs: Outputs,
    /// Complete batches may pile up to so many in one slice before the slice ends.
    ready_batches_max: usize,
    /// Buffers for serialisers.
    pub(crate) buffers: Vec<Vec<u8>>,
    /// Room for headers that a record has again later.
    pub(crate) headers: Vec<Headers>,
    /// Looks into stores of windows that are not under way.
    pub(crate) fetches: Vec<WindowFetch>,
    /// Room for what looks have found.
    pub(crate) fetched: Vec<FetchedEntries>,
    /// The value a cached read hands out.
    pub(crate) value: Vec<u8>,
    /// Bytes of the record caches of all tasks.
    pub(crate) cache_bytes: usize,
    pub(crate) cache_bytes_max: usize,
    pub(crate) handlers: Handlers,
    pub(crate) default_timestamp_extractor: DefaultTimestampExtractor,
    pub(crate) null_records: NullRecords,
    pub(crate) window_emit_interval_ms: i64,
    pub(crate) outer_join_emit_interval_ms: i64,
    pub(crate) max_task_idle: MaxTaskIdle,
    pub(crate) partition_counts: Arc<BTreeMap<TopicName, i32>>,
    topic_lookup: Option<Arc<dyn TopicLookup>>,
    /// Run so far.
    pub(crate) punctuations: u64,
    /// Without a recorder there are none.
    pub(crate) metrics: Option<ThreadMetrics>,
}

impl ThreadCore {
    pub(crate) fn new(config: &WorkerConfig, limits: OutputLimits, now: Now) -> Self {
        Self {
            config: Arc::clone(&config.streams),
            now,
            outputs: Outputs::new(limits, Arc::clone(&config.message_bytes)),
            ready_batches_max: 16,
            buffers: Vec::new(),
            headers: Vec::new(),
            fetches: Vec::new(),
            fetched: Vec::new(),
            value: Vec::new(),
            cache_bytes: 0,
            cache_bytes_max: config.cache_bytes_max,
            handlers: config.handlers.clone(),
            default_timestamp_extractor: config.default_timestamp_extractor,
            null_records: config.null_records,
            window_emit_interval_ms: milliseconds(config.window_emit_interval),
            outer_join_emit_interval_ms: milliseconds(config.outer_join_emit_interval),
            max_task_idle: config.max_task_idle,
            partition_counts: Arc::clone(&config.partition_counts),
            topic_lookup: config.topic_lookup.clone(),
            punctuations: 0,
            metrics: config
                .metrics
                .as_ref()
                .map(|scope| ThreadMetrics::new(scope, Arc::clone(&config.thread_name), now)),
        }
    }

    /// The place of an output topic, whose partition count was looked up at start.
    pub(crate) fn output_topic(&mut self, topic: &TopicName) -> TopicIndex {
        let partitions = self.partition_counts.get(topic).copied();
        let partitions = partitions.expect("output topics are looked up before tasks are made");
        self.outputs.topic(topic, partitions)
    }

    /// The place of a topic that a sink has chosen; `None` if there is no such topic.
    #[cold]
    pub(crate) fn look_up_topic(&mut self, name: &str) -> Result<Option<TopicIndex>, UserError> {
        let topic = TopicName::from(name);
        let partitions = match (self.partition_counts.get(name), &self.topic_lookup) {
            (Some(partitions), _) => Some(*partitions),
            (None, Some(lookup)) => lookup.partitions(&topic)?,
            (None, None) => None,
        };
        Ok(partitions.map(|partitions| self.outputs.topic(&topic, partitions)))
    }

    /// Whether enough batches are complete that they should be handed over first.
    pub(crate) fn is_output_full(&self) -> bool {
        self.outputs.ready_len() >= self.ready_batches_max
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
