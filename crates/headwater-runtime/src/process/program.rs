//! The behaviour of a topology: what a task runs.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use headwater_broker::TopicName;
use headwater_store::{
    Layout, SegmentedKind, SegmentedOptions, StoreBackend, StoreDescription, VersionedOptions,
};
use headwater_topology::{StoreKind, StoreSpec};

use crate::process::{
    Cx, NodeIndex, OperatorProgram, ProcessorSlot, PunctuationToken, TaskError, UserError,
};

/// A record as it lies in its batch.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value.
    pub value: Option<&'a [u8]>,
    /// The record's time: that of its timestamp extractor, in milliseconds since 1970.
    pub timestamp: i64,
    /// Its offset.
    pub offset: i64,
    /// The bytes that key and value are slices of: `owner.slice_ref(key)` keeps one without a
    /// copy, and pins the whole batch.
    pub owner: &'a Bytes,
}

/// What a timestamp extractor says (feature row R13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtractedTime {
    /// The record's time.
    At(i64),
    /// Drop the record, counted.
    Skip,
    /// The time of the wall clock.
    WallClock,
    /// What the application's default says ([`DefaultTimestampExtractor`](crate::DefaultTimestampExtractor)).
    ByDefault,
}

/// The entry of a sub-topology: reads a record and hands it to the nodes below. Shared by all
/// tasks.
pub trait SourceNode: fmt::Debug + Send + Sync + 'static {
    /// Processes one record to the end. When this returns, all nodes below have run.
    ///
    /// # Errors
    /// What ends the task's work; failures of single records have been through the handler.
    fn process(&self, cx: &mut Cx<'_>, record: &RawRecord<'_>) -> Result<(), TaskError>;

    /// The time of a record. `record.timestamp` is the one in the batch; `partition_time` the
    /// highest so far of its partition, −1 when there was none. The default leaves it to the
    /// application's default.
    ///
    /// # Errors
    /// An error makes the record a deserialization failure.
    fn extract_time(
        &self,
        record: &RawRecord<'_>,
        partition_time: i64,
    ) -> Result<ExtractedTime, UserError> {
        let (_, _) = (record, partition_time);
        Ok(ExtractedTime::ByDefault)
    }
}

/// A record without a valid timestamp, under the default extractor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the record has timestamp {timestamp}; use a timestamp extractor that skips or replaces invalid ones"
)]
pub struct NegativeTimestamp {
    /// The timestamp found.
    pub timestamp: i64,
}

/// An update of a cached store on its way downstream (KIP-63, feature row P17).
#[derive(Clone, Copy, Debug)]
pub struct CachedUpdate<'a> {
    /// The key, as in the store.
    pub key: &'a [u8],
    /// The value now, without its timestamp; `None` when deleted.
    pub new: Option<&'a [u8]>,
    /// The value last forwarded, without its timestamp; `None` when there was none.
    pub old: Option<&'a [u8]>,
    /// The time of the last update.
    pub timestamp: i64,
}

/// Hands the updates of a cached store to the nodes below it. Shared by all tasks.
pub trait FlushListener: fmt::Debug + Send + Sync + 'static {
    /// Forwards one update. The record's context in `cx` is that of the last update of the key.
    ///
    /// # Errors
    /// As for [`SourceNode::process`].
    fn forward(&self, cx: &mut Cx<'_>, update: CachedUpdate<'_>) -> Result<(), TaskError>;
}

/// A user's processor, one per task.
pub trait TaskProcessor: Any + Send {
    /// Called once before the first record; the place to schedule punctuations.
    ///
    /// # Errors
    /// An error of user code fails the task.
    fn init(&mut self, cx: &mut Cx<'_>, slot: ProcessorSlot) -> Result<(), TaskError>;

    /// A punctuation is due. Who schedules none needs none.
    ///
    /// # Errors
    /// As for [`SourceNode::process`].
    fn punctuate(
        &mut self,
        cx: &mut Cx<'_>,
        token: PunctuationToken,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        let _: (&Cx<'_>, PunctuationToken, i64) = (cx, token, timestamp);
        Ok(())
    }

    /// A commit begins: the place to log what was put off until now. Caches have been flushed.
    ///
    /// # Errors
    /// As for [`SourceNode::process`].
    fn flush(&mut self, cx: &mut Cx<'_>) -> Result<(), TaskError> {
        let _: &Cx<'_> = cx;
        Ok(())
    }

    /// Called once when the task closes.
    fn close(&mut self) {}
}

/// Makes the processors of a node, one for each task.
pub trait ProcessorSupplier: fmt::Debug + Send + Sync + 'static {
    /// A new processor.
    fn get(&self) -> Box<dyn TaskProcessor>;
}

/// Where to begin an input that has no committed offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetReset {
    /// At the first record there is.
    Earliest,
    /// After the last.
    Latest,
    /// At the first record that is at most so many milliseconds old (KIP-1106).
    ByDuration {
        /// The age, in milliseconds.
        ms: i64,
    },
    /// Nowhere: that is an error.
    None,
}

/// A source of a sub-topology.
#[derive(Clone, Debug)]
pub struct SourceProgram {
    /// Its node.
    pub node: NodeIndex,
    /// The topics it reads, internal ones with their full names.
    pub topics: Vec<TopicName>,
    /// What to do with a record.
    pub source: Arc<dyn SourceNode>,
    /// Where to begin; `None` takes the application's setting.
    pub reset: Option<OffsetReset>,
}

/// Which backend keeps a store.
#[derive(Clone, Debug)]
pub enum StoreBackendChoice {
    /// The application's disk backend.
    Persistent,
    /// Memory.
    InMemory,
    /// One of the store's own.
    Own(Arc<dyn StoreBackend>),
}

/// A store of a sub-topology.
#[derive(Clone, Debug)]
pub struct StoreProgram {
    /// Its name, kind, caching and logging.
    pub spec: StoreSpec,
    /// Which backend keeps it.
    pub backend: StoreBackendChoice,
    /// The full name of its changelog topic; `None` when logging is off.
    pub changelog: Option<TopicName>,
    /// Whether the changelog is a source topic, which is not written again.
    pub source_is_changelog: bool,
    /// Who gets the updates when the store is cached.
    pub flush: Option<Arc<dyn FlushListener>>,
    /// Whether entries of windows or sessions are also found by their time: an operator waits for them to
    /// close.
    pub by_time: bool,
    /// Whether values of windows or sessions have room for headers (KIP-1271).
    pub with_headers: bool,
    /// How long windows or sessions are kept, where that is not what the settings of the changelog follow.
    pub own_retention_ms: Option<i64>,
    /// What keys and values are, where that is known: kept beside the store, and what a query is
    /// held against.
    pub formats: Option<StoreFormats>,
}

impl StoreProgram {
    /// How its values are laid out.
    pub fn layout(&self) -> Layout {
        match self.spec.kind {
            StoreKind::TimestampedKeyValue | StoreKind::ForeignKeySubscription => {
                Layout::TimestampedKeyValue
            }
            StoreKind::TimestampedKeyValueWithHeaders => Layout::TimestampedKeyValueWithHeaders,
            StoreKind::Lru { .. } => Layout::Lru,
            StoreKind::Versioned { history_retention_ms, segment_interval_ms } => {
                Layout::Versioned(VersionedOptions::new(history_retention_ms, segment_interval_ms))
            }
            StoreKind::Window { retention_ms, timestamped, retain_duplicates, .. } => {
                Layout::Segmented(SegmentedOptions {
                    timestamped,
                    duplicates: retain_duplicates,
                    ..self.segmented(SegmentedKind::Window, retention_ms)
                })
            }
            StoreKind::Session { retention_ms } => {
                Layout::Segmented(self.segmented(SegmentedKind::Session, retention_ms))
            }
            _ => Layout::KeyValue,
        }
    }

    /// The label of its metrics that has its name: as in Kafka Streams, with the kind of the store.
    pub(crate) fn scope_label(&self) -> &'static str {
        let in_memory = matches!(self.backend, StoreBackendChoice::InMemory);
        match (self.layout(), in_memory) {
            (Layout::Lru, _) => "in_memory_lru_state_id",
            (Layout::Segmented(options), true) => match options.kind {
                SegmentedKind::Session => "in_memory_session_state_id",
                SegmentedKind::Window => "in_memory_window_state_id",
            },
            (Layout::Segmented(options), false) => match options.kind {
                SegmentedKind::Session => "persistent_session_state_id",
                SegmentedKind::Window => "persistent_window_state_id",
            },
            (_, true) => "in_memory_state_id",
            (_, false) => "persistent_state_id",
        }
    }

    fn segmented(&self, kind: SegmentedKind, retention_ms: i64) -> SegmentedOptions {
        SegmentedOptions {
            by_time: self.by_time,
            with_headers: self.with_headers,
            in_memory: !self.spec.persistent,
            ..SegmentedOptions::new(kind, self.own_retention_ms.unwrap_or(retention_ms))
        }
    }

    /// What stands beside the store; `None` when its formats are not known.
    pub(crate) fn description(&self) -> Option<StoreDescription> {
        let StoreFormats { key, value } = self.formats.clone()?;
        let layout = self.layout();
        Some(StoreDescription { layout, key_format: key, value_format: value })
    }
}

/// The names of the formats of a store's keys and values
/// ([`Format::format`](headwater_store::serde::Format::format)).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreFormats {
    /// Of the keys.
    pub key: String,
    /// Of the values.
    pub value: String,
}

/// A user's processor node.
#[derive(Clone, Debug)]
pub struct ProcessorProgram {
    /// Its node.
    pub node: NodeIndex,
    /// Where processors come from.
    pub supplier: Arc<dyn ProcessorSupplier>,
}

/// A sink of a sub-topology.
#[derive(Clone, Debug)]
pub struct SinkProgram {
    /// Its node.
    pub node: NodeIndex,
    /// The topic it writes, an internal one with its full name.
    pub topic: TopicName,
}

/// What the tasks of one sub-topology run. Built once, shared by all of them.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The names of the nodes, by [`NodeIndex`].
    pub nodes: Vec<Arc<str>>,
    /// Where records come in.
    pub sources: Vec<SourceProgram>,
    /// The stores, by [`StoreSlot`](crate::StoreSlot), in the order in which caches are flushed.
    pub stores: Vec<StoreProgram>,
    /// The global stores, which are only read; their slots follow on those of the stores.
    pub global_stores: Vec<StoreProgram>,
    /// The user's processors, by [`ProcessorSlot`].
    pub processors: Vec<ProcessorProgram>,
    /// The operators with times of their own, by [`OperatorSlot`](crate::OperatorSlot).
    pub operators: Vec<OperatorProgram>,
    /// Where records go out, by [`SinkSlot`](crate::SinkSlot).
    pub sinks: Vec<SinkProgram>,
    /// Whether there are sinks that choose a topic for each record.
    pub chooses_topics: bool,
}

impl Program {
    /// The user's processors in the order of the topology, parents first.
    pub(crate) fn processors_in_order(&self) -> Vec<ProcessorSlot> {
        let mut slots: Vec<ProcessorSlot> =
            (0..).map(ProcessorSlot).take(self.processors.len()).collect();
        slots.sort_by_key(|slot| self.processors[slot.index()].node);
        slots
    }
}
