//! Nodes as plain JVMs with Kafka's published jars: no container engine is needed.

mod installation;
mod maven;
mod node;
mod streams;

pub use installation::Installation;
pub(crate) use node::JvmNode;
pub use streams::streams_class_path;
