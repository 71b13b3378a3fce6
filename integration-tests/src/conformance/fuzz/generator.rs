//! The topology of a random case: what was made so far, and one operator after the other.

use headwater_testing::sim::Chance;
use serde_json::{Map, Value as Json, json};

use super::{events, joins, streams, tables};

/// Of what type keys or values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Long,
}

impl Type {
    pub(super) fn serde(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Long => "long",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Stream,
    Table,
    GlobalTable,
}

/// The windows in keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Windows {
    /// Keys are texts.
    None,
    /// Of this size in milliseconds.
    OfSize(i64),
    /// Without end: no update is the last one of such.
    Unlimited,
    Session,
}

/// A stream or table.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) id: String,
    pub(super) kind: Kind,
    pub(super) windows: Windows,
    pub(super) value: Type,
    /// Its values are counts, which are of a type of their own in the program.
    pub(super) is_count: bool,
    /// Some operator takes it.
    pub(super) is_used: bool,
    /// A table of versions: how far back they go, if they lie in its own store.
    pub(super) versions: Option<Versions>,
    /// Updates of it can be held back: it is of no versions, not held back yet, and its serdes are known.
    pub(super) can_be_suppressed: bool,
}

/// Versions of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Versions {
    /// In its own store, so many milliseconds back.
    Stored(i64),
    /// In that of a table that it was made of.
    Derived,
}

impl Made {
    pub(super) fn key_serde(&self) -> Json {
        match self.windows {
            Windows::None => json!("string"),
            Windows::OfSize(size) => json!(["time_windowed", "string", size]),
            Windows::Unlimited => json!(["time_windowed", "string", i64::MAX]),
            Windows::Session => json!(["session_windowed", "string"]),
        }
    }

    /// The same with another kind, its values unchanged.
    pub(super) fn as_kind(&self, kind: Kind) -> Self {
        Self { kind, is_used: false, ..self.clone() }
    }
}

/// A random case in the making.
pub(super) struct Generator {
    pub(super) chance: Chance,
    pub(super) operators: Vec<Json>,
    pub(super) made: Vec<Made>,
    /// Topics that get input.
    pub(super) topics: Vec<String>,
    /// Stores that queries can read, with text keys and no windows.
    pub(super) stores: Vec<String>,
    /// The length of time that windows are about, so that they collide.
    pub(super) size_ms: i64,
    names: usize,
}

/// The case of a seed and a number, in the format of the cases and without expectation. The same two numbers give the
/// same case.
pub fn random_case(seed: u64, number: u64) -> Json {
    let mut chance = Chance::new(seed).fork(number.wrapping_add(1));
    let size_ms = *chance.of(&[5, 10]);
    let mut generator = Generator {
        chance,
        operators: Vec::new(),
        made: Vec::new(),
        topics: Vec::new(),
        stores: Vec::new(),
        size_ms,
        names: 0,
    };
    generator.grow();
    let serdes = generator.write_results();
    let config = generator.config();
    let input = events::input(&mut generator);
    json!({
        "name": format!("fuzzed-{seed}-{number}"),
        "about": "random",
        "tags": ["random"],
        "config": config,
        "topology": generator.operators,
        "serdes": serdes,
        "input": input,
        "flags": [],
    })
}

impl Generator {
    /// True so many times in a hundred.
    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.chance.in_range(0..100) < percent
    }

    /// One of several.
    pub(super) fn one<T: Clone>(&mut self, choices: &[T]) -> T {
        self.chance.of(choices).clone()
    }

    /// A name that nothing else has.
    pub(super) fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// Adds an operator, and what it makes.
    pub(super) fn add(&mut self, mut operator: Json, mut result: Made) -> Made {
        result.id = self.name("r");
        operator["id"] = json!(result.id);
        self.operators.push(operator);
        self.made.push(result.clone());
        result
    }

    /// Adds an operator whose result is no stream or table, and gives its id.
    pub(super) fn add_step(&mut self, mut operator: Json) -> String {
        let id = self.name("g");
        operator["id"] = json!(id);
        self.operators.push(operator);
        id
    }

    /// Adds an operator, with a name of its own in some cases.
    pub(super) fn add_named(&mut self, mut operator: Json, result: Made) -> Made {
        if self.percent(20) {
            operator["named"] = json!(self.name("n"));
        }
        self.add(operator, result)
    }

    /// Notes that something is taken by an operator.
    pub(super) fn mark_used(&mut self, id: &str) {
        for made in self.made.iter_mut().filter(|made| made.id == id) {
            made.is_used = true;
        }
    }

    /// One of those that an operator can take, if there are any.
    pub(super) fn some(&mut self, fits: impl Fn(&Made) -> bool) -> Option<Made> {
        let fitting: Vec<&Made> = self.made.iter().filter(|made| fits(made)).collect();
        if fitting.is_empty() {
            return None;
        }
        let at = self.chance.index(0..fitting.len());
        Some(fitting[at].clone())
    }

    /// How a result is stored. A store with a name can be read, unless it is one of windows.
    pub(super) fn materialized(&mut self, result: &Made, named_percent: u64) -> Json {
        let mut materialized = json!({"key": "string", "value": result.value.serde()});
        if !self.percent(named_percent) {
            return materialized;
        }
        let store = self.name("st");
        if result.windows == Windows::None {
            self.stores.push(store.clone());
        }
        materialized["store"] = json!(store);
        if self.percent(15) {
            materialized["caching"] = json!(false);
        }
        if self.percent(10) {
            materialized["logging"] = json!(false);
        }
        if self.percent(8) {
            materialized["type"] = json!("in_memory");
        }
        materialized
    }

    /// A new topic with input.
    pub(super) fn topic(&mut self) -> String {
        let topic = format!("t{}", self.topics.len());
        self.topics.push(topic.clone());
        topic
    }

    /// Sources, and operators on them and on what they made.
    fn grow(&mut self) {
        for _ in 0..self.one(&[1, 2, 2, 3]) {
            self.source();
        }
        let sources = self.operators.len();
        let wanted = self.chance.index(2..10);
        for _ in 0..3 * wanted {
            if self.operators.len() - sources >= wanted {
                break;
            }
            let fresh_only = self.percent(75);
            let fits = |made: &Made| made.kind != Kind::GlobalTable;
            let fresh = self.some(|made| fits(made) && !made.is_used && fresh_only);
            let Some(taken) = fresh.or_else(|| self.some(fits)) else { break };
            let grown = match taken.kind {
                Kind::Stream => streams::grow(self, &taken),
                Kind::Table | Kind::GlobalTable => tables::grow(self, &taken),
            };
            if grown {
                self.mark_used(&taken.id);
            }
        }
    }

    fn source(&mut self) {
        let topic = self.topic();
        let mut result = joins::source_of_texts(Kind::Stream);
        if self.percent(65) {
            self.add(json!({"op": "stream", "topics": [topic]}), result);
            return;
        }
        result.kind = Kind::Table;
        let mut operator = json!({"op": "table", "topic": topic});
        if self.percent(25) {
            let history = self.one(&[10, 30, 100]);
            let supplier = json!({"kind": "versioned", "history": history});
            operator["materialized"] = json!({"store": self.name("st"), "supplier": supplier});
            result.versions = Some(Versions::Stored(history));
            result.can_be_suppressed = false;
        } else if self.percent(30) {
            operator["materialized"] = self.materialized(&result, 100);
        } else if self.percent(15) {
            let kind = self.one(&["kv", "plain_kv"]);
            operator["materialized"] =
                json!({"store": self.name("st"), "supplier": {"kind": kind}});
            if kind == "plain_kv" {
                // The original's cache remembers times that such a store does not keep, until it is full.
                operator["materialized"]["caching"] = json!(false);
            }
        }
        self.add(operator, result);
    }

    /// Writes what nobody takes to topics, and gives the serdes of these.
    fn write_results(&mut self) -> Json {
        let unused = |made: &&Made| !made.is_used && made.kind != Kind::GlobalTable;
        let results: Vec<Made> = self.made.iter().filter(unused).cloned().collect();
        let mut serdes = Map::new();
        for (number, result) in results.into_iter().enumerate() {
            let topic = format!("out{number}");
            let written = json!({"key": result.key_serde(), "value": result.value.serde()});
            let stream = match result.kind {
                Kind::Stream => result.id,
                Kind::Table | Kind::GlobalTable => {
                    self.add_step(json!({"op": "to_stream", "in": result.id}))
                }
            };
            let sink = json!({"op": "to", "in": stream, "topic": topic, "produced": written});
            self.operators.push(sink);
            serdes.insert(topic, written);
        }
        Json::Object(serdes)
    }

    fn config(&mut self) -> Json {
        let mut config = json!({"default.key.serde": "string", "default.value.serde": "string"});
        if self.percent(30) {
            config["statestore.cache.max.bytes"] = json!(1_000_000);
        }
        if self.percent(35) {
            let choices = [
                "all",
                "all",
                "merge.repartition.topics",
                "reuse.ktable.source.topics",
                "single.store.self.join",
            ];
            config["topology.optimization"] = json!(self.one(&choices));
        }
        if self.percent(10) {
            config["processing.guarantee"] = json!("exactly_once_v2");
        }
        if self.percent(10) {
            config["dsl.store"] = json!("in_memory");
        }
        if self.percent(8) {
            config["dsl.store.format"] = json!("HEADERS");
        }
        if self.percent(50) {
            config["processing.exception.handler"] = json!("continue");
        }
        config
    }
}
