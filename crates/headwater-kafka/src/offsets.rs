//! Offsets of logs and of groups.

use std::collections::BTreeMap;

use async_trait::async_trait;
use headwater_broker::{
    BrokerError, CommittedOffset, EpochEnd, EpochQuery, Grant, GroupId, Isolation, ListedOffset,
    OffsetCommit, OffsetQuery, OffsetSpec, Offsets, TopicPartition,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{
    BrokerId, ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
};

use crate::call::{Answer, Destination};
use crate::codes::{About, Failure};
use crate::kafka::Kafka;
use crate::leaders::{Asked, Said};
use crate::names::{by_topic, wire_text, wire_topic};
use crate::topics::millis;

/// What stands for the first offset and for the end in place of a timestamp.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;
/// The id of those who are no replica.
const NO_REPLICA: BrokerId = BrokerId(-1);

#[async_trait]
impl Offsets for Kafka {
    async fn list_offsets(
        &self,
        queries: &[OffsetQuery],
        isolation: Isolation,
    ) -> Result<Vec<Option<ListedOffset>>, BrokerError> {
        let partitions: Vec<TopicPartition> =
            queries.iter().map(|query| query.topic_partition.clone()).collect();
        self.client
            .ask_leaders(&partitions, |node, asked| {
                self.list_offsets_at(node, asked, queries, isolation)
            })
            .await
    }

    async fn epoch_ends(
        &self,
        queries: &[EpochQuery],
    ) -> Result<Vec<Option<EpochEnd>>, BrokerError> {
        let partitions: Vec<TopicPartition> =
            queries.iter().map(|query| query.topic_partition.clone()).collect();
        self.client
            .ask_leaders(&partitions, |node, asked| self.epoch_ends_at(node, asked, queries))
            .await
    }

    async fn committed_offsets(
        &self,
        group: &GroupId,
        partitions: &[TopicPartition],
        require_stable: bool,
    ) -> Result<Vec<Option<CommittedOffset>>, BrokerError> {
        // To name no topic means all of them.
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let to = Destination::GroupCoordinator(group);
        let build = |version| committed_request(group, partitions, require_stable, version);
        let read = |answer: Answer<OffsetFetchResponse>| {
            let committed = committed_of(&answer, group, partitions)?;
            Ok(partitions.iter().map(|at| committed.get(at).cloned()).collect())
        };
        self.client.call(to, build, read).await
    }

    async fn commit_offsets(
        &self,
        grant: &Grant,
        offsets: &[OffsetCommit],
    ) -> Result<(), BrokerError> {
        if offsets.is_empty() {
            return Ok(());
        }
        self.check_partitions(offsets).await?;
        let to = Destination::GroupCoordinator(&grant.group);
        let build = |version| Ok(commit_request(grant, offsets, version));
        self.client
            .call(to, build, |answer| {
                for topic in &answer.body.topics {
                    for partition in &topic.partitions {
                        if partition.error_code == 0 {
                            continue;
                        }
                        // What is wrong with the member is wrong for all partitions; what is
                        // wrong with one is told of that one.
                        let member = About::Member(grant);
                        let of_member = answer.refused(partition.error_code, member, None);
                        let is_told = !matches!(*of_member.error, BrokerError::Refused { .. });
                        if is_told && member.fits(partition.error_code) {
                            return Err(of_member);
                        }
                        let index = partition.partition_index;
                        let at = TopicPartition::new(topic.name.as_str(), index);
                        let about = About::Partition(&at);
                        return Err(answer.refused(partition.error_code, about, None));
                    }
                }
                Ok(())
            })
            .await
    }
}

impl Kafka {
    /// Asks a node about partitions it leads.
    async fn list_offsets_at(
        &self,
        node: i32,
        asked: Vec<Asked>,
        queries: &[OffsetQuery],
        isolation: Isolation,
    ) -> Result<Said<Option<ListedOffset>>, Failure> {
        let wanted = asked.iter().map(|asked| (&queries[asked.number].topic_partition, *asked));
        let topics = by_topic(wanted).into_iter().map(|(topic, partitions)| {
            let partitions = partitions.into_iter().map(|(number, asked)| {
                ListOffsetsPartition::default()
                    .with_partition_index(number)
                    .with_current_leader_epoch(asked.leader.epoch)
                    .with_timestamp(timestamp(queries[asked.number].spec))
            });
            ListOffsetsTopic::default()
                .with_name(wire_topic(topic))
                .with_partitions(partitions.collect())
        });
        let limit = self.options().request_timeout;
        let request = ListOffsetsRequest::default()
            .with_replica_id(NO_REPLICA)
            .with_isolation_level(isolation_level(isolation))
            .with_topics(topics.collect());
        let build = |version| {
            Ok(if version >= 10 { request.with_timeout_ms(millis(limit)) } else { request })
        };
        let answer = self.client.call_once(Destination::Node(node), limit, build).await?;
        let mut told = BTreeMap::new();
        for topic in &answer.body.topics {
            for partition in &topic.partitions {
                told.insert((topic.name.as_str(), partition.partition_index), partition);
            }
        }
        let said = asked.iter().filter_map(|asked| {
            let query = &queries[asked.number];
            let at = &query.topic_partition;
            let told = told.get(&(at.topic.as_str(), at.partition))?;
            let listed = match told.error_code {
                0 => Ok(listed(told)),
                code => Err(answer.refused(code, About::Partition(at), None)),
            };
            Some((asked.number, listed))
        });
        Ok(said.collect())
    }

    /// Asks a node about epochs of partitions it leads.
    async fn epoch_ends_at(
        &self,
        node: i32,
        asked: Vec<Asked>,
        queries: &[EpochQuery],
    ) -> Result<Said<Option<EpochEnd>>, Failure> {
        let wanted = asked.iter().map(|asked| (&queries[asked.number].topic_partition, *asked));
        let topics = by_topic(wanted).into_iter().map(|(topic, partitions)| {
            let partitions = partitions.into_iter().map(|(number, asked)| {
                OffsetForLeaderPartition::default()
                    .with_partition(number)
                    .with_current_leader_epoch(asked.leader.epoch)
                    .with_leader_epoch(queries[asked.number].leader_epoch)
            });
            OffsetForLeaderTopic::default()
                .with_topic(wire_topic(topic))
                .with_partitions(partitions.collect())
        });
        let request = OffsetForLeaderEpochRequest::default().with_topics(topics.collect());
        let limit = self.options().request_timeout;
        let build =
            |version| Ok(if version >= 3 { request.with_replica_id(NO_REPLICA) } else { request });
        let answer = self.client.call_once(Destination::Node(node), limit, build).await?;
        let mut told = BTreeMap::new();
        for topic in &answer.body.topics {
            for partition in &topic.partitions {
                told.insert((topic.topic.as_str(), partition.partition), partition);
            }
        }
        let said = asked.iter().filter_map(|asked| {
            let at = &queries[asked.number].topic_partition;
            let told = told.get(&(at.topic.as_str(), at.partition))?;
            let end = EpochEnd { leader_epoch: told.leader_epoch, end_offset: told.end_offset };
            let end = match told.error_code {
                0 => Ok((end.leader_epoch >= 0 && end.end_offset >= 0).then_some(end)),
                code => Err(answer.refused(code, About::Partition(at), None)),
            };
            Some((asked.number, end))
        });
        Ok(said.collect())
    }

    /// A broker commits what it can and refuses the rest, one by one. So that nothing is committed
    /// if a partition does not exist, that is looked at before.
    async fn check_partitions(&self, offsets: &[OffsetCommit]) -> Result<(), BrokerError> {
        let partitions = offsets.iter().map(|offset| &offset.topic_partition);
        for leader in self.client.leaders(partitions).await {
            // Else it exists, or nobody could be asked; the coordinator has the last word.
            if let Err(failure) = leader
                && let BrokerError::UnknownTopic { .. }
                | BrokerError::UnknownPartition { .. }
                | BrokerError::NotAuthorised { .. } = *failure.error
            {
                return Err(*failure.error);
            }
        }
        Ok(())
    }
}

/// What stands for a question in the place of a timestamp.
fn timestamp(spec: OffsetSpec) -> i64 {
    match spec {
        OffsetSpec::Earliest => EARLIEST,
        OffsetSpec::Latest => LATEST,
        // Below 0 are the questions above.
        OffsetSpec::AtTimestamp(timestamp) => timestamp.max(0),
    }
}

/// Kafka's number of an isolation.
pub(crate) fn isolation_level(isolation: Isolation) -> i8 {
    match isolation {
        Isolation::ReadUncommitted => 0,
        Isolation::ReadCommitted => 1,
    }
}

fn listed(told: &ListOffsetsPartitionResponse) -> Option<ListedOffset> {
    let leader_epoch = Some(told.leader_epoch).filter(|epoch| *epoch >= 0);
    (told.offset >= 0).then_some(ListedOffset { offset: told.offset, leader_epoch })
}

fn committed_request(
    group: &GroupId,
    partitions: &[TopicPartition],
    require_stable: bool,
    version: i16,
) -> Result<OffsetFetchRequest, BrokerError> {
    if require_stable && version < 7 {
        return Err(BrokerError::Unsupported {
            call: "OffsetFetch of stable offsets only (Kafka 2.5)",
        });
    }
    let request = OffsetFetchRequest::default().with_require_stable(require_stable);
    let topics = by_topic(partitions.iter().map(|at| (at, ()))).into_iter();
    let topics = topics.map(|(topic, partitions)| {
        let numbers: Vec<i32> = partitions.into_iter().map(|(number, ())| number).collect();
        (wire_topic(topic), numbers)
    });
    let group = wire_text(group.as_str()).into();
    Ok(if version >= 8 {
        let topics = topics.map(|(name, numbers)| {
            OffsetFetchRequestTopics::default().with_name(name).with_partition_indexes(numbers)
        });
        let of_group = OffsetFetchRequestGroup::default()
            .with_group_id(group)
            .with_topics(Some(topics.collect()));
        request.with_groups(vec![of_group])
    } else {
        let topics = topics.map(|(name, numbers)| {
            OffsetFetchRequestTopic::default().with_name(name).with_partition_indexes(numbers)
        });
        request.with_group_id(group).with_topics(Some(topics.collect()))
    })
}

/// What is committed, of the partitions asked for.
fn committed_of(
    answer: &Answer<OffsetFetchResponse>,
    group: &GroupId,
    partitions: &[TopicPartition],
) -> Result<BTreeMap<TopicPartition, CommittedOffset>, Failure> {
    let body = &answer.body;
    let told = body.groups.first();
    let code = told.map_or(body.error_code, |group| group.error_code);
    if code != 0 {
        return Err(answer.refused(code, About::Group(group), None));
    }
    let mut committed = BTreeMap::new();
    let mut take = |topic: &str, number, code, offset, metadata: Option<&str>| {
        let at = TopicPartition::new(topic, number);
        if code != 0 {
            return Err(answer.refused(code, About::Partition(&at), None));
        }
        if offset >= 0 {
            let metadata = metadata.unwrap_or_default().to_owned();
            committed.insert(at, CommittedOffset { offset, metadata });
        }
        Ok(())
    };
    for topic in told.iter().flat_map(|group| &group.topics) {
        for told in &topic.partitions {
            let metadata = told.metadata.as_deref();
            let (number, offset) = (told.partition_index, told.committed_offset);
            take(&topic.name, number, told.error_code, offset, metadata)?;
        }
    }
    for topic in &body.topics {
        for told in &topic.partitions {
            let metadata = told.metadata.as_deref();
            let (number, offset) = (told.partition_index, told.committed_offset);
            take(&topic.name, number, told.error_code, offset, metadata)?;
        }
    }
    committed.retain(|at, _| partitions.contains(at));
    Ok(committed)
}

fn commit_request(grant: &Grant, offsets: &[OffsetCommit], version: i16) -> OffsetCommitRequest {
    let wanted = offsets.iter().map(|offset| (&offset.topic_partition, offset));
    let topics = by_topic(wanted).into_iter().map(|(topic, partitions)| {
        let partitions = partitions.into_iter().map(|(number, commit)| {
            OffsetCommitRequestPartition::default()
                .with_partition_index(number)
                .with_committed_offset(commit.offset)
                .with_committed_metadata(Some(wire_text(&commit.metadata)))
        });
        OffsetCommitRequestTopic::default()
            .with_name(wire_topic(topic))
            .with_partitions(partitions.collect())
    });
    // Brokers before 2.3 know no static members.
    let instance = grant.group_instance_id.as_deref().filter(|_| version >= 7).map(wire_text);
    OffsetCommitRequest::default()
        .with_group_id(wire_text(grant.group.as_str()).into())
        .with_generation_id_or_member_epoch(grant.generation)
        .with_member_id(wire_text(grant.member_id.as_str()))
        .with_group_instance_id(instance)
        .with_topics(topics.collect())
}
