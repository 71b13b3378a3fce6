//! The facts that an assignor decides on.

use std::collections::{BTreeMap, BTreeSet};

use crate::assignment::StandingPlan;
use crate::ids::{InstanceId, MemberId, RackId, TaskId, TopicPartition};
use crate::lag::Lag;
use crate::settings::Settings;

/// Everything known about an application at one moment: the input of an assignor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApplicationState {
    /// Every task of the topology.
    pub tasks: BTreeMap<TaskId, TaskInfo>,
    /// Every instance in the group.
    pub instances: BTreeMap<InstanceId, InstanceInfo>,
    /// The settings that hold for the whole group.
    pub settings: Settings,
    /// What an assignor that pursues a plan over several rounds wrote down last time, if it is
    /// still known.
    pub standing_plan: Option<StandingPlan>,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskInfo {
    /// Whether the task has at least one store with a changelog.
    pub stateful: bool,
    /// The partitions that it reads and, if it is stateful, its changelogs.
    pub partitions: Vec<TaskPartition>,
    /// Sum of the end offsets of its changelogs, if known.
    pub end_offset: Option<u64>,
    /// How heavy the task is compared with others; 1 if nobody knows better. The assignors of
    /// Kafka Streams take no notice.
    pub weight: u32,
}

impl TaskInfo {
    /// A task with state, no partitions, unknown end and weight 1.
    pub fn stateful() -> Self {
        Self { stateful: true, ..Self::stateless() }
    }

    /// A task without state, no partitions and weight 1.
    pub fn stateless() -> Self {
        Self { stateful: false, partitions: Vec::new(), end_offset: None, weight: 1 }
    }
}

/// A partition that a task reads or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskPartition {
    /// The partition.
    pub id: TopicPartition,
    /// What the task does with it.
    pub role: PartitionRole,
    /// The racks that have a replica of it; empty if unknown.
    pub racks: BTreeSet<RackId>,
}

impl TaskPartition {
    /// A partition whose racks are not known.
    pub fn new(id: TopicPartition, role: PartitionRole) -> Self {
        Self { id, role, racks: BTreeSet::new() }
    }
}

/// What a task does with a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "read, written, or both: there is no fourth")]
pub enum PartitionRole {
    /// Reads its input from it.
    Source,
    /// Logs its state to it.
    Changelog,
    /// Reads its input from it and restores its state from it.
    SourceChangelog,
}

impl PartitionRole {
    /// Whether input is read from it.
    pub fn is_source(self) -> bool {
        matches!(self, Self::Source | Self::SourceChangelog)
    }

    /// Whether state is restored from it.
    pub fn is_changelog(self) -> bool {
        matches!(self, Self::Changelog | Self::SourceChangelog)
    }
}

/// One running process of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InstanceInfo {
    /// How much it can do compared with others: in Kafka Streams its number of stream threads.
    /// 0 takes no work.
    pub capacity: u32,
    /// Its client tags.
    pub tags: BTreeMap<String, String>,
    /// The racks that its consumers reported, one entry each; `None` for a consumer without rack.
    pub racks: Vec<Option<RackId>>,
    /// The tasks that it ran as active in the last round.
    pub previous_active: BTreeSet<TaskId>,
    /// The other tasks that it has state of.
    pub previous_standby: BTreeSet<TaskId>,
    /// How far behind it is on stateful tasks. A task without entry: no state, that is, as far
    /// behind as [`TaskInfo::end_offset`] says.
    pub lags: BTreeMap<TaskId, Lag>,
    /// Its stream threads, if tasks are to be given to threads as well.
    pub members: BTreeMap<MemberId, MemberInfo>,
}

impl Default for InstanceInfo {
    fn default() -> Self {
        Self {
            capacity: 1,
            tags: BTreeMap::new(),
            racks: Vec::new(),
            previous_active: BTreeSet::new(),
            previous_standby: BTreeSet::new(),
            lags: BTreeMap::new(),
            members: BTreeMap::new(),
        }
    }
}

impl InstanceInfo {
    /// An instance of this capacity that has nothing yet.
    pub fn new(capacity: u32) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// The rack of the instance, if all its consumers agree on one.
    pub fn rack(&self) -> Option<&RackId> {
        let first = self.racks.first()?.as_ref()?;
        self.racks.iter().all(|rack| rack.as_ref() == Some(first)).then_some(first)
    }
}

/// One stream thread of an instance, as the group sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberInfo {
    /// The tasks that it ran as active.
    pub previous_active: BTreeSet<TaskId>,
    /// The other tasks that it has state of.
    pub previous_standby: BTreeSet<TaskId>,
    /// The partitions that it still owns under the cooperative protocol.
    pub owned_partitions: BTreeSet<TopicPartition>,
}
