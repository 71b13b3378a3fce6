//! The graph of a stream processing application.
