//! Deleting processed records of repartition topics (feature row T13), never past the committed
//! offset. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_broker::{DeleteRecords, TopicPartition};

/// When to delete what.
#[derive(Debug)]
pub(super) struct PurgeSchedule {
    interval: Duration,
    last: Duration,
    in_flight: bool,
    /// Committed offsets not yet purged.
    committed: BTreeMap<TopicPartition, i64>,
}

impl PurgeSchedule {
    pub(super) fn new(interval: Duration, now: Duration) -> Self {
        Self { interval, last: now, in_flight: false, committed: BTreeMap::new() }
    }

    /// Everything before `offset` has been processed, and that is committed.
    pub(super) fn committed(&mut self, topic_partition: TopicPartition, offset: i64) {
        self.committed.insert(topic_partition, offset);
    }

    /// When there will be something to delete; `None` while nothing is, or a request is under way.
    pub(super) fn due_at(&self) -> Option<Duration> {
        let is_due = !self.in_flight && !self.committed.is_empty();
        is_due.then(|| self.last.saturating_add(self.interval))
    }

    /// What to delete now; [`done`](Self::done) must follow.
    pub(super) fn take(&mut self, now: Duration) -> Vec<DeleteRecords> {
        if self.due_at().is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.last = now;
        self.in_flight = true;
        std::mem::take(&mut self.committed)
            .into_iter()
            .map(|(topic_partition, before_offset)| DeleteRecords {
                topic_partition,
                before_offset,
            })
            .collect()
    }

    /// The request has been answered.
    pub(super) fn done(&mut self) {
        self.in_flight = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purges_what_is_committed_once_per_interval_and_one_at_a_time() {
        let at = Duration::from_secs;
        let partition = |number| TopicPartition::new("app-words-repartition", number);
        let mut purge = PurgeSchedule::new(at(30), at(0));
        let taken = |purge: &mut PurgeSchedule, now| -> Vec<(i32, i64)> {
            let requests = purge.take(at(now));
            let short = |it: DeleteRecords| (it.topic_partition.partition, it.before_offset);
            requests.into_iter().map(short).collect()
        };
        assert_eq!(purge.due_at(), None);
        purge.committed(partition(0), 5);
        purge.committed(partition(1), 7);
        purge.committed(partition(0), 9);
        assert_eq!(purge.due_at(), Some(at(30)));
        assert_eq!(taken(&mut purge, 29), []);
        assert_eq!(taken(&mut purge, 30), [(0, 9), (1, 7)]);
        purge.committed(partition(0), 10);
        assert_eq!(taken(&mut purge, 90), [], "one is under way");
        purge.done();
        assert_eq!(taken(&mut purge, 90), [(0, 10)]);
        purge.done();
        assert_eq!(purge.due_at(), None, "nothing new is committed");
    }
}
