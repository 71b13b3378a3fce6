//! Tests that start nodes of their own and disturb them.

mod counting;
mod nodes;
mod writing;
