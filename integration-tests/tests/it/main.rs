//! Tests of the whole, through the facade.

mod conformance;
