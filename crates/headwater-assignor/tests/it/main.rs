//! The assignors as their users see them.

mod corpus;
mod expect;
mod scenario;
mod trajectories;
