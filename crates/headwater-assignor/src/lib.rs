//! Task assignment: group state in, plan out.
//!
//! A [`TaskAssignor`] turns an [`ApplicationState`] (tasks, instances, what they hold and how far
//! they are behind) into an [`Assignment`] (what each instance runs and follows, why, and what is
//! being waited for). Everything here is a pure function: no I/O, no clock, no randomness, and no
//! order that depends on hashing.
//!
//! The [`guide`] shows how to write, test and use an assignor of one's own.

#[cfg(test)]
extern crate self as headwater_assignor;

mod assignment;
mod assignor;
mod building;
mod error;
mod explain;
mod flow;
mod handover;
mod heap;
mod high_availability;
mod ids;
mod index;
mod lag;
mod lags;
mod min_movement;
mod moves;
mod outcome;
mod rack;
#[cfg(test)]
#[path = "../tests/it/scenario.rs"]
mod scenario;
mod settings;
#[cfg(test)]
mod stages;
mod standby;
mod state;
mod sticky;
mod threads;
mod traffic;
mod trajectory;
mod validate;

pub use assignment::{
    Assignment, FollowUp, InstanceAssignment, Reason, StandingPlan, Target, Waiting, WarmupProgress,
};
pub use assignor::TaskAssignor;
pub use building::{
    RackOptimisation, default_standbys, identity_assignment, optimise_racks_of_actives,
    optimise_racks_of_standbys,
};
pub use error::{AssignError, Problem};
pub use explain::{
    CopyExplained, Explanation, GroupExplained, Loss, Rates, explain, instance_loss, tag_loss,
};
pub use handover::{HandOver, HandOvers, hand_over};
pub use high_availability::HighAvailability;
pub use ids::{InstanceId, MemberId, ParseTaskIdError, RackId, TaskId, TopicName, TopicPartition};
pub use lag::{Lag, MAX_OFFSET, add_offsets};
pub use min_movement::MinimumMovement;
pub use moves::{CopyKind, Move, moves};
pub use settings::{RackAwareStrategy, Settings};
pub use state::{
    ApplicationState, InstanceInfo, MemberInfo, PartitionRole, TaskInfo, TaskPartition,
};
pub use sticky::{FallbackPrior, LegacySticky, Sticky};
pub use threads::{ThreadRule, ThreadTasks, Threads, assign_threads};
pub use traffic::{CrossRackReads, cross_rack_reads};
pub use trajectory::{Event, Model, Phase, Played, Round, Step, Totals, Trajectory};
pub use validate::{Checked, assign_checked, validate};

#[doc = include_str!("../GUIDE.md")]
pub mod guide {}
