//! The replicas nearer than their leaders (KIP-392).

use std::collections::BTreeMap;

use headwater_broker::TopicPartition;
use tokio::time::Instant;

/// Where partitions are read that are not read from their leaders.
#[derive(Debug, Default)]
pub(super) struct Replicas {
    preferred: BTreeMap<TopicPartition, (i32, Instant)>,
}

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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
}
