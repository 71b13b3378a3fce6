//! What the builder promises beyond the original's cases, which `integration-tests` holds.

mod building;
