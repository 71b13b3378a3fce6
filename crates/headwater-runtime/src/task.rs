//! A task: the part of a sub-topology that works on one partition of each of its inputs.

mod choice;
mod core;
mod input;
mod new_task;
mod offset_metadata;
mod read;
mod run;
mod seal;
mod state;
mod watch;

use std::time::Duration;

pub use choice::{Behind, Choice, InputFacts, MaxTaskIdle, choose};
pub use input::InputStart;
pub(crate) use new_task::open_space;
pub use new_task::{NewTask, StorePlace};
pub use offset_metadata::{OffsetMetadata, UnreadableMetadata};
pub use state::TaskState;
pub use watch::TaskWatch;

pub(crate) use core::TaskCore;
pub(crate) use input::Input;

/// A running task, owned by one stream thread.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) core: TaskCore,
    pub(crate) inputs: Vec<Input>,
    /// Since when it has records, but waits for an input that is at its end.
    idle_since: Option<Duration>,
    /// Kept for its room.
    facts: Vec<InputFacts>,
}

impl Task {
    fn new(core: TaskCore, inputs: Vec<Input>) -> Self {
        let facts = Vec::with_capacity(inputs.len());
        Self { core, inputs, idle_since: None, facts }
    }
}
