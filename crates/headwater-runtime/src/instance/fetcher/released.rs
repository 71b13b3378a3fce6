//! What inputs have let go of.

use headwater_broker::TopicPartition;
use parking_lot::Mutex;

/// The bytes that stream threads have let go of, until the fetcher looks.
///
/// They are no messages, because each message wakes the fetcher: it mostly looks by itself, before
/// its next fetch. Only when an input is left out for want of room it asks to be woken. The lock is
/// taken once for a slice of work, never for a record.
#[derive(Debug, Default)]
pub(in crate::instance) struct Released(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    bytes: Vec<(TopicPartition, usize)>,
    /// The fetcher wants to hear of the next.
    is_waited_for: bool,
}

impl Released {
    /// An input has let go of bytes. True when the fetcher is to be woken.
    pub(in crate::instance) fn add(&self, topic_partition: TopicPartition, bytes: usize) -> bool {
        let mut inner = self.0.lock();
        match inner.bytes.last_mut() {
            Some((last, sum)) if *last == topic_partition => *sum += bytes,
            _ => inner.bytes.push((topic_partition, bytes)),
        }
        std::mem::take(&mut inner.is_waited_for)
    }

    /// All that was let go of since the last call.
    pub(super) fn take(&self) -> Vec<(TopicPartition, usize)> {
        std::mem::take(&mut self.0.lock().bytes)
    }

    /// Asks to be woken by the next; false when there is something already.
    pub(super) fn wait(&self) -> bool {
        let mut inner = self.0.lock();
        inner.is_waited_for = inner.bytes.is_empty();
        inner.is_waited_for
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_waits_is_woken_and_once() {
        let released = Released::default();
        let at = |partition| TopicPartition::new("in", partition);
        assert!(!released.add(at(0), 1), "nobody waits");
        assert!(!released.wait(), "there is something to take");
        assert!(!released.add(at(0), 2));
        assert!(!released.add(at(1), 4));
        assert_eq!(released.take(), [(at(0), 3), (at(1), 4)]);
        assert!(released.wait());
        assert!(released.add(at(0), 8));
        assert!(!released.add(at(0), 16));
        assert_eq!(released.take(), [(at(0), 24)]);
        assert_eq!(released.take(), []);
    }
}
