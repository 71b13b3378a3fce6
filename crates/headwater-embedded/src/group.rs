//! The group coordinator: Kafka's classic protocol, with its rounds of join and sync, sessions,
//! static members and generations.
//!
//! [`state`] decides, [`coordinator`] lets callers wait for decisions, [`member`] is the client.

mod coordinator;
mod join;
mod member;
mod state;

pub(crate) use coordinator::Coordinator;
pub(crate) use member::EmbeddedMembership;
