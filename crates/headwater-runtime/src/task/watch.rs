//! What another thread can see of a task at work: where it is, which is how a hung user function is
//! told by name, and what it has dropped.

use std::array;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::process::{DropCounts, DropReason, NodeIndex};

/// The node, input and record a task is at, and the records that its nodes have dropped. Written
/// with plain stores by the one stream thread that has the task, so it costs next to nothing; a
/// reader may see the parts of two neighbouring records.
#[derive(Debug, Default)]
pub struct TaskWatch {
    drops: OnceLock<Box<[NodeDrops]>>,
    node: AtomicU32,
    input: AtomicU32,
    offset: AtomicI64,
    at_work: AtomicBool,
}

/// What one node has dropped.
#[derive(Debug)]
struct NodeDrops {
    node: Arc<str>,
    counts: [AtomicU64; DropReason::ALL.len()],
}

impl NodeDrops {
    fn counts(&self) -> DropCounts {
        DropCounts::new(array::from_fn(|reason| self.counts[reason].load(Ordering::Relaxed)))
    }
}

impl TaskWatch {
    /// The records dropped so far, by node.
    pub fn drops(&self) -> impl Iterator<Item = (Arc<str>, DropCounts)> {
        let nodes = self.drops.get().into_iter().flatten();
        nodes.map(|node| (Arc::clone(&node.node), node.counts()))
    }

    /// The task is set up with these nodes. When it comes back to the instance it goes on counting.
    pub(crate) fn watch_nodes(&self, nodes: &[Arc<str>]) {
        self.drops.get_or_init(|| {
            let drops = |node| NodeDrops { node: Arc::clone(node), counts: Default::default() };
            nodes.iter().map(drops).collect()
        });
    }

    pub(crate) fn count_drop(&self, node: NodeIndex, reason: DropReason) {
        let drops = self.drops.get().expect("a task is set up before it runs");
        let count = &drops[node.index()].counts[reason as usize];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The node entered last.
    pub fn node(&self) -> NodeIndex {
        NodeIndex(self.node.load(Ordering::Relaxed))
    }

    /// Which of the task's inputs the record came from.
    pub fn input(&self) -> usize {
        self.input.load(Ordering::Relaxed) as usize
    }

    /// The record's offset.
    pub fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// Whether the task is in a slice of work just now.
    pub fn is_at_work(&self) -> bool {
        self.at_work.load(Ordering::Relaxed)
    }

    pub(crate) fn set_at_work(&self, at_work: bool) {
        self.at_work.store(at_work, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn enter(&self, node: NodeIndex) {
        self.node.store(node.0, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn begin_input(&self, input: usize) {
        self.input.store(u32::try_from(input).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn begin_record(&self, offset: i64) {
        self.offset.store(offset, Ordering::Relaxed);
    }
}
