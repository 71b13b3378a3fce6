//! The structure of a topology, and how a wrong one is refused: sections 9 and 10 of the format.

use std::collections::BTreeSet;

use headwater::DslError;
use headwater::runtime::ConfigError;
use headwater::topology::{InternalTopicDefaults, Topology};
use serde_json::{Map, Value as Json, json};

use super::build::Built;
use super::case::{Case, Difference, text};

/// The first operator that cannot be written at all with the public interface, because its types have no
/// form for it: a processor that is in two tasks at once (see the example of `Processor` that does not
/// compile), a table without windows that waits until they close (see `Suppressed`), a partitioner of a
/// foreign-key join that answers none or several partitions (see `TableJoined`), and a negative length of time,
/// whose conversion into a `Duration` fails. All are refused before anything is built.
pub(super) fn ruled_out(case: &Case) -> Option<usize> {
    case.topology.iter().position(|op| {
        op["processor"] == "same_instance"
            || has_negative_length_of_time(op)
            || joins_to_many(op)
            || (op["until"] == "window_closes" && !is_windowed(case, op))
    })
}

/// The fields that are lengths of time, wherever they stand in an operator.
const LENGTHS_OF_TIME: [&str; 10] = [
    "advance",
    "difference",
    "gap",
    "grace",
    "history",
    "ms",
    "retention",
    "segment_interval",
    "size",
    "window_size",
];

fn has_negative_length_of_time(json: &Json) -> bool {
    match json {
        Json::Array(items) => items.iter().any(has_negative_length_of_time),
        Json::Object(fields) => fields.iter().any(|(field, value)| {
            let is_length = LENGTHS_OF_TIME.contains(&field.as_str());
            (is_length && value.as_i64().is_some_and(|time| time < 0))
                || has_negative_length_of_time(value)
        }),
        _ => false,
    }
}

/// Whether a partitioner of a foreign-key join answers other than one partition.
fn joins_to_many(op: &Json) -> bool {
    ["partitioner", "other_partitioner"].iter().any(|field| {
        let answer = op["table_joined"][field].as_array();
        answer.is_some_and(|answer| answer[0] == "to" && answer.len() != 2)
    })
}

/// Whether what an operator takes was made of windows, so that its keys have such.
fn is_windowed(case: &Case, op: &Json) -> bool {
    let above =
        case.topology.iter().find(|above| above.get("id").is_some_and(|id| *id == op["in"]));
    above.is_some_and(|above| above["op"] == "windowed_by" || is_windowed(case, above))
}

/// What the types rule out, the original refuses at the same operator; the partitions of a foreign-key join when
/// it gets them (KIP-837). Or it takes a negative limit or grace period
/// for none at all, which who writes a program here has to say (feature rows D38, D50).
pub(super) fn differences_of_ruled_out(
    case: &Case,
    op: usize,
    expected: Option<&Json>,
) -> Vec<Difference> {
    let is_refused = expected
        .is_some_and(|error| error["phase"] == "build" && error["op"].as_u64() == Some(op as u64));
    let is_accepted = expected.is_none() && has_negative_length_of_time(&case.topology[op]);
    let at_run_time = &case.expect["error"];
    let fails = joins_to_many(&case.topology[op])
        && at_run_time["phase"] == "event"
        && at_run_time["causes"][0][0] == "IllegalArgumentException";
    if is_refused || is_accepted || fails {
        return Vec::new();
    }
    let expected = expected.map_or_else(|| "no error".to_owned(), ToString::to_string);
    vec![Difference::of("error", &format!("operator {op} cannot be written"), &expected)]
}

/// A configuration that is refused when it is read, the original refuses when it builds with it.
pub(super) fn differences_of_config_error(
    case: &Case,
    error: &ConfigError,
    expected: Option<&Json>,
) -> Vec<Difference> {
    let is_refused = expected.is_some_and(|expected| {
        expected["phase"] == "build"
            && expected["class"] == "ConfigException"
            && expected["op"].as_u64() == Some(case.topology.len() as u64)
    });
    if is_refused {
        return Vec::new();
    }
    let expected = expected.map_or_else(|| "no error".to_owned(), ToString::to_string);
    vec![Difference::of("error", &format!("ConfigException: {error}"), &expected)]
}

/// How a wrong program differs from how the original says it is wrong.
pub(super) fn differences_of_error(
    case: &Case,
    op: usize,
    error: &DslError,
    expected: &Json,
) -> Vec<Difference> {
    let mut differences = Vec::new();
    let class = match error {
        DslError::NoPartitions { .. }
        | DslError::WrongWindows { .. }
        | DslError::GraceWithoutHistory { .. }
        | DslError::GraceBeyondHistory { .. }
        | DslError::NoSegmentInterval { .. } => "IllegalArgumentException",
        DslError::MissingSerde { .. } | DslError::UnfitJoinStore { .. } => "StreamsException",
        _ => "TopologyException",
    };
    if expected["class"] != class {
        let found = format!("{class}: {error}");
        differences.push(Difference::of("error.class", &found, text(&expected["class"])));
    }
    if class == "TopologyException" && expected["message"] != error.to_string() {
        let message = text(&expected["message"]);
        differences.push(Difference::of("error.message", &error.to_string(), message));
    }
    // What the original finds only when it starts or sets topics up is found when the program is
    // built.
    let expected_op = match text(&expected["phase"]) {
        "build" => expected["op"].as_u64(),
        _ if op < case.topology.len() => None,
        _ => Some(case.topology.len() as u64),
    };
    if let Some(expected_op) = expected_op.filter(|expected_op| *expected_op != op as u64) {
        let (found, expected) = (op.to_string(), expected_op.to_string());
        differences.push(Difference::of("error.op", &found, &expected));
    }
    differences
}

/// How the structure of a built case differs from what the case expects.
pub(super) fn differences(case: &Case, built: &Built) -> Vec<Difference> {
    let application = match built.topology.for_application("app") {
        Ok(application) => application,
        Err(error) => {
            return vec![Difference::new("build", format!("refused for an application: {error}"))];
        }
    };
    let graph = &application.graph;
    let mut differences = Vec::new();
    let mut check = |field: &str, found: Json| {
        if let Some(expected) = case.expect.get(field)
            && *expected != found
        {
            differences.push(Difference::of(field, &show(&found), &show(expected)));
        }
    };
    check("describe", Json::from(built.topology.describe()));
    check("queryable", json!(built.queryable));
    check("branches", json!(built.branches));
    check("subtopologies", subtopologies(graph));
    check("internal_topics", internal_topics(graph, &case.config));
    let global: Vec<&str> =
        graph.global_stores().iter().map(|store| store.spec.name.as_str()).collect();
    check("global_stores", json!(global));
    if let Some(expected) = case.expect.get("copartition_groups") {
        let (found, expected) = (json!(graph.copartition_groups()), joined_groups(expected));
        if found != expected {
            differences.push(Difference::of("copartition_groups", &show(&found), &show(&expected)));
        }
    }
    let tasks = graph.subtopologies().iter().filter(|it| !it.is_global).count();
    if application.programs.len() != tasks {
        let found = application.programs.len().to_string();
        differences.push(Difference::of("programs", &found, &tasks.to_string()));
    }
    differences
}

/// Groups of topics that have none in common. The original unites two groups by whichever of their topics its hash sets
/// give first, and so can leave a topic in both, which says the same: all of them need equal numbers of partitions.
fn joined_groups(groups: &Json) -> Json {
    let mut joined: Vec<BTreeSet<&str>> = Vec::new();
    for group in groups.as_array().into_iter().flatten() {
        let topics = group.as_array().into_iter().flatten().filter_map(Json::as_str);
        let mut group: BTreeSet<&str> = topics.collect();
        let (apart, sharing): (Vec<_>, Vec<_>) =
            joined.into_iter().partition(|other| other.is_disjoint(&group));
        group.extend(sharing.into_iter().flatten());
        joined = apart;
        joined.push(group);
    }
    joined.sort();
    json!(joined)
}

fn show(json: &Json) -> String {
    match json {
        Json::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).expect("JSON can be written"),
    }
}

fn subtopologies(graph: &Topology) -> Json {
    let parts = graph.subtopologies().iter().filter(|it| it.has_tasks());
    let parts = parts.map(|it| {
        let names = |names: &BTreeSet<String>| json!(names);
        let part = json!({
            "source_topics": names(&it.source_topics),
            "sink_topics": names(&it.sink_topics),
            "repartition_source_topics": names(&it.repartition_source_topics),
            "changelog_topics": names(&it.changelog_topics),
            "source_topic_changelogs": names(&it.source_topic_changelogs),
        });
        (it.id.to_string(), part)
    });
    Json::Object(parts.collect())
}

fn internal_topics(graph: &Topology, config: &Json) -> Json {
    let mut defaults = InternalTopicDefaults::default();
    for (key, value) in config.as_object().into_iter().flatten() {
        if let Some(key) = key.strip_prefix("topic.") {
            defaults.topic_config.insert(key.to_owned(), text(value).to_owned());
        }
    }
    let topics = graph.internal_topics().into_iter().map(|topic| {
        let mut description = Map::new();
        let kind = if topic.is_changelog() { "changelog" } else { "repartition" };
        description.insert("kind".to_owned(), Json::from(kind));
        if let Some(partitions) = topic.partitions {
            description.insert("partitions".to_owned(), Json::from(partitions));
        }
        description.insert("config".to_owned(), json!(topic.config(&defaults)));
        (topic.name, Json::Object(description))
    });
    Json::Object(topics.collect())
}
