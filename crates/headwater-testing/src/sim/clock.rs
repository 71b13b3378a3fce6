//! The time of a simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use headwater_broker::Clock;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Wall-clock time at which every simulation begins: some day in 2023.
pub(crate) const START_MS: i64 = 1_700_000_000_000;

/// So often nobody asks for the time at one instant: somebody turns without end, and time, which moves only
/// when everybody waits, stands still.
const ASKED_MAX: u64 = 500_000;

/// The clock of one machine: tokio's paused time, and a wall clock that can jump.
#[derive(Debug)]
pub(crate) struct SimClock {
    start: Instant,
    jumped_ms: AtomicI64,
    /// When it was asked last, in nanoseconds, and how often at that instant.
    asked_ns: AtomicU64,
    asked: AtomicU64,
    /// Rung when time stands still.
    stands_still: Arc<Notify>,
}

impl SimClock {
    /// A clock that begins now.
    pub(crate) fn new(stands_still: Arc<Notify>) -> Self {
        Self {
            start: Instant::now(),
            jumped_ms: AtomicI64::new(0),
            asked_ns: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            stands_still,
        }
    }

    /// The wall clock jumps, forward or back.
    pub(crate) fn jump(&self, ms: i64) {
        self.jumped_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Milliseconds since the beginning.
    pub(crate) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn count(&self, elapsed: Duration) {
        let now_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        if self.asked_ns.swap(now_ns, Ordering::Relaxed) != now_ns {
            self.asked.store(0, Ordering::Relaxed);
        }
        if self.asked.fetch_add(1, Ordering::Relaxed) == ASKED_MAX {
            self.stands_still.notify_one();
        }
    }
}

impl Clock for SimClock {
    fn monotonic(&self) -> Duration {
        let elapsed = self.start.elapsed();
        self.count(elapsed);
        elapsed
    }

    fn wall_ms(&self) -> i64 {
        let elapsed = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        START_MS + elapsed + self.jumped_ms.load(Ordering::Relaxed)
    }
}
