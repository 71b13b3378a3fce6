//! The replicas nearer than their leaders (KIP-392).

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_broker::TopicPartition;
use tokio::time::Instant;

/// Where partitions are read that are not read from their leaders.
#[derive(Debug, Default)]
pub(super) struct Replicas {
    preferred: BTreeMap<TopicPartition, (i32, Instant)>,
    /// Until when leaders are not asked for nearer replicas.
    distrusted_until: Option<Instant>,
}

/// A leader names a dead replica until the cluster has noticed its death, and would send its readers
/// there again and again. So after a replica could not be reached, everything is read from the
/// leaders for a while.
const DISTRUST: Duration = Duration::from_secs(30);

impl Replicas {
    /// The leader named a nearer replica, to be taken until then.
    pub(super) fn prefer(&mut self, at: &TopicPartition, node: i32, until: Instant) {
        self.preferred.insert(at.clone(), (node, until));
    }

    /// The replica to read from, if it is not the leader.
    pub(super) fn nearest(&mut self, at: &TopicPartition, now: Instant) -> Option<i32> {
        let (node, until) = *self.preferred.get(at)?;
        if now >= until {
            self.preferred.remove(at);
            return None;
        }
        Some(node)
    }

    /// Whether the partition is read from this node without it being the leader.
    pub(super) fn is(&self, at: &TopicPartition, node: i32) -> bool {
        self.preferred.get(at).is_some_and(|(preferred, _)| *preferred == node)
    }

    /// Back to the leader.
    pub(super) fn forget(&mut self, at: &TopicPartition) {
        self.preferred.remove(at);
    }

    /// The replica a partition is read from could not be reached, if it was not the leader.
    pub(super) fn unreachable(&mut self, at: &TopicPartition, now: Instant) {
        if self.preferred.remove(at).is_some() {
            self.distrusted_until = Some(now + DISTRUST);
        }
    }

    /// Whether leaders are to be asked for nearer replicas.
    pub(super) fn are_wanted(&self, now: Instant) -> bool {
        self.distrusted_until.is_none_or(|until| now >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_nearer_replica_is_taken_for_a_time() {
        let (at, now) = (TopicPartition::new("lines", 0), Instant::now());
        let mut replicas = Replicas::default();
        assert_eq!(replicas.nearest(&at, now), None);
        replicas.prefer(&at, 3, now + Duration::from_secs(1));
        assert_eq!(replicas.nearest(&at, now), Some(3));
        assert!(replicas.is(&at, 3) && !replicas.is(&at, 2));
        assert_eq!(replicas.nearest(&at, now + Duration::from_secs(1)), None);
        assert!(!replicas.is(&at, 3));
        replicas.prefer(&at, 3, now + Duration::from_secs(1));
        replicas.forget(&at);
        assert_eq!(replicas.nearest(&at, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_unreachable_replica_leaders_are_read_for_a_while() {
        let (at, now) = (TopicPartition::new("lines", 0), Instant::now());
        let mut replicas = Replicas::default();
        replicas.unreachable(&at, now);
        assert!(replicas.are_wanted(now), "that was the leader");
        replicas.prefer(&at, 3, now + Duration::from_mins(5));
        replicas.unreachable(&at, now);
        assert_eq!(replicas.nearest(&at, now), None);
        assert!(!replicas.are_wanted(now) && replicas.are_wanted(now + DISTRUST));
    }
}
