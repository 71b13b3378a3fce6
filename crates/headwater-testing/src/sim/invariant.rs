//! What must hold after every step.

use std::collections::BTreeMap;
use std::fmt;

use headwater_broker::simple::OwnedRecord;
use headwater_runtime::ProcessingGuarantee;

/// A record that was written to an input topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenRecord {
    /// The topic.
    pub topic: String,
    /// Its timestamp in milliseconds since 1970.
    pub timestamp: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
}

/// What can be seen of an application from outside.
#[derive(Debug)]
pub struct Seen<'a> {
    /// What the application promises.
    pub guarantee: ProcessingGuarantee,
    /// Everything that was written to the input topics, in the order in which it was written.
    pub written: &'a [WrittenRecord],
    /// What the output topics hold that is committed, by topic; each partition in the order of its
    /// offsets. What was seen once is seen again, at the same place.
    pub output: &'a BTreeMap<String, Vec<OwnedRecord>>,
    /// An instance that had lost a task without knowing it may have written to the task's changelog after the new owner
    /// had. Only exactly-once keeps it from doing so; without it newer state may be overwritten by older.
    pub is_overwritten: bool,
    /// All input is processed, and that is committed: nothing more will come.
    pub is_at_rest: bool,
}

impl Seen<'_> {
    /// What an output topic holds that is committed; nothing for a topic that is not watched.
    pub fn of(&self, topic: &str) -> &[OwnedRecord] {
        self.output.get(topic).map_or(&[], Vec::as_slice)
    }
}

/// Something that must hold after every step of a simulation.
///
/// One is made for each run, so it may remember what it has seen; looking only at what is new keeps a run fast.
pub trait Invariant: fmt::Debug {
    /// Its name, for whoever reads that it does not hold.
    fn name(&self) -> &str;

    /// Looks whether it holds.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&mut self, seen: &Seen<'_>) -> Result<(), Broken>;
}

/// What is wrong when an invariant does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Broken {
    /// In words.
    pub what: String,
}

impl Broken {
    /// This is wrong.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}
