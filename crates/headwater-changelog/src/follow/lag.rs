//! How far a follow target is, as others see it while it is followed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use headwater_broker::TopicPartition;

use super::FollowPartition;

/// How far one store is behind its changelog (KIP-535).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreLag {
    /// The store's name.
    pub store: Arc<str>,
    /// Its changelog.
    pub changelog: TopicPartition,
    /// The offset after the last record that the store holds.
    pub position: i64,
    /// The end of the changelog, as it was last seen; `None`: it has not been seen yet.
    pub end_offset: Option<i64>,
}

impl StoreLag {
    /// Offsets still to be read; `None` while the end is not known.
    pub fn offsets(&self) -> Option<u64> {
        Some(u64::try_from(self.end_offset? - self.position).unwrap_or(0))
    }
}

/// How far the stores of a target are. Written by the follow loop, read by whoever wants to know.
#[derive(Debug)]
pub struct FollowProgress {
    changelogs: Box<[Place]>,
}

#[derive(Debug)]
struct Place {
    store: Arc<str>,
    topic_partition: TopicPartition,
    /// The offset after the last record applied.
    position: AtomicI64,
    /// The end that is to be reached; −1 while nobody knows it.
    end: AtomicI64,
}

impl FollowProgress {
    /// Of a target that begins with these changelogs; where they end is not known yet.
    pub fn new(changelogs: &[FollowPartition]) -> Self {
        let place = |partition: &FollowPartition| Place {
            store: Arc::clone(&partition.store),
            topic_partition: partition.topic_partition.clone(),
            position: AtomicI64::new(partition.start_offset),
            end: AtomicI64::new(-1),
        };
        Self { changelogs: changelogs.iter().map(place).collect() }
    }

    /// The offsets after the last records applied, summed up.
    pub fn offset_sum(&self) -> u64 {
        let positions = self.changelogs.iter().map(|place| place.position.load(Ordering::Relaxed));
        positions.fold(0, |sum, position| sum.saturating_add(position.try_into().unwrap_or(0)))
    }

    /// The lags of all changelogs summed up; `None` as long as an end is not known.
    pub fn lag(&self) -> Option<u64> {
        let mut lags = self.lags().into_iter();
        lags.try_fold(0, |sum: u64, lag| Some(sum.saturating_add(lag.offsets()?)))
    }

    /// The lag of each store.
    pub fn lags(&self) -> Vec<StoreLag> {
        let lag = |place: &Place| StoreLag {
            store: Arc::clone(&place.store),
            changelog: place.topic_partition.clone(),
            position: place.position.load(Ordering::Relaxed),
            end_offset: Some(place.end.load(Ordering::Relaxed)).filter(|end| *end >= 0),
        };
        self.changelogs.iter().map(lag).collect()
    }

    pub(super) fn applied(&self, changelog: usize, position: i64) {
        self.changelogs[changelog].position.store(position, Ordering::Relaxed);
    }

    pub(super) fn ends(&self, changelog: usize, end: i64) {
        self.changelogs[changelog].end.store(end, Ordering::Relaxed);
    }

    /// Position and end of one changelog; −1 for an end that nobody knows.
    pub(super) fn of(&self, changelog: usize) -> (i64, i64) {
        let place = &self.changelogs[changelog];
        (place.position.load(Ordering::Relaxed), place.end.load(Ordering::Relaxed))
    }
}
