//! A processor's context without a topology around it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::TopicName;
use headwater_dsl::{
    Consumed, Processed, Processor, ProcessorContext, ProcessorHost, Record, Stores, StreamsBuilder,
};
use headwater_runtime::{
    CalledRecord, Headers, PunctuationToken, PunctuationType, StreamsConfig, UserError,
};
use headwater_store::serde::{Deserializer, Format, Payload, SerdeError, Serializer};
use headwater_topology::TaskId;
use parking_lot::Mutex;

use crate::driver::Core;
use crate::{TestDriverError, TestRecord, TopologyTestDriverBuilder};

/// Runs one processor alone, called by hand (feature row X4; Kafka Streams' `MockProcessorContext`): what it forwards,
/// schedules and asks for is kept to be looked at, and the test says where records come from and what time it is. Its
/// stores are those of a real task.
///
/// `K` and `V` are what the processor forwards.
///
/// ```
/// use headwater::prelude::*;
/// use headwater::{KeyValueStore, Processor, ProcessorContext, Record, Stores, UserError};
/// use headwater_testing::{MockProcessorContext, TestRecord};
///
/// /// Forwards how often each word has come.
/// struct Count {
///     counts: KeyValueStore<String, i64>,
/// }
///
/// impl Processor<String, String, String, i64> for Count {
///     fn process(
///         &mut self,
///         context: &mut ProcessorContext<'_, '_, String, i64>,
///         record: Record<'_, String, String>,
///     ) -> Result<(), UserError> {
///         let Some(word) = record.value else { return Ok(()) };
///         let count = self.counts.get(context, word)?.unwrap_or(0) + 1;
///         self.counts.put(context, word, &count)?;
///         Ok(context.forward(record.with_key(Some(word)).with_value(Some(&count)))?)
///     }
/// }
///
/// let mut mock = MockProcessorContext::builder()
///     .with_state_store(Stores::key_value("counts", Utf8, Long).in_memory())
///     .build()?;
/// let mut count = Count { counts: mock.call(|context| context.key_value_store("counts"))?? };
/// for word in ["to", "be", "to"] {
///     mock.process(&mut count, &TestRecord::new(None, word.to_owned()).at(7))?;
/// }
/// let forwarded: Vec<_> = mock.forwarded().into_iter().map(|it| it.record).collect();
/// assert_eq!(forwarded[2], TestRecord::new("to".to_owned(), 2).at(7));
/// # Ok::<(), UserError>(())
/// ```
pub struct MockProcessorContext<K, V> {
    core: Core,
    task: TaskId,
    host: ProcessorHost<K, V>,
    forwarded: Forwarded<K, V>,
    called: CalledRecord,
}

type Forwarded<K, V> = Arc<Mutex<Vec<CapturedForward<K, V>>>>;

/// Something that the processor has forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CapturedForward<K, V> {
    /// What; its headers are those at that moment.
    pub record: TestRecord<K, V>,
    /// To which node; `None`: to all.
    pub child: Option<String>,
}

/// Punctuations that the processor has scheduled and not cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CapturedPunctuator {
    /// What the processor was answered.
    pub token: PunctuationToken,
    /// By which clock.
    pub kind: PunctuationType,
    /// How often.
    pub interval: Duration,
    /// When it is due first, in milliseconds since 1970; by stream time 0 means as soon as there is data.
    pub first_ms: i64,
}

/// Sets a [`MockProcessorContext`] up.
pub struct MockProcessorContextBuilder<K, V> {
    config: StreamsConfig,
    builder: StreamsBuilder,
    processed: Processed,
    children: Vec<String>,
    forwards: std::marker::PhantomData<fn(K, V)>,
}

impl<K, V> fmt::Debug for MockProcessorContextBuilder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockProcessorContextBuilder")
            .field("processed", &self.processed)
            .field("children", &self.children)
            .finish_non_exhaustive()
    }
}

/// The node that the processor is.
const NODE: &str = "processor";
/// Nothing ever comes from there.
const TOPIC: &str = "mock-processor-input";

impl<K: Clone + Send + 'static, V: Clone + Send + 'static> MockProcessorContextBuilder<K, V> {
    /// With these settings (`appConfigs`). Without them the application is called `test`.
    #[must_use]
    pub fn config(self, config: StreamsConfig) -> Self {
        Self { config, ..self }
    }

    /// With this store, connected to the processor.
    #[must_use]
    pub fn with_state_store<SK: 'static, SV: 'static>(self, store: Stores<SK, SV>) -> Self {
        Self { processed: self.processed.with_own_store(store), ..self }
    }

    /// With a node of this name below the processor, for [`ProcessorContext::forward_to`].
    #[must_use]
    pub fn with_child(mut self, name: impl Into<String>) -> Self {
        self.children.push(name.into());
        self
    }

    /// With other default serdes than those of Kafka's `Serdes`, which are set on a builder.
    #[must_use]
    pub fn with_defaults(self, set: impl FnOnce(&StreamsBuilder)) -> Self {
        set(&self.builder);
        self
    }

    /// Sets it up.
    ///
    /// # Errors
    /// When the stores cannot be set up.
    ///
    /// # Panics
    /// Never: the topology of one source has a task.
    pub fn build(self) -> Result<MockProcessorContext<K, V>, TestDriverError> {
        let forwarded = Forwarded::default();
        let heard = Arc::clone(&forwarded);
        let host = ProcessorHost::new(
            self.children,
            move |child: Option<&str>, record: Record<'_, K, V>, headers: &Headers| {
                let (key, value) = (record.key.cloned(), record.value.cloned());
                let record = TestRecord::new(key, value).at(record.timestamp);
                let record = record.with_headers(headers.clone());
                heard.lock().push(CapturedForward { record, child: child.map(str::to_owned) });
            },
        );
        let input = self.builder.stream(TOPIC, Consumed::<(), ()>::with(Nothing, Nothing));
        input.host(&host, self.processed.named(NODE));
        let topology = self.builder.build();
        let topology = topology.map_err(|source| TestDriverError::Topology { source })?;
        let core = Core::start(TopologyTestDriverBuilder::new(topology).config(self.config))?;
        let task = core.task_ids().first().copied().expect("the node is in a task");
        let called = CalledRecord::default();
        Ok(MockProcessorContext { core, task, host, forwarded, called })
    }
}

impl<K: Clone + Send + 'static, V: Clone + Send + 'static> MockProcessorContext<K, V> {
    /// Without stores and named nodes below.
    ///
    /// # Errors
    /// As [`MockProcessorContextBuilder::build`].
    pub fn new() -> Result<Self, TestDriverError> {
        Self::builder().build()
    }

    /// With stores, nodes below, or settings.
    pub fn builder() -> MockProcessorContextBuilder<K, V> {
        MockProcessorContextBuilder {
            config: StreamsConfig::new("test"),
            builder: StreamsBuilder::new(),
            processed: Processed::new(),
            children: Vec::new(),
            forwards: std::marker::PhantomData,
        }
    }

    /// Calls code with the context, as the processor's node would: its supplier, its `process` or its `punctuate`.
    ///
    /// # Errors
    /// What would end the work of the task, for instance a store that cannot be read.
    ///
    /// # Panics
    /// Only where the code does.
    pub fn call<R>(
        &mut self,
        code: impl FnOnce(&mut ProcessorContext<'_, '_, K, V>) -> R,
    ) -> Result<R, TestDriverError> {
        let Self { core, task, host, called, .. } = self;
        let timestamp = called.timestamp;
        let called = core.worker_mut().call(*task, called, |cx| {
            let result = host.call(cx, timestamp, code);
            (result, cx.headers().clone())
        });
        let (result, headers) = called.expect("the task stays");
        self.called.headers = headers;
        result.map_err(|source| TestDriverError::Task { task: *task, source })
    }

    /// Has a processor process a record, with its time and headers. Where it comes from is what
    /// [`set_record_metadata`](Self::set_record_metadata) has said.
    ///
    /// # Errors
    /// What the processor says, or what would end the work of the task.
    pub fn process<KIn, VIn>(
        &mut self,
        processor: &mut impl Processor<KIn, VIn, K, V>,
        record: &TestRecord<KIn, VIn>,
    ) -> Result<(), UserError> {
        self.called.timestamp = record.timestamp.unwrap_or(0);
        self.called.headers.clone_from(&record.headers);
        let TestRecord { key, value, .. } = record;
        let record = Record::new(key.as_ref(), value.as_ref(), self.called.timestamp);
        self.call(|context| processor.process(context, record))?
    }

    /// From now on records come from there (`setRecordMetadata`). Before, and after
    /// [`clear_record_metadata`](Self::clear_record_metadata), there is no record, as in a punctuation.
    pub fn set_record_metadata(
        &mut self,
        topic: impl Into<TopicName>,
        partition: i32,
        offset: i64,
    ) {
        self.called.source = Some((topic.into(), partition, offset));
    }

    /// From now on there is no record, as in a punctuation.
    pub fn clear_record_metadata(&mut self) {
        self.called.source = None;
    }

    /// The wall clock says this from now on, in milliseconds since 1970 (`setCurrentSystemTimeMs`). At the beginning it
    /// is 0.
    pub fn set_current_system_time_ms(&mut self, ms: i64) {
        self.core.set_wall_ms(ms);
    }

    /// The highest timestamp that the task has seen (`setCurrentStreamTimeMs`). At the beginning it is −1.
    pub fn set_current_stream_time_ms(&mut self, ms: i64) {
        self.core.worker_mut().set_stream_time(self.task, ms);
    }

    /// What was forwarded since the last [`reset_forwards`](Self::reset_forwards), in order.
    pub fn forwarded(&self) -> Vec<CapturedForward<K, V>> {
        self.forwarded.lock().clone()
    }

    /// What of it the node of this name would have got: what was forwarded to it, or to all.
    pub fn forwarded_to(&self, child: &str) -> Vec<CapturedForward<K, V>> {
        let is_for = |it: &CapturedForward<K, V>| it.child.as_deref().is_none_or(|to| to == child);
        self.forwarded.lock().iter().filter(|it| is_for(it)).cloned().collect()
    }

    /// Forgets what was forwarded.
    pub fn reset_forwards(&mut self) {
        self.forwarded.lock().clear();
    }

    /// What is scheduled, in the order of scheduling (`scheduledPunctuators`). Nothing is due by itself: the test calls
    /// [`Processor::punctuate`] with [`call`](Self::call) and `Punctuation::new`.
    pub fn scheduled_punctuators(&self) -> Vec<CapturedPunctuator> {
        let scheduled = self.core.worker().scheduled_punctuations(self.task).into_iter();
        scheduled
            .map(|it| CapturedPunctuator {
                token: it.token,
                kind: it.kind,
                interval: it.interval,
                first_ms: it.next_ms,
            })
            .collect()
    }

    /// Whether the processor has asked for a commit since the last [`reset_commit`](Self::reset_commit).
    pub fn is_commit_requested(&self) -> bool {
        self.core.worker().is_commit_requested(self.task)
    }

    /// Forgets that it has.
    pub fn reset_commit(&mut self) {
        self.core.worker_mut().forget_commit_request(self.task);
    }
}

impl<K, V> fmt::Debug for MockProcessorContext<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockProcessorContext")
            .field("called", &self.called)
            .field("forwarded", &self.forwarded.lock().len())
            .finish_non_exhaustive()
    }
}

/// The serde of what never comes.
#[derive(Clone, Copy, Debug)]
struct Nothing;

impl Serializer<()> for Nothing {
    fn serialize(&self, (): &(), _: &mut Vec<u8>) -> Result<(), SerdeError> {
        Ok(())
    }
}

impl Deserializer<()> for Nothing {
    fn deserialize(&self, _: Payload<'_>) -> Result<(), SerdeError> {
        Ok(())
    }
}

impl Format for Nothing {
    fn format(&self) -> String {
        "nothing".to_owned()
    }
}
