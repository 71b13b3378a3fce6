//! The embedded broker through its public border.

mod contract;
mod directory;
mod faults;
mod kill;
mod leaders;
mod logs;
mod maintenance;
mod restarts;
mod tools;
mod transactions;
mod transactions_kill;
mod wires;
