//! The test driver, as a test uses it.

mod caches;
mod failures;
mod partitions;
mod restarts;
mod tools;
mod topics;
