//! What the runner says about this run.

use std::sync::atomic::{AtomicU32, Ordering};

use kafka_nodes::Target;

/// Bootstrap servers of the shared Kafka.
pub(crate) fn bootstrap() -> String {
    variable("HEADWATER_BOOTSTRAP")
}

/// How nodes of a test's own are started.
pub(crate) fn nodes() -> Target {
    variable("HEADWATER_NODES").parse().unwrap()
}

/// The class path with Kafka Streams, and what it needs.
pub(crate) fn streams_jars() -> String {
    variable("HEADWATER_STREAMS_JARS")
}

fn variable(name: &str) -> String {
    let value = std::env::var(name);
    value.unwrap_or_else(|_| panic!("{name} is not set: run these tests with `cargo xtask itest`"))
}

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// Small versions of everything.
    Ci,
    /// As large as promised.
    Full,
}

impl Tier {
    pub(crate) fn of_this_run() -> Self {
        match variable("HEADWATER_TIER").as_str() {
            "ci" => Self::Ci,
            "full" => Self::Full,
            other => panic!("HEADWATER_TIER is {other:?}; it is ci or full"),
        }
    }

    /// The size of something in this tier.
    pub(crate) fn pick<T>(self, ci: T, full: T) -> T {
        match self {
            Self::Ci => ci,
            Self::Full => full,
        }
    }
}

/// A name that no other test and no earlier run has used.
pub(crate) fn unique(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // The process id comes again some day; a Kafka that runs for long remembers.
    format!("{name}-{count}-{}", uuid::Uuid::new_v4().simple())
}
