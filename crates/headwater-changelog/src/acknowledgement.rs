//! What the acknowledgement of a changelog batch means for the stored position.

use std::collections::BTreeMap;
use std::ops::Range;

use headwater_broker::TopicPartition;

/// Offsets of a changelog that do not hold what we wrote: somebody else has written between two of
/// our batches, or what we had written there is lost.
///
/// Under at-least-once that is a zombie: an instance that lost the task and has not noticed yet.
/// Its records are in the log and so every later restore applies them; the state here must do the
/// same, in the order of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The changelog.
    pub topic_partition: TopicPartition,
    /// The offsets that are not ours, or not any more.
    pub offsets: Range<i64>,
}

/// What an acknowledgement says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The offset after the last record of the batch.
    pub next_offset: i64,
    /// What lies between this batch and the one before.
    pub gap: Option<Gap>,
    /// The batch lies where others of ours were acknowledged before: the log has lost these. The
    /// broker elected a leader that did not have them.
    pub lost: Option<Gap>,
}

/// Follows the acknowledgements of the changelogs of one stream thread.
#[derive(Clone, Debug, Default)]
pub struct AcknowledgedOffsets {
    next: BTreeMap<TopicPartition, i64>,
}

impl AcknowledgedOffsets {
    /// Begins to follow a changelog whose state is at `next_offset`, its end.
    pub fn follow(&mut self, topic_partition: TopicPartition, next_offset: i64) {
        self.next.insert(topic_partition, next_offset);
    }

    /// Stops following a changelog.
    pub fn forget(&mut self, topic_partition: &TopicPartition) {
        self.next.remove(topic_partition);
    }

    /// The offset after the last acknowledged record; `None` for a partition that is not followed.
    pub fn next_offset(&self, topic_partition: &TopicPartition) -> Option<i64> {
        self.next.get(topic_partition).copied()
    }

    /// Takes note that a batch of `count` records was appended at `base_offset`; `None` for a
    /// partition that is not followed.
    pub fn acknowledge(
        &mut self,
        topic_partition: &TopicPartition,
        base_offset: i64,
        count: u32,
    ) -> Option<Acknowledged> {
        let expected = self.next.get_mut(topic_partition)?;
        let next_offset = base_offset + i64::from(count);
        let range = |offsets: Range<i64>| {
            let topic_partition = topic_partition.clone();
            (!offsets.is_empty()).then_some(Gap { topic_partition, offsets })
        };
        let (gap, lost) = (range(*expected..base_offset), range(base_offset..*expected));
        *expected = next_offset;
        Some(Acknowledged { next_offset, gap, lost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_follow_the_acknowledgements() {
        let (zero, one) = (TopicPartition::new("log", 0), TopicPartition::new("log", 1));
        let mut offsets = AcknowledgedOffsets::default();
        offsets.follow(zero.clone(), 5);
        let check =
            |offsets: &mut AcknowledgedOffsets, base, count, next_offset, gap: Option<_>| {
                let gap = gap.map(|offsets| Gap { topic_partition: zero.clone(), offsets });
                let expected = Acknowledged { next_offset, gap, lost: None };
                assert_eq!(offsets.acknowledge(&zero, base, count), Some(expected));
                assert_eq!(offsets.next_offset(&zero), Some(next_offset));
            };
        check(&mut offsets, 5, 3, 8, None);
        check(&mut offsets, 8, 1, 9, None);
        check(&mut offsets, 11, 2, 13, Some(9..11));
        check(&mut offsets, 13, 1, 14, None);
        assert_eq!(offsets.acknowledge(&one, 0, 1), None);
        let acknowledged = offsets.acknowledge(&zero, 10, 2);
        let lost = Some(Gap { topic_partition: zero.clone(), offsets: 10..14 });
        assert_eq!(acknowledged, Some(Acknowledged { next_offset: 12, gap: None, lost }));
        offsets.forget(&zero);
        assert_eq!(offsets.acknowledge(&zero, 14, 1), None);
    }
}
