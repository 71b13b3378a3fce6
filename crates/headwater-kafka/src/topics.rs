//! Topics: creating, describing, deleting.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use headwater_broker::{
    BrokerError, DeleteRecords, Isolation, NewTopic, OffsetQuery, OffsetSpec, Offsets,
    TopicDescription, TopicId, TopicName, TopicPartition, Topics,
};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_response::{
    MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    DescribeConfigsRequest, MetadataResponse,
};

use crate::call::{Answer, Attempts, Destination};
use crate::codes::{About, Failure, Remedy};
use crate::kafka::Kafka;
use crate::leaders::Said;
use crate::names::{by_topic, wire_text, wire_topic};

const UNKNOWN_TOPIC: i16 = ResponseError::UnknownTopicOrPartition.code();
const INVALID_TOPIC: i16 = ResponseError::InvalidTopicException.code();
const LEADER_NOT_AVAILABLE: i16 = ResponseError::LeaderNotAvailable.code();
const OFFSET_OUT_OF_RANGE: i16 = ResponseError::OffsetOutOfRange.code();
/// Kafka's number of topics among the things that have settings.
const TOPIC_RESOURCE: i8 = 2;

#[async_trait]
impl Topics for Kafka {
    async fn describe_topics(
        &self,
        names: &[TopicName],
    ) -> Result<Vec<Option<TopicDescription>>, BrokerError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let wanted: BTreeSet<TopicName> = names.iter().cloned().collect();
        let answer = self.metadata(Some(&wanted)).await?;
        let mut described = BTreeMap::new();
        for topic in &answer.body.topics {
            if let Some(description) = describe(&answer, topic)? {
                described.insert(description.name.clone(), description);
            }
        }
        Ok(names.iter().map(|name| described.get(name).cloned()).collect())
    }

    async fn list_topics(&self) -> Result<Vec<TopicDescription>, BrokerError> {
        let answer = self.metadata(None).await?;
        let described = answer.body.topics.iter().map(|topic| describe(&answer, topic));
        let mut topics = described.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?;
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(topics)
    }

    async fn topic_configs(
        &self,
        name: &TopicName,
    ) -> Result<BTreeMap<String, String>, BrokerError> {
        let build = |_| {
            let topic = DescribeConfigsResource::default()
                .with_resource_type(TOPIC_RESOURCE)
                .with_resource_name(wire_text(name.as_str()))
                .with_configuration_keys(None);
            Ok(DescribeConfigsRequest::default().with_resources(vec![topic]))
        };
        self.client
            .call(Destination::AnyNode, build, |answer| {
                let topic = answer.body.results.first().ok_or_else(|| answer.empty())?;
                if topic.error_code != 0 {
                    let message = topic.error_message.as_deref();
                    return Err(certain(&answer, topic.error_code, name, message));
                }
                let set = topic.configs.iter().filter_map(|config| {
                    let value = config.value.as_ref()?;
                    Some((config.name.to_string(), value.to_string()))
                });
                Ok(set.collect())
            })
            .await
    }

    async fn create_topic(&self, topic: &NewTopic) -> Result<TopicDescription, BrokerError> {
        self.client
            .call(
                Destination::Controller,
                |version| self.creation(topic, version),
                |answer| {
                    let result = answer.body.topics.first().ok_or_else(|| answer.empty())?;
                    if result.error_code == 0 {
                        return Ok(());
                    }
                    let message = result.error_message.as_deref();
                    Err(answer.refused(result.error_code, About::Topic(&topic.name), message))
                },
            )
            .await?;
        let created = self.wait_for(&topic.name, |topic| {
            topic.is_some_and(|topic| {
                !topic.partitions.is_empty()
                    && topic.partitions.iter().all(|partition| partition.leader_id.0 >= 0)
            })
        });
        created.await?;
        let described = self.describe_topics(std::slice::from_ref(&topic.name)).await?;
        let gone = || BrokerError::UnknownTopic { topic: topic.name.clone() };
        let described = described.into_iter().next().flatten().ok_or_else(gone)?;
        // A broker tells who leads a partition a moment before it does. So the leaders are asked,
        // which waits for them.
        self.client.cluster.doubt(&topic.name);
        let queries = (0..described.partitions).map(|partition| OffsetQuery {
            topic_partition: TopicPartition::new(topic.name.clone(), partition),
            spec: OffsetSpec::Latest,
        });
        let queries: Vec<OffsetQuery> = queries.collect();
        self.list_offsets(&queries, Isolation::ReadUncommitted).await?;
        Ok(described)
    }

    async fn delete_topic(&self, name: &TopicName) -> Result<(), BrokerError> {
        let build = |version| {
            let timeout = millis(self.options().request_timeout);
            let request = DeleteTopicsRequest::default().with_timeout_ms(timeout);
            Ok(if version >= 6 {
                let topic = DeleteTopicState::default().with_name(Some(wire_topic(name)));
                request.with_topics(vec![topic])
            } else {
                request.with_topic_names(vec![wire_topic(name)])
            })
        };
        self.client
            .call(Destination::Controller, build, |answer| {
                let result = answer.body.responses.first().ok_or_else(|| answer.empty())?;
                match result.error_code {
                    0 => Ok(()),
                    code => Err(certain(&answer, code, name, result.error_message.as_deref())),
                }
            })
            .await?;
        self.client.cluster.doubt(name);
        self.wait_for(name, |topic| topic.is_none()).await
    }

    async fn delete_records(&self, requests: &[DeleteRecords]) -> Result<Vec<i64>, BrokerError> {
        let partitions: Vec<TopicPartition> =
            requests.iter().map(|request| request.topic_partition.clone()).collect();
        let partitions = &partitions;
        self.client
            .ask_leaders(partitions, |node, asked| async move {
                let wanted = asked
                    .iter()
                    .map(|asked| (&partitions[asked.number], requests[asked.number].before_offset));
                let topics = by_topic(wanted).into_iter().map(|(topic, partitions)| {
                    let partitions = partitions.into_iter().map(|(number, offset)| {
                        DeleteRecordsPartition::default()
                            .with_partition_index(number)
                            .with_offset(offset)
                    });
                    DeleteRecordsTopic::default()
                        .with_name(wire_topic(topic))
                        .with_partitions(partitions.collect())
                });
                let limit = self.options().request_timeout;
                let request = DeleteRecordsRequest::default()
                    .with_topics(topics.collect())
                    .with_timeout_ms(millis(limit));
                let to = Destination::Node(node);
                let answer = self.client.call_once(to, limit, |_| Ok(request)).await?;
                let mut said: Said<i64> = Vec::new();
                for topic in &answer.body.topics {
                    for partition in &topic.partitions {
                        let number = asked.iter().map(|asked| asked.number).find(|number| {
                            let at = &partitions[*number];
                            at.partition == partition.partition_index
                                && at.topic.as_str() == topic.name.as_str()
                        });
                        let Some(number) = number else { continue };
                        let result = match partition.error_code {
                            0 => Ok(partition.low_watermark),
                            OFFSET_OUT_OF_RANGE => {
                                let request = &requests[number];
                                Err(self
                                    .out_of_range(&partitions[number], request.before_offset)
                                    .await)
                            }
                            code => {
                                let about = About::Partition(&partitions[number]);
                                Err(answer.refused(code, about, None))
                            }
                        };
                        said.push((number, result));
                    }
                }
                Ok(said)
            })
            .await
    }
}

impl Kafka {
    async fn metadata(
        &self,
        topics: Option<&BTreeSet<TopicName>>,
    ) -> Result<Answer<MetadataResponse>, BrokerError> {
        let mut attempts = Attempts::new(&self.client.cluster);
        loop {
            match self.client.cluster.metadata(topics).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => attempts.pause_after(failure).await?,
            }
        }
    }

    fn creation(&self, topic: &NewTopic, version: i16) -> Result<CreateTopicsRequest, BrokerError> {
        // Before 2.4 a broker has no default to be left to (KIP-464).
        let left_to_broker = -1;
        if topic.replication_factor.is_none() && version < 4 {
            return Err(BrokerError::Unsupported {
                call: "CreateTopics without a replication factor (Kafka 2.4)",
            });
        }
        let configs = topic.configs.iter().map(|(name, value)| {
            CreatableTopicConfig::default()
                .with_name(wire_text(name))
                .with_value(Some(wire_text(value)))
        });
        let wanted = CreatableTopic::default()
            .with_name(wire_topic(&topic.name))
            .with_num_partitions(topic.partitions)
            .with_replication_factor(topic.replication_factor.unwrap_or(left_to_broker))
            .with_configs(configs.collect());
        Ok(CreateTopicsRequest::default()
            .with_topics(vec![wanted])
            .with_timeout_ms(millis(self.options().request_timeout)))
    }

    /// Waits until every node that can be reached says this of a topic. A change is decided by
    /// the controller, and the brokers learn of it one by one.
    async fn wait_for(
        &self,
        name: &TopicName,
        is_so: impl Fn(Option<&MetadataResponseTopic>) -> bool + Send + Sync,
    ) -> Result<(), BrokerError> {
        let cluster = &self.client.cluster;
        let wanted = BTreeSet::from([name.clone()]);
        let mut attempts = Attempts::new(cluster);
        let mut nodes: Vec<i32> = cluster.facts().nodes.keys().copied().collect();
        while let Some(node) = nodes.last().copied() {
            let Ok(peer) = cluster.peer(node, &cluster.connections).await else {
                nodes.pop();
                continue;
            };
            match cluster.metadata_of(&peer, Some(&wanted)).await {
                Ok(answer) => {
                    let topic = answer.body.topics.first().filter(|topic| topic.error_code == 0);
                    if is_so(topic) {
                        nodes.pop();
                        continue;
                    }
                    let limit = self.options().api_timeout;
                    let error = BrokerError::TimedOut { call: "Metadata", limit };
                    attempts.pause_after(Failure::new(error, Remedy::Again)).await?;
                }
                Err(failure) => attempts.pause_after(failure).await?,
            }
        }
        Ok(())
    }

    /// The failure of a position outside of a log, with the bounds the log has now.
    pub(crate) async fn out_of_range(&self, at: &TopicPartition, offset: i64) -> Failure {
        let query = |spec| OffsetQuery { topic_partition: at.clone(), spec };
        let queries = [query(OffsetSpec::Earliest), query(OffsetSpec::Latest)];
        let bounds = self.list_offsets(&queries, Isolation::ReadUncommitted).await;
        match bounds.as_deref() {
            Ok([Some(start), Some(end)]) => Failure::last(BrokerError::OffsetOutOfRange {
                topic_partition: at.clone(),
                offset,
                log_start_offset: start.offset,
                end_offset: end.offset,
            }),
            Ok(_) => {
                let error = BrokerError::NoLeader { topic_partition: at.clone() };
                Failure::new(error, Remedy::Again)
            }
            Err(error) => Failure::last(error.clone()),
        }
    }
}

fn describe(
    answer: &Answer<MetadataResponse>,
    topic: &MetadataResponseTopic,
) -> Result<Option<TopicDescription>, BrokerError> {
    let name = topic.name.as_ref().map(|name| TopicName::from(name.as_str()));
    let name = name.ok_or_else(|| answer.malformed("a topic has no name".to_owned()))?;
    match topic.error_code {
        0 | LEADER_NOT_AVAILABLE => {}
        UNKNOWN_TOPIC | INVALID_TOPIC => return Ok(None),
        code => return Err(*answer.refused(code, About::Topic(&name), None).error),
    }
    let count = topic.partitions.len();
    let partitions = i32::try_from(count)
        .map_err(|_| answer.malformed(format!("a topic has {count} partitions")))?;
    // Brokers before 2.8 have none: nil.
    let id = TopicId(topic.topic_id);
    let racks = racks(&answer.body, topic);
    Ok(Some(TopicDescription { name, id, partitions, internal: topic.is_internal, racks }))
}

/// The racks of the replicas of each partition.
fn racks(answer: &MetadataResponse, topic: &MetadataResponseTopic) -> Vec<BTreeSet<String>> {
    let rack = |node: &BrokerId| {
        let broker = answer.brokers.iter().find(|broker| broker.node_id == *node)?;
        broker.rack.as_ref().map(ToString::to_string)
    };
    if answer.brokers.iter().all(|broker| broker.rack.is_none()) {
        return Vec::new();
    }
    let mut partitions: Vec<_> = topic.partitions.iter().collect();
    partitions.sort_by_key(|partition| partition.partition_index);
    let of_partition = |partition: &MetadataResponsePartition| {
        let racks = partition.replica_nodes.iter().map(rack);
        racks.collect::<Option<BTreeSet<String>>>().unwrap_or_default()
    };
    partitions.into_iter().map(of_partition).collect()
}

/// The failure of a code about a topic; that there is none is certain.
fn certain<T>(answer: &Answer<T>, code: i16, name: &TopicName, message: Option<&str>) -> Failure {
    let failure = answer.refused(code, About::Topic(name), message);
    match *failure.error {
        BrokerError::UnknownTopic { .. } => Failure { remedy: Remedy::None, ..failure },
        _ => failure,
    }
}

/// A limit as requests have it.
pub(crate) fn millis(limit: std::time::Duration) -> i32 {
    i32::try_from(limit.as_millis()).unwrap_or(i32::MAX)
}
