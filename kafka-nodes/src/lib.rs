//! Starts, disturbs and stops real Apache Kafka nodes, for tests and benches.
//!
//! A [`Target`] says what a node runs as: a JVM with Kafka's published jars ([`Installation`]), or a
//! container ([`Engine`] and image). A [`Cluster`] is one or three such nodes on free ports of this
//! machine. It is ready when every node answers and names all the others; what it says is never
//! taken from a log line. Dropping a cluster kills its nodes, and so does the death of this process,
//! whatever ended it.
//!
//! ```no_run
//! use kafka_nodes::{Cluster, ClusterOptions, Installation, Target};
//!
//! let jars = Installation::fetch("target/kafka".as_ref(), "4.4.0")?;
//! let mut cluster = Cluster::start(&Target::Jvm(jars), &ClusterOptions::nodes(3))?;
//! println!("bootstrap servers: {}", cluster.bootstrap());
//! cluster.kill(1)?;
//! cluster.restart(1)?;
//! # Ok::<(), kafka_nodes::NodesError>(())
//! ```
//!
//! Nothing of Headwater is used here, so that no mistake of its client can hide itself.

mod cluster;
mod command;
mod container;
mod error;
mod guard;
mod jvm;
mod ports;
mod probe;
mod settings;
mod target;
mod wait;

pub use cluster::{Cluster, ClusterOptions};
pub use container::{Engine, build_image};
pub use error::NodesError;
pub use jvm::{Installation, streams_class_path};
pub use ports::free_ports;
pub use probe::{NodeAddress, answers_api_versions, knows_topic, nodes_named_by};
pub use target::Target;
