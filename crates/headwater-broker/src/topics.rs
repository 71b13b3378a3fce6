//! Topics and their settings.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use crate::{BrokerError, TopicId, TopicName, TopicPartition};

/// A topic to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: TopicName,
    /// How many partitions.
    pub partitions: i32,
    /// How many copies of each; `None` leaves it to the broker.
    pub replication_factor: Option<i16>,
    /// Settings by Kafka's names, for instance `cleanup.policy`.
    pub configs: BTreeMap<String, String>,
}

/// What is known of an existing topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    /// Its name.
    pub name: TopicName,
    /// Its id.
    pub id: TopicId,
    /// How many partitions it has.
    pub partitions: i32,
    /// True for topics of the broker itself, for instance `__consumer_offsets`.
    pub internal: bool,
    /// The racks that have a replica of each partition (`broker.rack`), in the order of partitions;
    /// none where the rack of a replica is not known, and empty where no racks are known at all.
    pub racks: Vec<BTreeSet<String>>,
}

/// Everything before `before_offset` of a partition is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteRecords {
    /// The partition.
    pub topic_partition: TopicPartition,
    /// The new first offset.
    pub before_offset: i64,
}

/// Topics: what exists, with what settings, and changes to them.
#[async_trait]
pub trait Topics: Send + Sync {
    /// Describes the named topics, in the order of the names; `None` for one that does not exist.
    /// Never creates one.
    ///
    /// # Errors
    /// When the broker cannot be asked.
    async fn describe_topics(
        &self,
        names: &[TopicName],
    ) -> Result<Vec<Option<TopicDescription>>, BrokerError>;

    /// Describes every topic, sorted by name.
    ///
    /// # Errors
    /// When the broker cannot be asked.
    async fn list_topics(&self) -> Result<Vec<TopicDescription>, BrokerError>;

    /// The settings of a topic in force, by Kafka's names.
    ///
    /// # Errors
    /// [`BrokerError::UnknownTopic`], or when the broker cannot be asked.
    async fn topic_configs(
        &self,
        name: &TopicName,
    ) -> Result<BTreeMap<String, String>, BrokerError>;

    /// Creates a topic.
    ///
    /// # Errors
    /// [`BrokerError::TopicExists`], [`BrokerError::InvalidTopic`], or when the broker cannot be
    /// asked.
    async fn create_topic(&self, topic: &NewTopic) -> Result<TopicDescription, BrokerError>;

    /// Deletes a topic with all its records.
    ///
    /// # Errors
    /// [`BrokerError::UnknownTopic`], or when the broker cannot be asked.
    async fn delete_topic(&self, name: &TopicName) -> Result<(), BrokerError>;

    /// Deletes the beginnings of partitions and answers their new first offsets, in order.
    ///
    /// # Errors
    /// [`BrokerError::OffsetOutOfRange`] beyond the high watermark; the first error ends the call,
    /// deletions before it stay done.
    async fn delete_records(&self, requests: &[DeleteRecords]) -> Result<Vec<i64>, BrokerError>;
}
