//! Records that end without being processed: every one is counted, by reason.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use headwater_topology::TaskId;

/// Why a record was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// An operator that needs a key got none.
    NullKey,
    /// An operator that needs a value got none.
    NullValue,
    /// It could not be read, and the handler said to go on.
    Deserialization,
    /// Its timestamp is invalid, and the extractor said to skip it.
    InvalidTimestamp,
    /// A user function failed on it, and the handler said to go on.
    Processing,
    /// It could not be written, and the handler said to go on.
    Production,
    /// A partitioner chose no partition for it.
    NoPartition,
    /// It is older than the history that a store keeps.
    Expired,
    /// A window that it falls into is closed; counted once for each such window.
    WindowClosed,
    /// Something newer of its key has overtaken it: it is an out-of-order update of a versioned table for
    /// an operator that follows the latest ones only, or an answer of a foreign-key join to a value that is
    /// no longer there.
    Overtaken,
}

impl DropReason {
    /// All reasons, in order.
    pub const ALL: [Self; 10] = [
        Self::NullKey,
        Self::NullValue,
        Self::Deserialization,
        Self::InvalidTimestamp,
        Self::Processing,
        Self::Production,
        Self::NoPartition,
        Self::Expired,
        Self::WindowClosed,
        Self::Overtaken,
    ];

    /// Its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NullKey => "null-key",
            Self::NullValue => "null-value",
            Self::Deserialization => "deserialization",
            Self::InvalidTimestamp => "invalid-timestamp",
            Self::Processing => "processing",
            Self::Production => "production",
            Self::NoPartition => "no-partition",
            Self::Expired => "expired",
            Self::WindowClosed => "window-closed",
            Self::Overtaken => "overtaken",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many records were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts([u64; DropReason::ALL.len()]);

impl DropCounts {
    /// Dropped for one reason.
    pub fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Dropped for any reason: `dropped-records-total`.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Counts of each reason, in the order of [`DropReason::ALL`].
    pub(crate) fn new(counts: [u64; DropReason::ALL.len()]) -> Self {
        Self(counts)
    }

    /// Counts others too.
    pub(crate) fn add(&mut self, others: Self) {
        for (count, other) in self.0.iter_mut().zip(others.0) {
            *count += other;
        }
    }
}

/// The records that an instance has dropped since it started, by task, node and reason: also those
/// of tasks that have moved away. A record that is processed again after a failure and dropped again
/// counts again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DroppedRecords {
    tasks: BTreeMap<TaskId, BTreeMap<Arc<str>, DropCounts>>,
}

impl DroppedRecords {
    /// Adds what the nodes of a task have dropped.
    pub(crate) fn add(
        &mut self,
        task: TaskId,
        nodes: impl Iterator<Item = (Arc<str>, DropCounts)>,
    ) {
        for (node, counts) in nodes.filter(|(_, counts)| counts.total() > 0) {
            self.tasks.entry(task).or_default().entry(node).or_default().add(counts);
        }
    }

    /// The counts of all tasks together.
    pub fn counts(&self) -> DropCounts {
        sum(self.nodes().map(|(_, _, counts)| counts))
    }

    /// Dropped for one reason.
    pub fn of(&self, reason: DropReason) -> u64 {
        self.counts().of(reason)
    }

    /// Dropped for any reason.
    pub fn total(&self) -> u64 {
        self.counts().total()
    }

    /// The counts of one task.
    pub fn of_task(&self, task: TaskId) -> DropCounts {
        sum(self.tasks.get(&task).into_iter().flat_map(|nodes| nodes.values().copied()))
    }

    /// The nodes that have dropped records, by task.
    pub fn nodes(&self) -> impl Iterator<Item = (TaskId, &str, DropCounts)> {
        self.tasks.iter().flat_map(|(&task, nodes)| {
            nodes.iter().map(move |(node, counts)| (task, &**node, *counts))
        })
    }
}

fn sum(counts: impl Iterator<Item = DropCounts>) -> DropCounts {
    counts.fold(DropCounts::default(), |mut sum, counts| {
        sum.add(counts);
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: impl Fn(u64) -> u64) -> DropCounts {
        let mut counts = [0; DropReason::ALL.len()];
        for (number, count) in (0..).zip(&mut counts) {
            *count = of(number);
        }
        DropCounts::new(counts)
    }

    #[test]
    fn each_reason_has_a_count_of_its_own() {
        let counts = counts(|number| number);
        for (number, reason) in (0..).zip(DropReason::ALL) {
            assert_eq!(counts.of(reason), number, "{reason}");
        }
        assert_eq!(counts.total(), 45);
    }

    #[test]
    fn counts_are_summed_by_task_and_over_all() {
        let mut dropped = DroppedRecords::default();
        let (first, second) = (TaskId::new(0, 0), TaskId::new(1, 3));
        let node = |name: &str, counts| (Arc::from(name), counts);
        dropped.add(first, [node("map", counts(|_| 1)), node("idle", counts(|_| 0))].into_iter());
        dropped.add(first, [node("map", counts(|number| number))].into_iter());
        dropped.add(second, [node("sink", counts(|_| 2))].into_iter());
        let nodes: Vec<_> =
            dropped.nodes().map(|(task, node, counts)| (task, node, counts.total())).collect();
        assert_eq!(nodes, [(first, "map", 55), (second, "sink", 20)]);
        assert_eq!(dropped.of_task(first).of(DropReason::NullValue), 2);
        assert_eq!(dropped.of_task(TaskId::new(9, 9)).total(), 0);
        assert_eq!((dropped.of(DropReason::NullKey), dropped.total()), (3, 75));
    }
}
