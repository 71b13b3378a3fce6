//! The graph of a stream processing application: what Kafka Streams calls a topology, without
//! anything that runs.
//!
//! Nodes read topics (**sources**), run user code (**processors**) or write topics (**sinks**). They
//! form a graph without cycles; records flow from parents to children. Processors may use **stores**.
//! From this graph follows everything about an application that has to be decided before the first
//! record: which parts can run apart from each other, how many tasks there are and what each reads,
//! which topics the application needs for itself and how they are configured, and what all of them
//! are called. This crate decides it the way Kafka Streams 4.4 does, to the letter, so that an
//! application can take over the topics and offsets of a Java one.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use headwater_topology::{
//!     InternalTopicProperties, SinkTopic, SourceOptions, StoreKind, StoreSpec, TaskId, Topics,
//!     TopologyBuilder,
//! };
//!
//! let mut builder = TopologyBuilder::new();
//! builder.add_source("lines", Topics::one("lines"), SourceOptions::default())?;
//! builder.add_processor("split", ["lines"])?;
//! builder.add_internal_topic("words-repartition", InternalTopicProperties::default());
//! builder.add_sink("to-words", SinkTopic::named("words-repartition"), ["split"])?;
//! builder.add_source("words", Topics::one("words-repartition"), SourceOptions::default())?;
//! builder.add_processor("count", ["words"])?;
//! builder.add_state_store(StoreSpec::new("counts", StoreKind::TimestampedKeyValue), ["count"])?;
//! builder.add_sink("result", SinkTopic::named("totals"), ["count"])?;
//! let topology = builder.build("word-count")?;
//!
//! assert_eq!(
//!     topology.describe(),
//!     "Topologies:
//!    Sub-topology: 0
//!     Source: lines (topics: [lines])
//!       --> split
//!     Processor: split (stores: [])
//!       --> to-words
//!       <-- lines
//!     Sink: to-words (topic: words-repartition)
//!       <-- split
//!
//!   Sub-topology: 1
//!     Source: words (topics: [words-repartition])
//!       --> count
//!     Processor: count (stores: [counts])
//!       --> result
//!       <-- words
//!     Sink: result (topic: totals)
//!       <-- count
//!
//! "
//! );
//!
//! let existing = BTreeMap::from([("lines".to_owned(), 3)]);
//! let plan = topology.plan_tasks(&existing)?;
//! assert_eq!(plan.tasks.len(), 6);
//! assert_eq!(plan.repartition_topics["word-count-words-repartition"], 3);
//! assert_eq!(plan.changelog_topics["word-count-counts-changelog"], 3);
//! let task: TaskId = "1_2".parse()?;
//! assert!(plan.tasks[&task].contains(&("word-count-words-repartition".to_owned(), 2)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # From builder to tasks
//!
//! 1. [`TopologyBuilder`] takes nodes one by one, parents first, and refuses what cannot be. A call
//!    that fails changes nothing. Topics are named without application id.
//! 2. [`TopologyBuilder::build`] makes the [`Topology`] of one application: immutable, cheap to clone,
//!    shared by all threads. Topics now have their full names: an internal topic's starts with the
//!    application id.
//! 3. [`Topology::with_matched_topics`] gives sources with patterns their topics, again whenever topics
//!    have come or gone.
//! 4. [`Topology::plan_tasks`] counts tasks and partitions, given those of the topics that exist;
//!    [`Topology::internal_topics`] says what to create, [`InternalTopic::config`] how, and
//!    [`InternalTopic::conflicts`] whether what exists will do.
//! 5. [`diff()`] compares two topologies of one application, for those who are about to deploy.
//!    [`Topology::describe_json`] and [`Topology::from_json`] carry a topology to another program.
//!
//! Who builds graphs from operators takes generated names from a [`NameCounter`], checks given ones
//! with [`validate_name`], and notes what it named itself with
//! [`TopologyBuilder::add_generated_names`].
//!
//! # What can be relied on
//!
//! - A **sub-topology** is a connected part of the graph, where two processors that use one store are
//!   connected too. Every node is in exactly one. They are numbered in the order in which their first
//!   nodes were added. So adding a node in front can renumber them, and with them the tasks.
//! - The part that feeds a **global store** is a sub-topology without tasks. It holds one source and
//!   processors, nothing else.
//! - Everything here is a function of what was added, in its order: no clock, no randomness, no order
//!   of hash maps. [`Topology::describe`] follows the order of Java's hash maps by computing it.
//! - The crate knows nothing of bytes, brokers, threads or user code. Serdes, functions and processor
//!   suppliers are attached elsewhere, by [`NodeId`] or by name.
//!
//! # Where it differs from the original
//!
//! - Patterns are regular expressions without look-around and back references ([`Topics::Pattern`]),
//!   and never match the application's own internal topics.
//! - Nodes of tasks below a global store's processor are refused; the original accepts and never runs
//!   them.
//! - Co-partition groups that share a topic are one group, in whatever order they came
//!   ([`Topology::copartition_groups`]), and are checked also where no repartition topic is involved.
//! - Numbers of partitions do not depend on the order in which repartition topics are looked at
//!   ([`Topology::plan_tasks`]).
//! - Named topologies do not exist.

mod builder;
mod describe;
mod diff;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod ids;
mod internal_topics;
mod java_order;
mod names;
mod node;
mod pattern;
mod store;
mod task_plan;
mod topology;
mod union;

pub use builder::{GeneratedNames, InternalTopicProperties, StoreSource, TopologyBuilder};
pub use describe::ReadTopologyError;
pub use diff::{ChangeEffect, TopologyChange, diff};
pub use error::TopologyError;
pub use ids::{NodeId, ParseTaskIdError, SubtopologyId, TaskId};
pub use internal_topics::{
    InternalTopic, InternalTopicConflict, InternalTopicDefaults, InternalTopicKind,
};
pub use java_order::grown_hash_map;
pub use names::{NameCounter, validate_name};
pub use node::{
    Node, NodeKind, OffsetReset, SinkNode, SinkTopic, SourceNode, SourceOptions, Topics,
};
pub use store::{StoreKind, StoreSpec};
pub use task_plan::{TaskPlan, TaskPlanError};
pub use topology::{Changelog, GlobalStore, Store, Subtopology, Topology};
