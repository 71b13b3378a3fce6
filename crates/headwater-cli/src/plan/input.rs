//! Reading a scenario.

use std::collections::{BTreeMap, BTreeSet};

use headwater_assignor::{
    ApplicationState, InstanceId, InstanceInfo, Lag, MemberId, MemberInfo, PartitionRole,
    RackAwareStrategy, RackId, Settings, TaskId, TaskInfo, TaskPartition, TopicName,
    TopicPartition,
};
use serde_json::Value;

use crate::plan::assignors;
use crate::plan::error::PlanError;
use crate::plan::place::Place;
use crate::plan::trajectory::StoryInput;

/// A scenario.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) assignor: String,
    pub(crate) strategies: Vec<RackAwareStrategy>,
    pub(crate) state: ApplicationState,
    /// What happens to the group, if the scenario is a trajectory.
    pub(crate) story: Option<StoryInput>,
}

/// Fields that describe a scenario and have no influence on the plan.
const ANNOTATIONS: [&str; 10] = [
    "name",
    "source",
    "kind",
    "verified",
    "notes",
    "expect",
    "observed",
    "exact_is_tie_break_dependent",
    "changed_in",
    "task_assignors",
];

impl Input {
    pub(crate) fn read(json: &Value, strict: bool) -> Result<Self, PlanError> {
        let root = Place::root(json, strict);
        let mut known = ANNOTATIONS.to_vec();
        known.extend(["assignor", "tasks", "clients", "configs", "model", "events"]);
        root.fields(&known)?;
        let is_story = match root.get("kind")? {
            Some(kind) => kind.text()? == "trajectory",
            None => root.get("events")?.is_some(),
        };
        let tasks = read_tasks(&root)?;
        let (settings, strategies) = match root.get("configs")? {
            Some(configs) => read_settings(&configs)?,
            None => (Settings::default(), vec![RackAwareStrategy::None]),
        };
        let clients = root.need("clients")?;
        let mut members = BTreeSet::new();
        let mut instances = BTreeMap::new();
        for client in clients.elements()? {
            let (id, info) = read_client(&client, &tasks, &mut members)?;
            if instances.insert(id.clone(), info).is_some() {
                return Err(PlanError::Duplicate { place: client.path(), id: id.to_string() });
            }
        }
        if instances.is_empty() && !is_story {
            return Err(clients.must_be("a list of at least one client"));
        }
        let assignor = match root.get("assignor")? {
            Some(name) => name.name()?.to_owned(),
            None => assignors::NAMES[0].to_owned(),
        };
        let story =
            if is_story { Some(StoryInput::read(&root, &tasks, &mut members)?) } else { None };
        let mut state = ApplicationState::default();
        (state.tasks, state.instances, state.settings) = (tasks, instances, settings);
        Ok(Self { assignor, strategies, state, story })
    }
}

fn read_tasks(root: &Place<'_>) -> Result<BTreeMap<TaskId, TaskInfo>, PlanError> {
    let mut tasks = BTreeMap::new();
    for place in root.need("tasks")?.elements()? {
        place.fields(&["id", "stateful", "partitions", "end_offset", "weight"])?;
        let id = place.need("id")?.task()?;
        let stateful = place.need("stateful")?.flag()?;
        let mut info = if stateful { TaskInfo::stateful() } else { TaskInfo::stateless() };
        info.end_offset = place.get("end_offset")?.map(|end| end.offset()).transpose()?;
        if let Some(weight) = place.get("weight")? {
            info.weight = weight.small()?;
        }
        for partition in place.list("partitions")? {
            info.partitions.push(read_partition(&partition)?);
        }
        if info.partitions.is_empty() {
            info.partitions = usual_partitions(id, stateful);
        }
        if tasks.insert(id, info).is_some() {
            return Err(PlanError::Duplicate { place: place.path(), id: id.to_string() });
        }
    }
    Ok(tasks)
}

/// One source topic for each sub-topology, and a changelog if there is state.
fn usual_partitions(id: TaskId, stateful: bool) -> Vec<TaskPartition> {
    let of = |topic: &str, role| {
        let topic = TopicName::new(format!("{topic}-{}", id.subtopology));
        TaskPartition::new(TopicPartition { topic, partition: id.partition }, role)
    };
    let mut partitions = vec![of("in", PartitionRole::Source)];
    if stateful {
        partitions.push(of("store", PartitionRole::Changelog));
    }
    partitions
}

fn read_partition(place: &Place<'_>) -> Result<TaskPartition, PlanError> {
    place.fields(&["topic", "partition", "role", "racks"])?;
    let role = place.need("role")?;
    let role = match role.text()? {
        "source" => PartitionRole::Source,
        "changelog" => PartitionRole::Changelog,
        "source_changelog" => PartitionRole::SourceChangelog,
        _ => return Err(role.must_be("\"source\", \"changelog\" or \"source_changelog\"")),
    };
    let topic = TopicName::from(place.need("topic")?.name()?);
    let partition = place.need("partition")?.small()?;
    let mut info = TaskPartition::new(TopicPartition { topic, partition }, role);
    for rack in place.list("racks")? {
        info.racks.insert(RackId::from(rack.text()?));
    }
    Ok(info)
}

fn read_settings(place: &Place<'_>) -> Result<(Settings, Vec<RackAwareStrategy>), PlanError> {
    place.fields(&[
        "acceptable_recovery_lag",
        "max_warmup_replicas",
        "num_standby_replicas",
        "probing_rebalance_interval_ms",
        "rack_aware_strategies",
        "rack_aware_traffic_cost",
        "rack_aware_non_overlap_cost",
        "rack_aware_assignment_tags",
    ])?;
    let mut settings = Settings::default();
    if let Some(lag) = place.get("acceptable_recovery_lag")? {
        settings.acceptable_recovery_lag = lag.offset()?;
    }
    if let Some(warmups) = place.get("max_warmup_replicas")? {
        settings.max_warmup_replicas = warmups.small()?;
    }
    if let Some(standbys) = place.get("num_standby_replicas")? {
        settings.num_standby_replicas = standbys.small()?;
    }
    if let Some(interval) = place.get("probing_rebalance_interval_ms")? {
        settings.probing_rebalance_interval_ms = interval.offset()?;
    }
    let cost = |field| place.get(field)?.map(|cost| cost.small()).transpose();
    settings.rack_aware_assignment_traffic_cost = cost("rack_aware_traffic_cost")?;
    settings.rack_aware_assignment_non_overlap_cost = cost("rack_aware_non_overlap_cost")?;
    for key in place.list("rack_aware_assignment_tags")? {
        settings.rack_aware_assignment_tags.push(key.name()?.to_owned());
    }
    let mut strategies = Vec::new();
    for strategy in place.list("rack_aware_strategies")? {
        strategies.push(read_strategy(&strategy)?);
    }
    if strategies.is_empty() {
        strategies.push(RackAwareStrategy::None);
    }
    Ok((settings, strategies))
}

fn read_strategy(place: &Place<'_>) -> Result<RackAwareStrategy, PlanError> {
    match place.text()? {
        "none" => Ok(RackAwareStrategy::None),
        "min_traffic" => Ok(RackAwareStrategy::MinTraffic),
        "balance_subtopology" => Ok(RackAwareStrategy::BalanceSubtopology),
        _ => Err(place.must_be("\"none\", \"min_traffic\" or \"balance_subtopology\"")),
    }
}

/// Reads one client; `members` are the members of the clients before.
pub(crate) fn read_client(
    place: &Place<'_>,
    tasks: &BTreeMap<TaskId, TaskInfo>,
    members: &mut BTreeSet<MemberId>,
) -> Result<(InstanceId, InstanceInfo), PlanError> {
    place.fields(&[
        "id",
        "capacity",
        "prev_active",
        "prev_standby",
        "lags",
        "tags",
        "racks",
        "members",
        "initial_active",
        "initial_standby",
        "offsets",
    ])?;
    let id = InstanceId::from(place.need("id")?.name()?);
    let mut info = InstanceInfo::default();
    if let Some(capacity) = place.get("capacity")? {
        info.capacity = capacity.small()?;
    }
    info.previous_active = read_task_ids(place, "prev_active")?;
    info.previous_standby = read_task_ids(place, "prev_standby")?;
    for (task, lag) in place.entries("lags")? {
        info.lags.insert(known_task(task, &lag, tasks)?, read_lag(&lag)?);
    }
    for (key, value) in place.entries("tags")? {
        info.tags.insert(key.to_owned(), value.text()?.to_owned());
    }
    for rack in place.list("racks")? {
        let known = !rack.value().is_null();
        info.racks.push(if known { Some(RackId::from(rack.text()?)) } else { None });
    }
    for field in ["initial_active", "initial_standby"] {
        for task in place.list(field)? {
            check_known(task.task()?, &task, tasks)?;
        }
    }
    for member in place.list("members")? {
        let (id, member_info) = read_member(&member, tasks)?;
        if !members.insert(id.clone()) {
            return Err(PlanError::Duplicate { place: member.path(), id: id.to_string() });
        }
        info.members.insert(id, member_info);
    }
    Ok((id, info))
}

fn read_task_ids(place: &Place<'_>, field: &'static str) -> Result<BTreeSet<TaskId>, PlanError> {
    place.list(field)?.iter().map(Place::task).collect()
}

/// A task id that is the key of an entry; the entry's place serves for the complaint.
pub(crate) fn known_task(
    key: &str,
    place: &Place<'_>,
    tasks: &BTreeMap<TaskId, TaskInfo>,
) -> Result<TaskId, PlanError> {
    let task = key.parse().map_err(|_| PlanError::Value {
        place: place.path(),
        found: format!("{key:?} is the key"),
        wanted: "a task id such as \"0_3\"",
    })?;
    check_known(task, place, tasks)?;
    Ok(task)
}

fn check_known(
    task: TaskId,
    place: &Place<'_>,
    tasks: &BTreeMap<TaskId, TaskInfo>,
) -> Result<(), PlanError> {
    if tasks.contains_key(&task) {
        Ok(())
    } else {
        Err(PlanError::UnknownTask { place: place.path(), task })
    }
}

fn read_lag(place: &Place<'_>) -> Result<Lag, PlanError> {
    match place.value().as_i64() {
        Some(-2) => Ok(Lag::Latest),
        Some(-3) => Ok(Lag::Unknown),
        _ => place.offset().map(Lag::Behind).map_err(|_| {
            place.must_be("-2 (latest), -3 (unknown) or a whole number from 0 to 2^63 - 1")
        }),
    }
}

fn read_member(
    place: &Place<'_>,
    tasks: &BTreeMap<TaskId, TaskInfo>,
) -> Result<(MemberId, MemberInfo), PlanError> {
    place.fields(&["id", "prev_active", "prev_standby", "owned_partitions"])?;
    let id = MemberId::from(place.need("id")?.name()?);
    let mut info = MemberInfo::default();
    info.previous_active = read_task_ids(place, "prev_active")?;
    info.previous_standby = read_task_ids(place, "prev_standby")?;
    info.owned_partitions = match place.get("owned_partitions")? {
        Some(owned) => {
            owned.elements()?.iter().map(read_topic_partition).collect::<Result<_, _>>()?
        }
        None => info
            .previous_active
            .iter()
            .filter_map(|task| tasks.get(task))
            .flat_map(|info| &info.partitions)
            .filter(|partition| partition.role.is_source())
            .map(|partition| partition.id.clone())
            .collect(),
    };
    Ok((id, info))
}

/// `"topic-3"` or `["topic", 3]`.
fn read_topic_partition(place: &Place<'_>) -> Result<TopicPartition, PlanError> {
    const WANTED: &str = "a partition such as \"topic-3\"";
    if place.value().is_array() {
        let [topic, partition] =
            <[Place<'_>; 2]>::try_from(place.elements()?).map_err(|_| place.must_be(WANTED))?;
        return Ok(TopicPartition {
            topic: TopicName::from(topic.name()?),
            partition: partition.small()?,
        });
    }
    let (topic, partition) = place.text()?.rsplit_once('-').ok_or_else(|| place.must_be(WANTED))?;
    let partition = partition.parse().map_err(|_| place.must_be(WANTED))?;
    Ok(TopicPartition { topic: TopicName::from(topic), partition })
}
