//! What a case does with its input: sections 8 to 11 of the format.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater::runtime::{
    Application, DefaultTimestampExtractor, ExceptionHandler, Handlers, WorkerConfig, dead_letter,
    log_and_continue, log_and_fail,
};
use headwater::serde::Serializer;
use serde_json::{Value as Json, json};

use super::build::Built;
use super::case::{Case, Difference, Missing, text};
use super::driver::{Bytes, Driver};
use super::printed::Page;
use super::serdes::DynSerde;
use super::value::{Value, hex};

/// Runs a built case and compares what it writes: to output topics, changelogs and repartition topics.
pub(super) fn differences(case: &Case, built: &Built) -> Result<Vec<Difference>, Missing> {
    if let Some(missing) = unsupported(case) {
        return Err(Missing(missing));
    }
    let topics = case.input.iter().filter_map(|event| event["topic"].as_str());
    let programs = built.topology.topology("app").and_then(|graph| {
        let graph = graph.with_matched_topics(topics)?;
        built.topology.programs(&graph)
    });
    let programs = match programs {
        Ok(programs) => programs,
        Err(error) => {
            let problem = format!("refused for an application: {error}");
            return Ok(vec![Difference::new("build", problem)]);
        }
    };
    let config = worker_config(case, &programs);
    let wall_ms = case.config["wall_clock_start"].as_i64().unwrap_or(0);
    let mut driver = Driver::new(&programs, config, wall_ms);
    let mut found: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    let failed_at = case.expect["error"]["e"].as_u64();
    for (event, input) in case.input.iter().enumerate() {
        let runs = match input.get("advance_wall_clock").and_then(Json::as_u64) {
            Some(ms) => driver.advance_wall_clock(ms),
            None if input.get("query").is_some() => continue,
            None => {
                let topic = text(&input["topic"]);
                driver.pipe(topic, input_record(case, topic, input)?)
            }
        };
        if !runs {
            let failure = driver.failure().unwrap_or_default();
            return Ok(match failed_at {
                Some(expected) if expected == event as u64 => differences_of_topics(case, &found),
                _ => vec![Difference::new("run", format!("failed at event {event}: {failure}"))],
            });
        }
        if failed_at == Some(event as u64) {
            let problem = format!("no failure at event {event}, but {}", case.expect["error"]);
            return Ok(vec![Difference::new("run", problem)]);
        }
        for (topic, record) in driver.take_written() {
            found.entry(topic).or_default().push(without_languages_own(show(event, &record)));
        }
    }
    let mut differences = differences_of_topics(case, &found);
    differences.extend(differences_of_printed(case, built));
    Ok(differences)
}

fn differences_of_printed(case: &Case, built: &Built) -> Vec<Difference> {
    let expected = case.expect["printed"].as_object().into_iter().flatten();
    let expected = expected.map(|(label, page)| (label, text(page)));
    expected
        .filter_map(|(label, expected)| {
            let found = built.printed.get(label).map(Page::text).unwrap_or_default();
            (found != expected).then(|| {
                Difference::new("printed", format!("under {label}:\n{found} not\n{expected}"))
            })
        })
        .collect()
}

/// What this runner, or the engine, has no form for.
fn unsupported(case: &Case) -> Option<String> {
    if case.topology.iter().any(|op| op.get("pattern").is_some()) {
        return Some(
            "the original's driver, which numbers the topics of a pattern as one".to_owned(),
        );
    }
    if case.flags.iter().any(|flag| flag == "order") {
        return Some("an order that the case fixes".to_owned());
    }
    None
}

fn worker_config(
    case: &Case,
    programs: &BTreeMap<u32, Arc<headwater::runtime::Program>>,
) -> WorkerConfig {
    let config = &case.config;
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
    let uses_partitioners = case.topology.iter().any(|op| {
        [Some(op), op.get("produced"), op.get("repartitioned")]
            .into_iter()
            .flatten()
            .any(|params| params.get("partitioner").is_some())
    });
    // The original's driver lets a partitioner choose any partition of its one-partition topics.
    let partitions = if uses_partitioners { 8 } else { 1 };
    let sinks = programs.values().flat_map(|program| &program.sinks).map(|sink| &sink.topic);
    let changelogs =
        programs.values().flat_map(|it| &it.stores).filter_map(|store| store.changelog.as_ref());
    let mut partition_counts: BTreeMap<_, _> =
        sinks.map(|topic| (topic.clone(), partitions)).collect();
    partition_counts.extend(changelogs.map(|topic| (topic.clone(), 1)));
    partition_counts.extend(dead_letters.map(|topic| (topic.into(), 1)));
    let cache = config.get("statestore.cache.max.bytes").and_then(Json::as_u64).unwrap_or(0);
    let default_timestamp_extractor =
        match config.get("default.timestamp.extractor").map(text).unwrap_or_default() {
            "skip" => DefaultTimestampExtractor::LogAndSkipOnInvalidTimestamp,
            "partition_time" => DefaultTimestampExtractor::UsePartitionTimeOnInvalidTimestamp,
            _ => DefaultTimestampExtractor::FailOnInvalidTimestamp,
        };
    WorkerConfig {
        default_timestamp_extractor,
        commit_interval: Duration::MAX,
        cache_bytes_max: usize::try_from(cache).expect("a cache that fits memory"),
        handlers: Handlers {
            deserialization: handler("deserialization"),
            processing: handler("processing"),
            production: handler("production"),
        },
        partition_counts: Arc::new(partition_counts),
        ..WorkerConfig::default()
    }
}

fn input_record(case: &Case, topic: &str, input: &Json) -> Result<Bytes, Missing> {
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
    let headers = input["headers"].as_array().into_iter().flatten().map(|header| {
        let value = header[1].as_str().map(|value| value.as_bytes().to_vec());
        (text(&header[0]).to_owned(), value)
    });
    Ok(Bytes {
        key: part("key")?,
        value: part("value")?,
        timestamp: input["ts"].as_i64().expect("an input record has a time"),
        headers: headers.collect(),
    })
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

fn hex_or_null(bytes: Option<&Vec<u8>>) -> Json {
    bytes.map_or(Json::Null, |bytes| Json::from(hex(bytes)))
}

fn show(event: usize, record: &Bytes) -> Json {
    let mut shown = json!({
        "e": event, "k": hex_or_null(record.key.as_ref()), "v": hex_or_null(record.value.as_ref()),
        "ts": record.timestamp,
    });
    if !record.headers.is_empty() {
        let headers =
            record.headers.iter().map(|(name, value)| json!([name, hex_or_null(value.as_ref())]));
        shown["h"] = headers.collect();
    }
    shown
}

/// The records of a topic as the case has them, without what only the original can know.
fn expected(records: &Json) -> Vec<Json> {
    let records = records.as_array().into_iter().flatten();
    let fields = ["e", "k", "v", "ts", "h"];
    records
        .map(|record| {
            let fields = fields.iter().filter_map(|field| {
                record.get(field).map(|value| ((*field).to_owned(), value.clone()))
            });
            without_languages_own(Json::Object(fields.collect()))
        })
        .collect()
}

/// The record without the header values of dead letters that each language writes in its own way.
fn without_languages_own(mut record: Json) -> Json {
    const OWN: [&str; 3] =
        ["__streams.errors.exception", "__streams.errors.message", "__streams.errors.stacktrace"];
    for header in record["h"].as_array_mut().into_iter().flatten() {
        if OWN.iter().any(|name| header[0] == **name) {
            header[1] = Json::from("*");
        }
    }
    if record["h"].is_null() {
        record.as_object_mut().expect("a record is an object").remove("h");
    }
    record
}

fn differences_of_topics(case: &Case, found: &BTreeMap<String, Vec<Json>>) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut topics: BTreeMap<&str, (&str, Vec<Json>)> = BTreeMap::new();
    for part in ["outputs", "internal"] {
        for (topic, records) in case.expect[part].as_object().into_iter().flatten() {
            topics.insert(topic, (part, expected(records)));
        }
    }
    for topic in found.keys() {
        topics.entry(topic).or_insert(("outputs", Vec::new()));
    }
    for (topic, (part, expected)) in topics {
        let found = found.get(topic).map_or(&[][..], Vec::as_slice);
        if found != expected {
            let lines = |records: &[Json]| -> String {
                let lines: Vec<String> = records.iter().map(|it| format!("  {it}")).collect();
                lines.join("\n")
            };
            let mut difference = Difference::of(part, &lines(found), &lines(&expected));
            difference.text.insert_str(0, &format!("{topic}: "));
            differences.push(difference);
        }
    }
    differences
}
