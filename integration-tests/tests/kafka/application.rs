//! An application in this process that counts records by key exactly once, and what that must come to
//! whatever happens.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use headwater::broker::Broker;
use headwater::kafka::{Kafka, KafkaOptions};
use headwater::prelude::*;
use headwater::{Headwater, StartError, StreamsConfig};
use integration_tests::fleet::{Output, OutputWatch};
use tempfile::TempDir;

use crate::environment::{bootstrap, unique};
use crate::witness::{Seen, Witness};

const KEYS_OF_PARTITION: i64 = 10;
/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_mins(2);

/// A client of the shared Kafka.
pub(crate) async fn kafka() -> Kafka {
    Kafka::connect(KafkaOptions::new(bootstrap().parse().unwrap())).await.unwrap()
}

/// An error with everything behind it.
pub(crate) fn whole(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        text = format!("{text}: {error}");
        behind = error.source();
    }
    text
}

/// Topics on the shared Kafka, and the application that counts one into the other.
#[derive(Debug)]
pub(crate) struct Application {
    pub(crate) id: String,
    pub(crate) lines: String,
    pub(crate) counts: String,
    pub(crate) partitions: i32,
    /// Lines of the properties file that are not the same for all.
    pub(crate) properties: String,
    /// How often each key was written.
    expected: BTreeMap<String, i64>,
    written: i64,
    output: OutputWatch,
    home: TempDir,
}

impl Application {
    /// Makes the topics.
    pub(crate) async fn prepare(partitions: i32, properties: &str) -> Self {
        let (id, lines, counts) = (unique("app"), unique("lines"), unique("counts"));
        let witness = Witness::connect(&bootstrap()).await;
        for topic in [&lines, &counts] {
            witness.create_topic(topic, partitions, 1).await;
        }
        let broker: Arc<dyn Broker> = Arc::new(kafka().await);
        let output = OutputWatch::start(broker, &counts, partitions, true);
        Self {
            id,
            lines,
            counts,
            partitions,
            properties: properties.to_owned(),
            expected: BTreeMap::new(),
            written: 0,
            output,
            home: tempfile::tempdir().unwrap(),
        }
    }

    fn topology(&self) -> Topology {
        let builder = StreamsBuilder::new();
        builder
            .stream(&*self.lines, Consumed::with(Utf8, Utf8))
            .group_by_key(Grouped::with(Utf8, Utf8))
            .count(Materialized::named("counts"))
            .to_stream()
            .to(&*self.counts, Produced::with(Utf8, Long));
        builder.build().unwrap()
    }

    /// The topic of the store.
    pub(crate) fn changelog(&self) -> String {
        format!("{}-counts-changelog", self.id)
    }

    /// Starts an instance that finds its brokers here.
    pub(crate) async fn try_start(&self, servers: &str) -> Result<Instance, StartError> {
        let properties = format!(
            "bootstrap.servers={servers}\napplication.id={}\nprocessing.guarantee=exactly_once_v2\n\
             commit.interval.ms=100\nstatestore.cache.max.bytes=0\n{}",
            self.id, self.properties
        );
        let config = StreamsConfig::from_properties(&properties).unwrap();
        Headwater::builder(self.topology()).config(config.state_dir(self.home.path())).start().await
    }

    pub(crate) async fn start(&self, servers: &str) -> Instance {
        self.try_start(servers).await.unwrap_or_else(|error| panic!("{}", whole(&error)))
    }

    /// Writes so many records.
    pub(crate) async fn write(&mut self, count: i64) {
        let records = self.write_in_vain(count).await;
        for record in &records {
            let key = String::from_utf8(record.key.clone().unwrap()).unwrap();
            *self.expected.entry(key).or_default() += 1;
        }
        self.written += count;
    }

    /// Writes so many records that nobody will count.
    pub(crate) async fn write_in_vain(&self, count: i64) -> Vec<Seen> {
        // Neighbours go to the partitions in turn, so each key has one.
        let keys = KEYS_OF_PARTITION * i64::from(self.partitions);
        assert_eq!(count % i64::from(self.partitions), 0, "each partition gets as many");
        let records: Vec<Seen> = (self.written..self.written + count)
            .map(|number| Seen::new(number, format!("key {}", number % keys), "line"))
            .collect();
        let witness = Witness::connect(&bootstrap()).await;
        witness.write(&self.lines, self.partitions, &records).await;
        records
    }

    /// Waits until the counts that came out are those of all that was written: none lost, none twice.
    pub(crate) async fn all_counted(&self, instance: &Instance) {
        let is_whole = |output: &Output| {
            output.counts == self.expected && output.records >= self.written.cast_unsigned()
        };
        let counted = self.output.until("all is counted", LIMIT, is_whole);
        tokio::select! {
            biased;
            state = instance.wait_for(InstanceState::is_final) => {
                panic!("it is {state:?}: {:?}", instance.error().map(|error| whole(&*error)));
            }
            counted = counted => {
                let output = self.output.output();
                assert!(counted.is_ok(), "{:?} is not {:?}", output.counts, self.expected);
                assert_eq!(output.records, self.written.cast_unsigned(), "each came once");
            }
        }
    }

    /// Waits until an instance ends by itself, and answers why.
    pub(crate) async fn failure(instance: &Instance) -> String {
        let ended = tokio::time::timeout(LIMIT, instance.wait_for(InstanceState::is_final)).await;
        assert_eq!(ended.expect("it ends in time"), InstanceState::Error);
        whole(&*instance.error().expect("an instance in error has one"))
    }
}

/// Ends in good order.
pub(crate) async fn close(instance: Instance) {
    instance.close(Duration::from_secs(30)).await.unwrap();
}
