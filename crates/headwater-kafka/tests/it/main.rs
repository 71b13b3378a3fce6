//! The client against a peer that says what it is told to.

#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

mod authenticating;
mod cluster;
mod connecting;
mod members;
mod peer;
mod reading;
mod writing;
