//! The leader's work: from the facts of the members to what each is told. Pure.

#[cfg(feature = "fuzzing")]
mod fuzzing;
#[cfg(test)]
#[expect(clippy::needless_raw_string_hashes, reason = "expect-test writes its texts so")]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use headwater_assignor as assignor;
use headwater_assignor::{
    ApplicationState, AssignError, Checked, CopyKind, FallbackPrior, FollowUp, InstanceInfo, Lag,
    MemberInfo, Move, PartitionRole, Reason, Settings, StandingPlan, TaskAssignor, TaskInfo,
    TaskPartition, Waiting, WarmupProgress,
};
use headwater_broker::{MemberId, TopicName, TopicPartition};
use headwater_topology::{TaskId, TaskPlan};

use super::ends::Racks;
use crate::config::StreamsConfig;
use crate::facts::{HostShare, MadeFor, MemberFacts, MemberPlan, StandingShare, TaskNote};
use crate::topics_check::SourceTopics;

#[cfg(feature = "fuzzing")]
pub(crate) use fuzzing::lead;

/// The changelog topics of each task; source topics that double as changelogs among them.
pub(super) type Changelogs = BTreeMap<TaskId, Vec<TopicName>>;

/// What the leader knows when it is asked for a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupFacts<'a> {
    /// The generation of the group for which the plan is.
    pub(super) generation: i32,
    pub(super) settings: &'a Settings,
    /// The source topics that the tasks follow from.
    pub(super) source_topics: &'a SourceTopics,
    pub(super) tasks: &'a TaskPlan,
    pub(super) changelogs: &'a Changelogs,
    /// Where the changelogs of each task end, summed up; `None`: nobody could say.
    pub(super) ends: Option<&'a BTreeMap<TaskId, u64>>,
    /// The racks of partitions, as far as they are known.
    pub(super) racks: &'a Racks,
    pub(super) members: &'a BTreeMap<MemberId, MemberFacts>,
}

/// A plan, and how it came about.
#[derive(Debug, Default)]
pub(super) struct Planned {
    /// What each member is told.
    pub(super) told: BTreeMap<MemberId, MemberPlan>,
    /// Every copy that appears, ends or moves, with the reason.
    pub(super) moves: Vec<Move>,
    /// Whether, and when, another round is wanted though nothing changes from outside.
    pub(super) followup: FollowUp,
    /// The copies that it depends on.
    pub(super) waiting: Vec<Waiting>,
    /// What was wrong with the assignor or its plan, if the fallback had to step in.
    pub(super) rejected: Option<AssignError>,
}

/// Decides who runs what. A task that somebody else still owns is withheld from its new owner, and
/// released by the old one, who joins again then.
///
/// # Errors
/// When the assignor, and the fallback if there is one, finds no plan or one that does not hold.
pub(super) fn plan(
    facts: GroupFacts<'_>,
    assignor: &dyn TaskAssignor,
    fallback: Option<&dyn TaskAssignor>,
) -> Result<Planned, AssignError> {
    let members = facts.members;
    if members.values().any(|facts| facts.shutdown_requested) {
        let stop = MemberPlan { shutdown: true, ..MemberPlan::default() };
        let mut told = members.keys().map(|member| (member.clone(), stop.clone())).collect();
        name_processes(members, &mut told);
        return Ok(Planned { told, ..Planned::default() });
    }
    let (leaving, staying): (Members, Members) =
        members.clone().into_iter().partition(|(_, facts)| facts.leaving);
    let mut planned = if staying.is_empty() {
        Planned::default()
    } else {
        plan_of_staying(GroupFacts { members: &staying, ..facts }, assignor, fallback)?
    };
    hand_over_of_leaving(facts.changelogs, &staying, &leaving, &mut planned);
    note_reasons(members, &mut planned);
    let round_follows = planned.told.values().any(|plan| !plan.withheld.is_empty());
    for plan in planned.told.values_mut() {
        plan.round_follows = round_follows;
        plan.members = u32::try_from(staying.len()).unwrap_or(u32::MAX);
        plan.generation = facts.generation;
        plan.source_topics.clone_from(facts.source_topics);
    }
    name_transactional_ids(members, &mut planned.told);
    name_processes(members, &mut planned.told);
    name_hosts(&staying, &mut planned.told);
    Ok(planned)
}

/// Tells everybody for which process of it the plan is.
fn name_processes(members: &Members, told: &mut BTreeMap<MemberId, MemberPlan>) {
    for (member, plan) in told {
        let Some(facts) = members.get(member).filter(|facts| facts.started_ms != 0) else {
            continue;
        };
        plan.made_for = Some(MadeFor {
            started_ms: facts.started_ms,
            lasting: facts.lasting(),
            is_counted_on: !facts.owned.is_subset(&plan.active),
        });
    }
}

/// Tells everybody who has which tasks, of those that can be asked. What is withheld counts for who
/// will run it: its owner is releasing it.
fn name_hosts(staying: &Members, told: &mut BTreeMap<MemberId, MemberPlan>) {
    let mut hosts: BTreeMap<String, HostShare> = BTreeMap::new();
    for (member, plan) in &*told {
        let Some(endpoint) = staying.get(member).and_then(|facts| facts.endpoint.as_ref()) else {
            continue;
        };
        let share = hosts.entry(endpoint.clone()).or_default();
        share.active.extend(&plan.active | &plan.withheld);
        share.standby.extend(&plan.standby - &plan.withheld);
    }
    for plan in told.values_mut() {
        plan.hosts.clone_from(&hosts);
    }
}

/// The members of a group with what they say.
type Members = BTreeMap<MemberId, MemberFacts>;

fn plan_of_staying(
    facts: GroupFacts<'_>,
    assignor: &dyn TaskAssignor,
    fallback: Option<&dyn TaskAssignor>,
) -> Result<Planned, AssignError> {
    let mut state = application_state(facts);
    let early = set_aside_early_judgements(&mut state, facts);
    let mut checked = assign(&state, facts, assignor, fallback)?;
    put_back(&mut checked, &early);
    let Checked { assignment, thread_rule, rejected, .. } = checked;
    let threads = assignor::assign_threads(&state, &assignment, thread_rule);
    let mut told: BTreeMap<MemberId, MemberPlan> = BTreeMap::new();
    for (instance, of_members) in assignor::hand_over(&state, &threads) {
        let standing = assignment.standing_plan.as_ref();
        let standing = standing.map(|standing| share_of(standing, &instance, facts.generation));
        let warmups: BTreeSet<TaskId> = assignment
            .instances
            .get(&instance)
            .map(|holds| holds.warmup.keys().copied().map(from_assignor).collect())
            .unwrap_or_default();
        let here = assignment.waiting_for.iter().filter(|waiting| waiting.instance == instance);
        let waited_for: BTreeSet<TaskId> = here.map(|it| from_assignor(it.task)).collect();
        for (member, hand_over) in of_members {
            let followed: BTreeSet<TaskId> =
                hand_over.standby.into_iter().map(from_assignor).collect();
            let plan = MemberPlan {
                active: hand_over.active.into_iter().map(from_assignor).collect(),
                standby: &followed - &warmups,
                warmup: &followed & &warmups,
                waited_for: &followed & &waited_for,
                withheld: hand_over.withheld.into_iter().map(from_assignor).collect(),
                standing: standing.clone(),
                ..MemberPlan::default()
            };
            told.insert(MemberId::from(member.as_str()), plan);
        }
    }
    let moves = assignor::moves(&state, &assignment);
    // Unknown lags are asked for again.
    let followup = match assignment.followup {
        FollowUp::None if facts.ends.is_none() => FollowUp::AfterProbingInterval,
        followup => followup,
    };
    Ok(Planned { told, moves, followup, waiting: assignment.waiting_for, rejected })
}

/// Whoever leaves gets nothing, and releases what it runs when it hears so: its tasks are withheld
/// until then from those who get them, and followed meanwhile where there is state of them.
fn hand_over_of_leaving(
    changelogs: &Changelogs,
    staying: &Members,
    leaving: &Members,
    planned: &mut Planned,
) {
    let owner = |task: &TaskId| leaving.values().find(|facts| facts.owned.contains(task));
    for (member, plan) in &mut planned.told {
        let held = staying.get(member).map(|facts| &facts.held);
        let (withheld, active) =
            plan.active.iter().copied().partition(|task| owner(task).is_some());
        plan.active = active;
        let is_stateful =
            |task: &TaskId| changelogs.get(task).is_some_and(|topics| !topics.is_empty());
        let has_state = |task: &TaskId| held.is_some_and(|held| held.contains_key(task));
        let withheld: BTreeSet<TaskId> = withheld;
        plan.standby.extend(withheld.iter().filter(|it| is_stateful(it) && has_state(it)));
        plan.withheld.extend(withheld);
    }
    for moved in planned.moves.iter_mut().filter(|it| it.kind == CopyKind::Active) {
        if moved.from.is_none()
            && let Some(facts) = owner(&from_assignor(moved.task))
        {
            moved.from = Some(instance_id(facts));
            moved.reason = Reason::OwnerLeft;
        }
    }
    planned.told.extend(leaving.keys().map(|member| (member.clone(), MemberPlan::default())));
}

/// Tells everybody why what is new has come, and how far it is behind, for whoever looks from
/// outside.
fn note_reasons(members: &Members, planned: &mut Planned) {
    for moved in planned.moves.iter().filter(|moved| moved.to.is_some()) {
        let task = from_assignor(moved.task);
        let note = TaskNote { reason: Some(moved.reason.as_str().to_owned()), behind: moved.cost };
        let there = |member: &MemberId, plan: &MemberPlan| {
            let is_new = match moved.kind {
                CopyKind::Active => plan.active.contains(&task) || plan.withheld.contains(&task),
                _ => plan.standby.contains(&task) || plan.warmup.contains(&task),
            };
            is_new && members.get(member).map(instance_id) == moved.to
        };
        for (_, plan) in planned.told.iter_mut().filter(|(member, plan)| there(member, plan)) {
            plan.notes.insert(task, note.clone());
        }
    }
}

/// What the settings of the leader say about assignment.
pub(super) fn settings(config: &StreamsConfig) -> Settings {
    let mut settings = Settings::default();
    settings.acceptable_recovery_lag = config.acceptable_recovery_lag;
    settings.max_warmup_replicas = config.max_warmup_replicas;
    settings.num_standby_replicas = config.num_standby_replicas;
    settings.probing_rebalance_interval_ms = config.probing_rebalance_interval_ms;
    settings.rack_aware_assignment_strategy = config.rack_aware_assignment_strategy;
    settings.rack_aware_assignment_traffic_cost = config.rack_aware_assignment_traffic_cost;
    settings.rack_aware_assignment_non_overlap_cost = config.rack_aware_assignment_non_overlap_cost;
    settings.rack_aware_assignment_tags = config.rack_aware_assignment_tags.keys().to_vec();
    settings
}

/// Asks the assignor. One that cannot do without lags, as those of Kafka Streams cannot, is
/// replaced while nobody knows them by the one that leaves tasks where they were.
fn assign(
    state: &ApplicationState,
    facts: GroupFacts<'_>,
    assignor: &dyn TaskAssignor,
    fallback: Option<&dyn TaskAssignor>,
) -> Result<Checked, AssignError> {
    match assignor::assign_checked(state, assignor, fallback) {
        Err(error @ AssignError::MissingLag { .. }) if facts.ends.is_none() => {
            let mut checked = assignor::assign_checked(state, &FallbackPrior::default(), None)?;
            checked.rejected = Some(error);
            Ok(checked)
        }
        checked => checked,
    }
}

/// A warm-up has been told of too lately for its progress to be judged, or nobody knows its lag.
type Early = BTreeMap<(assignor::TaskId, assignor::InstanceId), WarmupProgress>;

/// Rounds that follow one another faster say nothing about the progress of a warm-up.
const JUDGED_AFTER_MS: u64 = 10_000;

/// Rounds can follow one another at once, for other reasons; a warm-up must not be given up because
/// it got nowhere between them.
fn set_aside_early_judgements(state: &mut ApplicationState, facts: GroupFacts<'_>) -> Early {
    let mut early = Early::new();
    let Some(standing) = &mut state.standing_plan else { return early };
    let told_lately: BTreeSet<assignor::InstanceId> = facts
        .members
        .values()
        .filter(|member| member.standing_age_ms < JUDGED_AFTER_MS || facts.ends.is_none())
        .map(instance_id)
        .collect();
    for (&task, of_task) in &mut standing.warmups {
        for (instance, progress) in of_task {
            if told_lately.contains(instance) {
                early.insert((task, instance.clone()), *progress);
                *progress = WarmupProgress::new(Lag::Unknown);
            }
        }
    }
    early
}

/// The progress before the round counts on, unless the warm-up has got closer.
fn put_back(checked: &mut Checked, early: &Early) {
    let Some(standing) = &mut checked.assignment.standing_plan else { return };
    let offsets = |lag: Lag| lag.to_restore().unwrap_or(u64::MAX);
    for ((task, instance), before) in early {
        let of_task = standing.warmups.get_mut(task);
        if let Some(now) = of_task.and_then(|of_task| of_task.get_mut(instance))
            && offsets(now.best_lag) >= offsets(before.best_lag)
        {
            *now = *before;
        }
    }
}

/// Tells everybody the ids of all members, and those who get tasks the ids of members that are gone.
fn name_transactional_ids(
    members: &BTreeMap<MemberId, MemberFacts>,
    told: &mut BTreeMap<MemberId, MemberPlan>,
) {
    let present: BTreeSet<String> =
        members.values().flat_map(|facts| facts.transactional_ids.iter().cloned()).collect();
    let known = members.values().flat_map(|facts| &facts.known_transactional_ids);
    let gone: BTreeSet<String> = known.filter(|id| !present.contains(*id)).cloned().collect();
    for (member, plan) in told {
        let owned = members.get(member).map(|facts| &facts.owned);
        let gains = plan.active.iter().any(|task| owned.is_none_or(|owned| !owned.contains(task)));
        plan.transactional_ids.clone_from(&present);
        if gains {
            plan.to_fence.clone_from(&gone);
        }
    }
}

fn application_state(facts: GroupFacts<'_>) -> ApplicationState {
    let mut state = ApplicationState::default();
    state.settings = facts.settings.clone();
    for (&task, inputs) in &facts.tasks.tasks {
        let mut info = task_info(task, inputs, facts);
        let end = facts.ends.and_then(|ends| ends.get(&task));
        info.end_offset = end.copied().filter(|_| info.stateful);
        state.tasks.insert(to_assignor(task), info);
    }
    for (id, facts) in facts.members {
        add_member(&mut state, id, facts);
    }
    state.standing_plan = standing_plan(facts.members);
    state
}

fn add_member(state: &mut ApplicationState, id: &MemberId, facts: &MemberFacts) {
    let instance = instance_id(facts);
    let ApplicationState { tasks, instances, .. } = state;
    let info = instances.entry(instance).or_insert_with(|| InstanceInfo::new(0));
    info.capacity = info.capacity.saturating_add(facts.capacity);
    info.tags.extend(facts.tags.clone());
    info.racks.push(facts.rack.as_deref().map(assignor::RackId::from));
    let owned: BTreeSet<assignor::TaskId> = facts.owned.iter().copied().map(to_assignor).collect();
    let held = facts.held.iter().map(|(&task, sum)| (to_assignor(task), *sum));
    let followed: BTreeSet<assignor::TaskId> =
        held.clone().map(|(task, _)| task).filter(|task| !owned.contains(task)).collect();
    let stateful = |task: assignor::TaskId| tasks.get(&task).filter(|info| info.stateful);
    for (task, sum) in held {
        let Some(info_of_task) = stateful(task) else { continue };
        let lag = match (sum, info_of_task.end_offset) {
            (Some(sum), Some(end)) => Lag::of(Some(sum), end),
            _ => Lag::Unknown,
        };
        info.lags.insert(task, lag);
    }
    let running = facts.running.intersection(&facts.owned).copied().map(to_assignor);
    info.lags.extend(running.filter(|task| stateful(*task).is_some()).map(|it| (it, Lag::Latest)));
    let mut member = MemberInfo::default();
    member.owned_partitions = owned
        .iter()
        .filter_map(|task| tasks.get(task))
        .flat_map(|task| &task.partitions)
        .filter(|partition| partition.role.is_source())
        .map(|partition| partition.id.clone())
        .collect();
    member.previous_active.clone_from(&owned);
    member.previous_standby.clone_from(&followed);
    info.previous_active.extend(owned);
    info.previous_standby.extend(followed);
    info.members.insert(assignor::MemberId::new(id.as_str()), member);
}

fn instance_id(facts: &MemberFacts) -> assignor::InstanceId {
    assignor::InstanceId::new(facts.process_id.to_string())
}

/// The plan that the newest leader pursued, put together from what its members kept of it.
fn standing_plan(members: &BTreeMap<MemberId, MemberFacts>) -> Option<StandingPlan> {
    let shares = || members.values().filter_map(|facts| Some((facts, facts.standing.as_ref()?)));
    let newest = shares().map(|(_, share)| share.generation).max()?;
    let mut plan = StandingPlan::default();
    for (facts, share) in shares().filter(|(_, share)| share.generation == newest) {
        let instance = instance_id(facts);
        plan.made_for = share.made_for;
        let target = plan.target.entry(instance.clone()).or_default();
        target.active.extend(share.active.iter().copied().map(to_assignor));
        target.standby.extend(share.standby.iter().copied().map(to_assignor));
        for (task, progress) in &share.warmups {
            let of_task = plan.warmups.entry(to_assignor(*task)).or_default();
            of_task.insert(instance.clone(), *progress);
        }
    }
    Some(plan)
}

/// What one instance keeps of the plan.
fn share_of(
    plan: &StandingPlan,
    instance: &assignor::InstanceId,
    generation: i32,
) -> StandingShare {
    let target = plan.target.get(instance);
    let ids =
        |tasks: &BTreeSet<assignor::TaskId>| tasks.iter().copied().map(from_assignor).collect();
    let warmups = plan
        .warmups
        .iter()
        .filter_map(|(task, of_task)| Some((from_assignor(*task), *of_task.get(instance)?)));
    StandingShare {
        generation,
        made_for: plan.made_for,
        active: target.map(|target| ids(&target.active)).unwrap_or_default(),
        standby: target.map(|target| ids(&target.standby)).unwrap_or_default(),
        warmups: warmups.collect(),
    }
}

fn task_info(task: TaskId, inputs: &BTreeSet<(String, u32)>, facts: GroupFacts<'_>) -> TaskInfo {
    let partition = |topic: &str, partition: u32, role| {
        let at = TopicPartition::new(topic, partition.cast_signed());
        let racks = facts.racks.get(&at).into_iter().flatten();
        let topic = assignor::TopicName::new(topic);
        let mut info = TaskPartition::new(assignor::TopicPartition { topic, partition }, role);
        info.racks = racks.map(|rack| assignor::RackId::from(rack.as_str())).collect();
        info
    };
    let changelogs = facts.changelogs.get(&task).map(Vec::as_slice).unwrap_or_default();
    let mut info = if changelogs.is_empty() { TaskInfo::stateless() } else { TaskInfo::stateful() };
    let is_changelog = |topic: &str| changelogs.iter().any(|changelog| changelog.as_str() == topic);
    info.partitions.extend(inputs.iter().map(|(topic, number)| {
        let both = is_changelog(topic);
        let role = if both { PartitionRole::SourceChangelog } else { PartitionRole::Source };
        partition(topic, *number, role)
    }));
    let is_input = |topic: &TopicName| inputs.iter().any(|(input, _)| input == topic.as_str());
    info.partitions.extend(
        changelogs
            .iter()
            .filter(|topic| !is_input(topic))
            .map(|topic| partition(topic.as_str(), task.partition, PartitionRole::Changelog)),
    );
    info
}

fn to_assignor(task: TaskId) -> assignor::TaskId {
    assignor::TaskId::new(task.subtopology.0, task.partition)
}

fn from_assignor(task: assignor::TaskId) -> TaskId {
    TaskId::new(task.subtopology, task.partition)
}
