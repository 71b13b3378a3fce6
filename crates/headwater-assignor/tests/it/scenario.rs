//! Scenarios as data: reading the corpora and turning a scenario into an application state.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use headwater_assignor::{
    ApplicationState, InstanceId, InstanceInfo, Lag, MemberId, MemberInfo, PartitionRole,
    RackAwareStrategy, RackId, Settings, TaskId, TaskInfo, TaskPartition, TopicName,
    TopicPartition,
};
use serde_json::Value;

/// All scenarios of one corpus.
pub(crate) fn corpus(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let file = std::fs::File::open(&path).expect("the corpus is part of the crate");
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("the corpus is gzip");
    let mut corpus: Value = serde_json::from_str(&text).expect("the corpus is JSON");
    match corpus["scenarios"].take() {
        Value::Array(scenarios) => scenarios,
        other => panic!("scenarios are a list, not {other}"),
    }
}

/// The strategies that a scenario is to be run with.
pub(crate) fn strategies(scenario: &Value) -> Vec<&str> {
    let named: Vec<&str> = list(&scenario["configs"]["rack_aware_strategies"])
        .map(|strategy| strategy.as_str().expect("a strategy has a name"))
        .collect();
    if named.is_empty() { vec!["none"] } else { named }
}

/// The facts of a scenario under one rack strategy.
pub(crate) fn state(scenario: &Value, strategy: &str) -> ApplicationState {
    let mut state = ApplicationState::default();
    state.tasks = list(&scenario["tasks"]).map(task).collect();
    state.settings = settings(&scenario["configs"], strategy);
    state.instances = list(&scenario["clients"])
        .map(|client| (id(&client["id"]), instance(client, &state.tasks)))
        .collect();
    state
}

pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(crate) fn id(value: &Value) -> InstanceId {
    InstanceId::from(value.as_str().expect("an id is text"))
}

pub(crate) fn task_id(value: &Value) -> TaskId {
    value.as_str().and_then(|text| text.parse().ok()).expect("a task id")
}

pub(crate) fn task_ids(value: &Value) -> BTreeSet<TaskId> {
    list(value).map(task_id).collect()
}

fn task(value: &Value) -> (TaskId, TaskInfo) {
    let id = task_id(&value["id"]);
    let stateful = value["stateful"].as_bool().expect("a task is stateful or not");
    let mut info = if stateful { TaskInfo::stateful() } else { TaskInfo::stateless() };
    info.end_offset = value["end_offset"].as_u64();
    info.partitions = list(&value["partitions"]).map(partition).collect();
    if info.partitions.is_empty() {
        let of = |topic: &str, role| {
            let topic = TopicName::new(format!("{topic}-{}", id.subtopology));
            TaskPartition::new(TopicPartition { topic, partition: id.partition }, role)
        };
        info.partitions.push(of("in", PartitionRole::Source));
        if stateful {
            info.partitions.push(of("store", PartitionRole::Changelog));
        }
    }
    (id, info)
}

fn partition(value: &Value) -> TaskPartition {
    let role = match value["role"].as_str() {
        Some("source") => PartitionRole::Source,
        Some("changelog") => PartitionRole::Changelog,
        Some("source_changelog") => PartitionRole::SourceChangelog,
        other => panic!("unknown role {other:?}"),
    };
    let topic = TopicName::from(value["topic"].as_str().expect("a topic has a name"));
    let partition = value["partition"].as_u64().and_then(|n| n.try_into().ok()).expect("a number");
    let mut info = TaskPartition::new(TopicPartition { topic, partition }, role);
    info.racks =
        list(&value["racks"]).map(|rack| RackId::from(rack.as_str().expect("a rack"))).collect();
    info
}

fn settings(configs: &Value, strategy: &str) -> Settings {
    let mut settings = Settings::default();
    let number = |name: &str| configs[name].as_u64();
    let small = |name: &str| number(name).map(|n| u32::try_from(n).expect("a small number"));
    if let Some(lag) = number("acceptable_recovery_lag") {
        settings.acceptable_recovery_lag = lag;
    }
    if let Some(warmups) = small("max_warmup_replicas") {
        settings.max_warmup_replicas = warmups;
    }
    if let Some(standbys) = small("num_standby_replicas") {
        settings.num_standby_replicas = standbys;
    }
    settings.rack_aware_assignment_strategy = match strategy {
        "none" => RackAwareStrategy::None,
        "min_traffic" => RackAwareStrategy::MinTraffic,
        "balance_subtopology" => RackAwareStrategy::BalanceSubtopology,
        other => panic!("unknown strategy {other}"),
    };
    settings.rack_aware_assignment_traffic_cost = small("rack_aware_traffic_cost");
    settings.rack_aware_assignment_non_overlap_cost = small("rack_aware_non_overlap_cost");
    settings.rack_aware_assignment_tags = list(&configs["rack_aware_assignment_tags"])
        .map(|key| key.as_str().expect("a tag key").to_owned())
        .collect();
    settings
}

pub(crate) fn instance(client: &Value, tasks: &BTreeMap<TaskId, TaskInfo>) -> InstanceInfo {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let mut info = InstanceInfo::new(
        client["capacity"].as_u64().map_or(1, |n| u32::try_from(n).expect("a small number")),
    );
    info.tags = entries(&client["tags"]).map(|(key, value)| (key.clone(), text(value))).collect();
    info.racks = list(&client["racks"]).map(|rack| rack.as_str().map(RackId::from)).collect();
    info.previous_active = task_ids(&client["prev_active"]);
    info.previous_standby = task_ids(&client["prev_standby"]);
    info.lags = entries(&client["lags"])
        .map(|(task, lag)| (task.parse().expect("a task id"), lag_of(lag)))
        .collect();
    info.members = list(&client["members"])
        .map(|value| (MemberId::from(value["id"].as_str().expect("an id")), member(value, tasks)))
        .collect();
    info
}

pub(crate) fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn lag_of(value: &Value) -> Lag {
    match value.as_i64() {
        Some(-2) => Lag::Latest,
        Some(-3) => Lag::Unknown,
        Some(offsets) => Lag::Behind(offsets.try_into().expect("offsets are not negative")),
        None => panic!("{value} is not a lag"),
    }
}

fn member(value: &Value, tasks: &BTreeMap<TaskId, TaskInfo>) -> MemberInfo {
    let mut member = MemberInfo::default();
    member.previous_active = task_ids(&value["prev_active"]);
    member.previous_standby = task_ids(&value["prev_standby"]);
    member.owned_partitions = match value["owned_partitions"].as_array() {
        Some(owned) => owned.iter().map(topic_partition).collect(),
        None => member
            .previous_active
            .iter()
            .filter_map(|task| tasks.get(task))
            .flat_map(|info| &info.partitions)
            .filter(|partition| partition.role.is_source())
            .map(|partition| partition.id.clone())
            .collect(),
    };
    member
}

fn topic_partition(value: &Value) -> TopicPartition {
    let (topic, partition) =
        value.as_str().and_then(|text| text.rsplit_once('-')).expect("a partition like topic-3");
    TopicPartition {
        topic: TopicName::from(topic),
        partition: partition.parse().expect("a partition number"),
    }
}
