//! Harness of the integration tests: a word count in a process of its own, which can be killed, the
//! independent count it is held against, a fleet of instances that come and go, one whole task without threads, time or a broker, and the conformance cases.

mod audit;
mod child;
pub mod conformance;
pub mod damaged;
mod disk;
mod expected;
pub mod fleet;
mod job;
mod one_task;
pub mod operators;
mod text;
mod trial;

pub use audit::Again;
pub use child::{Child, ChildReport, RestoreReport};
pub use disk::disk_bytes;
pub use expected::{Expected, Verdict};
pub use job::{Job, JobOptions, PARTITIONS};
pub use one_task::{OneTask, OneTaskOptions, Work};
pub use text::{real_lines, shipped_lines};
pub use trial::{Trial, TrialOptions, TrialReport};

/// The code in the documents, compiled and run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    mod readme {}
    #[doc = include_str!("../../docs/book/src/first-topology.md")]
    mod first_topology {}
    #[doc = include_str!("../../docs/book/src/serdes.md")]
    mod serdes {}
    #[doc = include_str!("../../docs/book/src/tables-and-streams.md")]
    mod tables_and_streams {}
    #[doc = include_str!("../../docs/book/src/coming-from-java.md")]
    mod coming_from_java {}
    #[doc = include_str!("../../docs/book/src/metrics.md")]
    mod metrics {}
    #[doc = include_str!("../../docs/book/src/describe.md")]
    mod describe {}
    #[doc = include_str!("../../docs/book/src/nulls-and-keys.md")]
    mod nulls_and_keys {}
    #[doc = include_str!("../../docs/book/src/aggregations.md")]
    mod aggregations {}
    #[doc = include_str!("../../docs/book/src/windows.md")]
    mod windows {}
    #[doc = include_str!("../../docs/book/src/event-time.md")]
    mod event_time {}
    #[doc = include_str!("../../docs/book/src/windowed-averages.md")]
    mod windowed_averages {}
    #[doc = include_str!("../../docs/book/src/sessions.md")]
    mod sessions {}
    #[doc = include_str!("../../docs/book/src/orders-and-customers.md")]
    mod orders_and_customers {}
    #[doc = include_str!("../../docs/book/src/foreign-keys.md")]
    mod foreign_keys {}
    #[doc = include_str!("../../docs/book/src/deduplication.md")]
    mod deduplication {}
    #[doc = include_str!("../../docs/book/src/top-n.md")]
    mod top_n {}
    #[doc = include_str!("../../docs/book/src/joins.md")]
    mod joins {}
    #[doc = include_str!("../../docs/book/src/processors.md")]
    mod processors {}
    #[doc = include_str!("../../docs/book/src/failures.md")]
    mod failures {}
    #[doc = include_str!("../../docs/book/src/testing.md")]
    mod testing {}
    #[doc = include_str!("../../docs/book/src/simulation.md")]
    mod simulation {}
    #[doc = include_str!("../../docs/book/src/configuration.md")]
    mod configuration {}
    #[doc = include_str!("../../docs/book/src/kafka.md")]
    mod kafka {}
    #[doc = include_str!("../../docs/book/src/security.md")]
    mod security {}
    #[doc = include_str!("../../docs/book/src/backends.md")]
    mod backends {}
    #[doc = include_str!("../../docs/book/src/queries.md")]
    mod queries {}
    #[doc = include_str!("../../docs/book/src/exactly-once.md")]
    mod exactly_once {}
    #[doc = include_str!("../../docs/book/src/tasks-and-threads.md")]
    mod tasks_and_threads {}
    #[doc = include_str!("../../docs/book/src/static-membership.md")]
    mod static_membership {}
    #[doc = include_str!("../../docs/book/src/capacity.md")]
    mod capacity {}
    #[doc = include_str!("../../docs/book/src/what-happens-when.md")]
    mod what_happens_when {}
    #[doc = include_str!("../../docs/book/src/faults.md")]
    mod faults {}
    #[doc = include_str!("../../docs/book/src/before-going-live.md")]
    mod before_going_live {}
    #[doc = include_str!("../../docs/book/src/standbys.md")]
    mod standbys {}
    #[doc = include_str!("../../docs/book/src/warm-ups.md")]
    mod warm_ups {}
    #[doc = include_str!("../../docs/book/src/rebalancing.md")]
    mod rebalancing {}
    #[doc = include_str!("../../docs/book/src/assignors.md")]
    mod assignors {}
}
