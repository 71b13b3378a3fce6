//! State store backends, layouts and typed views.
