//! Tests of the whole, through the facade.

mod app;
mod build_errors;
mod conformance;
mod damaged;
mod exactly_once;
mod fuzz;
mod global;
mod joins;
mod nulls;
mod optimized;
mod outside;
mod patterns;
mod queries;
mod restarts;
mod stores;
mod times;
mod topics;
mod windows;
mod word_count;
