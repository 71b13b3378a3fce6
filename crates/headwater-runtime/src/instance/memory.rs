//! The memory that an instance counts and keeps within limits, for others to look at.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Instance;
use crate::worker::HeldBytes;

/// Bytes of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryBytes {
    /// At present.
    pub now: usize,
    /// The most there has been.
    pub highest: usize,
}

/// The memory that an instance counts and keeps within limits. Each kind is over its limit by what comes at
/// once at most, which is told beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Fetched records that are not processed. Limit: `input.buffer.max.bytes`, and for each input what one
    /// fetch brings (`max.partition.fetch.bytes`, or a batch that is larger).
    pub input: MemoryBytes,
    /// Writes to stores that are not committed, those of the commit under way included. Limit: twice
    /// `statestore.uncommitted.max.bytes`, and for each thread twice what one input batch makes.
    pub uncommitted: MemoryBytes,
    /// Record caches. Limit: `statestore.cache.max.bytes`, and for each thread one entry.
    pub caches: MemoryBytes,
    /// Batches handed over for sending and not acknowledged. Limit: 8 MiB for each thread, and what one slice of
    /// work makes.
    pub output: MemoryBytes,
}

/// Written by one, looked at by many, without a lock.
#[derive(Debug, Default)]
pub(super) struct Watched {
    now: AtomicUsize,
    highest: AtomicUsize,
}

impl Watched {
    pub(super) fn set(&self, bytes: usize) {
        self.now.store(bytes, Ordering::Relaxed);
        if bytes > self.highest.load(Ordering::Relaxed) {
            self.highest.store(bytes, Ordering::Relaxed);
        }
    }

    fn add_to(&self, sum: &mut MemoryBytes) {
        sum.now += self.now.load(Ordering::Relaxed);
        sum.highest += self.highest.load(Ordering::Relaxed);
    }
}

/// What one stream thread holds.
#[derive(Debug, Default)]
pub(super) struct ThreadMemory {
    uncommitted: Watched,
    caches: Watched,
    output: Watched,
}

impl ThreadMemory {
    pub(super) fn set(&self, held: HeldBytes) {
        self.uncommitted.set(held.uncommitted);
        self.caches.set(held.caches);
        self.output.set(held.output);
    }
}

/// What an instance holds.
#[derive(Debug, Default)]
pub(super) struct InstanceMemory {
    pub(super) input: Watched,
    /// Those that run. Held to begin one, and to look.
    threads: Mutex<Vec<Weak<ThreadMemory>>>,
}

impl InstanceMemory {
    /// A thread begins; what it holds is counted until it drops this.
    pub(super) fn of_thread(&self) -> Arc<ThreadMemory> {
        let memory = Arc::default();
        let mut threads = self.threads.lock();
        threads.retain(|thread| thread.strong_count() > 0);
        threads.push(Arc::downgrade(&memory));
        memory
    }

    fn look(&self) -> MemoryUse {
        let mut sum = MemoryUse::default();
        self.input.add_to(&mut sum.input);
        for thread in self.threads.lock().iter().filter_map(Weak::upgrade) {
            thread.uncommitted.add_to(&mut sum.uncommitted);
            thread.caches.add_to(&mut sum.caches);
            thread.output.add_to(&mut sum.output);
        }
        sum
    }
}

impl Instance {
    /// The memory that the instance holds, as far as it is kept within limits: as each stream thread had it after its
    /// last piece of work. The highest figures of threads are summed up, though they may be of different
    /// times; those of a thread that has ended are gone.
    ///
    /// ```no_run
    /// # fn print(instance: &headwater_runtime::Instance) {
    /// let memory = instance.memory();
    /// println!("{} bytes wait to be processed", memory.input.now);
    /// # }
    /// ```
    pub fn memory(&self) -> MemoryUse {
        self.memory.look()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_summed_up_as_long_as_they_run() {
        let memory = InstanceMemory::default();
        let (first, second) = (memory.of_thread(), memory.of_thread());
        first.set(HeldBytes { uncommitted: 5, caches: 1, output: 0 });
        first.set(HeldBytes { uncommitted: 2, caches: 1, output: 0 });
        second.set(HeldBytes { uncommitted: 3, caches: 0, output: 7 });
        memory.input.set(9);
        let bytes = |now, highest| MemoryBytes { now, highest };
        assert_eq!(
            memory.look(),
            MemoryUse {
                input: bytes(9, 9),
                uncommitted: bytes(5, 8),
                caches: bytes(1, 1),
                output: bytes(7, 7),
            }
        );
        drop(first);
        assert_eq!(memory.look().uncommitted, bytes(3, 3));
    }
}
