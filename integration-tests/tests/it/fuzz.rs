//! Random conformance cases: what follows from a seed, and how cases that differ are made smaller.

use std::collections::BTreeMap;
use std::path::Path;

use integration_tests::conformance::{Case, Original, Outcome, build_only, random_case, shrink};
use serde_json::{Value as Json, json};

fn cases(seed: u64, count: u64) -> impl Iterator<Item = Json> {
    (0..count).map(move |number| random_case(seed, number))
}

#[test]
fn a_case_follows_from_seed_and_number() {
    let texts = |seed| cases(seed, 50).map(|case| case.to_string()).collect::<Vec<_>>();
    assert_eq!(texts(1), texts(1));
    let mut all: Vec<String> = texts(1).into_iter().chain(texts(2)).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 100, "other numbers give other cases");
}

/// The runner has a form for everything, and few programs are wrong.
#[test]
fn random_cases_can_be_built() {
    let mut refused = 0;
    for case in cases(3, 400) {
        match build_only(&Case::parse(&case.to_string()).unwrap()) {
            Outcome::Passed => {}
            Outcome::Failed(_) => refused += 1,
            Outcome::Missing(what) => panic!("{case} needs {what}"),
        }
    }
    assert!(refused <= 20, "{refused} of 400 programs are wrong");
}

/// Operators, windows, processors and what else a case is made of.
const WORDS: [&str; 46] = [
    "aggregate",
    "buffer",
    "cogroup",
    "count",
    "dedup",
    "filter",
    "filter_not",
    "flat_map",
    "flat_map_values",
    "foreign_key",
    "global_table",
    "group_by",
    "group_by_key",
    "hopping",
    "join",
    "left_join",
    "map",
    "map_values",
    "merge",
    "on_window_close",
    "outer_join",
    "peek",
    "process",
    "process_values",
    "reduce",
    "repartition",
    "select_key",
    "session",
    "session_put",
    "sliding",
    "split",
    "stream",
    "suppress",
    "table",
    "tick",
    "time_limit",
    "to",
    "to_stream",
    "to_table",
    "transform_values",
    "ts_last",
    "tumbling",
    "unlimited",
    "window_closes",
    "window_put",
    "windowed_by",
];

#[test]
fn each_operator_comes_up_often() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut count = |word: &Json| {
        if let Some(word) = word.as_str() {
            *counts.entry(word.to_owned()).or_default() += 1;
        }
    };
    for case in cases(4, 3_000) {
        for operator in case["topology"].as_array().unwrap() {
            let processor = &operator["processor"];
            let (window, emit) = (&operator["window"]["type"], &operator["emit"]);
            for word in
                [&operator["op"], window, &operator["until"], emit, processor, &processor[0]]
            {
                count(word);
            }
            if operator.get("foreign_key").is_some() {
                count(&json!("foreign_key"));
            }
        }
    }
    let rare: Vec<_> =
        WORDS.iter().filter(|word| counts.get(**word).is_none_or(|count| *count < 10)).collect();
    assert!(rare.is_empty(), "{rare:?} of {counts:?}");
}

/// What is there more than what must hold goes: operators, events, configuration.
#[test]
fn a_case_is_made_as_small_as_can_be() {
    let case = json!({
        "name": "large", "config": {"default.key.serde": "string", "processing.guarantee": "x"},
        "topology": [
            {"op": "stream", "id": "a", "topics": ["t0"]},
            {"op": "stream", "id": "b", "topics": ["t1"]},
            {"op": "filter", "id": "c", "in": "a", "predicate": "true"},
            {"op": "peek", "id": "d", "in": "c", "label": "d"},
            {"op": "to", "in": "d", "topic": "out0"},
            {"op": "add_state_store", "store": {"name": "s"}},
            {"op": "process", "id": "e", "in": "b", "processor": ["count", "s"], "stores": ["s"]},
            {"op": "to", "in": "e", "topic": "out1"},
        ],
        "serdes": {},
        "input": [
            {"topic": "t0", "key": "k", "value": "1", "ts": 1},
            {"topic": "t1", "key": "k", "value": "2", "ts": 2},
            {"topic": "t0", "key": "k", "value": null, "ts": 3},
            {"query": {"store": "s", "type": "all"}},
            {"topic": "t0", "key": "k", "value": "4", "ts": 4},
        ],
        "expect": {},
    });
    let holds = |case: &Json| {
        let operators = case["topology"].as_array().unwrap();
        let has = |op: &str| operators.iter().any(|operator| operator["op"] == op);
        let events = case["input"].as_array().unwrap();
        let has_tombstone =
            events.iter().any(|event| event.get("ts").is_some() && event["value"].is_null());
        has("peek") && has("stream") && has_tombstone
    };
    let found = shrink(case, |candidates| Ok(candidates.iter().find(|it| holds(it)).cloned()));
    let expected = json!({
        "name": "large", "config": {"default.key.serde": "string"},
        "topology": [
            {"op": "stream", "id": "a", "topics": ["t0"]},
            {"op": "peek", "id": "d", "in": "a", "label": "d"},
        ],
        "serdes": {},
        "input": [{"topic": "t0", "key": "k", "value": null, "ts": 3}],
    });
    assert_eq!(found.unwrap(), expected);
}

#[test]
fn where_no_oracle_is_the_error_says_what_to_give() {
    let error = Original::at(Path::new("nowhere")).unwrap_err().to_string();
    assert_eq!(
        error,
        "no oracle in nowhere: it has no run.sh. Give the directory of the oracle with --oracle or \
         HEADWATER_ORACLE"
    );
}
