//! What the leader looks up before it plans: where the changelogs of all tasks end, and in which racks
//! the partitions are.

use std::collections::{BTreeMap, BTreeSet};

use headwater_assignor::RackAwareStrategy;
use headwater_broker::{BrokerError, OffsetQuery, OffsetSpec, TopicName, TopicPartition};
use headwater_topology::TaskId;

use super::shared::Shared;

/// The racks that have a replica of a partition.
pub(super) type Racks = BTreeMap<TopicPartition, BTreeSet<String>>;

/// The racks of all partitions that tasks read or log their state to; `None`: nobody wants to know.
pub(super) async fn racks(shared: &Shared) -> Result<Option<Racks>, BrokerError> {
    let config = &shared.config;
    if config.rack_aware_assignment_strategy == RackAwareStrategy::None {
        return Ok(None);
    }
    let changelogs = shared.matched.changelogs.values().flatten().cloned();
    let topics: BTreeSet<TopicName> = changelogs.chain(shared.input_topics()).collect();
    let topics: Vec<TopicName> = topics.into_iter().collect();
    let described = shared.broker.describe_topics(&topics).await?;
    let mut racks = Racks::new();
    for topic in described.into_iter().flatten() {
        let of_partitions = (0..).zip(topic.racks);
        racks.extend(of_partitions.map(|(partition, of_partition)| {
            (TopicPartition::new(topic.name.clone(), partition), of_partition)
        }));
    }
    Ok(Some(racks))
}

/// The ends of the changelogs of each task, summed up. A source topic that doubles as a changelog
/// ends where the group has committed it: nobody restores further.
pub(super) async fn end_offsets(shared: &Shared) -> Result<BTreeMap<TaskId, u64>, BrokerError> {
    let (mut logs, mut sources) = (Vec::new(), Vec::new());
    for (&task, changelogs) in &shared.matched.changelogs {
        for topic in changelogs {
            let partition = TopicPartition::new(topic.clone(), task.partition.cast_signed());
            let inputs = shared.matched.tasks.tasks.get(&task).into_iter().flatten();
            let is_source = inputs.clone().any(|(input, _)| input == topic.as_str());
            if is_source { sources.push((task, partition)) } else { logs.push((task, partition)) }
        }
    }
    let mut ends: BTreeMap<TaskId, u64> =
        shared.matched.changelogs.keys().map(|&task| (task, 0)).collect();
    let mut add = |task: TaskId, offset: i64| {
        let sum = ends.entry(task).or_default();
        *sum = sum.saturating_add(u64::try_from(offset).unwrap_or(0));
    };
    if !logs.is_empty() {
        let queries: Vec<OffsetQuery> = logs
            .iter()
            .map(|(_, topic_partition)| OffsetQuery {
                topic_partition: topic_partition.clone(),
                spec: OffsetSpec::Latest,
            })
            .collect();
        let found = shared.broker.list_offsets(&queries, shared.config.isolation()).await?;
        for ((task, _), end) in logs.into_iter().zip(found) {
            add(task, end.map_or(0, |end| end.offset));
        }
    }
    if !sources.is_empty() {
        let partitions: Vec<TopicPartition> =
            sources.iter().map(|(_, partition)| partition.clone()).collect();
        let found = shared.broker.committed_offsets(&shared.group, &partitions, false).await?;
        for ((task, _), committed) in sources.into_iter().zip(found) {
            add(task, committed.map_or(0, |committed| committed.offset));
        }
    }
    Ok(ends)
}
