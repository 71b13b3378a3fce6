//! Random input: few keys, times at the edges of windows, out of order, tombstones, missing keys.

use serde_json::{Value as Json, json};

use super::generator::Generator;

/// A jump over a whole segment of a store.
const SEGMENT_JUMP_MS: i64 = 61_000;

/// Input for all topics of a case, and questions to its stores at the end.
pub(super) fn input(generator: &mut Generator) -> Vec<Json> {
    let mut events = Vec::new();
    let mut now = 100;
    for _ in 0..generator.chance.index(5..14) {
        if generator.percent(4) {
            events.push(json!({"advance_wall_clock": generator.one(&[1, 100, 1000])}));
            continue;
        }
        let topics = generator.topics.clone();
        let topic = generator.one(&topics);
        let ts = time(generator, &mut now);
        let mut record = json!({
            "topic": topic, "key": key(generator), "value": value(generator), "ts": ts,
        });
        if generator.percent(15) {
            record["headers"] = json!([["h", generator.one(&["1", "2"])]]);
        }
        events.push(record);
    }
    // What is left of windows closes.
    let topics = generator.topics.clone();
    for topic in topics.iter().take(2) {
        if generator.percent(50) {
            let (key, value) = (generator.one(&["a", "z"]), generator.one(&["1", "z"]));
            let ts = now + generator.one(&[50, 100]);
            events.push(json!({"topic": topic, "key": key, "value": value, "ts": ts}));
        }
    }
    let stores = generator.stores.clone();
    for store in stores.iter().take(2) {
        events.push(json!({"query": query(generator, store)}));
    }
    events
}

/// The next time: later at about every second record.
fn time(generator: &mut Generator, now: &mut i64) -> i64 {
    let size = generator.size_ms;
    match generator.chance.in_range(0..100) {
        0..=2 => *now += 100,
        3 => *now += SEGMENT_JUMP_MS,
        4..=56 => *now += generator.one(&[0, 1, 2, size - 1, size, size + 1]),
        _ => {
            let back =
                generator.one(&[0, 1, 2, 3, size - 1, size, size + 1, 2 * size, 2 * size + 1]);
            return (*now - back).max(0);
        }
    }
    *now
}

fn key(generator: &mut Generator) -> Option<&'static str> {
    let key = generator.one(&["a", "a", "a", "b", "b", "c"]);
    if generator.percent(5) { None } else { Some(key) }
}

fn value(generator: &mut Generator) -> Option<&'static str> {
    let value = generator.one(&["1", "2", "3", "a:1", "a:2", "b:1", "b:3", "c"]);
    if generator.percent(15) { None } else { Some(value) }
}

fn query(generator: &mut Generator, store: &str) -> Json {
    match generator.chance.in_range(0..4) {
        0 => json!({"store": store, "type": "get", "key": key(generator).unwrap_or("a")}),
        1 => json!({"store": store, "type": "reverse_all"}),
        2 => json!({"store": store, "type": "range", "key_from": "a", "key_to": "b"}),
        _ => json!({"store": store, "type": "all"}),
    }
}
