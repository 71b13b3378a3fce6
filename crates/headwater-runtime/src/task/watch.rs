//! Where a task is, readable from another thread: how a hung user function is told by name.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use crate::process::NodeIndex;

/// The node, input and record a task is at. Written with plain stores by the stream thread, so it
/// costs next to nothing; a reader may see the parts of two neighbouring records.
#[derive(Debug, Default)]
pub struct TaskWatch {
    node: AtomicU32,
    input: AtomicU32,
    offset: AtomicI64,
    at_work: AtomicBool,
}

impl TaskWatch {
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
