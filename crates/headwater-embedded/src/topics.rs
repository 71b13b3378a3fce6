//! The topics that exist, and changes to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use headwater_broker::{
    BrokerError, DeleteRecords, NewTopic, TopicDescription, TopicId, TopicName, TopicPartition,
    Topics,
};
use parking_lot::RwLock;

use crate::broker::{Embedded, Shared};
use crate::catalog::{Entry, TopicEntry};
use crate::config::{self, LogConfig};
use crate::directory;
use crate::faults::CallKind;
use crate::log::{Log, Place, Recovered};
use crate::partition::Partition;

/// The topics by name. The lock is taken before all others, and held while a topic is created or
/// deleted.
#[derive(Debug, Default)]
pub(crate) struct TopicMap {
    topics: RwLock<BTreeMap<TopicName, Arc<Topic>>>,
}

/// A topic with its partitions.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) id: TopicId,
    pub(crate) partitions: Vec<Arc<Partition>>,
}

impl TopicMap {
    pub(crate) fn new(topics: BTreeMap<TopicName, Arc<Topic>>) -> Self {
        Self { topics: RwLock::new(topics) }
    }

    /// Lets go of all topics and has those that there are loaded. Without them there are none.
    pub(crate) fn reload<E>(
        &self,
        load: impl FnOnce() -> Result<BTreeMap<TopicName, Arc<Topic>>, E>,
    ) -> Result<(), E> {
        let mut topics = self.topics.write();
        let left = std::mem::take(&mut *topics);
        for partition in left.values().flat_map(|topic| &topic.partitions) {
            partition.leave();
        }
        *topics = load()?;
        Ok(())
    }

    pub(crate) fn partition(
        &self,
        at: &TopicPartition,
    ) -> Result<(TopicId, Arc<Partition>), BrokerError> {
        let topics = self.topics.read();
        let topic = topics
            .get(&at.topic)
            .ok_or_else(|| BrokerError::UnknownTopic { topic: at.topic.clone() })?;
        let index = usize::try_from(at.partition).ok();
        let partition = index.and_then(|index| topic.partitions.get(index));
        partition
            .map(|partition| (topic.id, Arc::clone(partition)))
            .ok_or_else(|| BrokerError::UnknownPartition { topic_partition: at.clone() })
    }

    /// All partitions there are, by name and number.
    pub(crate) fn all_partitions(&self) -> Vec<Arc<Partition>> {
        self.topics.read().values().flat_map(|topic| topic.partitions.iter().cloned()).collect()
    }

    fn describe(&self, name: &TopicName) -> Option<TopicDescription> {
        self.topics.read().get(name).map(|topic| describe(name, topic))
    }
}

fn describe(name: &TopicName, topic: &Topic) -> TopicDescription {
    TopicDescription {
        name: name.clone(),
        id: topic.id,
        partitions: i32::try_from(topic.partitions.len())
            .expect("a topic was created with an i32 of partitions"),
        internal: false,
        racks: Vec::new(),
    }
}

impl Topic {
    /// A topic without records.
    fn empty(name: &TopicName, entry: &TopicEntry, places: Vec<Place>, now_ms: i64) -> Self {
        let config = Arc::new(LogConfig::new(&entry.configs));
        let partitions = (0..entry.partitions).zip(places).map(|(number, place)| {
            let at = TopicPartition::new(name.clone(), number);
            let recovered = Recovered::empty(&place, now_ms);
            Arc::new(Partition::new(Log::new(at, Arc::clone(&config), place, recovered)))
        });
        Self { id: entry.id, partitions: partitions.collect() }
    }
}

#[async_trait]
impl Topics for Embedded {
    async fn describe_topics(
        &self,
        names: &[TopicName],
    ) -> Result<Vec<Option<TopicDescription>>, BrokerError> {
        let asking =
            async { Ok(names.iter().map(|name| self.shared.topics.describe(name)).collect()) };
        self.call(CallKind::DescribeTopics, names, asking).await
    }

    async fn list_topics(&self) -> Result<Vec<TopicDescription>, BrokerError> {
        let asking = async {
            let topics = self.shared.topics.topics.read();
            Ok(topics.iter().map(|(name, topic)| describe(name, topic)).collect())
        };
        self.call(CallKind::ListTopics, [""], asking).await
    }

    async fn topic_configs(
        &self,
        name: &TopicName,
    ) -> Result<BTreeMap<String, String>, BrokerError> {
        let asking = async {
            let configs = self
                .shared
                .catalog
                .read(|catalog| catalog.topics.get(name).map(|topic| topic.configs.clone()));
            configs.ok_or_else(|| BrokerError::UnknownTopic { topic: name.clone() })
        };
        self.call(CallKind::TopicConfigs, [name], asking).await
    }

    async fn create_topic(&self, topic: &NewTopic) -> Result<TopicDescription, BrokerError> {
        self.shared.start_maintenance();
        let creating = async { self.shared.create_topic(topic) };
        self.call(CallKind::CreateTopic, [&topic.name], creating).await
    }

    async fn delete_topic(&self, name: &TopicName) -> Result<(), BrokerError> {
        let deleting = async { self.shared.delete_topic(name) };
        self.call(CallKind::DeleteTopic, [name], deleting).await
    }

    async fn delete_records(&self, requests: &[DeleteRecords]) -> Result<Vec<i64>, BrokerError> {
        let targets = requests.iter().map(|request| &request.topic_partition);
        let deleting =
            async { requests.iter().map(|request| self.shared.delete_records(request)).collect() };
        self.call(CallKind::DeleteRecords, targets, deleting).await
    }
}

impl Shared {
    fn create_topic(&self, new: &NewTopic) -> Result<TopicDescription, BrokerError> {
        config::check_topic(new)?;
        let partitions =
            if new.partitions < 0 { self.options.default_partitions } else { new.partitions };
        let mut topics = self.topics.topics.write();
        if topics.contains_key(&new.name) {
            return Err(BrokerError::TopicExists { topic: new.name.clone() });
        }
        let entry = TopicEntry {
            id: self.catalog.read(crate::catalog::Catalog::next_topic_id),
            partitions,
            configs: config::in_force(&new.configs, self.options.segment_bytes),
        };
        let places = match self.directory() {
            None => (0..partitions).map(|_| Place::Memory).collect(),
            Some(directory) => directory::create_topic(directory, &new.name, &entry)?,
        };
        self.catalog.change(&self.faults, |_| {
            let created = Entry::TopicCreated {
                topic: new.name.as_str().to_owned(),
                id: entry.id.0,
                partitions,
                configs: entry.configs.clone(),
            };
            Ok((created, ()))
        })?;
        let topic = Topic::empty(&new.name, &entry, places, self.options.clock.wall_ms());
        let description = describe(&new.name, &topic);
        topics.insert(new.name.clone(), Arc::new(topic));
        Ok(description)
    }

    fn delete_topic(&self, name: &TopicName) -> Result<(), BrokerError> {
        let mut topics = self.topics.topics.write();
        let Some(topic) = topics.get(name) else {
            return Err(BrokerError::UnknownTopic { topic: name.clone() });
        };
        self.catalog.change(&self.faults, |_| {
            Ok((Entry::TopicDeleted { topic: name.as_str().to_owned() }, ()))
        })?;
        topic.partitions.iter().for_each(|partition| partition.delete());
        let id = topic.id;
        topics.remove(name);
        if let Some(directory) = self.directory() {
            directory::delete_topic(directory, name, id);
        }
        Ok(())
    }

    fn delete_records(&self, request: &DeleteRecords) -> Result<i64, BrokerError> {
        let partition = self.partition(&request.topic_partition)?;
        partition.with_log(|log| {
            let bounds = log.bounds();
            if request.before_offset > bounds.end {
                return Err(BrokerError::OffsetOutOfRange {
                    topic_partition: request.topic_partition.clone(),
                    offset: request.before_offset,
                    log_start_offset: bounds.start,
                    end_offset: bounds.end,
                });
            }
            if request.before_offset > bounds.start {
                self.advance_log_start(log, request.before_offset)?;
            }
            Ok(log.bounds().start)
        })
    }

    /// Moves the beginning of a log: first in the catalog, so that a crash in between leaves
    /// segments too many, never too few.
    pub(crate) fn advance_log_start(&self, log: &mut Log, offset: i64) -> Result<(), BrokerError> {
        let at = log.topic_partition().clone();
        self.catalog.change(&self.faults, |_| {
            let topic = at.topic.as_str().to_owned();
            Ok((Entry::LogStart { topic, partition: at.partition, offset }, ()))
        })?;
        let removed = log.advance_start(offset, self.options.clock.wall_ms())?;
        directory::delete_segments(&removed);
        Ok(())
    }
}
