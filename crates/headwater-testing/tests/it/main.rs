//! The test driver, as a test uses it.

mod caches;
mod contexts;
mod failures;
mod global;
mod mocks;
mod partitions;
mod restarts;
mod simulations;
mod tools;
mod topics;
mod wrappers;
