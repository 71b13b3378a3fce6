//! The simulator: an application on several instances and a broker, on one thread and in no time, with
//! everything going wrong that a seed can think of.
//!
//! A [`Simulation`] runs the code of production: real [`Instance`](headwater_runtime::Instance)s with stream
//! threads, committers, restores and rebalances, against the embedded broker. Time is tokio's paused time: a
//! schedule of half a minute takes some milliseconds. What an instance asks of the outside passes a
//! *machine*, where requests get lost and disks fill up; a crash is the moment from which nothing that a
//! process does has an effect, whatever it is at. Who runs when, and what goes wrong, follows from the seed and from
//! nothing else, so a seed that fails will fail again.
//!
//! After every step these hold:
//!
//! - what a store holds is never behind its stored position, and never anything that was not committed; at
//!   the end it is what its changelog makes of it. That is so for standbys too;
//! - in each generation of the group a partition is committed by one member only, and no task is processed by two
//!   instances for longer than it takes to find out; seen from outside the group gives no task to two members,
//!   and no copy of it to the one that runs it;
//! - what an instance holds in memory is within its limits;
//! - the broker starts again from what its disk has, whenever it dies;
//! - nobody turns without end: time, which moves only when everybody waits, goes on;
//! - when nothing goes wrong any more, everything gets done within three minutes;
//! - and whatever [`Invariant`]s are added: what the output must be only its author knows.
mod chance;
mod clock;
mod fault;
mod files;
mod ground;
mod invariant;
mod machine;
mod outputs;
mod ports;
mod report;
mod schedule;
mod simulation;
mod stops;
mod stores;
mod story;
mod world;
mod writers;

pub use chance::Chance;
pub use fault::FaultKind;
pub use invariant::{Broken, Invariant, Seen, WrittenRecord};
pub use report::{Report, SimulationError, Summary, Violation};
pub use simulation::{KeyAndValue, Simulation};
