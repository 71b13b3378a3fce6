//! A stream thread's work, driven step by step without threads, time or a broker.

mod commit;
mod failures;
mod harness;
mod measured;
mod order;
mod punctuation;
