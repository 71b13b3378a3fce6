//! Changelog writing, restore, positions and lag.
