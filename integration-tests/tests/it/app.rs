//! A small application on an embedded broker in memory, its state in a temporary directory.

use std::sync::Arc;
use std::time::Duration;

use headwater::broker::simple::{self, TopicWriter};
use headwater::embedded::Embedded;
use headwater::prelude::*;

/// The application's id.
pub(crate) const APPLICATION: &str = "app";

#[derive(Debug)]
pub(crate) struct App {
    pub(crate) broker: Embedded,
    pub(crate) state: tempfile::TempDir,
}

impl App {
    /// A broker with these topics, each of one partition.
    pub(crate) async fn new(topics: &[&str]) -> Self {
        Self::with_partitions(topics, 1).await
    }

    /// A broker with these topics, each of so many partitions.
    pub(crate) async fn with_partitions(topics: &[&str], partitions: i32) -> Self {
        let broker = Embedded::in_memory();
        for topic in topics {
            simple::create_topic(&broker, topic, partitions).await.expect("the topic is new");
        }
        Self { broker, state: tempfile::tempdir().expect("there is a place for state") }
    }

    /// Settings of an instance that commits soon and caches nothing.
    pub(crate) fn config(&self) -> StreamsConfig {
        StreamsConfig::new(APPLICATION)
            .state_dir(self.state.path())
            .commit_interval_ms(50)
            .statestore_cache_max_bytes(0)
    }

    /// Starts an instance, with settings of its own, and waits until it runs or has failed.
    pub(crate) async fn start(
        &self,
        topology: Topology,
        settings: impl FnOnce(StreamsConfig) -> StreamsConfig,
    ) -> Instance {
        let builder = Headwater::builder(topology)
            .config(settings(self.config()))
            .broker(Arc::new(self.broker.clone()));
        let instance = builder.start().await.expect("the instance starts");
        instance.wait_for(|state| state == InstanceState::Running || state.is_final()).await;
        instance
    }

    /// Writes records where Kafka's default partitioner puts them.
    pub(crate) async fn write(&self, topic: &str, records: &[(Option<&str>, Option<&str>)]) {
        let mut writer = TopicWriter::new(&self.broker, topic).await.expect("the topic is there");
        for (key, value) in records {
            let (key, value) = (key.map(str::as_bytes), value.map(str::as_bytes));
            writer.add(1, key, value).expect("the record fits");
        }
        writer.flush().await.expect("the broker takes it");
    }

    /// Waits until the application has committed everything in a topic.
    pub(crate) async fn wait_for_the_end(&self, instance: &Instance, topic: &str) {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        loop {
            ticks.tick().await;
            assert!(instance.error().is_none(), "{:?}", instance.error());
            let lag = simple::lag(&self.broker, APPLICATION, topic).await;
            if lag.expect("the broker tells offsets") == 0 {
                return;
            }
        }
    }

    /// Waits until something holds.
    pub(crate) async fn wait_until(&self, mut holds: impl FnMut() -> bool) {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        while !holds() {
            ticks.tick().await;
        }
    }

    /// Keys and numbers of a topic.
    pub(crate) async fn longs(&self, topic: &str) -> Vec<(String, i64)> {
        let records = simple::read_topic(&self.broker, topic).await.expect("the topic is there");
        let pair = |record: simple::OwnedRecord| {
            let key = String::from_utf8(record.key.expect("it has a key")).expect("keys are text");
            let value = record.value.expect("it has a value");
            (key, i64::from_be_bytes(value.try_into().expect("8 bytes")))
        };
        records.into_iter().map(pair).collect()
    }

    pub(crate) async fn close(&self, instance: Instance) {
        instance.close(Duration::from_secs(30)).await.expect("it closes in time");
    }
}
