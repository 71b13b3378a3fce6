//! The assignors as their users see them.

mod comparison;
mod corpus;
mod expect;
mod minimum_movement;
mod properties;
mod scenario;
mod trajectories;
