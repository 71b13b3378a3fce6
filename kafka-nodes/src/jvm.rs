//! Nodes as plain JVMs with Kafka's published jars: no container engine is needed.

mod installation;
mod node;

pub use installation::Installation;
pub(crate) use node::JvmNode;
