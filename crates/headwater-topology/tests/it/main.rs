//! Tests through the public interface.

#[cfg(test)]
mod conformance;
