//! Tests of the whole, through the facade.

mod conformance;
mod outside;
mod word_count;
