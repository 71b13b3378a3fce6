//! The sled backend through its public border.

mod contract;
mod format;
mod kill;
