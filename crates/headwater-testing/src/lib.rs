//! The topology test driver: stream programs run in a test, without a broker, threads or time.
//!
//! [`TopologyTestDriver`] runs a [`Topology`](headwater_dsl::Topology) with the task code of production, and plays the
//! broker for it. Records are piped into [`TestInputTopic`]s, and what comes out is read from
//! [`TestOutputTopic`]s. Every record is processed to the end, and committed, before a call returns; the wall clock
//! moves only when it is told to. So a test is a plain function whose result does not change from run to run.
//!
//! ```
//! use headwater::prelude::*;
//! use headwater_testing::TopologyTestDriver;
//!
//! let builder = StreamsBuilder::new();
//! builder
//!     .stream("lines", Consumed::with(Utf8, Utf8))
//!     .flat_map_values(|line, out| line.split_whitespace().for_each(|word| out.emit(word.to_owned())))
//!     .group_by(|_, word| word.clone(), Grouped::with(Utf8, Utf8))
//!     .count(Materialized::named("counts"))
//!     .to_stream()
//!     .to("counts", Produced::with(Utf8, Long));
//!
//! let driver = TopologyTestDriver::new(builder.build()?)?;
//! let lines = driver.create_input_topic("lines", Utf8, Utf8);
//! let counts = driver.create_output_topic("counts", Utf8, Long);
//!
//! lines.pipe_input("page 1", "to be or not to be")?;
//! let map = counts.read_key_values_to_map()?;
//! assert_eq!((map["to"], map["be"], map["or"]), (Some(2), Some(2), Some(1)));
//!
//! // The store, as interactive queries see it.
//! let store = driver.key_value_store("counts", Utf8, Long)?;
//! assert_eq!(store.get("not")?, Some(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What else can be tried
//!
//! - **Time**: records carry timestamps, which [`TestInputTopic`] can advance by itself;
//!   [`TopologyTestDriver::advance_wall_clock_time`] moves the wall clock and runs what is due.
//! - **Partitions**: a topic has one unless
//!   [`TopologyTestDriverBuilder::partitions`] says more. Records go to partitions as a Kafka client puts them, and
//!   there are as many tasks as an instance would have.
//! - **Restarts**: [`TopologyTestDriver::restart`] ends tasks, in good order or as a crash does, with or without their
//!   state on disk, and brings them back from changelogs and committed offsets.
//! - **Record caches**: on as in production; they are flushed with each commit. [`Commits`] says when that is.
//! - **One processor alone**: [`MockProcessorContext`] calls it by hand and keeps what it forwards and schedules.
//! - **Stores**: a test reads them, and writes those by key
//!   ([`TopologyTestDriver::writable_key_value_store`]).
//! - **What goes wrong**: an error of a task comes out of the call that caused it;
//!   [`TopologyTestDriver::dropped_records`] counts what was dropped, by node and reason.
//! - **Metrics**: [`RecordedMetrics`] keeps those of the library and of processors.
//!
//! # Differences from Kafka Streams' `TopologyTestDriver`
//!
//! - There, all sub-topologies run as one task, and every topic has one partition. Here there is a task for each
//!   sub-topology and partition, as in an instance; [`Tasks::OnePerApplication`] does as the original.
//! - The wall clock begins at 0, not at today, so that a test cannot depend on the day it runs on;
//!   [`TopologyTestDriverBuilder::initial_wall_clock_time_ms`] sets it.
//! - Restarts are new.

mod builder;
mod driver;
mod error;
mod logs;
mod metrics;
mod mock;
mod produced;
mod record;
mod restart;
pub mod sim;
mod store;
mod topics;

pub use builder::{Commits, Tasks, TopologyTestDriverBuilder};
pub use driver::TopologyTestDriver;
pub use error::TestDriverError;
pub use metrics::RecordedMetrics;
pub use mock::{
    CapturedForward, CapturedPunctuator, MockProcessorContext, MockProcessorContextBuilder,
};
pub use produced::ProducedRecord;
pub use record::TestRecord;
pub use restart::Restart;
pub use store::TestKeyValueStore;
pub use topics::{TestInputTopic, TestOutputTopic};
