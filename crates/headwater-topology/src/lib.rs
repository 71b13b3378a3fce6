//! The graph of a stream processing application.

mod builder;
mod describe;
mod error;
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
pub use error::TopologyError;
pub use ids::{NodeId, ParseTaskIdError, SubtopologyId, TaskId};
pub use internal_topics::{
    InternalTopic, InternalTopicConflict, InternalTopicDefaults, InternalTopicKind,
};
pub use names::{NameCounter, validate_name};
pub use node::{
    Node, NodeKind, OffsetReset, SinkNode, SinkTopic, SourceNode, SourceOptions, Topics,
};
pub use store::{StoreKind, StoreSpec};
pub use task_plan::{TaskPlan, TaskPlanError};
pub use topology::{Changelog, GlobalStore, Store, Subtopology, Topology};
