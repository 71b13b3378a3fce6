//! What members of the group tell the leader, and what the leader tells them: protobuf messages in
//! the user data of the group protocol.
//!
//! A newer member may send fields that an older leader does not know: they are ignored. Nobody
//! encodes another member's facts again, so nothing is lost on the way.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use headwater_assignor::{Lag, WarmupProgress};
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
    /// Of these, the ones whose state is complete: they run.
    pub(crate) running: BTreeSet<TaskId>,
    /// The tasks that it has state of, owned or not, with the sum of the offsets up to which it
    /// holds their changelogs; `None`: nobody has looked since an unclean stop.
    pub(crate) held: BTreeMap<TaskId, Option<u64>>,
    /// Its labels (`client.tag.*`).
    pub(crate) tags: BTreeMap<String, String>,
    /// Where it is (`client.rack`).
    pub(crate) rack: Option<String>,
    /// Its share of the newest plan it knows, for the assignor that pursues it.
    pub(crate) standing: Option<StandingShare>,
    /// How long ago it got that, in milliseconds: too short a time says nothing about progress.
    pub(crate) standing_age_ms: u64,
    /// How often it has asked for a round of its own accord: facts that are otherwise the same start
    /// none.
    pub(crate) rejoins: u64,
    /// The uncaught-error handler wants the whole application to stop (feature row E5).
    pub(crate) shutdown_requested: bool,
    /// The transactional ids it writes under; none under at-least-once.
    pub(crate) transactional_ids: BTreeSet<String>,
    /// Those it knows of: of the members it was last told of, and of those that are gone whose
    /// transactions it has not ended yet.
    pub(crate) known_transactional_ids: BTreeSet<String>,
    /// It is being closed and hands its tasks over: it goes on with them until others are ready for
    /// them, and gets none.
    pub(crate) leaving: bool,
}

/// What the leader tells a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberPlan {
    /// The tasks to run. Those it owns besides are to be released, and the group joined again.
    pub(crate) active: BTreeSet<TaskId>,
    /// The tasks to follow for good.
    pub(crate) standby: BTreeSet<TaskId>,
    /// The tasks to follow in order to take them over later.
    pub(crate) warmup: BTreeSet<TaskId>,
    /// Of all it follows, those that the group waits for: when one has caught up, or does not get
    /// on, the group is to be joined again.
    pub(crate) waited_for: BTreeSet<TaskId>,
    /// The tasks that come as soon as their owners have released them.
    pub(crate) withheld: BTreeSet<TaskId>,
    /// A task of somebody is withheld: the next round comes soon, and is heard of by heartbeat.
    pub(crate) round_follows: bool,
    /// Its share of what the assignor wants to be told next time.
    pub(crate) standing: Option<StandingShare>,
    /// The whole application is to stop.
    pub(crate) shutdown: bool,
    /// The transactional ids of all members, to be brought along the next time: so whoever leads
    /// then learns which are gone.
    pub(crate) transactional_ids: BTreeSet<String>,
    /// Those of members that are gone. Their transactions are to be ended before a task begins here,
    /// so that nobody waits for their time-outs.
    pub(crate) to_fence: BTreeSet<String>,
    /// How many members stay in the group.
    pub(crate) members: u32,
    /// The generation for which it is.
    pub(crate) generation: i32,
    /// What the leader knew of tasks that it gives: for whoever looks at the group from outside.
    pub(crate) notes: BTreeMap<TaskId, TaskNote>,
}

/// What the leader knew of a task when it planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskNote {
    /// Why it is there, if it has come anew, in one word.
    pub(crate) reason: Option<String>,
    /// How many offsets of its changelogs the copy had still to read.
    pub(crate) behind: Option<u64>,
}

/// What one member keeps of the plan that the assignor pursues over several rounds. Every member
/// keeps its own part and brings it along, so the plan outlives the leader that made it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StandingShare {
    /// The generation of the group in which the plan was made; the newest counts.
    pub(crate) generation: i32,
    /// Fingerprint of what the target was made for.
    pub(crate) made_for: u64,
    /// The tasks that are to run here in the end.
    pub(crate) active: BTreeSet<TaskId>,
    /// The tasks whose state is to be followed here in the end.
    pub(crate) standby: BTreeSet<TaskId>,
    /// How the warm-ups here are getting on.
    pub(crate) warmups: BTreeMap<TaskId, WarmupProgress>,
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
            with_state: wire::tasks(self.held.keys()),
            shutdown_requested: self.shutdown_requested,
            tags: self.tags.clone(),
            rack: self.rack.clone(),
            standing: self.standing.as_ref().map(wire::StandingShare::from),
            transactional_ids: self.transactional_ids.iter().cloned().collect(),
            known_transactional_ids: self.known_transactional_ids.iter().cloned().collect(),
            running: wire::tasks(&self.running),
            offset_sums: wire::offset_sums(&self.held),
            standing_age_ms: self.standing_age_ms,
            rejoins: self.rejoins,
            leaving: self.leaving,
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
            running: wire::task_ids(&message.running),
            held: wire::held(&message.with_state, &message.offset_sums),
            tags: message.tags,
            rack: message.rack,
            standing: message.standing.map(Into::into),
            standing_age_ms: message.standing_age_ms,
            rejoins: message.rejoins,
            shutdown_requested: message.shutdown_requested,
            transactional_ids: message.transactional_ids.into_iter().collect(),
            known_transactional_ids: message.known_transactional_ids.into_iter().collect(),
            leaving: message.leaving,
        })
    }
}

impl MemberPlan {
    pub(crate) fn encode(&self) -> Bytes {
        let message = wire::MemberPlan {
            active: wire::tasks(&self.active),
            standby: wire::tasks(&self.standby),
            warmup: wire::tasks(&self.warmup),
            waited_for: wire::tasks(&self.waited_for),
            withheld: wire::tasks(&self.withheld),
            round_follows: self.round_follows,
            shutdown: self.shutdown,
            standing: self.standing.as_ref().map(wire::StandingShare::from),
            transactional_ids: self.transactional_ids.iter().cloned().collect(),
            to_fence: self.to_fence.iter().cloned().collect(),
            members: self.members,
            generation: self.generation,
            notes: self.notes.iter().map(wire::note).collect(),
        };
        message.encode_to_vec().into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FactsError> {
        let message = wire::MemberPlan::decode(bytes)
            .map_err(|source| FactsError { what: "assignment", source: Some(source) })?;
        Ok(Self {
            active: wire::task_ids(&message.active),
            standby: wire::task_ids(&message.standby),
            warmup: wire::task_ids(&message.warmup),
            waited_for: wire::task_ids(&message.waited_for),
            withheld: wire::task_ids(&message.withheld),
            round_follows: message.round_follows,
            standing: message.standing.map(Into::into),
            shutdown: message.shutdown,
            transactional_ids: message.transactional_ids.into_iter().collect(),
            to_fence: message.to_fence.into_iter().collect(),
            members: message.members,
            generation: message.generation,
            notes: wire::notes(message.notes),
        })
    }
}

/// The messages as they are sent. Numbers of fields are never given out again.
mod wire {
    use std::collections::{BTreeMap, BTreeSet};

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
        #[prost(btree_map = "string, string", tag = "6")]
        pub(super) tags: BTreeMap<String, String>,
        #[prost(message, optional, tag = "7")]
        pub(super) standing: Option<StandingShare>,
        #[prost(string, optional, tag = "8")]
        pub(super) rack: Option<String>,
        #[prost(string, repeated, tag = "9")]
        pub(super) transactional_ids: Vec<String>,
        #[prost(string, repeated, tag = "10")]
        pub(super) known_transactional_ids: Vec<String>,
        #[prost(message, repeated, tag = "11")]
        pub(super) running: Vec<Task>,
        #[prost(message, repeated, tag = "12")]
        pub(super) offset_sums: Vec<OffsetSum>,
        #[prost(uint64, tag = "13")]
        pub(super) standing_age_ms: u64,
        #[prost(uint64, tag = "14")]
        pub(super) rejoins: u64,
        #[prost(bool, tag = "15")]
        pub(super) leaving: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct OffsetSum {
        #[prost(message, optional, tag = "1")]
        pub(super) task: Option<Task>,
        #[prost(uint64, tag = "2")]
        pub(super) offsets: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct StandingShare {
        #[prost(int32, tag = "1")]
        pub(super) generation: i32,
        #[prost(fixed64, tag = "2")]
        pub(super) made_for: u64,
        #[prost(message, repeated, tag = "3")]
        pub(super) active: Vec<Task>,
        #[prost(message, repeated, tag = "4")]
        pub(super) standby: Vec<Task>,
        #[prost(message, repeated, tag = "5")]
        pub(super) warmups: Vec<Warmup>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Warmup {
        #[prost(message, optional, tag = "1")]
        pub(super) task: Option<Task>,
        /// Offsets; none if nobody knows.
        #[prost(uint64, optional, tag = "2")]
        pub(super) best_lag: Option<u64>,
        #[prost(uint32, tag = "3")]
        pub(super) rounds_without_progress: u32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct MemberPlan {
        #[prost(message, repeated, tag = "1")]
        pub(super) active: Vec<Task>,
        #[prost(message, repeated, tag = "2")]
        pub(super) withheld: Vec<Task>,
        #[prost(bool, tag = "3")]
        pub(super) shutdown: bool,
        #[prost(message, optional, tag = "4")]
        pub(super) standing: Option<StandingShare>,
        #[prost(bool, tag = "5")]
        pub(super) round_follows: bool,
        #[prost(string, repeated, tag = "6")]
        pub(super) transactional_ids: Vec<String>,
        #[prost(string, repeated, tag = "7")]
        pub(super) to_fence: Vec<String>,
        #[prost(message, repeated, tag = "8")]
        pub(super) standby: Vec<Task>,
        #[prost(message, repeated, tag = "9")]
        pub(super) warmup: Vec<Task>,
        #[prost(message, repeated, tag = "10")]
        pub(super) waited_for: Vec<Task>,
        #[prost(uint32, tag = "11")]
        pub(super) members: u32,
        #[prost(int32, tag = "12")]
        pub(super) generation: i32,
        #[prost(message, repeated, tag = "13")]
        pub(super) notes: Vec<TaskNote>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct TaskNote {
        #[prost(message, optional, tag = "1")]
        pub(super) task: Option<Task>,
        #[prost(string, optional, tag = "2")]
        pub(super) reason: Option<String>,
        #[prost(uint64, optional, tag = "3")]
        pub(super) behind: Option<u64>,
    }

    pub(super) fn note((id, note): (&TaskId, &super::TaskNote)) -> TaskNote {
        let super::TaskNote { reason, behind } = note.clone();
        TaskNote { task: tasks([id]).pop(), reason, behind }
    }

    pub(super) fn notes(notes: Vec<TaskNote>) -> BTreeMap<TaskId, super::TaskNote> {
        let note = |TaskNote { task, reason, behind }| {
            let task: Task = task?;
            let id = TaskId::new(task.subtopology, task.partition);
            Some((id, super::TaskNote { reason, behind }))
        };
        notes.into_iter().filter_map(note).collect()
    }

    impl From<&super::StandingShare> for StandingShare {
        fn from(share: &super::StandingShare) -> Self {
            let warmup = |(task, progress): (&TaskId, &super::WarmupProgress)| Warmup {
                task: tasks([task]).pop(),
                best_lag: progress.best_lag.to_restore(),
                rounds_without_progress: progress.rounds_without_progress,
            };
            Self {
                generation: share.generation,
                made_for: share.made_for,
                active: tasks(&share.active),
                standby: tasks(&share.standby),
                warmups: share.warmups.iter().map(warmup).collect(),
            }
        }
    }

    impl From<StandingShare> for super::StandingShare {
        fn from(message: StandingShare) -> Self {
            let warmup = |warmup: Warmup| {
                let task = warmup.task?;
                let lag = warmup.best_lag.map_or(super::Lag::Unknown, super::Lag::Behind);
                let mut progress = super::WarmupProgress::new(lag);
                progress.rounds_without_progress = warmup.rounds_without_progress;
                Some((TaskId::new(task.subtopology, task.partition), progress))
            };
            Self {
                generation: message.generation,
                made_for: message.made_for,
                active: task_ids(&message.active),
                standby: task_ids(&message.standby),
                warmups: message.warmups.into_iter().filter_map(warmup).collect(),
            }
        }
    }

    pub(super) fn tasks<'a>(ids: impl IntoIterator<Item = &'a TaskId>) -> Vec<Task> {
        let task = |id: &TaskId| Task { subtopology: id.subtopology.0, partition: id.partition };
        ids.into_iter().map(task).collect()
    }

    pub(super) fn offset_sums(held: &BTreeMap<TaskId, Option<u64>>) -> Vec<OffsetSum> {
        let known = held.iter().filter_map(|(id, offsets)| Some((id, (*offsets)?)));
        let sum = |(id, offsets)| OffsetSum { task: tasks([id]).pop(), offsets };
        known.map(sum).collect()
    }

    pub(super) fn held(
        with_state: &[Task],
        offset_sums: &[OffsetSum],
    ) -> BTreeMap<TaskId, Option<u64>> {
        let mut held: BTreeMap<TaskId, Option<u64>> =
            task_ids(with_state).into_iter().map(|task| (task, None)).collect();
        held.extend(offset_sums.iter().filter_map(|sum| {
            let task = sum.task.as_ref()?;
            Some((TaskId::new(task.subtopology, task.partition), Some(sum.offsets)))
        }));
        held
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

    fn standing() -> StandingShare {
        let mut slow = WarmupProgress::new(Lag::Behind(5));
        slow.rounds_without_progress = 2;
        let unknown = WarmupProgress::new(Lag::Unknown);
        StandingShare {
            generation: 3,
            made_for: u64::MAX,
            active: tasks(&[0, 1]),
            standby: tasks(&[2]),
            warmups: [(TaskId::new(1, 0), slow), (TaskId::new(1, 1), unknown)].into(),
        }
    }

    fn ids(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn messages_read_back() {
        let facts = MemberFacts {
            process_id: Uuid::from_u128(9),
            capacity: 4,
            owned: tasks(&[0, 300]),
            running: tasks(&[0]),
            held: [(TaskId::new(1, 2), None), (TaskId::new(1, 3), Some(u64::MAX))].into(),
            tags: [("zone".to_owned(), "eu-1".to_owned())].into(),
            rack: Some("eu-1a".to_owned()),
            standing: Some(standing()),
            standing_age_ms: 77,
            rejoins: 3,
            shutdown_requested: true,
            transactional_ids: ids(&["app-1"]),
            known_transactional_ids: ids(&["app-1", "app-2"]),
            leaving: true,
        };
        assert_eq!(MemberFacts::decode(&facts.encode()).unwrap(), facts);
        let plan = MemberPlan {
            active: tasks(&[7]),
            standby: tasks(&[9]),
            warmup: tasks(&[10]),
            waited_for: tasks(&[9, 10]),
            withheld: tasks(&[8]),
            round_follows: true,
            standing: Some(standing()),
            shutdown: true,
            transactional_ids: ids(&["app-1"]),
            to_fence: ids(&["app-2"]),
            members: 5,
            generation: 9,
            notes: [
                (TaskId::new(1, 7), TaskNote { reason: Some("balance".to_owned()), behind: None }),
                (TaskId::new(1, 9), TaskNote { reason: None, behind: Some(0) }),
            ]
            .into(),
        };
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
