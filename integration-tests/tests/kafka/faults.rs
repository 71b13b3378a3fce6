//! Tests that start nodes of their own and disturb them.

mod nodes;
mod writing;
