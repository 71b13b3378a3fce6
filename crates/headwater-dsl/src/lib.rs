//! Typed streams and tables.
