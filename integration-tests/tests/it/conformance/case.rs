//! A case and what became of it.

use serde_json::Value as Json;

/// One case.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) config: Json,
    /// Whether it is built with the low-level words.
    pub(super) low_level: bool,
    pub(super) topology: Vec<Json>,
    /// Topic to serdes of key and value.
    pub(super) serdes: Json,
    pub(super) input: Vec<Json>,
    pub(super) flags: Vec<String>,
    pub(super) expect: Json,
}

/// What became of a case.
pub(super) enum Outcome {
    Passed,
    /// What was otherwise.
    Failed(String),
    /// What is missing.
    Skipped(String),
}

/// Something that a case needs and that is not there yet.
#[derive(Debug)]
pub(super) struct Missing(pub(super) String);

impl Case {
    pub(super) fn parse(line: &str) -> Self {
        let json: Json = serde_json::from_str(line).expect("a case is one line of JSON");
        let topology = json["topology"].as_array().expect("a case has a topology").clone();
        Self {
            name: text(&json["name"]).to_owned(),
            config: json["config"].clone(),
            low_level: json["build"] == "topology",
            topology,
            serdes: json["serdes"].clone(),
            input: json["input"].as_array().cloned().unwrap_or_default(),
            flags: texts(&json["flags"]),
            expect: json["expect"].clone(),
        }
    }
}

/// A JSON string that must be there.
pub(super) fn text(json: &Json) -> &str {
    json.as_str().unwrap_or_else(|| panic!("{json} is not a string"))
}

/// A list of strings; absent is empty.
pub(super) fn texts(json: &Json) -> Vec<String> {
    json.as_array().map_or_else(Vec::new, |all| all.iter().map(|it| text(it).to_owned()).collect())
}

/// The parts of `["name", arg, ..]` or `"name"`.
pub(super) fn call(json: &Json) -> (&str, &[Json]) {
    match json {
        Json::Array(parts) => (text(&parts[0]), &parts[1..]),
        other => (text(other), &[]),
    }
}
