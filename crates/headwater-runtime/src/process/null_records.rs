//! Records with a null where an operator has no form for it.

use std::fmt;

use crate::process::DropReason;

/// What happens to a record whose key or value is null where an operator has no form for it: an
/// aggregation without a key, a function of values without a value.
///
/// Kafka Streams has no such setting: it drops and counts these records where it looks at them, and
/// hands null to functions elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NullRecords {
    /// It ends there, and is counted by reason, as in Kafka Streams.
    #[default]
    Drop,
    /// It is a failure of processing: the handler of those decides, told the node and the record.
    Fail,
}

/// Which part of a record is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullPart {
    /// The key.
    Key,
    /// The value.
    Value,
}

impl NullPart {
    pub(crate) fn reason(self) -> DropReason {
        match self {
            Self::Key => DropReason::NullKey,
            Self::Value => DropReason::NullValue,
        }
    }
}

impl fmt::Display for NullPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "key",
            Self::Value => "value",
        })
    }
}

/// A record is null where it must not be, and the settings say to fail
/// ([`NullRecords::Fail`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {part} is null, and this node needs one; filter such records out before it, or set null.records to drop"
)]
#[non_exhaustive]
pub struct NullError {
    /// What is null.
    pub part: NullPart,
}
