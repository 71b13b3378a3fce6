//! A group as it is seen from outside.

use std::fmt;

use bytes::Bytes;

use crate::{GroupId, MemberId, TopicPartition};

/// Where a group stands, in Kafka's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupState {
    /// Nobody has ever heard of it, or it has been forgotten.
    Dead,
    /// It has no members; it may have committed offsets.
    Empty,
    /// Its members are joining.
    PreparingRebalance,
    /// Its members have joined, and the plan is awaited.
    CompletingRebalance,
    /// Everybody has an assignment.
    Stable,
    /// The broker has a word for it that is not known here.
    Unknown,
}

impl GroupState {
    /// The state in Kafka's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dead => "Dead",
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Unknown => "Unknown",
        }
    }

    /// The state that Kafka has this word for.
    pub fn of_word(word: &str) -> Self {
        let states = [
            Self::Dead,
            Self::Empty,
            Self::PreparingRebalance,
            Self::CompletingRebalance,
            Self::Stable,
        ];
        states.into_iter().find(|state| state.as_str() == word).unwrap_or(Self::Unknown)
    }
}

impl fmt::Display for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A group as its coordinator describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// The group.
    pub group: GroupId,
    /// Where it stands.
    pub state: GroupState,
    /// The name of the protocol that its members speak; empty while it has none.
    pub protocol: String,
    /// Its members, sorted by id.
    pub members: Vec<DescribedMember>,
}

/// A member as its coordinator describes it. What it said and was told is known only while the group
/// is [stable](GroupState::Stable); it is empty otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    /// Its id.
    pub member_id: MemberId,
    /// Its static id.
    pub group_instance_id: Option<String>,
    /// The name that it gave for logs.
    pub client_id: String,
    /// Where it connects from; empty for a member of the same process.
    pub host: String,
    /// The facts it joined with.
    pub facts: Bytes,
    /// What it was told.
    pub assignment: Bytes,
    /// What it reads, if its leader says so for Kafka's tools.
    pub partitions: Vec<TopicPartition>,
}
