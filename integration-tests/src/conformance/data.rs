//! Compares what came of a case with what it expects: sections 9 and 10 of the format.

use std::collections::BTreeMap;

use headwater::runtime::OffsetMetadata;
use serde_json::{Value as Json, json};

use super::build::Built;
use super::case::{Case, Difference, text};
use super::printed::Page;
use super::run::Found;

/// How what came of a case differs from what it expects.
pub(super) fn differences(case: &Case, built: &Built, found: &Found) -> Vec<Difference> {
    let mut differences = of_failure(case, found);
    let goes_on = found.failed.is_none() && case.expect.get("error").is_some();
    if !differences.is_empty() || goes_on {
        return differences;
    }
    differences.extend(of_topics(case, &found.topics));
    let mut check = |field: &str, found: Json, none: Json| {
        let expected = case.expect.get(field).cloned().unwrap_or(none);
        if expected != found {
            let (found, expected) = (found.to_string(), expected.to_string());
            differences.push(Difference::of(field, &found, &expected));
        }
    };
    if case.expect.get("error").is_none() {
        check("dropped", json!(found.dropped), json!(0));
        check("dropped_at", json!(found.dropped_at), json!([]));
        check("side_effects", json!(found.side_effects), json!([]));
        check("queries", json!(found.queries), json!([]));
        differences.extend(of_stores(case, found));
        differences.extend(of_committed_metadata(case, found));
    }
    differences.extend(of_printed(case, built));
    differences
}

/// Whether it failed where it should, in the way it should.
fn of_failure(case: &Case, found: &Found) -> Vec<Difference> {
    let difference = match (&found.failed, case.expect.get("error")) {
        (None, None) => return Vec::new(),
        (Some((event, _, failure)), None) => {
            Difference::new("run", format!("failed at event {event}: {failure}"))
        }
        (None, Some(expected)) if is_of_wrong_serde(expected) => return Vec::new(),
        (None, Some(expected)) => Difference::new("error", format!("no failure, but {expected}")),
        (Some((event, class, failure)), Some(expected)) => {
            if expected["e"] != *event {
                let found = format!("event {event}: {failure}");
                Difference::of("error.e", &found, &expected["e"].to_string())
            } else if class_of(expected) != *class {
                let found = format!("{class}: {failure}");
                Difference::of("error.class", &found, class_of(expected))
            } else {
                return Vec::new();
            }
        }
    };
    vec![difference]
}

/// The class of what the original throws. A failure while a cache is flushed comes out of it as one of the store; here
/// a failure below is the same wherever it comes from, as is the class that both are of.
fn class_of(expected: &Json) -> &str {
    match text(&expected["class"]) {
        "ProcessorStateException"
            if text(&expected["message"]).contains("Failed to flush cache of store") =>
        {
            "StreamsException"
        }
        class => class,
    }
}

/// Whether the original took a serde of another type than the value, which the types rule out here: there is nothing
/// to compare from then on.
fn is_of_wrong_serde(expected: &Json) -> bool {
    let causes = expected["causes"].as_array().into_iter().flatten();
    causes.into_iter().any(|cause| cause[0] == "ClassCastException")
}

/// The original has several times of operators in the order of its hash map, which hangs on the order in which they
/// came into it where two are in one bucket: the order here is taken for both.
fn of_committed_metadata(case: &Case, found: &Found) -> Option<Difference> {
    let expected = case.expect.get("committed_metadata")?.as_object()?;
    let in_our_order = |text: &str| match OffsetMetadata::decode(text) {
        Ok(metadata) => metadata.encode(),
        Err(_) => text.to_owned(),
    };
    let expected = expected.iter().map(|(topic, it)| (topic.clone(), in_our_order(text(it))));
    let expected: BTreeMap<String, String> = expected.collect();
    let of = |it: &BTreeMap<String, String>| json!(it).to_string();
    (expected != found.committed_metadata).then(|| {
        Difference::of("committed_metadata", &of(&found.committed_metadata), &of(&expected))
    })
}

fn of_stores(case: &Case, found: &Found) -> Vec<Difference> {
    let expected = case.expect["stores"].as_object().into_iter().flatten();
    expected
        .filter_map(|(store, expected)| {
            let found = found.stores.get(store).cloned().unwrap_or(Json::Null);
            (found != *expected).then(|| {
                let (found, expected) = (found.to_string(), expected.to_string());
                let mut difference = Difference::of("stores", &found, &expected);
                difference.text.insert_str(0, &format!("{store}: "));
                difference
            })
        })
        .collect()
}

fn of_printed(case: &Case, built: &Built) -> Vec<Difference> {
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

/// The records of a topic as the case has them, without what only the original can know.
fn expected(records: &Json) -> Vec<Json> {
    let records = records.as_array().into_iter().flatten();
    let fields = ["e", "k", "v", "ts", "p", "h"];
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

fn is_suppress_changelog(case: &Case, topic: &str) -> bool {
    let named = case.topology.iter().filter(|op| op["op"] == "suppress").any(|op| {
        op["named"].as_str().is_some_and(|name| topic == format!("app-{name}-store-changelog"))
    });
    named || topic.contains("KTABLE-SUPPRESS-STATE-STORE-")
}

fn order_of_commit(record: &Json) -> (Option<u64>, String) {
    (record["e"].as_u64(), record["k"].to_string())
}

/// Sent without timestamp in the original, with that of the sending here.
fn without_times_of_sending(found: &mut [Json], expected: &[Json]) {
    for (found, _) in found.iter_mut().zip(expected).filter(|(_, it)| it["ts"].is_null()) {
        found["ts"] = Json::Null;
    }
}

fn of_topics(case: &Case, found: &BTreeMap<String, Vec<Json>>) -> Vec<Difference> {
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
        let found = found.get(topic).into_iter().flatten();
        let mut found: Vec<Json> = found.cloned().map(without_languages_own).collect();
        let mut expected = expected;
        without_times_of_sending(&mut found, &expected);
        if is_suppress_changelog(case, topic) {
            // A commit logs keys in the order of a Java HashSet, and here in their own order.
            found.sort_by_cached_key(order_of_commit);
            expected.sort_by_cached_key(order_of_commit);
        }
        if found != expected {
            let lines = |records: &[Json]| -> String {
                let lines: Vec<String> = records.iter().map(|it| format!("  {it}")).collect();
                lines.join("\n")
            };
            let mut difference = Difference::of(part, &lines(&found), &lines(&expected));
            difference.text.insert_str(0, &format!("{topic}: "));
            differences.push(difference);
        }
    }
    differences
}
