//! Runs a built case with its input: sections 7, 8 and 11 of the format.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater::runtime::{DefaultTimestampExtractor, OffsetMetadata};
use headwater::serde::{RawBytes, Serializer, Window, Windowed};
use headwater::topology::{NodeId, NodeKind};
use headwater::{
    DropReason, ExceptionHandler, Handlers, ProcessingGuarantee, StreamsConfig, dead_letter,
    log_and_continue, log_and_fail,
};
use headwater_testing::{
    ProducedRecord, Tasks, TestDriverError, TestRecord, TopologyTestDriver,
    TopologyTestDriverBuilder,
};
use serde_json::{Value as Json, json};

use super::build::Built;
use super::case::{Case, Missing, text};
use super::contents;
use super::serdes::DynSerde;
use super::value::{Value, hex};

/// What came of a case.
#[derive(Default)]
pub(super) struct Found {
    /// Records by topic, output and internal.
    pub(super) topics: BTreeMap<String, Vec<Json>>,
    /// Event, label, key and value of each call that was noted.
    pub(super) side_effects: Vec<Json>,
    /// Records dropped in all.
    pub(super) dropped: u64,
    /// Event, and how many it dropped.
    pub(super) dropped_at: Vec<Json>,
    /// The answers to queries.
    pub(super) queries: Vec<Json>,
    /// By store; none after a failure.
    pub(super) stores: BTreeMap<String, Json>,
    /// By topic; none after a failure.
    pub(super) committed_metadata: BTreeMap<String, String>,
    /// The event at which it failed, the class of what the original throws then, and why.
    pub(super) failed: Option<(usize, &'static str, String)>,
}

/// Runs a case to its end, or to its first failure. Where a task has records of one timestamp in several topics, that of
/// the topic which is earlier in this order comes first.
pub(super) fn run(case: &Case, built: &Built, topics: &[&str]) -> Result<Found, Missing> {
    let mut found = Found::default();
    let driver = match driver(case, built).topic_order(topics.iter().copied()).build() {
        Ok(driver) => driver,
        Err(error) => {
            found.failed = Some((0, class(&error), show_error(&error)));
            return Ok(found);
        }
    };
    let mut seen = 0;
    for (event, input) in case.input.iter().enumerate() {
        if let Some(query) = input.get("query") {
            let result = contents::answer(case, &driver, built, query)?;
            found.queries.push(json!({"e": event, "result": result}));
            continue;
        }
        if let Err(error) = happen(case, &driver, input)? {
            found.failed = Some((event, class(&error), show_error(&error)));
            return Ok(found);
        }
        let produced = driver.produced_records();
        for record in produced.iter().skip(seen) {
            let records = found.topics.entry(record.topic.to_string()).or_default();
            records.push(show(event, record));
        }
        seen = produced.len();
        for (label, key, value) in built.notes.take() {
            found.side_effects.push(json!([event, label, key, value]));
        }
        let dropped = dropped_records_total(&driver, built);
        if dropped > found.dropped {
            found.dropped_at.push(json!([event, dropped - found.dropped]));
            found.dropped = dropped;
        }
    }
    found.stores = contents::stores(case, &driver, built)?;
    found.committed_metadata = committed_metadata(case, &driver, built, &found);
    Ok(found)
}

/// What is committed beside the offsets of each input topic, by its name. The original's driver takes all topics of a
/// pattern for one of the pattern's name.
fn committed_metadata(
    case: &Case,
    driver: &TopologyTestDriver,
    built: &Built,
    found: &Found,
) -> BTreeMap<String, String> {
    let topics = case.input.iter().filter_map(|event| event["topic"].as_str());
    let topics: BTreeSet<&str> = topics.collect();
    let graph = built.topology.for_application("app").expect("it was made before").graph;
    let graph = graph.with_matched_topics(topics.iter().copied()).expect("it has been run");
    let metadata = |topic: &str| Some(driver.committed_offset(topic, 0)?.metadata);
    let decoded = |metadata: &String| OffsetMetadata::decode(metadata).ok();
    let internal = found.topics.keys().map(String::as_str);
    // What operators keep is committed with every input, also with those that nothing came from.
    let read = graph.subtopologies().iter().filter(|it| !it.is_global);
    let read = read.flat_map(|it| it.source_topics.iter().chain(&it.repartition_source_topics));
    let unread = read.map(String::as_str).filter(|topic| {
        let kept = metadata(topic).as_ref().and_then(decoded);
        kept.is_some_and(|kept| !kept.processor_metadata.is_empty())
    });
    let of_pattern = |topic: &str| {
        let mut patterns = graph.patterns();
        patterns.find(|(_, topics)| topics.iter().any(|it| it == topic)).map(|(text, _)| text)
    };
    let mut committed: BTreeMap<String, String> = BTreeMap::new();
    for topic in topics.iter().copied().chain(internal).chain(unread) {
        let Some(metadata) = metadata(topic) else { continue };
        let name = of_pattern(topic).unwrap_or(topic);
        let time = |metadata: &String| decoded(metadata).map_or(-1, |it| it.partition_time);
        if committed.get(name).is_none_or(|known| time(known) < time(&metadata)) {
            committed.insert(name.to_owned(), metadata);
        }
    }
    committed
}

/// An event that is no query.
fn happen(
    case: &Case,
    driver: &TopologyTestDriver,
    input: &Json,
) -> Result<Result<(), TestDriverError>, Missing> {
    if let Some(ms) = input.get("advance_wall_clock").and_then(Json::as_u64) {
        return Ok(driver.advance_wall_clock_time(Duration::from_millis(ms)));
    }
    let topic = text(&input["topic"]);
    let record = input_record(case, topic, input)?;
    let topic = driver.create_input_topic(topic, RawBytes, RawBytes);
    Ok(topic.pipe_record(&record))
}

/// What the original counts: all but the records without key in front of a repartition topic, which it drops in
/// silence.
fn dropped_records_total(driver: &TopologyTestDriver, built: &Built) -> u64 {
    let graph = built.topology.graph();
    let is_repartition = |id: &NodeId| match &graph.node(*id).kind {
        NodeKind::Sink(sink) => sink.topic.as_ref().is_some_and(|topic| {
            // The topics of foreign-key joins end otherwise, and have no such node in front.
            topic.ends_with("-repartition")
                && graph.internal_topics().iter().any(|internal| internal.name == *topic)
        }),
        _ => false,
    };
    let is_filter = |name: &str| {
        let node = graph.node_named(name);
        node.is_some_and(|node| node.children.iter().any(is_repartition))
    };
    let dropped = driver.dropped_records();
    let uncounted = dropped.nodes().filter(|(_, node, _)| is_filter(node));
    let uncounted = uncounted.map(|(_, _, counts)| counts.of(DropReason::NullKey));
    dropped.total() - uncounted.sum::<u64>()
}

/// What the original throws: user code's own exception where it fails on a global topic.
fn class(error: &TestDriverError) -> &'static str {
    match error {
        TestDriverError::Global { .. } => "IllegalStateException",
        _ => "StreamsException",
    }
}

/// An error with all its causes.
fn show_error(error: &TestDriverError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn driver(case: &Case, built: &Built) -> TopologyTestDriverBuilder {
    let config = &case.config;
    let cache = config.get("statestore.cache.max.bytes").and_then(Json::as_u64).unwrap_or(0);
    let guarantee = match config["processing.guarantee"].as_str() {
        Some("exactly_once_v2") => ProcessingGuarantee::ExactlyOnceV2,
        _ => ProcessingGuarantee::AtLeastOnce,
    };
    let extractor = match config["default.timestamp.extractor"].as_str() {
        Some("skip") => DefaultTimestampExtractor::LogAndSkipOnInvalidTimestamp,
        Some("partition_time") => DefaultTimestampExtractor::UsePartitionTimeOnInvalidTimestamp,
        _ => DefaultTimestampExtractor::FailOnInvalidTimestamp,
    };
    let settings = StreamsConfig::new("app")
        .default_timestamp_extractor(extractor)
        .window_emit_interval_ms(config["emit.interval.window.close"].as_u64().unwrap_or(0))
        .outer_join_emit_interval_ms(config["emit.interval.outer.join"].as_u64().unwrap_or(0))
        .statestore_cache_max_bytes(cache)
        .processing_guarantee(guarantee);
    let mut driver = TopologyTestDriver::builder(built.topology.clone())
        .config(settings)
        .exception_handlers(handlers(config))
        .initial_wall_clock_time_ms(config["wall_clock_start"].as_i64().unwrap_or(0))
        .tasks(Tasks::OnePerApplication);
    for topic in case.input.iter().filter_map(|event| event["topic"].as_str()) {
        driver = driver.partitions(topic, 1);
    }
    // The original's driver says that each topic has one partition, and lets a partitioner choose others.
    for op in &case.topology {
        if let Some(partitions) = partitions_chosen(&op["repartitioned"]) {
            let graph = built.topology.for_application("app").expect("it was made before").graph;
            for topic in graph.internal_topics().iter().filter(|topic| !topic.is_changelog()) {
                driver = driver.partitions(topic.name.as_str(), partitions);
            }
        }
        let partitions = partitions_chosen(&op["produced"]).or_else(|| partitions_chosen(op));
        if let (Some(partitions), Some(topic)) = (partitions, op["topic"].as_str()) {
            driver = driver.partitions(topic, partitions);
        }
    }
    driver
}

/// How many partitions there must be for what a partitioner chooses, if it does.
fn partitions_chosen(params: &Json) -> Option<i32> {
    let chosen = params["partitioner"].as_array()?.iter().filter_map(Json::as_i64).max()?;
    i32::try_from(chosen).ok()?.checked_add(1)
}

fn handlers(config: &Json) -> Handlers {
    let dead_letters = config.get("errors.dead.letter.queue.topic.name").map(text);
    let handler = |kind: &str| -> Arc<dyn ExceptionHandler> {
        let continues = config
            .get(format!("{kind}.exception.handler"))
            .is_some_and(|handler| handler == "continue");
        match dead_letters {
            Some(topic) if continues => Arc::new(dead_letter(topic)),
            None if continues => Arc::new(log_and_continue()),
            _ => Arc::new(log_and_fail()),
        }
    };
    Handlers {
        deserialization: handler("deserialization"),
        processing: handler("processing"),
        production: handler("production"),
    }
}

fn input_record(
    case: &Case,
    topic: &str,
    input: &Json,
) -> Result<TestRecord<Bytes, Bytes>, Missing> {
    let part = |name: &str| -> Result<Option<Vec<u8>>, Missing> {
        if let Some(raw) = input.get(format!("{name}_hex")) {
            return Ok(raw.as_str().map(bytes_of_hex));
        }
        let serde = case.serdes.get(topic).and_then(|serdes| serdes.get(name));
        let serde = serde.map_or(Ok(DynSerde::Text), DynSerde::named)?;
        let mut bytes = Vec::new();
        let Some(value) = input_value(serde, &input[name]) else {
            return Ok(serde_null(serde, &mut bytes).then_some(bytes));
        };
        serde
            .serialize(&value, &mut bytes)
            .map_err(|error| Missing(format!("input of the case: {error}")))?;
        Ok(Some(bytes))
    };
    let bytes = |part: Option<Vec<u8>>| part.map(Bytes::from);
    let mut record = TestRecord::new(bytes(part("key")?), bytes(part("value")?))
        .at(input["ts"].as_i64().expect("an input record has a time"));
    for header in input["headers"].as_array().into_iter().flatten() {
        record = record.with_header(text(&header[0]), header[1].as_str().map(str::as_bytes));
    }
    Ok(record)
}

fn serde_null(serde: DynSerde, bytes: &mut Vec<u8>) -> bool {
    Serializer::<Value>::null_form(&serde, bytes)
}

fn input_value(serde: DynSerde, json: &Json) -> Option<Value> {
    if json.is_null() {
        return None;
    }
    Some(match serde {
        DynSerde::Text | DynSerde::Picky | DynSerde::Tagged => Value::Text(text(json).to_owned()),
        DynSerde::Long => Value::Long(json.as_i64().expect("a long")),
        DynSerde::Int => {
            Value::Int(json.as_i64().and_then(|it| it.try_into().ok()).expect("an int"))
        }
        DynSerde::Double => Value::Double(json.as_f64().expect("a double")),
        DynSerde::Boolean => Value::Boolean(json.as_bool().expect("a boolean")),
        DynSerde::Bytes => Value::Bytes(bytes_of_hex(text(json))),
        DynSerde::Uuid => Value::Uuid(text(json).parse().expect("a uuid")),
        DynSerde::TimeWindowed(inner, _) | DynSerde::SessionWindowed(inner) => {
            let time = |field: &str| json[field].as_i64().expect("a time");
            let window = Window { start: time("start"), end: time("end") };
            Value::Windowed(Box::new(Windowed { key: input_value(*inner, &json["key"])?, window }))
        }
    })
}

fn bytes_of_hex(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|at| {
            let digits = hex.get(2 * at..2 * at + 2).expect("pairs of digits");
            u8::from_str_radix(digits, 16).expect("hexadecimal digits")
        })
        .collect()
}

fn hex_or_null(bytes: Option<&[u8]>) -> Json {
    bytes.map_or(Json::Null, |bytes| Json::from(hex(bytes)))
}

fn show(event: usize, record: &ProducedRecord) -> Json {
    let mut shown = json!({
        "e": event, "k": hex_or_null(record.key.as_deref()),
        "v": hex_or_null(record.value.as_deref()), "ts": record.timestamp,
    });
    if record.partition != 0 {
        shown["p"] = Json::from(record.partition);
    }
    if !record.headers.is_empty() {
        let headers = record.headers.iter();
        let headers = headers.map(|(name, value)| json!([name, hex_or_null(value.as_deref())]));
        shown["h"] = headers.collect();
    }
    shown
}
