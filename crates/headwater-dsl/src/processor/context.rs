//! What a processor may do.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headwater_runtime::{
    Cx, Headers, NodeIndex, ProcessorMetrics, ProcessorSlot, PunctuationToken, PunctuationType,
    StreamsConfig, TaskError,
};
use headwater_topology::TaskId;

use super::error::ContextError;
use super::stores::{
    KeyValueStore, Place, SessionStore, SessionStoreWithHeaders, TimestampedKeyValueStore,
    TimestampedKeyValueStoreWithHeaders, TimestampedWindowStore, TimestampedWindowStoreWithHeaders,
    VersionedKeyValueStore, WindowStore,
};
use crate::edge::NamedBelow;
use crate::error::Part;
use crate::record::Record;
use crate::serdes::{DefaultSerdes, SharedSerde};
use crate::store::StoreKindOf;
use crate::wiring::{ConnectedStore, Wiring};

/// What a node of the graph is to its processors.
pub(super) struct Surroundings {
    pub(super) index: NodeIndex,
    pub(super) name: Arc<str>,
    /// Whether siblings do not see changes of headers.
    headers_are_own: bool,
    stores: Vec<ConnectedStore>,
    default_serdes: DefaultSerdes,
}

impl Surroundings {
    pub(super) fn new(wiring: &Wiring<'_>, headers_are_own: bool) -> Self {
        Self::with_stores(wiring, wiring.connected_stores(), headers_are_own)
    }

    /// Those of code that the node runs on behalf of another one, with the stores of that.
    pub(super) fn with_stores(
        wiring: &Wiring<'_>,
        stores: Vec<ConnectedStore>,
        headers_are_own: bool,
    ) -> Self {
        Self {
            headers_are_own,
            index: wiring.index(),
            name: wiring.name().into(),
            stores,
            default_serdes: wiring.default_serdes().clone(),
        }
    }
}

/// What a processor may do: everything but forwarding (feature row P3).
pub struct ProcessingContext<'a, 'cx> {
    pub(super) cx: &'a mut Cx<'cx>,
    surroundings: &'a Surroundings,
    slot: ProcessorSlot,
    /// Of the record, or of the punctuation.
    pub(super) timestamp: i64,
    /// The first error after which the task cannot go on, in case user code swallows it.
    task_error: Option<TaskError>,
    /// What the siblings are to see again.
    headers_before: Option<Headers>,
}

/// Where a record came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordMetadata<'a> {
    /// The topic; `None` in a punctuation.
    pub topic: Option<&'a str>,
    /// The partition; −1 in a punctuation.
    pub partition: i32,
    /// The offset; −1 in a punctuation.
    pub offset: i64,
}

impl<'a, 'cx> ProcessingContext<'a, 'cx> {
    pub(super) const fn new(
        cx: &'a mut Cx<'cx>,
        surroundings: &'a Surroundings,
        slot: ProcessorSlot,
        timestamp: i64,
    ) -> Self {
        Self { cx, surroundings, slot, timestamp, task_error: None, headers_before: None }
    }

    /// User code of this node has run. Answers the error that ends the task's work, if there was one.
    pub(super) fn finish(self) -> Option<TaskError> {
        if let Some(headers) = self.headers_before {
            *self.cx.headers_mut() = headers;
        }
        self.task_error
    }
}

impl ProcessingContext<'_, '_> {
    /// The application.
    pub fn application_id(&self) -> &str {
        self.cx.application_id()
    }

    /// The task.
    pub fn task_id(&self) -> TaskId {
        self.cx.task_id()
    }

    /// The settings of the application (`appConfigs`).
    pub fn config(&self) -> &StreamsConfig {
        self.cx.config()
    }

    /// The topology's default serde for keys of this type (`keySerde`): the one that was set with
    /// [`StreamsBuilder::default_key_serde`](crate::StreamsBuilder::default_key_serde), else that of Kafka's
    /// `Serdes`.
    ///
    /// ```
    /// use headwater_dsl::{ContextError, ProcessingContext};
    /// use headwater_store::serde::{Serializer, SerdeError};
    ///
    /// /// The bytes of a word, as the sinks and stores of the topology write it by default.
    /// fn bytes(context: &ProcessingContext<'_, '_>, word: &String) -> Result<Vec<u8>, SerdeError> {
    ///     let serde = context.key_serde::<String>().expect("text has a default");
    ///     let mut bytes = Vec::new();
    ///     serde.serialize(word, &mut bytes)?;
    ///     Ok(bytes)
    /// }
    /// ```
    ///
    /// # Errors
    /// If the type has no default serde.
    pub fn key_serde<K: 'static>(&self) -> Result<SharedSerde<K>, ContextError> {
        let serde = self.surroundings.default_serdes.key_of();
        serde.map(SharedSerde::new).ok_or_else(|| self.surroundings.no_serde::<K>(Part::Key))
    }

    /// The topology's default serde for values of this type (`valueSerde`), as for
    /// [keys](Self::key_serde).
    ///
    /// # Errors
    /// If the type has no default serde.
    pub fn value_serde<V: 'static>(&self) -> Result<SharedSerde<V>, ContextError> {
        let serde = self.surroundings.default_serdes.value_of();
        serde.map(SharedSerde::new).ok_or_else(|| self.surroundings.no_serde::<V>(Part::Value))
    }

    /// The directory of the task's state. It is there if a store of the task lies on disk; what else is put there
    /// goes with the task's state.
    pub fn state_dir(&self) -> &Path {
        self.cx.state_dir()
    }

    /// Makes metrics of the processor's own (`metrics`), with the labels of its thread, task and node: counters, gauges and
    /// histograms of whatever recorder the instance has. They are made when the processor is, and kept.
    ///
    /// ```
    /// use headwater_dsl::ProcessingContext;
    /// use headwater_runtime::metrics::facade::Counter;
    ///
    /// /// Orders that are turned away: `orders_rejected_total{thread_id="…",task_id="0_3",processor_node_id="check",…}`.
    /// fn rejected(context: &ProcessingContext<'_, '_>) -> Counter {
    ///     context.metrics().with_label("reason", "no-customer").counter("orders_rejected_total")
    /// }
    /// ```
    pub fn metrics(&self) -> ProcessorMetrics {
        self.cx.metrics(self.surroundings.index)
    }

    /// Where the record came from that is being processed.
    pub fn record_metadata(&self) -> RecordMetadata<'_> {
        RecordMetadata {
            topic: self.cx.topic().map(headwater_broker::TopicName::as_str),
            partition: self.cx.partition(),
            offset: self.cx.offset(),
        }
    }

    /// The headers of the record that is being processed.
    pub fn headers(&self) -> &Headers {
        self.cx.headers()
    }

    /// The headers, to change them. Every node that is visited later sees the change, siblings included, up to the
    /// nearest operator above that makes new records: their headers are copies. A
    /// [`FixedKeyProcessor`](crate::FixedKeyProcessor) has records with headers of their own (feature row D55).
    pub fn headers_mut(&mut self) -> &mut Headers {
        if self.surroundings.headers_are_own && self.headers_before.is_none() {
            self.headers_before = Some(self.cx.headers().clone());
        }
        self.cx.headers_mut()
    }

    /// The highest timestamp the task has seen; −1 before the first record.
    pub fn current_stream_time_ms(&self) -> i64 {
        self.cx.stream_time()
    }

    /// Wall-clock time in milliseconds since 1970.
    pub fn current_system_time_ms(&self) -> i64 {
        self.cx.wall_clock_ms()
    }

    /// Asks for a commit soon.
    pub fn commit(&mut self) {
        self.cx.request_commit();
    }

    /// Schedules punctuations (feature row R14). Stream time is due as soon as there is data and then
    /// at multiples of the interval, wall-clock time one interval from now.
    pub fn schedule(&mut self, interval: Duration, kind: PunctuationType) -> PunctuationToken {
        self.cx.schedule(self.slot, interval, kind)
    }

    /// As [`schedule`](Self::schedule), at the time `start_ms` and multiples of the interval after it,
    /// in milliseconds since the Unix epoch (KIP-1146). By the wall clock, times that are over are left
    /// out; in stream time the first punctuation comes with the first record that is not earlier.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use headwater_dsl::ProcessingContext;
    /// use headwater_runtime::PunctuationType;
    ///
    /// /// Every full hour, whenever the task began.
    /// fn hourly(context: &mut ProcessingContext<'_, '_>) {
    ///     context.schedule_from(0, Duration::from_secs(60 * 60), PunctuationType::WallClockTime);
    /// }
    /// ```
    pub fn schedule_from(
        &mut self,
        start_ms: i64,
        interval: Duration,
        kind: PunctuationType,
    ) -> PunctuationToken {
        self.cx.schedule_from(self.slot, start_ms, interval, kind)
    }

    /// Ends a schedule; says whether it was there.
    pub fn cancel(&mut self, token: PunctuationToken) -> bool {
        self.cx.cancel(token)
    }

    /// The key-value store of this name, for use from now on.
    ///
    /// # Errors
    /// If no such store is connected to the processor, or it is of another kind or of other types.
    pub fn key_value_store<K: 'static, V: 'static>(
        &self,
        name: &str,
    ) -> Result<KeyValueStore<K, V>, ContextError> {
        self.surroundings.find(name, StoreKindOf::KeyValue, KeyValueStore::new)
    }

    /// The key-value store with timestamps of this name, for use from now on. The stores of tables
    /// are of this kind.
    ///
    /// # Errors
    /// As for [`key_value_store`](Self::key_value_store).
    pub fn timestamped_key_value_store<K: 'static, V: 'static>(
        &self,
        name: &str,
    ) -> Result<TimestampedKeyValueStore<K, V>, ContextError> {
        self.surroundings.find(
            name,
            StoreKindOf::TimestampedKeyValue,
            TimestampedKeyValueStore::new,
        )
    }

    /// The key-value store with timestamps and headers of this name, for use from now on.
    ///
    /// # Errors
    /// As for [`key_value_store`](Self::key_value_store).
    pub fn timestamped_key_value_store_with_headers<K: 'static, V: 'static>(
        &self,
        name: &str,
    ) -> Result<TimestampedKeyValueStoreWithHeaders<K, V>, ContextError> {
        self.surroundings.find(
            name,
            StoreKindOf::TimestampedKeyValueWithHeaders,
            TimestampedKeyValueStoreWithHeaders::new,
        )
    }

    /// The versioned store of this name, for use from now on.
    ///
    /// # Errors
    /// As for [`key_value_store`](Self::key_value_store).
    pub fn versioned_key_value_store<K: 'static, V: 'static>(
        &self,
        name: &str,
    ) -> Result<VersionedKeyValueStore<K, V>, ContextError> {
        self.surroundings.find(name, StoreKindOf::VersionedKeyValue, VersionedKeyValueStore::new)
    }

    /// The window store of this name, for use from now on.
    ///
    /// # Errors
    /// As for [`key_value_store`](Self::key_value_store).
    pub fn window_store<K: 'static, V: 'static>(
        &self,
        name: &str,
    ) -> Result<WindowStore<K, V>, ContextError> {
        let (place, size_ms) = self.surroundings.find_place(name, StoreKindOf::Window)?;
        Ok(WindowStore::new(place, self, size_ms))
    }

    /// The window store with timestamps of this name, for use from now on. The stores of windowed tables are of this
    /// kind.
    ///
    /// # Errors
    /// As for [`key_value_store`](Self::key_value_store).
    pub fn timestamped_window_store<K: 'static, V: 'static>(
        &self,
        name: &str,
    ) -> Result<TimestampedWindowStore<K, V>, ContextError> {
        let (place, size_ms) =
            self.surroundings.find_place(name, StoreKindOf::TimestampedWindow)?;
        Ok(TimestampedWindowStore::new(place, self, size_ms))
    }

    /// The session store of this name, for use from now on. The stores of session-windowed tables are of this kind.
    ///
    /// # Errors
    /// As for [`key_value_store`](Self::key_value_store).
    pub fn session_store<K: 'static, V: 'static>(
        &self,
        name: &str,
    ) -> Result<SessionStore<K, V>, ContextError> {
        let (place, _) = self.surroundings.find_place(name, StoreKindOf::Session)?;
        Ok(SessionStore::new(place, self))
    }

    /// The window store with timestamps and headers of this name, for use from now on.
    ///
    /// # Errors
    /// As for [`key_value_store`](Self::key_value_store).
    pub fn timestamped_window_store_with_headers<K: 'static, V: 'static>(
        &self,
        name: &str,
    ) -> Result<TimestampedWindowStoreWithHeaders<K, V>, ContextError> {
        let kind = StoreKindOf::TimestampedWindowWithHeaders;
        let (place, size_ms) = self.surroundings.find_place(name, kind)?;
        Ok(TimestampedWindowStoreWithHeaders::new(place, self, size_ms))
    }

    /// The session store with headers of this name, for use from now on.
    ///
    /// # Errors
    /// As for [`key_value_store`](Self::key_value_store).
    pub fn session_store_with_headers<K: 'static, V: 'static>(
        &self,
        name: &str,
    ) -> Result<SessionStoreWithHeaders<K, V>, ContextError> {
        let (place, _) = self.surroundings.find_place(name, StoreKindOf::SessionWithHeaders)?;
        Ok(SessionStoreWithHeaders::new(place, self))
    }

    /// Remembers an error that ends the task's work.
    pub(super) fn note<T>(&mut self, result: Result<T, TaskError>) -> Result<T, TaskError> {
        if let Err(error) = &result {
            self.task_error.get_or_insert_with(|| error.clone());
        }
        result
    }
}

impl Surroundings {
    fn no_serde<T>(&self, part: Part) -> ContextError {
        let type_name = std::any::type_name::<T>();
        ContextError::NoDefaultSerde { node: self.name.to_string(), part, type_name }
    }

    fn find<K: 'static, V: 'static, S>(
        &self,
        name: &str,
        kind: StoreKindOf,
        make: impl FnOnce(Place<K, V>) -> S,
    ) -> Result<S, ContextError> {
        self.find_place(name, kind).map(|(place, _)| make(place))
    }

    /// The place of a store, and how long its windows are.
    fn find_place<K: 'static, V: 'static>(
        &self,
        name: &str,
        kind: StoreKindOf,
    ) -> Result<(Place<K, V>, i64), ContextError> {
        let Some(store) = self.stores.iter().find(|store| store.name == name) else {
            return Err(ContextError::NotConnected {
                store: name.to_owned(),
                node: self.name.to_string(),
            });
        };
        if store.kind != kind && !store.kind.serves_as(kind) {
            return Err(ContextError::OtherKind {
                store: name.to_owned(),
                wanted: kind.name(),
                found: store.kind.name(),
            });
        }
        let (key, value) = store
            .serdes
            .typed::<K, V>(&self.default_serdes, &self.name)
            .ok_or_else(|| ContextError::OtherTypes {
                store: name.to_owned(),
                key: std::any::type_name::<K>(),
                value: std::any::type_name::<V>(),
            })?;
        let (slot, is_read_only) = (store.slot, store.is_read_only);
        let place = Place { name: name.into(), slot, key, value, is_read_only };
        Ok((place, store.window_size_ms))
    }
}

impl std::fmt::Debug for ProcessingContext<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessingContext")
            .field("task", &self.task_id())
            .field("node", &self.surroundings.name)
            .field("timestamp", &self.timestamp)
            .finish_non_exhaustive()
    }
}

/// What a processor may do, forwarding included. Everything else is on [`ProcessingContext`], which
/// this dereferences to.
pub struct ProcessorContext<'a, 'cx, K, V> {
    base: ProcessingContext<'a, 'cx>,
    below: &'a NamedBelow<K, V>,
}

impl<'a, 'cx, K, V> ProcessorContext<'a, 'cx, K, V> {
    pub(super) const fn new(
        cx: &'a mut Cx<'cx>,
        surroundings: &'a Surroundings,
        below: &'a NamedBelow<K, V>,
        slot: ProcessorSlot,
        timestamp: i64,
    ) -> Self {
        Self { base: ProcessingContext::new(cx, surroundings, slot, timestamp), below }
    }

    /// User code of this node has run. Answers the error that ends the task's work, if there was one.
    pub(super) fn finish(self) -> Option<TaskError> {
        self.base.finish()
    }

    /// Hands a record to all nodes below, with the headers as they are now. When this returns, they
    /// have run.
    ///
    /// # Errors
    /// If the record's time is negative, or the task cannot go on; hand it on with `?`. A record that
    /// fails below and is skipped by the handler is no error here.
    pub fn forward(&mut self, record: Record<'_, K, V>) -> Result<(), ContextError> {
        check_time(record.timestamp)?;
        let result = self.below.all().forward(self.base.cx, record);
        self.back(result)
    }

    /// As [`forward`](Self::forward), to the node of this name only.
    ///
    /// # Errors
    /// As for [`forward`](Self::forward), or if no node below has this name.
    pub fn forward_to(
        &mut self,
        child: &str,
        record: Record<'_, K, V>,
    ) -> Result<(), ContextError> {
        let Some(node) = self.below.named(child) else {
            return Err(ContextError::UnknownChild {
                node: self.base.surroundings.name.to_string(),
                child: child.to_owned(),
                children: self.below.names().iter().map(ToString::to_string).collect(),
            });
        };
        check_time(record.timestamp)?;
        let result = node.process(self.base.cx, record);
        self.back(result)
    }

    /// As [`forward`](Self::forward), with these headers; afterwards the record has its own again.
    ///
    /// # Errors
    /// As for [`forward`](Self::forward).
    pub fn forward_with_headers(
        &mut self,
        record: Record<'_, K, V>,
        headers: Headers,
    ) -> Result<(), ContextError> {
        let own = std::mem::replace(self.base.cx.headers_mut(), headers);
        let result = self.forward(record);
        *self.base.cx.headers_mut() = own;
        result
    }

    /// User code of this node runs again.
    fn back(&mut self, result: Result<(), TaskError>) -> Result<(), ContextError> {
        self.base.cx.enter(self.base.surroundings.index);
        Ok(self.base.note(result)?)
    }
}

fn check_time(timestamp: i64) -> Result<(), ContextError> {
    if timestamp < 0 {
        return Err(ContextError::NegativeTimestamp { timestamp });
    }
    Ok(())
}

impl<'a, 'cx, K, V> Deref for ProcessorContext<'a, 'cx, K, V> {
    type Target = ProcessingContext<'a, 'cx>;

    fn deref(&self) -> &Self::Target {
        &self.base
    }
}

impl<K, V> DerefMut for ProcessorContext<'_, '_, K, V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.base
    }
}

impl<K, V> std::fmt::Debug for ProcessorContext<'_, '_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.base, f)
    }
}
