//! The group of an application as it is seen from outside: who runs and follows what, why, how far
//! each input is behind, and what is waited for.

use std::collections::{BTreeMap, BTreeSet};

use headwater_broker::{
    Broker, BrokerError, DescribedMember, GroupDescription, GroupId, GroupState, Isolation,
    ListedOffset, OffsetQuery, OffsetSpec, TopicPartition,
};
use headwater_topology::TaskId;
use uuid::Uuid;

use crate::facts::{MemberFacts, MemberPlan, TaskNote};

/// What a member does with a task, or is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TaskDuty {
    /// It runs it.
    Active,
    /// It gets it as soon as its owner has released it.
    Withheld,
    /// It follows its changelogs, to take over when the active one fails.
    Standby,
    /// It follows its changelogs, to take over when it has caught up.
    WarmUp,
}

impl TaskDuty {
    /// The duty in a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Withheld => "withheld",
            Self::Standby => "standby",
            Self::WarmUp => "warm-up",
        }
    }
}

/// A task of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskView {
    /// The task.
    pub task: TaskId,
    /// What the member does with it.
    pub duty: TaskDuty,
    /// Why it came with the newest plan, in the assignor's word; `None`: it was there before.
    pub reason: Option<String>,
    /// How many offsets of its changelogs the copy had still to read when the plan was made; `None`:
    /// it was there before, or nobody knew.
    pub behind: Option<u64>,
    /// The group waits until this copy has caught up.
    pub is_waited_for: bool,
    /// Of a withheld task: the member that has not released it yet.
    pub owner: Option<String>,
}

/// A member of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberView {
    /// Its id.
    pub member_id: String,
    /// Its static id.
    pub group_instance_id: Option<String>,
    /// The name that it gave for logs.
    pub client_id: String,
    /// Where it connects from.
    pub host: String,
    /// Its process, the same over restarts; `None` when its facts cannot be seen: while the group
    /// rebalances, or when it is not one of ours.
    pub process_id: Option<Uuid>,
    /// Its stream threads.
    pub threads: u32,
    /// Its rack.
    pub rack: Option<String>,
    /// Its labels.
    pub tags: BTreeMap<String, String>,
    /// It is being closed, and hands its tasks over.
    pub is_leaving: bool,
    /// Its tasks, in order.
    pub tasks: Vec<TaskView>,
    /// How many records of each of its inputs are not committed yet; `None`: not known.
    pub input_lags: BTreeMap<TopicPartition, Option<u64>>,
}

/// The group of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupView {
    /// The application.
    pub application_id: String,
    /// Where its group stands.
    pub state: GroupState,
    /// The protocol that its members speak.
    pub protocol: String,
    /// The generation of the newest plan; `None` while no member's plan can be seen.
    pub generation: Option<i32>,
    /// Its members, in order of their ids.
    pub members: Vec<MemberView>,
}

/// Looks at the group of an application.
///
/// What members say and are told is known only while the group is stable. Inputs are as of now; how
/// far copies are behind is as of the newest plan, since copies tell it to the group when they join.
///
/// ```no_run
/// # async fn look(broker: &dyn headwater_broker::Broker) -> Result<(), headwater_broker::BrokerError> {
/// use headwater_runtime::view_group;
///
/// let view = view_group(broker, "word-count").await?;
/// for waiting in view.waiting_for() {
///     println!("{waiting}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the broker cannot be asked.
pub async fn view_group(
    broker: &dyn Broker,
    application_id: &str,
) -> Result<GroupView, BrokerError> {
    let group = GroupId::from(application_id);
    let described = broker.describe_group(&group).await?;
    let partitions: BTreeSet<TopicPartition> =
        described.members.iter().flat_map(|member| member.partitions.iter().cloned()).collect();
    let partitions: Vec<TopicPartition> = partitions.into_iter().collect();
    let lags = if partitions.is_empty() {
        BTreeMap::new()
    } else {
        input_lags(broker, &group, partitions).await?
    };
    Ok(GroupView::of(&described, &lags))
}

async fn input_lags(
    broker: &dyn Broker,
    group: &GroupId,
    partitions: Vec<TopicPartition>,
) -> Result<BTreeMap<TopicPartition, u64>, BrokerError> {
    let queries = |spec| {
        let query = |at: &TopicPartition| OffsetQuery { topic_partition: at.clone(), spec };
        partitions.iter().map(query).collect::<Vec<_>>()
    };
    let committed = broker.committed_offsets(group, &partitions, false).await?;
    let isolation = Isolation::ReadUncommitted;
    let starts = broker.list_offsets(&queries(OffsetSpec::Earliest), isolation).await?;
    let ends = broker.list_offsets(&queries(OffsetSpec::Latest), isolation).await?;
    let mut lags = BTreeMap::new();
    let offset = |listed: Option<ListedOffset>| listed.map(|listed| listed.offset);
    for (index, partition) in partitions.into_iter().enumerate() {
        let committed = committed[index].as_ref().map(|committed| committed.offset);
        let from = committed.or_else(|| offset(starts[index]));
        if let (Some(from), Some(end)) = (from, offset(ends[index])) {
            lags.insert(partition, u64::try_from(end - from).unwrap_or(0));
        }
    }
    Ok(lags)
}

impl GroupView {
    fn of(described: &GroupDescription, lags: &BTreeMap<TopicPartition, u64>) -> Self {
        let known: Vec<(&DescribedMember, Option<Told>)> =
            described.members.iter().map(|member| (member, read(member))).collect();
        let owner = |task: TaskId| {
            let mut owners = known.iter().filter(|(_, read)| {
                read.as_ref().is_some_and(|(facts, _)| facts.owned.contains(&task))
            });
            owners.next().map(|(member, _)| member.member_id.as_str().to_owned())
        };
        let members = known.iter().map(|(member, read)| view(member, read.as_ref(), lags, &owner));
        let generations = known.iter().filter_map(|(_, read)| Some(read.as_ref()?.1.generation));
        Self {
            application_id: described.group.to_string(),
            state: described.state,
            protocol: described.protocol.clone(),
            generation: generations.max(),
            members: members.collect(),
        }
    }

    /// What the group waits for, one thing a line: tasks that their owners have not released, copies
    /// that have not caught up, members that join.
    pub fn waiting_for(&self) -> Vec<String> {
        let mut waiting = Vec::new();
        match self.state {
            GroupState::PreparingRebalance => {
                let why = "each hears of it by its next heartbeat; one that is silent is waited for until its session is over";
                waiting.push(format!("members have to join: {why}"));
            }
            GroupState::CompletingRebalance => {
                waiting.push("the leader has to give its plan".to_owned());
            }
            _ => {}
        }
        for member in &self.members {
            let id = &member.member_id;
            for view in &member.tasks {
                let TaskView { task, duty, behind, is_waited_for, owner, .. } = view;
                if *duty == TaskDuty::Withheld {
                    let owner = owner.as_deref().unwrap_or("its owner");
                    waiting.push(format!("{task} goes to {id} when {owner} has released it"));
                } else if *is_waited_for {
                    let was = behind.map(|behind| format!("; it was {behind} offsets behind"));
                    let was = was.unwrap_or_default();
                    waiting.push(format!("{task} goes to {id} when it has caught up{was}"));
                }
            }
            if member.is_leaving {
                waiting.push(format!("{id} is being closed"));
            }
        }
        waiting
    }
}

/// What a member said, and what it was told.
type Told = (MemberFacts, MemberPlan);

/// What a member said and was told, if that can be seen and is ours.
fn read(member: &DescribedMember) -> Option<Told> {
    let facts = MemberFacts::decode(&member.facts).ok()?;
    let plan = MemberPlan::decode(&member.assignment).ok()?;
    Some((facts, plan))
}

fn view(
    member: &DescribedMember,
    read: Option<&Told>,
    lags: &BTreeMap<TopicPartition, u64>,
    owner: &dyn Fn(TaskId) -> Option<String>,
) -> MemberView {
    let inputs = member.partitions.iter();
    let mut view = MemberView {
        member_id: member.member_id.as_str().to_owned(),
        group_instance_id: member.group_instance_id.clone(),
        client_id: member.client_id.clone(),
        host: member.host.clone(),
        process_id: None,
        threads: 0,
        rack: None,
        tags: BTreeMap::new(),
        is_leaving: false,
        tasks: Vec::new(),
        input_lags: inputs.map(|input| (input.clone(), lags.get(input).copied())).collect(),
    };
    if let Some((facts, plan)) = read {
        view.process_id = Some(facts.process_id);
        view.threads = facts.capacity;
        view.rack.clone_from(&facts.rack);
        view.tags.clone_from(&facts.tags);
        view.is_leaving = facts.leaving;
        view.tasks = tasks(plan, owner);
    }
    view
}

fn tasks(plan: &MemberPlan, owner: &dyn Fn(TaskId) -> Option<String>) -> Vec<TaskView> {
    let duties = [
        (TaskDuty::Active, &plan.active),
        (TaskDuty::Withheld, &plan.withheld),
        (TaskDuty::Standby, &plan.standby),
        (TaskDuty::WarmUp, &plan.warmup),
    ];
    let mut tasks: Vec<TaskView> = Vec::new();
    for (duty, of_duty) in duties {
        for &task in of_duty {
            let TaskNote { reason, behind } = plan.notes.get(&task).cloned().unwrap_or_default();
            let follows = matches!(duty, TaskDuty::Standby | TaskDuty::WarmUp);
            tasks.push(TaskView {
                task,
                duty,
                reason,
                behind,
                is_waited_for: follows && plan.waited_for.contains(&task),
                owner: if duty == TaskDuty::Withheld { owner(task) } else { None },
            });
        }
    }
    tasks.sort_by_key(|view| (view.task, view.duty));
    tasks
}
