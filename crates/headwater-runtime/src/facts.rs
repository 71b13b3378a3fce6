//! What members of the group tell the leader, and what the leader tells them: protobuf messages in
//! the user data of the group protocol.
//!
//! A newer member may send fields that an older leader does not know: they are ignored. Nobody
//! encodes another member's facts again, so nothing is lost on the way.

mod wire;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use bytes::Bytes;
use headwater_assignor::{Lag, WarmupProgress};
use headwater_topology::TaskId;
use prost::Message as _;
use uuid::Uuid;

use crate::topics_check::SourceTopics;

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
    /// Where it can be asked for what is in its stores (`application.server`), if anywhere.
    pub(crate) endpoint: Option<String>,
    /// How many tasks each sub-topology has in its version of the topology; none: it does not say.
    pub(crate) task_counts: BTreeMap<u32, u32>,
    /// The source topics that it has seen, with their numbers of partitions; none: it does not say.
    pub(crate) source_topics: SourceTopics,
    /// When this process of it began, by its own clock; 0: it does not say.
    pub(crate) started_ms: i64,
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
    /// Who of those that can be asked has which tasks, by endpoint.
    pub(crate) hosts: BTreeMap<String, HostShare>,
    /// The source topics that the tasks follow from, with their numbers of partitions; none: the leader
    /// does not say.
    pub(crate) source_topics: SourceTopics,
    /// For which process of the member it is; none: the leader does not say.
    pub(crate) made_for: Option<MadeFor>,
}

/// For which process of a member a plan is. A static member that is back gets the plan of the one before, which the
/// group goes on with; with this it knows that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MadeFor {
    /// When that process began.
    pub(crate) started_ms: i64,
    /// What it said that the same instance says again after a restart ([`MemberFacts::lasting`]).
    pub(crate) lasting: u64,
    /// The next round was up to it: it had tasks to release, or leads and is to look again.
    pub(crate) is_counted_on: bool,
}

/// What a member that can be asked has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostShare {
    /// The tasks that it runs, or will as soon as their owners have released them.
    pub(crate) active: BTreeSet<TaskId>,
    /// The tasks that it follows for good.
    pub(crate) standby: BTreeSet<TaskId>,
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
            endpoint: self.endpoint.clone(),
            task_counts: self.task_counts.clone(),
            source_topics: self.source_topics.clone(),
            started_ms: self.started_ms,
        };
        message.encode_to_vec().into()
    }

    /// What a restart does not change, as one number, as long as the instance is the same in the same place. The hash may
    /// differ between builds of the standard library; then there is one round more.
    pub(crate) fn lasting(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.process_id, self.capacity, &self.tags, &self.rack).hash(&mut hasher);
        (&self.transactional_ids, &self.endpoint, &self.task_counts).hash(&mut hasher);
        hasher.finish()
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
            endpoint: message.endpoint,
            task_counts: message.task_counts,
            source_topics: message.source_topics,
            started_ms: message.started_ms,
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
            hosts: self.hosts.iter().map(wire::host).collect(),
            source_topics: self.source_topics.clone(),
            made_for: self.made_for.map(Into::into),
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
            hosts: wire::hosts(message.hosts),
            source_topics: message.source_topics,
            made_for: message.made_for.map(Into::into),
        })
    }
}
