//! What stores hold, and answers to queries: sections 8 and 9 of the format.

use std::collections::BTreeMap;

use headwater::serde::{Deserializer, Format, Payload, SerdeError, Serializer, Window, Windowed};
use headwater::store::{
    Direction, KeyRange, KeyValueBytes, Layout, SEGMENT_PREFIX, SegmentedKind, SegmentedOptions,
    StoredValue, ValueAndTimestamp, VersionedRecord, read_session_key, read_window_key,
};
use headwater::topology::StoreKind;
use headwater::{QueryableStoreTypes, StoreQueryParameters};
use headwater_testing::TopologyTestDriver;
use serde_json::{Value as Json, json};

use super::build::Built;
use super::case::{Case, Missing, text};
use super::join_stores;
use super::serdes::DynSerde;
use super::subscriptions;
use super::value::{Value, hex};

/// The contents of the stores that the case looks at.
pub(super) fn stores(
    case: &Case,
    driver: &TopologyTestDriver,
    built: &Built,
) -> Result<BTreeMap<String, Json>, Missing> {
    let stores = case.expect["stores"].as_object().into_iter().flatten();
    let mut found = BTreeMap::new();
    for (name, expected) in stores {
        // What those who wrote the cases could not look into, they left empty.
        let unseen = match text(&expected["type"]) {
            "other" => true,
            "versioned" => expected["versions"].as_array().is_none_or(Vec::is_empty),
            // Windows of no size in the store of a join.
            _ => expected.get("unreadable").is_some(),
        };
        let contents = if unseen {
            expected.clone()
        } else if subscriptions::are_in(built, name) {
            subscriptions::with_headers_of(expected, subscriptions::contents(driver, name))
        } else if join_stores::is_of_unmatched(built, name) {
            join_stores::unmatched(driver, built, name)
        } else {
            let contents = Store::find(case, built, name)?.contents(driver);
            let adapted = join_stores::is_of_one_side(built, name);
            if adapted { join_stores::as_expected(expected, contents) } else { contents }
        };
        found.insert(name.clone(), contents);
    }
    Ok(found)
}

/// The answer to a query.
pub(super) fn answer(
    case: &Case,
    driver: &TopologyTestDriver,
    built: &Built,
    query: &Json,
) -> Result<Json, Missing> {
    let store = Store::find(case, built, text(&query["store"]))?;
    let range = |from: &str, to: &str| {
        let bytes = |field: &str| query[field].as_str().map(|key| store.key_bytes(key));
        KeyRange::inclusive(bytes(from).as_deref(), bytes(to).as_deref())
    };
    let all = |range: &KeyRange, direction: Direction| -> Json {
        let entries = store.entries(driver, range, direction);
        entries.iter().map(|(key, value)| store.show(key, value)).collect()
    };
    Ok(match text(&query["type"]) {
        "get" => {
            let key = store.key_bytes(text(&query["key"]));
            let one = KeyRange::inclusive(Some(&key), Some(&key));
            let found = store.entries(driver, &one, Direction::Forward);
            found.first().map_or(Json::Null, |(_, value)| store.show_value(value))
        }
        "all" => all(&KeyRange::all(), Direction::Forward),
        "reverse_all" => all(&KeyRange::all(), Direction::Reverse),
        "range" => all(&range("key_from", "key_to"), Direction::Forward),
        "reverse_range" => all(&range("key_from", "key_to"), Direction::Reverse),
        "prefix" => all(&KeyRange::prefix(text(&query["prefix"]).as_bytes()), Direction::Forward),
        "versioned_get" => store.versioned_get(driver, query),
        kind if kind.starts_with("window_") => store.query_windows(driver, query),
        kind if kind.starts_with("session_") => store.query_sessions(driver, query),
        other => return Err(Missing(format!("query {other}"))),
    })
}

/// A store of a case, with the serdes that it was declared with.
struct Store {
    name: String,
    layout: Layout,
    /// Of windows.
    window_size_ms: i64,
    /// The names of its formats: several serdes can have the same.
    formats: (String, String),
    key: DynSerde,
    value: DynSerde,
    /// A table is on a store without timestamps: the original shows it with one, which means nothing.
    adapted: bool,
}

impl Store {
    fn find(case: &Case, built: &Built, name: &str) -> Result<Self, Missing> {
        let application = built.topology.for_application("app").expect("it was made before");
        let programs = application.programs.values().chain(&application.global);
        let mut stores = programs.flat_map(|program| &program.stores);
        let Some(store) = stores.find(|store| store.spec.name == name) else {
            let tasks = application.programs.values();
            let known: Vec<_> = tasks.flat_map(|it| &it.stores).map(|it| &it.spec.name).collect();
            return Err(Missing(format!(
                "a look into a store that no task has: {name}, only {known:?}"
            )));
        };
        let formats = store.formats.as_ref();
        let serdes = formats.and_then(|formats| {
            let named = |format: &str| DynSerde::ALL.into_iter().find(|serde| serde.is(format));
            Some((named(&formats.key)?, named(&formats.value)?))
        });
        let Some((key, value)) = serdes else {
            return Err(Missing("a look into a store of unknown formats".to_owned()));
        };
        let adapted = case.topology.iter().any(|op| {
            let materialized = &op["materialized"];
            materialized["store"] == name && materialized["supplier"]["kind"] == "plain_kv"
        });
        let window_size_ms = match store.spec.kind {
            StoreKind::Window { window_size_ms, .. } => window_size_ms,
            _ => 0,
        };
        let formats = formats.map(|it| (it.key.clone(), it.value.clone())).unwrap_or_default();
        let (name, layout) = (name.to_owned(), store.layout());
        Ok(Self { name, layout, window_size_ms, formats, key, value, adapted })
    }

    fn entries(
        &self,
        driver: &TopologyTestDriver,
        range: &KeyRange,
        direction: Direction,
    ) -> Vec<KeyValueBytes> {
        let entries = driver.raw_store_entries(&self.name, range, direction);
        entries.expect("the store of a task that runs can be read")
    }

    fn contents(&self, driver: &TopologyTestDriver) -> Json {
        if let Layout::Segmented(options) = self.layout {
            return self.windows(driver, options);
        }
        let entries = self.entries(driver, &KeyRange::all(), Direction::Forward);
        let shown = entries.iter().map(|(key, value)| self.show(key, value));
        let raw = entries.iter().map(|(key, value)| json!([hex(key), self.raw(value)]));
        let (shown, raw): (Vec<Json>, Vec<Json>) = (shown.collect(), raw.collect());
        json!({"type": "key_value", "entries": shown, "raw": raw})
    }

    /// What is not out of its retention, by key and window.
    fn windows(&self, driver: &TopologyTestDriver, options: SegmentedOptions) -> Json {
        let all = KeyRange::all();
        let entries = driver.uncommitted_store_entries(&self.name, &all, Direction::Forward);
        let entries = entries.expect("the store of a task that runs can be read");
        let entries = entries.iter().map(|(key, value)| (&key[SEGMENT_PREFIX..], value));
        let mut shown: Vec<(String, i64, i64, Json)> = entries
            .map(|(key, value)| {
                let (key, window) = self.window_of(key, options.kind);
                let shown = decode(self.key, key);
                let (text, Window { start, end }) = (shown.to_string(), window);
                let value = self.show_value(value);
                (text, start, end, json!({"key": show_window(&shown, window), "value": value}))
            })
            .collect();
        shown.sort_by(|a, b| (&a.0, a.1, a.2).cmp(&(&b.0, b.1, b.2)));
        let kind = match options.kind {
            SegmentedKind::Window => "window",
            SegmentedKind::Session => "session",
        };
        let entries: Vec<Json> = shown.into_iter().map(|(_, _, _, entry)| entry).collect();
        json!({"type": kind, "entries": entries})
    }

    fn window_of<'k>(&self, key: &'k [u8], kind: SegmentedKind) -> (&'k [u8], Window) {
        match kind {
            SegmentedKind::Window => {
                let (key, start, _) = read_window_key(key).expect("the key of a window");
                (key, Window { start, end: start.saturating_add(self.window_size_ms) })
            }
            SegmentedKind::Session => {
                let (key, start, end) = read_session_key(key).expect("the key of a session");
                (key, Window { start, end })
            }
        }
    }

    fn key_bytes(&self, key: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let written = self.key.serialize(&Value::Text(key.to_owned()), &mut bytes);
        written.expect("keys of queries are strings");
        bytes
    }

    fn show(&self, key: &[u8], value: &[u8]) -> Json {
        json!({"key": decode(self.key, key), "value": self.show_value(value)})
    }

    fn show_value(&self, stored: &[u8]) -> Json {
        let StoredValue { timestamp, value, headers } = self.layout.split(stored);
        let value = decode(self.value, value);
        let with_headers = match self.layout {
            Layout::Segmented(options) => options.with_headers,
            layout => layout == Layout::TimestampedKeyValueWithHeaders,
        };
        if with_headers {
            let headers = headwater::store::read_headers(headers)
                .expect("headers that the store has written");
            let headers = headers.iter().map(|(name, value)| json!([name, value.map(hex)]));
            let headers: Vec<Json> = headers.collect();
            let mut shown = json!({"value": value, "headers": headers});
            if let Some(timestamp) = timestamp {
                shown["ts"] = Json::from(timestamp);
            }
            return shown;
        }
        match timestamp.or_else(|| self.adapted.then_some(-1)) {
            Some(timestamp) => json!({"value": value, "ts": timestamp}),
            None => value,
        }
    }

    /// A stored value as the original has it.
    fn raw(&self, stored: &[u8]) -> String {
        if self.adapted {
            return hex(&(-1_i64).to_be_bytes()) + &hex(stored);
        }
        match self.layout {
            Layout::Lru => hex(self.layout.split(stored).value),
            _ => hex(stored),
        }
    }

    fn versioned_get(&self, driver: &TopologyTestDriver, query: &Json) -> Json {
        let versioned =
            QueryableStoreTypes::versioned_key_value::<Value, Value, _, _>(self.key, self.value);
        let store = driver.store(StoreQueryParameters::new(&*self.name, versioned));
        let store = store.expect("the store of a task that runs can be read");
        let key = Value::Text(text(&query["key"]).to_owned());
        let found = match query["as_of"].as_i64() {
            Some(as_of) => store.get_as_of(&key, as_of),
            None => store.get(&key),
        };
        let found: Option<VersionedRecord<Value>> = found.expect("a versioned store can be read");
        found.map_or(
            Json::Null,
            |found| json!({"value": json_of(found.value), "ts": found.timestamp}),
        )
    }
}

/// A query whose kind ends so goes backwards.
const BACKWARD: &str = "_backward";

/// The key in a field of a query.
fn key_of(query: &Json, field: &str) -> Option<Value> {
    query[field].as_str().map(|key| Value::Text(key.to_owned()))
}

fn time_of(query: &Json, field: &str) -> i64 {
    query[field].as_i64().expect("a time")
}

/// A serde under the name of another with the same format.
#[derive(Clone)]
struct Called {
    serde: DynSerde,
    format: String,
}

impl Format for Called {
    fn format(&self) -> String {
        self.format.clone()
    }
}

impl Serializer<Value> for Called {
    fn serialize(&self, value: &Value, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        self.serde.serialize(value, out)
    }
}

impl Deserializer<Value> for Called {
    fn deserialize(&self, payload: Payload<'_>) -> Result<Value, SerdeError> {
        self.serde.deserialize(payload)
    }

    fn is_null(&self, bytes: &[u8]) -> bool {
        Deserializer::<Value>::is_null(&self.serde, bytes)
    }
}

impl Store {
    fn keys(&self) -> Called {
        Called { serde: self.key, format: self.formats.0.clone() }
    }

    fn values(&self) -> Called {
        Called { serde: self.value, format: self.formats.1.clone() }
    }

    fn query_windows(&self, driver: &TopologyTestDriver, query: &Json) -> Json {
        let type_ = QueryableStoreTypes::timestamped_window::<Value, Value, _, _>(
            self.keys(),
            self.values(),
        );
        let store = driver.store(StoreQueryParameters::new(&*self.name, type_));
        let store = store.expect("the store of a task that runs can be read");
        let show = |found: ValueAndTimestamp<Value>| json!({"value": json_of(found.value), "ts": found.timestamp});
        let kind = text(&query["type"]);
        let key = || key_of(query, "key").expect("the query names a key");
        if kind == "window_get" {
            let found = store.fetch_one(&key(), time_of(query, "time"));
            return found.expect("a store of windows can be read").map_or(Json::Null, show);
        }
        let (from, to) = (time_of(query, "from"), time_of(query, "to"));
        let (key_from, key_to) = (key_of(query, "key_from"), key_of(query, "key_to"));
        let keys = (key_from.as_ref(), key_to.as_ref());
        let backward = kind.ends_with(BACKWARD);
        if kind.trim_end_matches(BACKWARD) == "window_fetch" {
            let found = if backward {
                store.backward_fetch(&key(), from, to)
            } else {
                store.fetch(&key(), from, to)
            };
            let found = found.expect("a store of windows can be read");
            return found
                .map(|entry| entry.expect("a store of windows can be read"))
                .map(|(start, value)| json!({"key": start, "value": show(value)}))
                .collect();
        }
        let found = match (kind.trim_end_matches(BACKWARD), backward) {
            ("window_fetch_keys", false) => store.fetch_keys(keys, from, to),
            ("window_fetch_keys", true) => store.backward_fetch_keys(keys, from, to),
            (_, false) => store.fetch_all(from, to),
            (_, true) => store.backward_fetch_all(from, to),
        };
        let found = found.expect("a store of windows can be read");
        found
            .map(|entry| entry.expect("a store of windows can be read"))
            .map(|(key, value)| json!({"key": show_key(key), "value": show(value)}))
            .collect()
    }

    fn query_sessions(&self, driver: &TopologyTestDriver, query: &Json) -> Json {
        let type_ = QueryableStoreTypes::session::<Value, Value, _, _>(self.keys(), self.values());
        let store = driver.store(StoreQueryParameters::new(&*self.name, type_));
        let store = store.expect("the store of a task that runs can be read");
        let key = || key_of(query, "key").expect("the query names a key");
        let (key_from, key_to) = (key_of(query, "key_from"), key_of(query, "key_to"));
        let span = || (time_of(query, "earliest_end"), time_of(query, "latest_start"));
        let found = match text(&query["type"]) {
            "session_get" => {
                let session = Window { start: time_of(query, "start"), end: time_of(query, "end") };
                let found = store.fetch_session(&key(), session);
                return found.expect("a store of sessions can be read").map_or(Json::Null, json_of);
            }
            "session_fetch" => store.fetch(&key()),
            "session_fetch_backward" => store.backward_fetch(&key()),
            "session_fetch_keys" => store.fetch_keys(key_from.as_ref(), key_to.as_ref()),
            "session_find" => store.find_sessions(&key(), span().0, span().1),
            _ => store.backward_find_sessions(&key(), span().0, span().1),
        };
        let found = found.expect("a store of sessions can be read");
        found
            .map(|entry| entry.expect("a store of sessions can be read"))
            .map(|(key, value)| json!({"key": show_key(key), "value": json_of(value)}))
            .collect()
    }
}

fn show_key(windowed: Windowed<Value>) -> Json {
    show_window(&json_of(windowed.key), windowed.window)
}

fn show_window(key: &Json, window: Window) -> Json {
    json!({"key": key, "start": window.start, "end": window.end})
}

fn decode(serde: DynSerde, bytes: &[u8]) -> Json {
    if Deserializer::<Value>::is_null(&serde, bytes) {
        return Json::Null;
    }
    let value: Value = serde
        .deserialize(Payload::new(bytes))
        .expect("what a store holds was written by its serde");
    json_of(value)
}

pub(super) fn json_of(value: Value) -> Json {
    match value {
        Value::Windowed(windowed) => {
            let Windowed { key, window } = *windowed;
            show_window(&json_of(key), window)
        }
        Value::Text(text) => Json::from(text),
        Value::Long(number) => Json::from(number),
        Value::Int(number) => Json::from(number),
        Value::Double(number) => Json::from(number),
        Value::Boolean(value) => Json::from(value),
        Value::Bytes(bytes) => Json::from(hex(&bytes)),
        Value::Uuid(uuid) => Json::from(uuid.to_string()),
    }
}
