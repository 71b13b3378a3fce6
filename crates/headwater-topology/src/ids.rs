//! Ids of nodes, sub-topologies and tasks.

use std::fmt;
use std::str::FromStr;

/// Position of a node in its topology: nodes are numbered in the order in which they were added, so
/// every parent has a lower number than its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) usize);

impl NodeId {
    /// The position, for tables with one entry per node.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// Number of a sub-topology. Numbers follow the order in which the first node of each was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct SubtopologyId(pub u32);

impl fmt::Display for SubtopologyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A task: a sub-topology together with a partition number, written `0_3`. Its text is also the
/// name of its state directory (feature row P29).
///
/// Sorts by sub-topology, then by partition, both as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId {
    /// The sub-topology.
    pub subtopology: SubtopologyId,
    /// Number of the partition.
    pub partition: u32,
}

impl TaskId {
    /// The task of this sub-topology and partition.
    pub const fn new(subtopology: u32, partition: u32) -> Self {
        Self { subtopology: SubtopologyId(subtopology), partition }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.subtopology, self.partition)
    }
}

/// A text that is not a task id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseTaskIdError {
    /// The text has another form.
    #[error("{text:?} is not a task id; write SUBTOPOLOGY_PARTITION, such as 0_3")]
    Form {
        /// The text.
        text: String,
    },
    /// A number that is negative or does not fit 32 bits.
    #[error("{number:?} in task id {text:?} is out of range; both numbers are 0 to 4294967295")]
    Range {
        /// The text.
        text: String,
        /// The number.
        number: String,
    },
    /// A task id of a named topology, which Headwater does not have.
    #[error(
        "task id {text:?} belongs to the named topology {topology:?}; named topologies are not supported"
    )]
    NamedTopology {
        /// The text.
        text: String,
        /// The topology's name.
        topology: String,
    },
}

impl FromStr for TaskId {
    type Err = ParseTaskIdError;

    /// # Errors
    /// If the text is anything but two numbers joined by `_`. The original also reads negative
    /// numbers and ids with the name of a topology in front; no running task has either.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || ParseTaskIdError::Form { text: text.to_owned() };
        if let Some((topology, rest)) = text.split_once("__")
            && rest.parse::<Self>().is_ok()
            && topology.parse::<i64>().is_err()
        {
            return Err(ParseTaskIdError::NamedTopology {
                text: text.to_owned(),
                topology: topology.to_owned(),
            });
        }
        let (subtopology, partition) = text.split_once('_').ok_or_else(form)?;
        let number = |digits: &str| {
            let unsigned = digits.strip_prefix('-').unwrap_or(digits);
            if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
                return Err(form());
            }
            digits.parse::<u32>().map_err(|_| ParseTaskIdError::Range {
                text: text.to_owned(),
                number: digits.to_owned(),
            })
        };
        Ok(Self::new(number(subtopology)?, number(partition)?))
    }
}
