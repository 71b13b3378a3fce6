//! What stores hold, and answers to queries: sections 8 and 9 of the format.

use std::collections::BTreeMap;

use headwater::serde::{Deserializer, Payload, Serializer, Window, Windowed};
use headwater::store::{
    Direction, KeyRange, KeyValueBytes, Layout, SEGMENT_PREFIX, SegmentedKind, SegmentedOptions,
    StoredValue, VersionedRecord, read_session_key, read_window_key,
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
            _ => false,
        };
        let contents = if unseen {
            expected.clone()
        } else if subscriptions::are_in(built, name) {
            subscriptions::contents(driver, name)
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
        other => return Err(Missing(format!("query {other}"))),
    })
}

/// A store of a case, with the serdes that it was declared with.
struct Store {
    name: String,
    layout: Layout,
    /// Of windows.
    window_size_ms: i64,
    is_cached: bool,
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
            return Err(Missing(format!("a look into a store that no task has, {name}")));
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
        let cache = case.config["statestore.cache.max.bytes"].as_u64().unwrap_or(0);
        let is_cached = store.spec.caching && cache > 0;
        let (name, layout) = (name.to_owned(), store.layout());
        Ok(Self { name, layout, window_size_ms, is_cached, key, value, adapted })
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
        let segments = SegmentedOptions::before_segment(i64::MAX);
        let entries = self.entries(driver, &segments, Direction::Forward);
        let entries: Vec<_> =
            entries.iter().map(|(key, value)| (&key[SEGMENT_PREFIX..], value)).collect();
        let newest = entries.iter().filter_map(|(key, _)| options.time_of(key)).max();
        let by_time = options.by_time && options.kind == SegmentedKind::Window;
        // What the cache still holds is shown, however old it is.
        let visible = if self.is_cached {
            i64::MIN
        } else {
            options.visible_from(newest.unwrap_or(-1)) - i64::from(by_time)
        };
        let entries = entries
            .into_iter()
            .filter(|(key, _)| options.time_of(key).is_some_and(|time| time >= visible));
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
        if self.layout == Layout::TimestampedKeyValueWithHeaders {
            let headers = headwater::store::read_headers(headers)
                .expect("headers that the store has written");
            let headers = headers.iter().map(|(name, value)| json!([name, value.map(hex)]));
            let headers: Vec<Json> = headers.collect();
            return json!({"value": value, "ts": timestamp, "headers": headers});
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
