//! Everything the broker knows besides records: topics, committed offsets, beginnings of logs,
//! producer ids. The catalog is a fold over entries, so that a journal of entries restores it.

use std::collections::BTreeMap;

use headwater_broker::{
    CommittedOffset, GroupId, OffsetCommit, TopicId, TopicName, TopicPartition,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::config::{are_sound, check_name};
use crate::epochs::LeaderEpochs;
use crate::frame::OFFSET_MAX;

/// A change of the catalog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub(crate) enum Entry {
    /// The first of a journal.
    Cluster {
        format: u32,
        id: Uuid,
        /// How often the journal was opened. Versions that do not know it pass it over.
        #[serde(default)]
        openings: u64,
    },
    TopicCreated {
        topic: String,
        id: Uuid,
        partitions: i32,
        configs: BTreeMap<String, String>,
    },
    TopicDeleted {
        topic: String,
    },
    /// How many topics were ever created: ids are never used twice.
    TopicsCreated {
        count: u64,
    },
    /// Records before `offset` are deleted.
    LogStart {
        topic: String,
        partition: i32,
        offset: i64,
    },
    /// A leader epoch after the first begins.
    LeaderEpoch {
        topic: String,
        partition: i32,
        epoch: i32,
        start_offset: i64,
    },
    OffsetsCommitted {
        group: String,
        offsets: Vec<OffsetEntry>,
    },
    /// A transaction is committed, with these offsets; its markers may not be written yet. The last
    /// one of each id counts.
    TransactionCommitted {
        transactional_id: String,
        producer_id: i64,
        epoch: i16,
        offsets: Vec<GroupOffsets>,
    },
    /// Producer ids below `next` may have been given out.
    ProducerIds {
        next: i64,
    },
}

/// Offsets of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GroupOffsets {
    pub(crate) group: String,
    pub(crate) offsets: Vec<OffsetEntry>,
}

/// One committed offset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OffsetEntry {
    topic: String,
    partition: i32,
    offset: i64,
    metadata: String,
}

impl Entry {
    /// Whether a broker can have written it: names make paths, and numbers are counted on from.
    pub(crate) fn is_sound(&self) -> bool {
        let is_offset = |offset: i64| (0..=OFFSET_MAX).contains(&offset);
        match self {
            Self::Cluster { openings, .. } => *openings < u64::MAX / 2,
            Self::TopicDeleted { .. }
            | Self::OffsetsCommitted { .. }
            | Self::TransactionCommitted { .. } => true,
            Self::TopicCreated { topic, partitions, configs, .. } => {
                *partitions > 0 && check_name(&topic.as_str().into()).is_ok() && are_sound(configs)
            }
            Self::TopicsCreated { count } => *count < u64::MAX / 2,
            Self::LogStart { offset, .. } => is_offset(*offset),
            Self::LeaderEpoch { epoch, start_offset, .. } => {
                (0..i32::MAX / 2).contains(epoch) && is_offset(*start_offset)
            }
            Self::ProducerIds { next } => (0..i64::MAX / 2).contains(next),
        }
    }
}

impl From<&OffsetCommit> for OffsetEntry {
    fn from(commit: &OffsetCommit) -> Self {
        Self {
            topic: commit.topic_partition.topic.as_str().to_owned(),
            partition: commit.topic_partition.partition,
            offset: commit.offset,
            metadata: commit.metadata.clone(),
        }
    }
}

/// A topic, as it was created.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TopicEntry {
    pub(crate) id: TopicId,
    pub(crate) partitions: i32,
    /// All settings in force.
    pub(crate) configs: BTreeMap<String, String>,
}

/// The sum of all entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Catalog {
    cluster_id: Uuid,
    openings: u64,
    pub(crate) topics: BTreeMap<TopicName, TopicEntry>,
    topics_created: u64,
    offsets: BTreeMap<GroupId, BTreeMap<TopicPartition, CommittedOffset>>,
    log_starts: BTreeMap<TopicPartition, i64>,
    /// Of partitions whose leader has changed.
    leader_epochs: BTreeMap<TopicPartition, LeaderEpochs>,
    /// Producer id and epoch of the last committed transaction of each transactional id.
    transactions: BTreeMap<String, (i64, i16)>,
    pub(crate) next_producer_id: i64,
}

impl Catalog {
    /// The catalog of a new cluster.
    pub(crate) fn new(cluster_id: Uuid) -> Self {
        Self { cluster_id, ..Self::default() }
    }

    pub(crate) fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Cluster { format: _, id, openings } => {
                self.cluster_id = id;
                self.openings = openings;
            }
            Entry::TopicCreated { topic, id, partitions, configs } => {
                let entry = TopicEntry { id: TopicId(id), partitions, configs };
                self.topics.insert(topic.into(), entry);
                self.topics_created += 1;
            }
            Entry::TopicDeleted { topic } => self.forget(&topic.into()),
            Entry::TopicsCreated { count } => self.topics_created = count,
            Entry::LogStart { topic, partition, offset } => {
                self.log_starts.insert(TopicPartition::new(topic, partition), offset);
            }
            Entry::LeaderEpoch { topic, partition, epoch, start_offset } => {
                let at = TopicPartition::new(topic, partition);
                self.leader_epochs.entry(at).or_default().begin(epoch, start_offset);
            }
            Entry::OffsetsCommitted { group, offsets } => self.commit(group, offsets),
            Entry::TransactionCommitted { transactional_id, producer_id, epoch, offsets } => {
                self.transactions.insert(transactional_id, (producer_id, epoch));
                for GroupOffsets { group, offsets } in offsets {
                    self.commit(group, offsets);
                }
            }
            Entry::ProducerIds { next } => self.next_producer_id = next,
        }
    }

    fn commit(&mut self, group: String, offsets: Vec<OffsetEntry>) {
        let committed = self.offsets.entry(group.into()).or_default();
        for OffsetEntry { topic, partition, offset, metadata } in offsets {
            let topic_partition = TopicPartition::new(topic, partition);
            committed.insert(topic_partition, CommittedOffset { offset, metadata });
        }
    }

    /// The entries that make this catalog from nothing.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let (id, openings) = (self.cluster_id, self.openings);
        let mut entries = vec![Entry::Cluster { format: FORMAT, id, openings }];
        entries.extend(self.topics.iter().map(|(name, topic)| Entry::TopicCreated {
            topic: name.as_str().to_owned(),
            id: topic.id.0,
            partitions: topic.partitions,
            configs: topic.configs.clone(),
        }));
        entries.push(Entry::TopicsCreated { count: self.topics_created });
        entries.extend(self.log_starts.iter().map(|(at, offset)| Entry::LogStart {
            topic: at.topic.as_str().to_owned(),
            partition: at.partition,
            offset: *offset,
        }));
        for (at, epochs) in &self.leader_epochs {
            entries.extend(epochs.after_the_first().map(|(epoch, start_offset)| {
                let topic = at.topic.as_str().to_owned();
                Entry::LeaderEpoch { topic, partition: at.partition, epoch, start_offset }
            }));
        }
        entries.extend(self.offsets.iter().map(|(group, committed)| Entry::OffsetsCommitted {
            group: group.as_str().to_owned(),
            offsets: committed.iter().map(|(at, offset)| offset_entry(at, offset)).collect(),
        }));
        let transactions = self.transactions.iter();
        entries.extend(transactions.map(|(id, &(producer_id, epoch))| {
            let (transactional_id, offsets) = (id.clone(), Vec::new());
            Entry::TransactionCommitted { transactional_id, producer_id, epoch, offsets }
        }));
        entries.push(Entry::ProducerIds { next: self.next_producer_id });
        entries
    }

    /// It is opened once more.
    pub(crate) fn open(&mut self) {
        self.openings += 1;
    }

    /// How often it was opened; never, if it lives in memory.
    pub(crate) fn openings(&self) -> u64 {
        self.openings
    }

    /// The id of the topic that is created next.
    pub(crate) fn next_topic_id(&self) -> TopicId {
        let base = self.cluster_id.as_u128();
        TopicId(Uuid::from_u128(base.wrapping_add(u128::from(self.topics_created) + 1)))
    }

    pub(crate) fn committed(
        &self,
        group: &GroupId,
        at: &TopicPartition,
    ) -> Option<CommittedOffset> {
        self.offsets.get(group)?.get(at).cloned()
    }

    /// Whether a transaction of a producer is committed, if it is the last one of its id.
    pub(crate) fn is_committed(&self, producer_id: i64, epoch: i16) -> bool {
        self.transactions.values().any(|last| *last == (producer_id, epoch))
    }

    /// Producer id and epoch of the last committed transaction of an id.
    pub(crate) fn last_committed(&self, transactional_id: &str) -> Option<(i64, i16)> {
        self.transactions.get(transactional_id).copied()
    }

    pub(crate) fn log_start(&self, at: &TopicPartition) -> i64 {
        self.log_starts.get(at).copied().unwrap_or(0)
    }

    pub(crate) fn leader_epochs(&self, at: &TopicPartition) -> LeaderEpochs {
        self.leader_epochs.get(at).cloned().unwrap_or_default()
    }

    /// Drops a topic and, as Kafka does, what groups have committed for it.
    fn forget(&mut self, topic: &TopicName) {
        self.topics.remove(topic);
        self.log_starts.retain(|at, _| at.topic != *topic);
        self.leader_epochs.retain(|at, _| at.topic != *topic);
        for committed in self.offsets.values_mut() {
            committed.retain(|at, _| at.topic != *topic);
        }
        self.offsets.retain(|_, committed| !committed.is_empty());
    }
}

/// The version of the journal's format that is written here.
pub(crate) const FORMAT: u32 = 2;

fn offset_entry(at: &TopicPartition, committed: &CommittedOffset) -> OffsetEntry {
    OffsetEntry {
        topic: at.topic.as_str().to_owned(),
        partition: at.partition,
        offset: committed.offset,
        metadata: committed.metadata.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_broker_writes_is_not_sound() {
        let check =
            |expected: bool, entry: Entry| assert_eq!(entry.is_sound(), expected, "{entry:?}");
        let created = |topic: &str, partitions, configs: &[(&str, &str)]| Entry::TopicCreated {
            topic: topic.to_owned(),
            id: Uuid::from_u128(1),
            partitions,
            configs: configs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        };
        check(true, created("lines", 3, &[("retention.ms", "-1"), ("of.a.later.version", "x")]));
        check(false, created("lines", -1, &[]));
        check(false, created("../lines", 1, &[]));
        check(false, created("lines", 1, &[("segment.bytes", "")]));
        let cluster = |openings| Entry::Cluster { format: FORMAT, id: Uuid::nil(), openings };
        check(true, cluster(1));
        check(false, cluster(u64::MAX));
        check(true, Entry::TopicsCreated { count: 1 });
        check(false, Entry::TopicsCreated { count: u64::MAX });
        check(true, Entry::ProducerIds { next: 1000 });
        check(false, Entry::ProducerIds { next: i64::MAX });
        let (topic, partition) = (|| "lines".to_owned(), 0);
        check(false, Entry::LogStart { topic: topic(), partition, offset: -1 });
        check(false, Entry::LogStart { topic: topic(), partition, offset: i64::MAX });
        let epoch = |epoch, start_offset| Entry::LeaderEpoch {
            topic: topic(),
            partition,
            epoch,
            start_offset,
        };
        check(true, epoch(1, 7));
        check(false, epoch(i32::MAX, 7));
        check(false, epoch(1, i64::MAX));
        assert!(example().entries().iter().all(Entry::is_sound));
    }

    fn example() -> Catalog {
        let mut catalog = Catalog::default();
        let created = |topic: &str, id| Entry::TopicCreated {
            topic: topic.to_owned(),
            id: Uuid::from_u128(id),
            partitions: 2,
            configs: BTreeMap::new(),
        };
        let committed = |topic: &str, offset| Entry::OffsetsCommitted {
            group: "app".to_owned(),
            offsets: vec![OffsetEntry {
                topic: topic.to_owned(),
                partition: 1,
                offset,
                metadata: "time".to_owned(),
            }],
        };
        for entry in [
            Entry::Cluster { format: FORMAT, id: Uuid::from_u128(7), openings: 2 },
            created("a", 8),
            created("b", 9),
            committed("a", 3),
            committed("b", 4),
            Entry::LogStart { topic: "a".to_owned(), partition: 1, offset: 2 },
            Entry::LeaderEpoch { topic: "a".to_owned(), partition: 1, epoch: 3, start_offset: 5 },
            Entry::TransactionCommitted {
                transactional_id: "app-1".to_owned(),
                producer_id: 12,
                epoch: 3,
                offsets: vec![GroupOffsets {
                    group: "app".to_owned(),
                    offsets: vec![OffsetEntry {
                        topic: "b".to_owned(),
                        partition: 0,
                        offset: 17,
                        metadata: String::new(),
                    }],
                }],
            },
            Entry::ProducerIds { next: 1000 },
        ] {
            catalog.apply(entry);
        }
        catalog
    }

    #[test]
    fn its_entries_make_the_same_catalog() {
        let catalog = example();
        let mut again = Catalog::default();
        catalog.entries().into_iter().for_each(|entry| again.apply(entry));
        assert_eq!(again, catalog);
    }

    #[test]
    fn a_transaction_is_committed_with_its_offsets() {
        let catalog = example();
        assert!(catalog.is_committed(12, 3));
        assert!(!catalog.is_committed(12, 2) && !catalog.is_committed(13, 3));
        let at = TopicPartition::new("b", 0);
        assert_eq!(catalog.committed(&"app".into(), &at).unwrap().offset, 17);
    }

    #[test]
    fn a_deleted_topic_leaves_nothing_behind_and_its_id_is_not_used_again() {
        let mut catalog = example();
        let next = catalog.next_topic_id();
        catalog.apply(Entry::TopicDeleted { topic: "a".to_owned() });
        let at = TopicPartition::new("a", 1);
        assert_eq!(catalog.committed(&"app".into(), &at), None);
        assert_eq!(catalog.log_start(&at), 0);
        assert_eq!(catalog.leader_epochs(&at), LeaderEpochs::default());
        assert!(catalog.committed(&"app".into(), &TopicPartition::new("b", 1)).is_some());
        assert_eq!(catalog.next_topic_id(), next);
        assert_ne!(catalog.topics[&TopicName::from("b")].id, next);
    }
}
