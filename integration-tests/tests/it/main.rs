//! Tests of the whole, through the facade.

mod app;
mod build_errors;
mod conformance;
mod damaged;
mod exactly_once;
mod fuzz;
mod global;
mod header_stores;
mod joins;
mod logs;
mod metrics;
mod nulls;
mod optimized;
mod outside;
mod patterns;
mod queries;
mod restarts;
mod stores;
mod times;
mod topics;
mod windowed_joins;
mod windows;
mod word_count;
