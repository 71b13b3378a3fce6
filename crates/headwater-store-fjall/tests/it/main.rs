//! The fjall backend through its public border.

mod contract;
mod format;
mod kill;
mod tables;
