//! How far the stores of a thread hold their changelogs, by what has been acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_broker::{Appended, Clock, OffsetCommit, TopicPartition};
use headwater_changelog::{AcknowledgedOffsets, Gap};
use headwater_store::{ChangelogPosition, MetaUpdate};
use headwater_topology::TaskId;

/// A changelog of a task that comes to a thread.
#[derive(Clone, Debug)]
pub(crate) struct FollowedChangelog {
    pub(crate) task: TaskId,
    pub(crate) topic_partition: TopicPartition,
    /// Where its store is.
    pub(crate) position: ChangelogPosition,
    /// The changelog is a source topic: the store is at the committed offset of that input.
    pub(crate) is_source: bool,
}

#[derive(Debug)]
pub(super) struct Followed {
    clock: Arc<dyn Clock>,
    positions: BTreeMap<TopicPartition, FollowedChangelog>,
    /// The last batch that had been sent when the changelog was followed: up to this one they are of the task
    /// as it was before it was restored.
    before: BTreeMap<TopicPartition, u64>,
    offsets: AcknowledgedOffsets,
    /// What others have written since the last commit.
    gaps: Vec<Gap>,
    /// What was acknowledged and then lost, since the last commit.
    lost: Vec<Gap>,
}

impl Followed {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            positions: BTreeMap::new(),
            before: BTreeMap::new(),
            offsets: AcknowledgedOffsets::default(),
            gaps: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// Follows changelogs of a task that comes; up to `last_number` batches are not of this one.
    pub(super) fn follow(&mut self, changelogs: Vec<FollowedChangelog>, last_number: u64) {
        for changelog in changelogs {
            self.before.insert(changelog.topic_partition.clone(), last_number);
            if !changelog.is_source {
                let next_offset = changelog.position.next_offset;
                self.offsets.follow(changelog.topic_partition.clone(), next_offset);
            }
            self.positions.insert(changelog.topic_partition.clone(), changelog);
        }
    }

    /// The task has left the thread.
    pub(super) fn forget(&mut self, task: TaskId) {
        let Self { positions, before, offsets, .. } = self;
        positions.retain(|topic_partition, changelog| {
            let stays = changelog.task != task;
            if !stays {
                offsets.forget(topic_partition);
                before.remove(topic_partition);
            }
            stays
        });
    }

    pub(super) fn forget_all(&mut self) {
        *self = Self::new(Arc::clone(&self.clock));
    }

    /// A batch of this number is in the log.
    pub(super) fn acknowledge(
        &mut self,
        number: u64,
        topic_partition: &TopicPartition,
        appended: Appended,
        mut count: u32,
    ) {
        let mut base_offset = appended.base_offset;
        if self.before.get(topic_partition).is_some_and(|before| number <= *before) {
            // The restore has read it, or it is as if somebody else had written it.
            base_offset += i64::from(count);
            count = 0;
            if self.offsets.next_offset(topic_partition).is_none_or(|next| base_offset <= next) {
                return;
            }
        }
        let Some(acknowledged) = self.offsets.acknowledge(topic_partition, base_offset, count)
        else {
            return;
        };
        self.gaps.extend(acknowledged.gap);
        self.lost.extend(acknowledged.lost);
    }

    /// What others have written since the last call.
    pub(super) fn take_gaps(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.gaps)
    }

    /// What was acknowledged and then lost since the last call.
    pub(super) fn take_lost(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.lost)
    }

    /// The changelogs of the thread's tasks.
    pub(super) fn topic_partitions(&self) -> Vec<TopicPartition> {
        self.positions.keys().cloned().collect()
    }

    /// The leader of a changelog has everything that was acknowledged when it was asked, and this
    /// epoch.
    pub(super) fn note_epoch(&mut self, topic_partition: &TopicPartition, leader_epoch: i32) {
        if let Some(followed) = self.positions.get_mut(topic_partition) {
            let position = &mut followed.position;
            position.leader_epoch = position.leader_epoch.max(Some(leader_epoch));
        }
    }

    /// The positions of these changelogs, to be stored with the data of a commit of `offsets`. We
    /// write the changelogs ourselves, so after an acknowledged commit their stores are complete.
    pub(super) fn updates(
        &mut self,
        changelogs: &[TopicPartition],
        offsets: &[OffsetCommit],
    ) -> Vec<MetaUpdate> {
        let now_ms = self.clock.wall_ms();
        let mut updates = Vec::with_capacity(changelogs.len());
        for topic_partition in changelogs {
            let Some(followed) = self.positions.get_mut(topic_partition) else { continue };
            let next_offset = if followed.is_source {
                let input = offsets.iter().find(|input| input.topic_partition == *topic_partition);
                input.map(|input| input.offset)
            } else {
                self.offsets.next_offset(topic_partition)
            };
            let position = &mut followed.position;
            position.next_offset = next_offset.unwrap_or(position.next_offset);
            position.at_end_ms = Some(now_ms);
            updates
                .push(position.update(topic_partition.topic.as_str(), topic_partition.partition));
        }
        updates
    }
}

#[cfg(test)]
mod tests {
    use headwater_store::MetaKey;

    use super::*;

    #[derive(Debug)]
    struct At(i64);

    impl Clock for At {
        fn monotonic(&self) -> std::time::Duration {
            std::time::Duration::ZERO
        }
        fn wall_ms(&self) -> i64 {
            self.0
        }
    }

    fn changelog(topic: &str, next_offset: i64, is_source: bool) -> FollowedChangelog {
        let position = ChangelogPosition {
            topic_id: [3; 16],
            next_offset,
            leader_epoch: Some(1),
            at_end_ms: Some(5),
        };
        let topic_partition = TopicPartition::new(topic, 0);
        FollowedChangelog { task: TaskId::new(0, 0), topic_partition, position, is_source }
    }

    fn stored(updates: Vec<MetaUpdate>) -> Vec<(String, i64, Option<i64>)> {
        updates
            .into_iter()
            .map(|update| {
                let Some(MetaKey::Changelog { topic, .. }) = MetaKey::decode(&update.key) else {
                    panic!("a changelog position is stored under its key")
                };
                let position = ChangelogPosition::decode(&update.value.unwrap()).unwrap();
                (topic, position.next_offset, position.at_end_ms)
            })
            .collect()
    }

    #[test]
    fn positions_follow_acknowledgements_and_committed_offsets() {
        let mut followed = Followed::new(Arc::new(At(77)));
        followed.follow(vec![changelog("log", 10, false), changelog("table", 4, true)], 6);
        let (log, table) = (TopicPartition::new("log", 0), TopicPartition::new("table", 0));
        let changelogs = [log.clone(), table.clone(), TopicPartition::new("stranger", 0)];
        let commit = |offset| {
            let metadata = String::new();
            [OffsetCommit { topic_partition: table.clone(), offset, metadata }]
        };
        let appended = |base_offset| Appended { base_offset, log_start_offset: 0 };

        followed.acknowledge(7, &log, appended(10), 3);
        followed.acknowledge(8, &TopicPartition::new("out", 0), appended(99), 1);
        assert_eq!(
            stored(followed.updates(&changelogs, &commit(6))),
            [("log".to_owned(), 13, Some(77)), ("table".to_owned(), 6, Some(77))]
        );
        assert_eq!(followed.take_gaps(), []);

        followed.acknowledge(9, &log, appended(15), 1);
        let gap = Gap { topic_partition: log, offsets: 13..15 };
        assert_eq!(followed.take_gaps(), [gap]);
        assert_eq!(followed.take_gaps(), []);
        assert_eq!(followed.take_lost(), []);
        followed.acknowledge(10, &TopicPartition::new("log", 0), appended(12), 1);
        let lost = Gap { topic_partition: TopicPartition::new("log", 0), offsets: 12..16 };
        assert_eq!(followed.take_lost(), [lost]);

        followed.forget(TaskId::new(0, 1));
        assert_eq!(followed.updates(&changelogs, &[]).len(), 2);
        followed.forget(TaskId::new(0, 0));
        assert_eq!(followed.updates(&changelogs, &[]), []);
    }

    /// A batch of the task as it was before it was restored is acknowledged late.
    #[test]
    fn what_came_late_from_before_a_restore_is_a_gap_unless_it_was_read() {
        for (base_offset, gap) in [(7, None), (10, Some(10..12)), (13, Some(10..15))] {
            let mut followed = Followed::new(Arc::new(At(77)));
            followed.follow(vec![changelog("log", 10, false)], 6);
            let log = TopicPartition::new("log", 0);
            let late = Appended { base_offset, log_start_offset: 0 };
            followed.acknowledge(6, &log, late, 2);
            let next = gap.as_ref().map_or(10, |gap: &std::ops::Range<i64>| gap.end);
            let gap = gap.map(|offsets| Gap { topic_partition: log.clone(), offsets });
            assert_eq!(followed.take_gaps(), Vec::from_iter(gap), "{base_offset}");
            assert_eq!(followed.take_lost(), [], "{base_offset}");
            let own = Appended { base_offset: next, log_start_offset: 0 };
            followed.acknowledge(7, &log, own, 1);
            assert_eq!((followed.take_gaps(), followed.take_lost()), (Vec::new(), Vec::new()));
        }
    }
}
