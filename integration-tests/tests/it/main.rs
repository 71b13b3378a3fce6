//! Tests of the whole, through the facade.

mod app;
mod conformance;
mod exactly_once;
mod nulls;
mod outside;
mod queries;
mod restarts;
mod stores;
mod times;
mod word_count;
