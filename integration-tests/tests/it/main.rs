//! Tests of the whole, through the facade.

mod app;
mod conformance;
mod nulls;
mod outside;
mod queries;
mod times;
mod word_count;
