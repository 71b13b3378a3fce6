//! Tests that start nodes of their own and disturb them.

mod acls;
mod counting;
mod exactly_once;
mod fleet;
mod groups;
mod limits;
mod nodes;
mod restart;
mod security;
mod sizes;
mod topics;
mod wire;
mod writing;
