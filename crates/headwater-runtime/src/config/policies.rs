//! What a configuration file can say about bad records.

/// What to do with a record that cannot be read, processed or written (feature rows E2 to E4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadRecord {
    /// The task fails; what happens then is up to the uncaught-error handler.
    #[default]
    Fail,
    /// The record is dropped and counted, and the task goes on.
    Continue,
    /// The record goes to the dead-letter topic with its origin in headers, is counted, and the
    /// task goes on (KIP-1034).
    DeadLetter,
}
