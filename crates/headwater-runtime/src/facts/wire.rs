//! The messages as they are sent. Numbers of fields are never given out again.

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
    #[prost(string, optional, tag = "16")]
    pub(super) endpoint: Option<String>,
    #[prost(btree_map = "uint32, uint32", tag = "17")]
    pub(super) task_counts: BTreeMap<u32, u32>,
    #[prost(btree_map = "string, uint32", tag = "18")]
    pub(super) source_topics: BTreeMap<String, u32>,
    #[prost(sint64, tag = "19")]
    pub(super) started_ms: i64,
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
    #[prost(message, repeated, tag = "14")]
    pub(super) hosts: Vec<HostShare>,
    #[prost(btree_map = "string, uint32", tag = "15")]
    pub(super) source_topics: BTreeMap<String, u32>,
    #[prost(message, optional, tag = "16")]
    pub(super) made_for: Option<MadeFor>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct MadeFor {
    #[prost(sint64, tag = "1")]
    pub(super) started_ms: i64,
    #[prost(fixed64, tag = "2")]
    pub(super) lasting: u64,
    #[prost(bool, tag = "3")]
    pub(super) is_counted_on: bool,
}

impl From<super::MadeFor> for MadeFor {
    fn from(made_for: super::MadeFor) -> Self {
        let super::MadeFor { started_ms, lasting, is_counted_on } = made_for;
        Self { started_ms, lasting, is_counted_on }
    }
}

impl From<MadeFor> for super::MadeFor {
    fn from(made_for: MadeFor) -> Self {
        let MadeFor { started_ms, lasting, is_counted_on } = made_for;
        Self { started_ms, lasting, is_counted_on }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HostShare {
    #[prost(string, tag = "1")]
    pub(super) endpoint: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) active: Vec<Task>,
    #[prost(message, repeated, tag = "3")]
    pub(super) standby: Vec<Task>,
}

pub(super) fn host((endpoint, share): (&String, &super::HostShare)) -> HostShare {
    let super::HostShare { active, standby } = share;
    HostShare { endpoint: endpoint.clone(), active: tasks(active), standby: tasks(standby) }
}

pub(super) fn hosts(hosts: Vec<HostShare>) -> BTreeMap<String, super::HostShare> {
    let share = |host: HostShare| {
        let (active, standby) = (task_ids(&host.active), task_ids(&host.standby));
        (host.endpoint, super::HostShare { active, standby })
    };
    hosts.into_iter().map(share).collect()
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
    TaskNote { task: Some(task(*id)), reason, behind }
}

pub(super) fn notes(notes: Vec<TaskNote>) -> BTreeMap<TaskId, super::TaskNote> {
    let note = |TaskNote { task, reason, behind }: TaskNote| {
        Some((task_id(&task?), super::TaskNote { reason, behind }))
    };
    notes.into_iter().filter_map(note).collect()
}

impl From<&super::StandingShare> for StandingShare {
    fn from(share: &super::StandingShare) -> Self {
        let warmup = |(id, progress): (&TaskId, &super::WarmupProgress)| Warmup {
            task: Some(task(*id)),
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
            let task = task_id(&warmup.task?);
            let lag = warmup.best_lag.map_or(super::Lag::Unknown, super::Lag::Behind);
            let mut progress = super::WarmupProgress::new(lag);
            progress.rounds_without_progress = warmup.rounds_without_progress;
            Some((task, progress))
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

fn task(id: TaskId) -> Task {
    Task { subtopology: id.subtopology.0, partition: id.partition }
}

fn task_id(task: &Task) -> TaskId {
    TaskId::new(task.subtopology, task.partition)
}

pub(super) fn tasks<'a>(ids: impl IntoIterator<Item = &'a TaskId>) -> Vec<Task> {
    ids.into_iter().copied().map(task).collect()
}

pub(super) fn offset_sums(held: &BTreeMap<TaskId, Option<u64>>) -> Vec<OffsetSum> {
    let known = held.iter().filter_map(|(id, offsets)| Some((id, (*offsets)?)));
    let sum = |(id, offsets): (&TaskId, u64)| OffsetSum { task: Some(task(*id)), offsets };
    known.map(sum).collect()
}

pub(super) fn held(
    with_state: &[Task],
    offset_sums: &[OffsetSum],
) -> BTreeMap<TaskId, Option<u64>> {
    let mut held: BTreeMap<TaskId, Option<u64>> =
        task_ids(with_state).into_iter().map(|task| (task, None)).collect();
    held.extend(
        offset_sums.iter().filter_map(|sum| Some((task_id(sum.task.as_ref()?), Some(sum.offsets)))),
    );
    held
}

pub(super) fn task_ids(tasks: &[Task]) -> BTreeSet<TaskId> {
    tasks.iter().map(task_id).collect()
}
