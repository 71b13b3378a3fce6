//! A case and what became of it.

use anyhow::Context as _;
use serde_json::Value as Json;

/// One case.
#[derive(Debug)]
pub struct Case {
    pub(super) name: String,
    pub(super) config: Json,
    /// Whether it is built with the low-level words.
    pub(super) low_level: bool,
    pub(super) topology: Vec<Json>,
    /// Topic to serdes of key and value.
    pub(super) serdes: Json,
    pub(super) input: Vec<Json>,
    pub(super) expect: Json,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is as the case expects.
    Passed,
    /// What is otherwise.
    Failed(Vec<Difference>),
    /// What the case needs and is not there yet.
    Missing(String),
}

/// One thing that is not as a case expects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What: a field of the case's expectation, or `build`, `run`, `panic`.
    pub what: String,
    /// Found and expected.
    pub text: String,
}

impl Difference {
    pub(super) fn new(what: &str, text: impl Into<String>) -> Self {
        Self { what: what.to_owned(), text: text.into() }
    }

    /// Found and expected, each on lines of its own.
    pub(super) fn of(what: &str, found: &str, expected: &str) -> Self {
        Self::new(what, format!("found\n{found}\nexpected\n{expected}"))
    }
}

/// Something that a case needs and that is not there yet.
#[derive(Debug)]
pub(super) struct Missing(pub(super) String);

impl Case {
    /// Reads a case: one JSON object.
    ///
    /// # Errors
    /// When the text is not JSON, or no case.
    pub fn parse(line: &str) -> anyhow::Result<Self> {
        let json: Json = serde_json::from_str(line).context("a case is a JSON object")?;
        let name = json["name"].as_str().context("a case has a name")?;
        let topology = json["topology"]
            .as_array()
            .with_context(|| format!("case {name} has no topology"))?
            .clone();
        Ok(Self {
            name: name.to_owned(),
            config: json["config"].clone(),
            low_level: json["build"] == "topology",
            topology,
            serdes: json["serdes"].clone(),
            input: json["input"].as_array().cloned().unwrap_or_default(),
            expect: json["expect"].clone(),
        })
    }

    /// Its name, which no other case has.
    pub fn name(&self) -> &str {
        &self.name
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
