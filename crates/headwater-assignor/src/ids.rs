//! The names of things: tasks, instances, members, racks, partitions.
//!
//! Every tie in every assignor is broken by these orders, so they are part of the behaviour.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A task: a sub-topology together with a partition number, written `0_3`.
///
/// Sorts by sub-topology, then by partition, both as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::exhaustive_structs, reason = "a pair of numbers, for good")]
pub struct TaskId {
    /// Number of the sub-topology.
    pub subtopology: u32,
    /// Number of the partition.
    pub partition: u32,
}

impl TaskId {
    /// The task of this sub-topology and partition.
    pub const fn new(subtopology: u32, partition: u32) -> Self {
        Self { subtopology, partition }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.subtopology, self.partition)
    }
}

/// A text is not a task id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a task id; write SUBTOPOLOGY_PARTITION, such as 0_3")]
#[non_exhaustive]
pub struct ParseTaskIdError {
    /// The text that was read.
    pub text: String,
}

impl FromStr for TaskId {
    type Err = ParseTaskIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |digits: &str| {
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
        };
        text.split_once('_')
            .and_then(|(subtopology, partition)| {
                Some(Self { subtopology: number(subtopology)?, partition: number(partition)? })
            })
            .ok_or_else(|| ParseTaskIdError { text: text.to_owned() })
    }
}

/// An instance: one running process of the application.
///
/// Sorts by the text before the trailing digits, then by these digits as a number, so that `p2`
/// comes before `p10`; what is still equal sorts as plain text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct InstanceId {
    text: Arc<str>,
    digits_at: u32,
}

impl InstanceId {
    /// The instance of this name.
    ///
    /// # Panics
    /// If the name is longer than 4 GiB.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
        let digits_at = u32::try_from(text.len() - digits).expect("an id is shorter than 4 GiB");
        Self { text, digits_at }
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn split(&self) -> (&str, &str) {
        self.text.split_at(self.digits_at as usize)
    }
}

impl Ord for InstanceId {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((text, digits), (other_text, other_digits)) = (self.split(), other.split());
        let number = digits.trim_start_matches('0');
        let other_number = other_digits.trim_start_matches('0');
        text.cmp(other_text)
            .then_with(|| number.len().cmp(&other_number.len()))
            .then_with(|| number.cmp(other_number))
            .then_with(|| self.text.cmp(&other.text))
    }
}

impl PartialOrd for InstanceId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl From<&str> for InstanceId {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The id of this name.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The name as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }
    };
}

text_id! {
    /// A member of the group: one stream thread as the group protocol sees it. Sorts as plain text.
    MemberId
}

text_id! {
    /// A failure domain of brokers and instances, such as an availability zone. Sorts as plain text.
    RackId
}

text_id! {
    /// A topic name. Sorts as plain text.
    TopicName
}

/// One partition of a topic, written `topic-3`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::exhaustive_structs, reason = "a name and a number, for good")]
pub struct TopicPartition {
    /// The topic.
    pub topic: TopicName,
    /// Number of the partition.
    pub partition: u32,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_sort_by_text_then_number() {
        let mut ids: Vec<InstanceId> =
            ["p10", "q1", "p2", "p", "p02", "p18446744073709551616", "7", "10", "p1x"]
                .map(InstanceId::from)
                .to_vec();
        ids.sort();
        let text: Vec<&str> = ids.iter().map(InstanceId::as_str).collect();
        assert_eq!(
            text,
            ["7", "10", "p", "p02", "p2", "p10", "p18446744073709551616", "p1x", "q1"]
        );
    }

    #[test]
    fn task_ids_read_back_what_they_print() {
        for text in ["0_0", "12_345", "4294967295_0"] {
            assert_eq!(text.parse::<TaskId>().unwrap().to_string(), text);
        }
        for text in
            ["", "_", "1", "1_", "_1", "+1_2", "1_2_3", "a_b", "4294967296_0", "-1_0", "1_ 2"]
        {
            assert_eq!(text.parse::<TaskId>().unwrap_err().text, text);
        }
    }
}
