//! Differences that come from the stores of the original only.

use anyhow::Result;
use serde_json::{Value as Json, json};

use super::hunt::{compare, differs_in};
use super::original::Original;
use crate::conformance::Outcome;

/// The part of what is expected that says what is in the stores at the end.
const CONTENTS: &str = "stores";
pub(super) const CACHE_BYTES: &str = "statestore.cache.max.bytes";

/// What the original expects of a case with its stores changed.
///
/// Two kinds of differences are no mistakes here:
///
/// - The original's stores in memory expire windows one by one, and count what they refuse; those on disk drop whole
///   segments, as stores of both kinds do here, but for those of joins of streams. Then what comes out here is what the
///   original gives with all stores on disk, or with those of tables, or only as many records are dropped as then.
/// - The original's cache still shows windows and sessions that have expired in the store below, for as long as there
///   is room for them. Then only contents differ, and what is missing has expired.
#[derive(Debug, Default)]
pub(super) struct OtherStores {
    /// With stores on disk, if it has any in memory.
    on_disk: Vec<Json>,
}

impl OtherStores {
    /// Asks the original about cases; the answers are in their order.
    pub(super) fn ask(original: &Original, cases: &[Json]) -> Result<Vec<Self>> {
        let changed = cases.iter().map(|case| [on_disk(case), tables_on_disk(case)]).enumerate();
        let changed =
            changed.flat_map(|(number, changed)| changed.map(|changed| (number, changed)));
        let asked = changed.filter(|(number, changed)| *changed != cases[*number]);
        let (numbers, asked): (Vec<usize>, Vec<Json>) = asked.unzip();
        let mut all: Vec<Self> = cases.iter().map(|_| Self::default()).collect();
        if !asked.is_empty() {
            for (number, answer) in numbers.into_iter().zip(original.ask(&asked, false)?) {
                all[number].on_disk.push(answer["expect"].clone());
            }
        }
        Ok(all)
    }

    /// Whether these explain all in which a case differs.
    pub(super) fn explain(&self, case: &Json) -> Result<bool> {
        for candidate in self.candidates(case) {
            let outcome = compare(&candidate)?;
            if outcome == Outcome::Passed || holds_without_expired(candidate, &outcome)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The case as it is, with the other expectations, and with what these say of dropped records.
    fn candidates(&self, case: &Json) -> Vec<Json> {
        let mut candidates = vec![case.clone()];
        for expected in &self.on_disk {
            let mut whole = case.clone();
            whole["expect"] = expected.clone();
            let mut drops = case.clone();
            for (field, none) in [("dropped", json!(0)), ("dropped_at", json!([]))] {
                drops["expect"][field] = expected.get(field).cloned().unwrap_or(none);
            }
            candidates.extend([whole, drops]);
        }
        candidates
    }
}

/// Whether a case that differs in contents only, and has a cache, holds without what has expired.
fn holds_without_expired(mut case: Json, outcome: &Outcome) -> Result<bool> {
    let only_contents = differs_in(outcome).iter().all(|what| what == CONTENTS);
    if !only_contents || case["config"][CACHE_BYTES].is_null() {
        return Ok(false);
    }
    let retention_ms = retention_max_ms(&case);
    for store in differing_stores(outcome) {
        leave_expired_out(&mut case["expect"][CONTENTS][store], retention_ms);
    }
    Ok(compare(&case)? == Outcome::Passed)
}

/// The case with all stores on disk.
fn on_disk(case: &Json) -> Json {
    let mut changed = case.clone();
    put_on_disk(&mut changed);
    changed
}

/// The case with all stores on disk but those of joins of streams.
fn tables_on_disk(case: &Json) -> Json {
    let mut changed = on_disk(case);
    let all_in_memory = case["config"]["dsl.store"] == "in_memory";
    let operators = case["topology"].as_array().into_iter().flatten();
    for (number, operator) in operators.enumerate() {
        let Some(joined) = operator.get("stream_joined") else { continue };
        let mut joined = joined.clone();
        let says_where = ["type", "this_store"].iter().any(|name| joined.get(name).is_some());
        if all_in_memory && !says_where {
            joined["type"] = json!("in_memory");
        }
        changed["topology"][number]["stream_joined"] = joined;
    }
    changed
}

fn put_on_disk(json: &mut Json) {
    match json {
        Json::Object(fields) => {
            fields.retain(|name, value| {
                !(matches!(name.as_str(), "type" | "dsl.store") && value == "in_memory")
            });
            for place in ["store", "supplier", "this_store", "other_store"] {
                if let Some(Json::Object(declared)) = fields.get_mut(place) {
                    // These are in memory where nothing is said of it.
                    declared.insert("in_memory".to_owned(), Json::Bool(false));
                }
            }
            fields.values_mut().for_each(put_on_disk);
        }
        Json::Array(items) => items.iter_mut().for_each(put_on_disk),
        _ => {}
    }
}

/// The stores whose contents differ.
fn differing_stores(outcome: &Outcome) -> impl Iterator<Item = &str> {
    let differences = match outcome {
        Outcome::Failed(differences) => &differences[..],
        Outcome::Passed | Outcome::Missing(_) => &[],
    };
    differences.iter().filter_map(|difference| difference.text.split_once(": ")).map(|it| it.0)
}

/// What no store of windows of a case keeps an entry longer for.
fn retention_max_ms(case: &Json) -> i64 {
    let operators = case["topology"].as_array().into_iter().flatten();
    let retention = |operator: &Json| {
        let ms = |name: &str| operator["window"][name].as_i64().unwrap_or(0);
        // Sliding windows are looked for on both sides.
        2 * (ms("size") + ms("difference") + ms("gap")) + ms("grace")
    };
    operators.map(retention).max().unwrap_or(0)
}

/// So much time a segment covers, of stores that keep windows for no more than twice as long.
const SEGMENT_MS: i64 = 60_000;

/// Leaves out what has expired for certain: what lies in segments that are gone. All others are shown by whoever shows
/// everything.
fn leave_expired_out(store: &mut Json, retention_ms: i64) {
    let field = if store["type"] == "session" { "end" } else { "start" };
    let Some(entries) = store["entries"].as_array_mut() else { return };
    let time = |entry: &Json| entry["key"][field].as_i64().unwrap_or(i64::MAX);
    let Some(newest) = entries.iter().map(time).max() else { return };
    let first = newest.saturating_sub(retention_ms) / SEGMENT_MS;
    entries.retain(|entry| time(entry) / SEGMENT_MS >= first);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::{leave_expired_out, on_disk, retention_max_ms, tables_on_disk};

    #[test]
    fn stores_in_memory_are_put_on_disk_wherever_they_are_named() {
        let before = json!({
            "config": {"dsl.store": "in_memory", "statestore.cache.max.bytes": 9},
            "topology": [
                {"op": "count", "materialized": {"store": "s", "type": "in_memory"}},
                {"op": "add_state_store", "store": {"name": "p", "type": "kv", "in_memory": true}},
                {"op": "add_state_store", "store": {"name": "q", "type": "session"}},
            ],
        });
        let after = json!({
            "config": {"statestore.cache.max.bytes": 9},
            "topology": [
                {"op": "count", "materialized": {"store": "s"}},
                {"op": "add_state_store", "store": {"name": "p", "type": "kv", "in_memory": false}},
                {"op": "add_state_store", "store": {"name": "q", "type": "session", "in_memory": false}},
            ],
        });
        assert_eq!(on_disk(&before), after);
        assert_eq!(on_disk(&after), after);
    }

    #[test]
    fn stores_of_joins_stay_in_memory_where_those_of_tables_do_not() {
        let topology = |table: &Json, join: &Json| {
            json!([
                {"op": "count", "materialized": table},
                {"op": "join", "stream_joined": join},
                {"op": "join", "materialized": table},
            ])
        };
        let (on_disk, in_memory) = (json!({"store": "s"}), json!({"type": "in_memory"}));
        let before = json!({"config": {}, "topology": topology(&in_memory, &in_memory)});
        let after = json!({"config": {}, "topology": topology(&json!({}), &in_memory)});
        assert_eq!(tables_on_disk(&before), after);
        let by_default = json!({"config": {"dsl.store": "in_memory"}, "topology": topology(&on_disk, &json!({}))});
        let after = json!({"config": {}, "topology": topology(&on_disk, &in_memory)});
        assert_eq!(tables_on_disk(&by_default), after);
    }

    #[track_caller]
    fn check_left(starts: &[i64], retention_ms: i64, left: &[i64]) {
        let store = |starts: &[i64]| -> Json {
            let entry = |start| json!({"key": {"key": "a", "start": start}, "value": 1});
            json!({"type": "window", "entries": starts.iter().map(entry).collect::<Vec<_>>()})
        };
        let mut found = store(starts);
        leave_expired_out(&mut found, retention_ms);
        assert_eq!(found, store(left));
    }

    #[test]
    fn what_is_in_segments_that_are_gone_is_left_out() {
        check_left(&[60_100, 60_000, 59_999, 70], 50, &[60_100, 60_000]);
        check_left(&[60_100, 60_000, 59_999, 70], 101, &[60_100, 60_000, 59_999, 70]);
        check_left(&[], 10, &[]);
    }

    #[test]
    fn the_longest_retention_counts() {
        let case = json!({"topology": [
            {"op": "windowed_by", "window": {"type": "session", "gap": 3, "grace": 10}},
            {"op": "windowed_by", "window": {"type": "tumbling", "size": 5}},
            {"op": "count"},
        ]});
        assert_eq!(retention_max_ms(&case), 16);
    }
}
