//! What is known of the cluster, and how an answer to Metadata changes it.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_broker::{TopicName, TopicPartition};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::MetadataResponse;
use kafka_protocol::messages::metadata_response::{
    MetadataResponsePartition, MetadataResponseTopic,
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::options::Address;

/// What is known of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Where the nodes listen, by id.
    pub(crate) nodes: BTreeMap<i32, Address>,
    /// The node that takes changes of topics.
    pub(crate) controller: Option<i32>,
    /// The topics in use.
    pub(crate) topics: BTreeMap<TopicName, TopicFacts>,
}

/// What is known of a topic in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicFacts {
    pub(crate) state: TopicState,
    /// When a broker told so.
    told: Instant,
    /// Something showed that it is not true any more.
    stale: bool,
}

/// What a broker says of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopicState {
    /// It is there.
    Known {
        /// Its id; brokers before 2.8 have none.
        id: Option<Uuid>,
        /// Its partitions, in order.
        partitions: Vec<PartitionFacts>,
    },
    /// There is none of that name, or it may not be seen: the error code.
    Refused(i16),
}

/// What is known of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartitionFacts {
    /// The node that leads it, if there is one just now.
    pub(crate) leader: Option<i32>,
    /// The epoch of that leader; -1 if the broker does not tell.
    pub(crate) leader_epoch: i32,
}

/// Who leads a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) node: i32,
    /// -1 if the broker does not tell.
    pub(crate) epoch: i32,
    /// `None` with brokers before 2.8.
    pub(crate) topic_id: Option<Uuid>,
}

/// Why nobody leads a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoLeader {
    /// The topic has not been asked for, or not lately enough.
    Unasked,
    /// No such topic, or not for us: the error code.
    Topic(i16),
    /// The topic has no such partition.
    Partition,
    /// The partition has no leader just now.
    JustNow,
}

impl Facts {
    /// Who leads a partition, by facts that are believed: not in doubt and not older than
    /// `max_age`.
    pub(crate) fn leader(
        &self,
        at: &TopicPartition,
        now: Instant,
        max_age: Duration,
    ) -> Result<Leader, NoLeader> {
        match self.topics.get(&at.topic) {
            Some(topic) if topic.holds(now, max_age) => topic.leader(at.partition),
            _ => Err(NoLeader::Unasked),
        }
    }

    /// Who leads a partition, by what was told last, however long ago.
    pub(crate) fn leader_as_told(&self, at: &TopicPartition) -> Result<Leader, NoLeader> {
        self.topics.get(&at.topic).ok_or(NoLeader::Unasked)?.leader(at.partition)
    }

    /// Whether a broker told of this topic since then.
    pub(crate) fn was_told(&self, topic: &TopicName, since: Instant) -> bool {
        self.topics.get(topic).is_some_and(|topic| topic.told >= since)
    }

    /// The topics that are there and in use.
    pub(crate) fn topics_in_use(&self) -> impl Iterator<Item = &TopicName> {
        let known = |topic: &TopicFacts| matches!(topic.state, TopicState::Known { .. });
        self.topics.iter().filter(move |(_, topic)| known(topic)).map(|(name, _)| name)
    }

    /// What is known of this topic is not true any more.
    pub(crate) fn doubt(&mut self, topic: &TopicName) {
        if let Some(topic) = self.topics.get_mut(topic) {
            topic.stale = true;
        }
    }

    /// Takes in what a broker tells at `now`. Of topics it does not mention nothing changes.
    pub(crate) fn learn(&mut self, told: &MetadataResponse, now: Instant) {
        let nodes = told.brokers.iter().filter_map(|node| {
            let port = u16::try_from(node.port).ok()?;
            Some((node.node_id.0, Address { host: node.host.to_string(), port }))
        });
        let nodes: BTreeMap<_, _> = nodes.collect();
        // A broker that is just coming up may name nobody; that is no news of the others.
        if !nodes.is_empty() {
            self.nodes = nodes;
        }
        self.controller = Some(told.controller_id.0).filter(|node| *node >= 0);
        self.topics.retain(|_, topic| !topic.is_old_refusal(now));
        for topic in &told.topics {
            if let Some(name) = &topic.name {
                let name = TopicName::from(name.as_str());
                let known = self.topics.get(&name).map(|topic| &topic.state);
                let state = state(topic, known);
                self.topics.insert(name, TopicFacts { state, told: now, stale: false });
            }
        }
    }
}

/// A missing topic is remembered for so long, for those who wait for the answer.
const REFUSAL_KEPT: Duration = Duration::from_mins(1);

impl TopicFacts {
    fn leader(&self, partition: i32) -> Result<Leader, NoLeader> {
        let (topic_id, partitions) = match &self.state {
            TopicState::Known { id, partitions } => (*id, partitions),
            TopicState::Refused(code) => return Err(NoLeader::Topic(*code)),
        };
        let number = usize::try_from(partition).map_err(|_| NoLeader::Partition)?;
        let partition = partitions.get(number).ok_or(NoLeader::Partition)?;
        let node = partition.leader.ok_or(NoLeader::JustNow)?;
        Ok(Leader { node, epoch: partition.leader_epoch, topic_id })
    }

    fn is_old_refusal(&self, now: Instant) -> bool {
        matches!(self.state, TopicState::Refused(_))
            && now.saturating_duration_since(self.told) > REFUSAL_KEPT
    }

    fn holds(&self, now: Instant, max_age: Duration) -> bool {
        let is_missing = matches!(self.state, TopicState::Refused(_));
        // A topic that was not there a moment ago may have been created since.
        !self.stale && !is_missing && now.saturating_duration_since(self.told) < max_age
    }
}

fn state(told: &MetadataResponseTopic, known: Option<&TopicState>) -> TopicState {
    // A topic without leaders is told with this code by old brokers, with its partitions.
    let leaderless = ResponseError::LeaderNotAvailable.code();
    if told.error_code != 0 && (told.error_code != leaderless || told.partitions.is_empty()) {
        return TopicState::Refused(told.error_code);
    }
    let id = Some(told.topic_id).filter(|id| !id.is_nil());
    let known = match known {
        Some(TopicState::Known { id: known_id, partitions }) if *known_id == id => &partitions[..],
        _ => &[],
    };
    let mut partitions: Vec<&MetadataResponsePartition> = told.partitions.iter().collect();
    partitions.sort_by_key(|partition| partition.partition_index);
    // Numbers count from 0 without gaps; what does not fit is not believed.
    let in_order =
        (0..).zip(partitions).take_while(|(number, told)| *number == told.partition_index);
    let partitions = in_order
        .zip(known.iter().map(Some).chain(std::iter::repeat(None)))
        .map(|((_, told), known)| partition(told, known.copied()))
        .collect();
    TopicState::Known { id, partitions }
}

fn partition(told: &MetadataResponsePartition, known: Option<PartitionFacts>) -> PartitionFacts {
    let leader = Some(told.leader_id.0).filter(|node| *node >= 0);
    let told = PartitionFacts { leader, leader_epoch: told.leader_epoch };
    match known {
        // A node that lags behind tells of an earlier leader (KIP-320).
        Some(known) if told.leader_epoch >= 0 && told.leader_epoch < known.leader_epoch => known,
        _ => told,
    }
}

#[cfg(test)]
mod tests;
