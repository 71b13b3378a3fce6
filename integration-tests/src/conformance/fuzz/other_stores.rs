//! What the original makes of a case with other stores, to tell differences that come from its stores only.

use anyhow::Result;
use serde_json::Value as Json;

use super::hunt::{compare, differs_in};
use super::original::Original;
use crate::conformance::Outcome;

/// The part of what is expected that says what is in the stores at the end.
const CONTENTS: &str = "stores";
const CACHE_BYTES: &str = "statestore.cache.max.bytes";

/// What the original expects of a case with its stores changed.
///
/// Two kinds of differences are no mistakes here:
///
/// - The original's stores in memory expire windows one by one, and count what they refuse; those on disk drop whole
///   segments, as stores of both kinds do here. Then what comes out here is what the original gives with all stores on
///   disk.
/// - The original's cache still shows windows and sessions that have expired in the store below, for as long as there
///   is room for them. Then only contents differ, and those here are what the original holds without a cache.
#[derive(Debug, Default)]
pub(super) struct OtherStores {
    /// With all stores on disk, if it has any in memory.
    on_disk: Option<Json>,
    /// Without a cache, if it has one.
    uncached: Option<Json>,
}

impl OtherStores {
    /// Asks the original about cases; the answers are in their order.
    pub(super) fn ask(original: &Original, cases: &[Json]) -> Result<Vec<Self>> {
        let mut asked = Vec::new();
        let mut places = Vec::new();
        for (number, case) in cases.iter().enumerate() {
            for (is_on_disk, changed) in [(true, on_disk(case)), (false, uncached(case))] {
                if changed != *case {
                    asked.push(changed);
                    places.push((number, is_on_disk));
                }
            }
        }
        let mut all: Vec<Self> = cases.iter().map(|_| Self::default()).collect();
        if asked.is_empty() {
            return Ok(all);
        }
        let answers = original.ask(&asked, false)?;
        for ((number, is_on_disk), answer) in places.into_iter().zip(answers) {
            let place =
                if is_on_disk { &mut all[number].on_disk } else { &mut all[number].uncached };
            *place = Some(answer["expect"].clone());
        }
        Ok(all)
    }

    /// Whether these explain all in which a case differs.
    pub(super) fn explain(&self, case: &Json, outcome: &Outcome) -> Result<bool> {
        if let Some(expected) = &self.on_disk
            && holds(case, |it| it["expect"] = expected.clone())?
        {
            return Ok(true);
        }
        let only_contents = differs_in(outcome).iter().all(|what| what == CONTENTS);
        match &self.uncached {
            Some(expected) if only_contents => {
                holds(case, |it| it["expect"][CONTENTS] = expected[CONTENTS].clone())
            }
            _ => Ok(false),
        }
    }
}

/// Whether a case holds with another expectation.
fn holds(case: &Json, change: impl FnOnce(&mut Json)) -> Result<bool> {
    let mut changed = case.clone();
    change(&mut changed);
    Ok(compare(&changed)? == Outcome::Passed)
}

/// The case with all stores on disk.
fn on_disk(case: &Json) -> Json {
    let mut changed = case.clone();
    put_on_disk(&mut changed);
    changed
}

fn put_on_disk(json: &mut Json) {
    match json {
        Json::Object(fields) => {
            fields.retain(|name, value| {
                !(matches!(name.as_str(), "type" | "dsl.store") && value == "in_memory")
            });
            if let Some(in_memory) = fields.get_mut("in_memory") {
                // Not taken away: some stores are in memory where nothing is said of it.
                *in_memory = Json::Bool(false);
            }
            fields.values_mut().for_each(put_on_disk);
        }
        Json::Array(items) => items.iter_mut().for_each(put_on_disk),
        _ => {}
    }
}

/// The case without a cache.
fn uncached(case: &Json) -> Json {
    let mut changed = case.clone();
    if let Some(config) = changed["config"].as_object_mut() {
        config.remove(CACHE_BYTES);
    }
    changed
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::{on_disk, uncached};

    #[track_caller]
    fn check(change: fn(&Json) -> Json, before: &Json, after: &Json) {
        assert_eq!(change(before), *after);
    }

    #[test]
    fn stores_in_memory_are_put_on_disk_wherever_they_are_named() {
        let before = json!({
            "config": {"dsl.store": "in_memory", "statestore.cache.max.bytes": 9},
            "topology": [
                {"op": "count", "materialized": {"store": "s", "type": "in_memory"}},
                {"op": "add_state_store", "store": {"name": "p", "type": "kv", "in_memory": true}},
            ],
        });
        let after = json!({
            "config": {"statestore.cache.max.bytes": 9},
            "topology": [
                {"op": "count", "materialized": {"store": "s"}},
                {"op": "add_state_store", "store": {"name": "p", "type": "kv", "in_memory": false}},
            ],
        });
        check(on_disk, &before, &after);
        check(on_disk, &after, &after);
    }

    #[test]
    fn the_cache_is_taken_away() {
        let before = json!({"config": {"statestore.cache.max.bytes": 9, "dsl.store": "rocksdb"}});
        check(uncached, &before, &json!({"config": {"dsl.store": "rocksdb"}}));
    }
}
