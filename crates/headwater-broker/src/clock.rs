//! Time, as the engine and an embedded broker see it.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The one source of time. Everything that needs the time takes it from here or gets it as a
/// value, so a simulator can put its own clock in.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Time since some fixed point; never goes back.
    fn monotonic(&self) -> Duration;

    /// Wall-clock time in milliseconds since 1970; may jump.
    fn wall_ms(&self) -> i64;
}

/// The clock of the operating system.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the one real clock")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one real clock")]
    fn wall_ms(&self) -> i64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}
