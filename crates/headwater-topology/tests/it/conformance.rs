//! Graphs that Kafka Streams 4.4 has built, described or refused.
//!
//! `low-level.jsonl` holds all cases of the conformance corpus that use the low-level interface,
//! `graphs.jsonl` random graphs that Kafka Streams was asked to describe, `calls.jsonl` random calls
//! most of which it refuses; all without the records in and out, which are not this crate's subject.

use std::collections::{BTreeMap, BTreeSet};

use headwater_topology::{
    InternalTopicDefaults, OffsetReset, SinkTopic, SourceOptions, StoreKind, StoreSource,
    StoreSpec, Topics, Topology, TopologyBuilder, TopologyError, diff,
};
use serde_json::{Map, Value, json};

#[test]
fn low_level_cases_are_built_described_and_refused_as_in_the_original() {
    // `low-same-instance` is refused for a processor supplier, which the graph knows nothing of.
    assert_eq!(check_all(include_str!("../data/low-level.jsonl"), &["low-same-instance"]), 46);
}

#[test]
fn random_calls_are_refused_for_the_reason_that_the_original_gives() {
    assert_eq!(check_all(include_str!("../data/calls.jsonl"), &[]), 178);
}

#[test]
fn random_graphs_are_described_as_in_the_original() {
    assert_eq!(check_all(include_str!("../data/graphs.jsonl"), &[]), 150);
}

fn check_all(cases: &str, skipped: &[&str]) -> usize {
    let mut checked = 0;
    for line in cases.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let name = text(&case, "name");
        if skipped.contains(&name) {
            continue;
        }
        check(name, &case);
        checked += 1;
    }
    checked
}

fn check(name: &str, case: &Value) {
    let expect = &case["expect"];
    let error = expect.get("error").filter(|error| error["phase"] == "build");
    let topology = match (build(&case["topology"]), error) {
        (Ok(topology), None) => topology,
        (Ok(_), Some(error)) => panic!("{name}: built although the original says {error}"),
        (Err((at, found)), Some(error)) => {
            assert_eq!(error["class"], "TopologyException", "{name}");
            assert_eq!(found.to_string(), text(error, "message"), "{name}");
            assert_eq!(json!(at), error["op"], "{name}: operator that fails");
            return;
        }
        (Err((at, found)), None) => panic!("{name}: operator {at} fails with {found}"),
    };
    assert_eq!(topology.describe(), text(expect, "describe"), "{name}");
    check_read_back(name, &topology);
    for (field, found) in [
        ("subtopologies", subtopologies(&topology)),
        ("internal_topics", internal_topics(&topology)),
        ("copartition_groups", json!(topology.copartition_groups())),
        ("global_stores", global_stores(&topology)),
    ] {
        let empty = match &found {
            Value::Array(items) => items.is_empty(),
            Value::Object(items) => items.is_empty(),
            _ => false,
        };
        let expected = expect.get(field);
        assert!(empty || expected.is_some(), "{name}: {field} is {found}, but nothing expected");
        assert_eq!(&found, expected.unwrap_or(&found), "{name}: {field}");
    }
}

/// Its JSON makes the same topology again.
fn check_read_back(name: &str, topology: &Topology) {
    let json = topology.describe_json();
    let read = Topology::from_json(&json).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(read.describe(), topology.describe(), "{name}: read back");
    assert_eq!(read.describe_json(), json, "{name}: read back");
    assert_eq!(diff(topology, &read), [], "{name}: read back");
}

fn build(operators: &Value) -> Result<Topology, (usize, TopologyError)> {
    let mut builder = TopologyBuilder::new();
    let operators = operators.as_array().unwrap();
    for (at, operator) in operators.iter().enumerate() {
        apply(&mut builder, operator).map_err(|error| (at, error))?;
    }
    builder.build("app").map_err(|error| (operators.len(), error))
}

fn apply(builder: &mut TopologyBuilder, operator: &Value) -> Result<(), TopologyError> {
    match text(operator, "op") {
        "add_source" => {
            let topics = match operator.get("pattern") {
                Some(pattern) => Topics::Pattern(pattern.as_str().unwrap().to_owned()),
                None => Topics::Named(texts(operator, "topics")),
            };
            let options = SourceOptions {
                offset_reset: operator.get("reset").map(|reset| match reset.as_str().unwrap() {
                    "earliest" => OffsetReset::Earliest,
                    "latest" => OffsetReset::Latest,
                    "none" => OffsetReset::None,
                    other => panic!("unknown reset {other}"),
                }),
                timestamp_extractor: operator.get("extractor").is_some(),
            };
            builder.add_source(text(operator, "name"), topics, options).map(drop)
        }
        "add_processor" => {
            builder.add_processor(text(operator, "name"), texts(operator, "parents")).map(drop)
        }
        "add_sink" => {
            let topic = match operator.get("topic") {
                Some(topic) => SinkTopic::named(topic.as_str().unwrap()),
                None => SinkTopic::Dynamic { chooser: "chooser".to_owned() },
            };
            builder.add_sink(text(operator, "name"), topic, texts(operator, "parents")).map(drop)
        }
        "add_state_store" => {
            builder.add_state_store(store(&operator["store"]), texts(operator, "processors"))
        }
        "connect" => builder.connect_processor_and_state_stores(
            text(operator, "processor"),
            texts(operator, "stores"),
        ),
        "add_global_store" => {
            builder.add_global_store(store(&operator["store"]), store_source(operator))
        }
        "add_read_only_store" => {
            builder.add_read_only_state_store(store(&operator["store"]), store_source(operator))
        }
        other => panic!("unknown operator {other}"),
    }
}

fn store(store: &Value) -> StoreSpec {
    let number = |field: &str| store[field].as_i64().unwrap();
    let kind = match text(store, "type") {
        "kv" => StoreKind::KeyValue,
        "ts_kv" => StoreKind::TimestampedKeyValue,
        "lru" => StoreKind::Lru { max_entries: usize::try_from(number("max_entries")).unwrap() },
        "versioned" => StoreKind::Versioned {
            history_retention_ms: number("history"),
            segment_interval_ms: store.get("segment_interval").and_then(Value::as_i64),
        },
        "window" => StoreKind::Window {
            retention_ms: number("retention"),
            window_size_ms: number("window_size"),
            retain_duplicates: store["duplicates"] == true,
            timestamped: false,
        },
        "session" => StoreKind::Session { retention_ms: number("retention") },
        other => panic!("unknown store type {other}"),
    };
    let spec = StoreSpec::new(text(store, "name"), kind);
    let spec = if store["in_memory"] == true { spec.in_memory() } else { spec };
    match store.get("logging") {
        None => spec,
        Some(Value::Bool(false)) => spec.with_logging_disabled(),
        Some(config) => {
            let config: BTreeMap<String, String> = serde_json::from_value(config.clone()).unwrap();
            spec.with_logging_enabled(config)
        }
    }
}

fn store_source(operator: &Value) -> StoreSource {
    StoreSource {
        source: text(operator, "source").to_owned(),
        topic: text(operator, "topic").to_owned(),
        processor: text(operator, "name").to_owned(),
        timestamp_extractor: operator.get("extractor").is_some(),
    }
}

fn subtopologies(topology: &Topology) -> Value {
    let mut found = Map::new();
    for subtopology in topology.subtopologies().iter().filter(|it| it.has_tasks()) {
        let topics = json!({
            "source_topics": subtopology.source_topics,
            "sink_topics": subtopology.sink_topics,
            "repartition_source_topics": subtopology.repartition_source_topics,
            "changelog_topics": subtopology.changelog_topics,
            "source_topic_changelogs": subtopology.source_topic_changelogs,
        });
        found.insert(subtopology.id.to_string(), topics);
    }
    Value::Object(found)
}

fn internal_topics(topology: &Topology) -> Value {
    let mut found = Map::new();
    for topic in topology.internal_topics() {
        let mut fields = Map::new();
        let kind = if topic.is_changelog() { "changelog" } else { "repartition" };
        fields.insert("kind".to_owned(), json!(kind));
        if let Some(partitions) = topic.partitions {
            fields.insert("partitions".to_owned(), json!(partitions));
        }
        let config = topic.config(&InternalTopicDefaults::default());
        fields.insert("config".to_owned(), json!(config));
        found.insert(topic.name, Value::Object(fields));
    }
    Value::Object(found)
}

fn global_stores(topology: &Topology) -> Value {
    let names: BTreeSet<&str> =
        topology.global_stores().iter().map(|global| global.spec.name.as_str()).collect();
    json!(names)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no text {field} in {value}"))
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let items = value.get(field).and_then(Value::as_array);
    items.into_iter().flatten().map(|item| item.as_str().unwrap().to_owned()).collect()
}
