//! What members of the group tell the leader, and what the leader tells them: protobuf messages in
//! the user data of the group protocol.
//!
//! A newer member may send fields that an older leader does not know: they are ignored. Nobody
//! encodes another member's facts again, so nothing is lost on the way.

use std::collections::BTreeSet;

use bytes::Bytes;
use headwater_topology::TaskId;
use prost::Message as _;
use uuid::Uuid;

/// What a member says of itself when it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberFacts {
    /// The process, the same over restarts.
    pub(crate) process_id: Uuid,
    /// Its stream threads.
    pub(crate) capacity: u32,
    /// The tasks it runs, or still has to release.
    pub(crate) owned: BTreeSet<TaskId>,
    /// The tasks whose state is in its state directory, owned or not.
    pub(crate) with_state: BTreeSet<TaskId>,
    /// The uncaught-error handler wants the whole application to stop (feature row E5).
    pub(crate) shutdown_requested: bool,
}

/// What the leader tells a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberPlan {
    /// The tasks to run. Those it owns besides are to be released, and the group joined again.
    pub(crate) active: BTreeSet<TaskId>,
    /// The tasks that come as soon as their owners have released them.
    pub(crate) withheld: BTreeSet<TaskId>,
    /// The whole application is to stop.
    pub(crate) shutdown: bool,
}

/// A message of the group that is not one of ours.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot read the {what} of a group member")]
pub(crate) struct FactsError {
    what: &'static str,
    #[source]
    source: Option<prost::DecodeError>,
}

impl MemberFacts {
    pub(crate) fn encode(&self) -> Bytes {
        let message = wire::MemberFacts {
            process_id: self.process_id.into_bytes().to_vec(),
            capacity: self.capacity,
            owned: wire::tasks(&self.owned),
            with_state: wire::tasks(&self.with_state),
            shutdown_requested: self.shutdown_requested,
        };
        message.encode_to_vec().into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FactsError> {
        let what = "facts";
        let message = wire::MemberFacts::decode(bytes)
            .map_err(|source| FactsError { what, source: Some(source) })?;
        Ok(Self {
            process_id: Uuid::from_slice(&message.process_id)
                .map_err(|_| FactsError { what, source: None })?,
            capacity: message.capacity,
            owned: wire::task_ids(&message.owned),
            with_state: wire::task_ids(&message.with_state),
            shutdown_requested: message.shutdown_requested,
        })
    }
}

impl MemberPlan {
    pub(crate) fn encode(&self) -> Bytes {
        let message = wire::MemberPlan {
            active: wire::tasks(&self.active),
            withheld: wire::tasks(&self.withheld),
            shutdown: self.shutdown,
        };
        message.encode_to_vec().into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FactsError> {
        let message = wire::MemberPlan::decode(bytes)
            .map_err(|source| FactsError { what: "assignment", source: Some(source) })?;
        Ok(Self {
            active: wire::task_ids(&message.active),
            withheld: wire::task_ids(&message.withheld),
            shutdown: message.shutdown,
        })
    }
}

/// The messages as they are sent. Numbers of fields are never given out again.
mod wire {
    use std::collections::BTreeSet;

    use headwater_topology::TaskId;

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Task {
        #[prost(uint32, tag = "1")]
        pub(super) subtopology: u32,
        #[prost(uint32, tag = "2")]
        pub(super) partition: u32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct MemberFacts {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) process_id: Vec<u8>,
        #[prost(uint32, tag = "2")]
        pub(super) capacity: u32,
        #[prost(message, repeated, tag = "3")]
        pub(super) owned: Vec<Task>,
        #[prost(message, repeated, tag = "4")]
        pub(super) with_state: Vec<Task>,
        #[prost(bool, tag = "5")]
        pub(super) shutdown_requested: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct MemberPlan {
        #[prost(message, repeated, tag = "1")]
        pub(super) active: Vec<Task>,
        #[prost(message, repeated, tag = "2")]
        pub(super) withheld: Vec<Task>,
        #[prost(bool, tag = "3")]
        pub(super) shutdown: bool,
    }

    pub(super) fn tasks(ids: &BTreeSet<TaskId>) -> Vec<Task> {
        ids.iter()
            .map(|id| Task { subtopology: id.subtopology.0, partition: id.partition })
            .collect()
    }

    pub(super) fn task_ids(tasks: &[Task]) -> BTreeSet<TaskId> {
        tasks.iter().map(|task| TaskId::new(task.subtopology, task.partition)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(partitions: &[u32]) -> BTreeSet<TaskId> {
        partitions.iter().map(|&partition| TaskId::new(1, partition)).collect()
    }

    #[test]
    fn messages_read_back() {
        let facts = MemberFacts {
            process_id: Uuid::from_u128(9),
            capacity: 4,
            owned: tasks(&[0, 300]),
            with_state: tasks(&[2]),
            shutdown_requested: true,
        };
        assert_eq!(MemberFacts::decode(&facts.encode()).unwrap(), facts);
        let plan = MemberPlan { active: tasks(&[7]), withheld: tasks(&[8]), shutdown: true };
        assert_eq!(MemberPlan::decode(&plan.encode()).unwrap(), plan);
    }

    #[test]
    fn fields_of_newer_members_are_ignored() {
        let plan = MemberPlan { active: tasks(&[7]), ..MemberPlan::default() };
        // Field 99, a varint.
        let newer = [&plan.encode()[..], &[0x98, 0x06, 0x01]].concat();
        assert_eq!(MemberPlan::decode(&newer).unwrap(), plan);
    }

    #[test]
    fn garbage_is_an_error() {
        let error = MemberFacts::decode(b"\xff\xff").unwrap_err();
        assert_eq!(error.to_string(), "cannot read the facts of a group member");
        assert!(MemberFacts::decode(b"").is_err(), "a process id is needed");
    }
}
