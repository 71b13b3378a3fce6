//! Membership of a group by the classic protocol: rounds of join and sync, heartbeats, static
//! members.
//!
//! [`machine`] decides, [`calls`] speaks with the coordinator, [`membership`] is what the engine
//! holds.

mod calls;
mod consumer;
mod describe;
mod machine;
mod membership;

#[cfg(feature = "fuzzing")]
pub(crate) use consumer::{facts_of, read_assignment};
pub(crate) use describe::describe_group;
pub(crate) use membership::KafkaMembership;
