//! Piping records in.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use headwater_broker::TopicName;
use headwater_runtime::Headers;
use headwater_store::Part;
use headwater_store::serde::Serializer;

use crate::driver::{Core, InputRecord};
use crate::{TestDriverError, TestRecord};

/// A topic to pipe records into. Made by
/// [`TopologyTestDriver::create_input_topic`](crate::TopologyTestDriver::create_input_topic).
///
/// Every call returns when the record, and all that follows from it, has been processed. It fails with
/// [`TestDriverError::Task`] when a task fails or has failed before, with [`TestDriverError::UnknownTopic`] when no source
/// reads the topic, and with [`TestDriverError::Serde`] when key or value cannot be written.
pub struct TestInputTopic<KS, VS> {
    core: Rc<RefCell<Core>>,
    topic: TopicName,
    key: KS,
    value: VS,
    /// The time of the next record that brings none.
    timestamp: Cell<i64>,
    auto_advance: Duration,
}

impl<KS, VS> TestInputTopic<KS, VS> {
    pub(crate) fn new(
        core: Rc<RefCell<Core>>,
        topic: TopicName,
        key: KS,
        value: VS,
        timestamp: i64,
    ) -> Self {
        let timestamp = Cell::new(timestamp);
        Self { core, topic, key, value, timestamp, auto_advance: Duration::ZERO }
    }

    /// Records without a time of their own get this one, in milliseconds since 1970, and each following one is later by
    /// `auto_advance`.
    ///
    /// ```
    /// # use headwater::prelude::*;
    /// # use headwater_testing::TopologyTestDriver;
    /// use std::time::Duration;
    ///
    /// # let builder = StreamsBuilder::new();
    /// # builder.stream("in", Consumed::with(Utf8, Utf8)).to("out", Produced::with(Utf8, Utf8));
    /// # let driver = TopologyTestDriver::new(builder.build()?)?;
    /// let input = driver.create_input_topic("in", Utf8, Utf8);
    /// let input = input.with_timestamps(1_000, Duration::from_millis(10));
    /// let output = driver.create_output_topic("out", Utf8, Utf8);
    /// input.pipe_input("a", "x")?;
    /// input.pipe_input("b", "y")?;
    /// let times: Vec<_> = output.read_records_to_list()?.iter().map(|it| it.timestamp).collect();
    /// assert_eq!(times, [Some(1_000), Some(1_010)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_timestamps(self, first: i64, auto_advance: Duration) -> Self {
        Self { timestamp: Cell::new(first), auto_advance, ..self }
    }

    /// Moves the topic's own clock.
    pub fn advance_time(&self, by: Duration) {
        let ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.timestamp.set(self.timestamp.get().saturating_add(ms));
    }

    /// Pipes a record with key and value.
    ///
    /// # Errors
    /// See [`TestInputTopic`].
    pub fn pipe_input<K: ?Sized, V: ?Sized>(
        &self,
        key: &K,
        value: &V,
    ) -> Result<(), TestDriverError>
    where
        KS: Serializer<K>,
        VS: Serializer<V>,
    {
        self.pipe(Some(key), Some(value), None, &Headers::new(), None)
    }

    /// As [`pipe_input`](Self::pipe_input), at a time, in milliseconds since 1970.
    ///
    /// # Errors
    /// See [`TestInputTopic`].
    pub fn pipe_input_at<K: ?Sized, V: ?Sized>(
        &self,
        key: &K,
        value: &V,
        timestamp: i64,
    ) -> Result<(), TestDriverError>
    where
        KS: Serializer<K>,
        VS: Serializer<V>,
    {
        self.pipe(Some(key), Some(value), Some(timestamp), &Headers::new(), None)
    }

    /// Pipes a record without a key.
    ///
    /// # Errors
    /// See [`TestInputTopic`].
    pub fn pipe_value<V: ?Sized>(&self, value: &V) -> Result<(), TestDriverError>
    where
        VS: Serializer<V>,
    {
        let value = self.bytes(Part::Value, &self.value, Some(value))?;
        self.pipe_bytes(None, value, None, &Headers::new(), None)
    }

    /// Pipes a record without a value: a deletion, where the topic is a table.
    ///
    /// # Errors
    /// See [`TestInputTopic`].
    pub fn pipe_tombstone<K: ?Sized>(&self, key: &K) -> Result<(), TestDriverError>
    where
        KS: Serializer<K>,
    {
        let key = self.bytes(Part::Key, &self.key, Some(key))?;
        self.pipe_bytes(key, None, None, &Headers::new(), None)
    }

    /// Pipes a record with everything it can have.
    ///
    /// # Errors
    /// See [`TestInputTopic`]; also when it names a partition that is not there.
    pub fn pipe_record<K, V>(&self, record: &TestRecord<K, V>) -> Result<(), TestDriverError>
    where
        KS: Serializer<K>,
        VS: Serializer<V>,
    {
        let TestRecord { key, value, timestamp, headers, partition } = record;
        self.pipe(key.as_ref(), value.as_ref(), *timestamp, headers, *partition)
    }

    /// Pipes many records, one after the other.
    ///
    /// # Errors
    /// See [`TestInputTopic`]; the first error ends it.
    pub fn pipe_records<'r, K: 'r, V: 'r>(
        &self,
        records: impl IntoIterator<Item = &'r TestRecord<K, V>>,
    ) -> Result<(), TestDriverError>
    where
        KS: Serializer<K>,
        VS: Serializer<V>,
    {
        records.into_iter().try_for_each(|record| self.pipe_record(record))
    }

    /// Pipes pairs of key and value, one after the other.
    ///
    /// # Errors
    /// See [`TestInputTopic`]; the first error ends it.
    pub fn pipe_key_values<'r, K: ?Sized + 'r, V: ?Sized + 'r>(
        &self,
        pairs: impl IntoIterator<Item = (&'r K, &'r V)>,
    ) -> Result<(), TestDriverError>
    where
        KS: Serializer<K>,
        VS: Serializer<V>,
    {
        pairs.into_iter().try_for_each(|(key, value)| self.pipe_input(key, value))
    }

    fn pipe<K: ?Sized, V: ?Sized>(
        &self,
        key: Option<&K>,
        value: Option<&V>,
        timestamp: Option<i64>,
        headers: &Headers,
        partition: Option<i32>,
    ) -> Result<(), TestDriverError>
    where
        KS: Serializer<K>,
        VS: Serializer<V>,
    {
        let key = self.bytes(Part::Key, &self.key, key)?;
        let value = self.bytes(Part::Value, &self.value, value)?;
        self.pipe_bytes(key, value, timestamp, headers, partition)
    }

    fn bytes<T: ?Sized>(
        &self,
        part: Part,
        serde: &impl Serializer<T>,
        value: Option<&T>,
    ) -> Result<Option<Vec<u8>>, TestDriverError> {
        let mut bytes = Vec::new();
        let Some(value) = value else {
            return Ok(serde.null_form(&mut bytes).then_some(bytes));
        };
        let topic = || self.topic.clone();
        let written = serde.serialize(value, &mut bytes);
        written.map_err(|source| TestDriverError::Serde { topic: topic(), part, source })?;
        Ok(Some(bytes))
    }

    fn pipe_bytes(
        &self,
        key: Option<Vec<u8>>,
        value: Option<Vec<u8>>,
        timestamp: Option<i64>,
        headers: &Headers,
        partition: Option<i32>,
    ) -> Result<(), TestDriverError> {
        let timestamp = timestamp.unwrap_or_else(|| {
            let timestamp = self.timestamp.get();
            self.advance_time(self.auto_advance);
            timestamp
        });
        let headers = headers.iter();
        let headers = headers.map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec)));
        let headers = headers.collect();
        let record = InputRecord { partition, timestamp, key, value, headers };
        self.core.borrow_mut().pipe(&self.topic, record)
    }
}

impl<KS, VS> fmt::Debug for TestInputTopic<KS, VS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestInputTopic").field("topic", &self.topic).finish_non_exhaustive()
    }
}
