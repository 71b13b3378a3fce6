//! Whole instances on an embedded broker, mostly under paused time and on one thread.

mod assignors;
mod connecting;
mod crashes;
mod damage;
mod epochs;
mod errors;
mod exactly_once;
mod fleet;
mod full;
mod group;
mod harness;
mod hosts;
mod kill;
mod lifecycle;
mod limits;
mod listeners;
mod random;
mod refused;
mod restores;
mod rounds;
mod settings;
mod standbys;
mod topics;
