//! The client against a peer that says what it is told to.

mod cluster;
mod connecting;
mod peer;
mod reading;
