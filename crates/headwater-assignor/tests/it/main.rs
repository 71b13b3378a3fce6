//! The assignors as their users see them.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "helpers of tests; counts are small"
)]

mod building;
mod comparison;
mod corpus;
mod expect;
mod group;
mod minimum_movement;
mod properties;
mod scenario;
mod trajectories;
