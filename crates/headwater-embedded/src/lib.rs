//! A broker inside the process, in memory or in a directory.

mod broker;
mod catalog;
mod config;
mod directory;
mod error;
mod faults;
mod frame;
mod group;
mod journal;
mod log;
mod maintenance;
mod offsets;
mod options;
mod partition;
mod producers;
mod reader;
mod segment;
mod storage;
mod topics;
mod writer;

pub use broker::Embedded;
pub use error::OpenError;
pub use faults::{CallKind, Fault, FaultPlan, Target};
pub use maintenance::Maintained;
pub use options::EmbeddedOptions;
