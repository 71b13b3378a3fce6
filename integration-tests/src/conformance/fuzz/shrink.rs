//! Makes a case smaller as long as something holds of it.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::Value as Json;

/// How often a case is made smaller at most.
const ROUNDS_MAX: usize = 60;

/// What a case without it would be built with other types.
const KEPT_CONFIG: [&str; 2] = ["default.key.serde", "default.value.serde"];

/// Makes a case smaller as long as it can be: fewer events, fewer operators, less configuration. `first` gets cases
/// that are one step smaller, the greatest steps first, and gives the first of which it still holds.
///
/// # Errors
/// Those of `first`.
pub fn shrink(case: Json, mut first: impl FnMut(&[Json]) -> Result<Option<Json>>) -> Result<Json> {
    let mut smallest = case;
    for _ in 0..ROUNDS_MAX {
        let candidates = candidates(&smallest);
        if candidates.is_empty() {
            break;
        }
        match first(&candidates)? {
            Some(smaller) => smallest = smaller,
            None => break,
        }
    }
    Ok(smallest)
}

/// All that is one step smaller, without what was expected of the greater one.
fn candidates(case: &Json) -> Vec<Json> {
    let topology = list(&case["topology"]);
    let input = list(&case["input"]);
    let mut candidates = Vec::new();
    if input.len() >= 4 {
        let (front, back) = input.split_at(input.len() / 2);
        candidates.extend([front, back].map(|half| with(case, "input", half.to_vec())));
    }
    for at in 0..topology.len() {
        let left = without_operator(&topology, at);
        if !left.is_empty() {
            candidates.push(with(case, "topology", left));
        }
    }
    let passed_by = (0..topology.len()).filter_map(|at| passing_by_operator(&topology, at));
    candidates.extend(passed_by.map(|left| with(case, "topology", left)));
    for key in case["config"].as_object().into_iter().flatten().map(|(key, _)| key) {
        if !KEPT_CONFIG.contains(&key.as_str()) {
            let mut candidate = case.clone();
            if let Some(config) = candidate["config"].as_object_mut() {
                config.remove(key);
            }
            candidates.push(candidate);
        }
    }
    for at in 0..input.len() {
        let mut left = input.clone();
        left.remove(at);
        candidates.push(with(case, "input", left));
    }
    candidates.into_iter().map(tidy).collect()
}

fn list(json: &Json) -> Vec<Json> {
    json.as_array().cloned().unwrap_or_default()
}

fn with(case: &Json, field: &str, items: Vec<Json>) -> Json {
    let mut candidate = case.clone();
    candidate[field] = Json::from(items);
    candidate
}

/// Without what was expected, and without events of topics and stores that are not there any more.
fn tidy(mut candidate: Json) -> Json {
    let topology = list(&candidate["topology"]);
    let sources: BTreeSet<String> = topology.iter().flat_map(source_topics).collect();
    let text = candidate["topology"].to_string();
    let events = list(&candidate["input"]).into_iter().filter(|event| {
        let topic = event["topic"].as_str();
        let store = event["query"]["store"].as_str();
        topic.is_none_or(|topic| sources.contains(topic))
            && store.is_none_or(|store| text.contains(&format!("\"{store}\"")))
    });
    candidate["input"] = events.collect();
    if let Some(fields) = candidate.as_object_mut() {
        fields.remove("expect");
    }
    candidate
}

/// The topics that an operator reads.
fn source_topics(operator: &Json) -> Vec<String> {
    let named = operator["topic"].as_str().filter(|_| operator["op"] != "to");
    let several = list(&operator["topics"]);
    let several = several.iter().filter_map(Json::as_str);
    several.chain(named).map(str::to_owned).collect()
}

/// What an operator makes: results, or a store.
fn makes(operator: &Json) -> Vec<&str> {
    let branches = operator["branches"].as_array().into_iter().flatten();
    let ids = branches.map(|branch| &branch["id"]);
    let more = [&operator["id"], &operator["default"]["id"], &operator["store"]["name"]];
    ids.chain(more).filter_map(Json::as_str).collect()
}

/// What an operator takes.
fn takes(operator: &Json) -> Vec<&str> {
    let stores = operator["stores"].as_array().into_iter().flatten();
    stores.chain([&operator["in"], &operator["with"]]).filter_map(Json::as_str).collect()
}

/// Without an operator and all that hangs on it.
fn without_operator(topology: &[Json], at: usize) -> Vec<Json> {
    let mut gone: BTreeSet<&str> = BTreeSet::new();
    let mut left = Vec::new();
    for (number, operator) in topology.iter().enumerate() {
        if number == at || takes(operator).iter().any(|taken| gone.contains(taken)) {
            gone.extend(makes(operator));
        } else {
            left.push(operator.clone());
        }
    }
    left
}

/// Without an operator whose result is replaced by what it takes; `None` if it has no such.
fn passing_by_operator(topology: &[Json], at: usize) -> Option<Vec<Json>> {
    let (id, taken) = (topology[at]["id"].as_str()?, topology[at]["in"].as_str()?);
    let mut left: Vec<Json> = topology.to_vec();
    left.remove(at);
    for operator in &mut left {
        for field in ["in", "with"] {
            if operator[field] == id {
                operator[field] = Json::from(taken);
            }
        }
    }
    Some(left)
}
