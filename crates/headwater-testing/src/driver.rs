//! The driver as a test sees it.

mod closing;
mod core;
mod global;
mod opening;
mod plan;
mod processing;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use headwater_broker::{OffsetCommit, TopicName, TopicPartition};
use headwater_dsl::Topology;
use headwater_runtime::{
    DroppedRecords, QueryableStoreType, QueryableStoreTypes, ReadOnlyKeyValueStore,
    ReadOnlyTimestampedKeyValueStore, StoreQueryParameters,
};
use headwater_store::serde::{Deserializer, Format, Serializer};
use headwater_store::{Direction, KeyRange, KeyValueBytes};
use headwater_topology::TaskId;

pub(crate) use self::core::{Core, InputRecord};
use crate::{
    ProducedRecord, Restart, TestDriverError, TestInputTopic, TestKeyValueStore, TestOutputTopic,
    TopologyTestDriverBuilder,
};

/// Runs a topology in a test. The [crate](crate) has an example.
///
/// It is cheap to clone: the clones, and the topics made with it, are the same driver. It belongs to one thread.
#[derive(Clone)]
pub struct TopologyTestDriver {
    core: Rc<RefCell<Core>>,
}

impl TopologyTestDriver {
    /// A driver with the settings of production, for application `test`, whose topics have one partition each.
    ///
    /// # Errors
    /// As [`TopologyTestDriverBuilder::build`].
    pub fn new(topology: Topology) -> Result<Self, TestDriverError> {
        Self::builder(topology).build()
    }

    /// Sets a driver up.
    pub fn builder(topology: Topology) -> TopologyTestDriverBuilder {
        TopologyTestDriverBuilder::new(topology)
    }

    pub(crate) fn start(builder: TopologyTestDriverBuilder) -> Result<Self, TestDriverError> {
        Ok(Self { core: Rc::new(RefCell::new(Core::start(builder)?)) })
    }

    /// A topic to pipe records into. Its clock begins at the wall clock and stands; see
    /// [`TestInputTopic::with_timestamps`].
    pub fn create_input_topic<KS, VS>(
        &self,
        topic: impl Into<TopicName>,
        key: KS,
        value: VS,
    ) -> TestInputTopic<KS, VS> {
        let now = self.wall_clock_time_ms();
        TestInputTopic::new(Rc::clone(&self.core), topic.into(), key, value, now)
    }

    /// A topic to read from what has come out. It begins with the first record of the topic, and each one made reads
    /// for itself.
    pub fn create_output_topic<K, V, KS, VS>(
        &self,
        topic: impl Into<TopicName>,
        key: KS,
        value: VS,
    ) -> TestOutputTopic<K, V, KS, VS>
    where
        KS: Deserializer<K>,
        VS: Deserializer<V>,
    {
        TestOutputTopic::new(Rc::clone(&self.core), topic.into(), key, value)
    }

    /// Moves the wall clock, runs what is due by it, and what follows from that (`advanceWallClockTime`).
    ///
    /// # Errors
    /// [`TestDriverError::Task`] when a task fails or has failed before.
    pub fn advance_wall_clock_time(&self, by: Duration) -> Result<(), TestDriverError> {
        self.core.borrow_mut().advance_wall_clock_time(by)
    }

    /// What the wall clock says, in milliseconds since 1970.
    pub fn wall_clock_time_ms(&self) -> i64 {
        self.core.borrow().wall_ms()
    }

    /// Commits all tasks: caches are flushed, and what follows from that is processed.
    ///
    /// # Errors
    /// [`TestDriverError::Task`] when a task fails or has failed before.
    pub fn commit(&self) -> Result<(), TestDriverError> {
        self.core.borrow_mut().commit_and_settle()
    }

    /// Ends a task and begins it anew, from its stores and changelogs and the committed offsets.
    ///
    /// # Errors
    /// When there is no such task, its stores cannot be closed, opened or restored, or a task fails.
    pub fn restart_task(&self, task: TaskId, how: Restart) -> Result<(), TestDriverError> {
        self.core.borrow_mut().restart(&[task], how)
    }

    /// As [`restart_task`](Self::restart_task), for all tasks at once.
    ///
    /// # Errors
    /// As [`restart_task`](Self::restart_task).
    pub fn restart(&self, how: Restart) -> Result<(), TestDriverError> {
        let tasks = self.task_ids();
        self.core.borrow_mut().restart(&tasks, how)
    }

    /// The tasks, in order.
    pub fn task_ids(&self) -> Vec<TaskId> {
        self.core.borrow().task_ids()
    }

    /// A typed view of a store, over all partitions: as interactive queries give it, and like them of what is
    /// committed.
    ///
    /// ```
    /// use headwater::prelude::*;
    /// use headwater::{QueryableStoreTypes, StoreQueryParameters};
    /// use headwater_testing::TopologyTestDriver;
    ///
    /// # let builder = StreamsBuilder::new();
    /// # builder.table("prices", Consumed::with(Utf8, Long), Materialized::named("prices"));
    /// let driver = TopologyTestDriver::new(builder.build()?)?;
    /// driver.create_input_topic("prices", Utf8, Long).pipe_input("tea", &3)?;
    ///
    /// let prices = QueryableStoreTypes::key_value::<String, i64, _, _>(Utf8, Long);
    /// let prices = driver.store(StoreQueryParameters::new("prices", prices))?;
    /// assert_eq!(prices.get("tea")?, Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TestDriverError::Query`]: there is no such store, or it is of another kind or of other types.
    pub fn store<T: QueryableStoreType>(
        &self,
        parameters: StoreQueryParameters<T>,
    ) -> Result<T::Store, TestDriverError> {
        Ok(self.core.borrow().stores().store(parameters)?)
    }

    /// The key-value store of this name (`getKeyValueStore`); of a store with timestamps the values alone.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub fn key_value_store<K, V, KS, VS>(
        &self,
        name: &str,
        key: KS,
        value: VS,
    ) -> Result<ReadOnlyKeyValueStore<K, V, KS, VS>, TestDriverError>
    where
        KS: Serializer<K> + Deserializer<K> + Format,
        VS: Deserializer<V> + Format,
    {
        self.store(StoreQueryParameters::new(name, QueryableStoreTypes::key_value(key, value)))
    }

    /// The key-value store of this name, to be written too, as that of Kafka Streams' `getKeyValueStore` can be: to set up
    /// what a test begins with. A store with timestamps (and headers) is one of values here.
    ///
    /// ```
    /// use headwater::prelude::*;
    /// use headwater_testing::TopologyTestDriver;
    ///
    /// let builder = StreamsBuilder::new();
    /// builder
    ///     .stream("words", Consumed::with(Utf8, Utf8))
    ///     .group_by_key(Grouped::new())
    ///     .count(Materialized::named("counts"));
    /// let driver = TopologyTestDriver::new(builder.build()?)?;
    ///
    /// let counts = driver.writable_key_value_store("counts", Utf8, Long)?;
    /// counts.put(&"tea".to_owned(), &41)?;
    /// driver.create_input_topic("words", Utf8, Utf8).pipe_input("tea", "")?;
    /// assert_eq!(counts.get(&"tea".to_owned())?, Some(42));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub fn writable_key_value_store<K, V, KS, VS>(
        &self,
        name: &str,
        key: KS,
        value: VS,
    ) -> Result<TestKeyValueStore<K, V, KS, VS>, TestDriverError>
    where
        KS: Serializer<K> + Deserializer<K> + Format + Clone,
        VS: Serializer<V> + Deserializer<V> + Format + Clone,
    {
        let store = self.key_value_store(name, key.clone(), value.clone())?;
        Ok(TestKeyValueStore::new(Rc::clone(&self.core), name, store, (key, value)))
    }

    /// The key-value store with timestamps of this name (`getTimestampedKeyValueStore`).
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub fn timestamped_key_value_store<K, V, KS, VS>(
        &self,
        name: &str,
        key: KS,
        value: VS,
    ) -> Result<ReadOnlyTimestampedKeyValueStore<K, V, KS, VS>, TestDriverError>
    where
        KS: Serializer<K> + Deserializer<K> + Format,
        VS: Deserializer<V> + Format,
    {
        let store_type = QueryableStoreTypes::timestamped_key_value(key, value);
        self.store(StoreQueryParameters::new(name, store_type))
    }

    /// What a store of any kind holds, as its bytes lie in the backend: one partition after the other, each in
    /// ascending or descending order of keys.
    ///
    /// # Errors
    /// [`TestDriverError::Query`]: there is no such store, or it cannot be read.
    pub fn raw_store_entries(
        &self,
        name: &str,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Vec<KeyValueBytes>, TestDriverError> {
        Ok(self.core.borrow().stores().raw_range(name, range, direction)?)
    }

    /// As [`raw_store_entries`](Self::raw_store_entries), with what waits in record caches and for the next commit; of a
    /// store of windows or sessions only what is not older than its retention.
    ///
    /// # Errors
    /// As [`raw_store_entries`](Self::raw_store_entries).
    pub fn uncommitted_store_entries(
        &self,
        name: &str,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Vec<KeyValueBytes>, TestDriverError> {
        let mut core = self.core.borrow_mut();
        core.stores().check(name)?;
        core.uncommitted_entries(name, range, direction)
    }

    /// The records that were dropped so far, by task, node and reason.
    pub fn dropped_records(&self) -> DroppedRecords {
        self.core.borrow().dropped_records()
    }

    /// What was last committed for a partition of a source or repartition topic: the offset, with the metadata beside
    /// it; `None` before the first commit.
    pub fn committed_offset(
        &self,
        topic: impl Into<TopicName>,
        partition: i32,
    ) -> Option<OffsetCommit> {
        self.core.borrow().committed(&TopicPartition::new(topic, partition)).cloned()
    }

    /// The topics to which something was sent, repartition topics and changelogs included
    /// (`producedTopicNames`).
    pub fn produced_topic_names(&self) -> BTreeSet<TopicName> {
        self.core.borrow().produced().iter().map(|record| record.topic.clone()).collect()
    }

    /// Every record that tasks have sent so far, as bytes: to output topics, repartition topics and changelogs, each
    /// topic's in order.
    pub fn produced_records(&self) -> Vec<ProducedRecord> {
        self.core.borrow().produced().to_vec()
    }
}

impl fmt::Debug for TopologyTestDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopologyTestDriver")
            .field("tasks", &self.task_ids())
            .field("wall_clock_time_ms", &self.wall_clock_time_ms())
            .finish_non_exhaustive()
    }
}
