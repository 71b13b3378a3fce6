//! What the stores of a join of streams hold: section 9 of the format.

use headwater::serde::{Deserializer, Payload};
use headwater::store::{Direction, KeyRange};
use headwater::topology::{NodeKind, StoreKind};
use headwater_testing::TopologyTestDriver;
use serde_json::{Value as Json, json};

use super::build::Built;
use super::case::text;
use super::contents::json_of;
use super::serdes::DynSerde;
use super::value::{Value, hex};

fn kind<'b>(built: &'b Built, store: &str) -> Option<&'b StoreKind> {
    built.topology.graph().store(store).map(|store| &store.spec.kind)
}

/// Whether records wait for partners in this store.
pub(super) fn is_of_unmatched(built: &Built, store: &str) -> bool {
    kind(built, store) == Some(&StoreKind::OuterJoin)
}

/// Whether the records of one side of a join are kept in this store.
pub(super) fn is_of_one_side(built: &Built, store: &str) -> bool {
    let kind = kind(built, store);
    kind.is_some_and(|kind| matches!(kind, StoreKind::Window { retain_duplicates: true, .. }))
}

/// The contents of a store that records wait in.
pub(super) fn unmatched(driver: &TopologyTestDriver, built: &Built, store: &str) -> Json {
    let (key_serde, left, right) = serdes(built, store);
    let entries = driver.raw_store_entries(store, &KeyRange::all(), Direction::Forward);
    let entries = entries.expect("the store of a task that runs can be read");
    let shown = entries.iter().flat_map(|(key, list)| {
        let (time, rest) = key.split_first_chunk::<8>().expect("a time");
        let (side, key) = rest.split_first().expect("a side");
        let side = if *side == 1 { "left" } else { "right" };
        let key = json!({
            "ts": i64::from_be_bytes(*time), "side": side, "key": decode(key_serde, key),
        });
        values(list).into_iter().map(move |(is_left, value)| {
            let value = if is_left {
                json!({"left": decode(left, value)})
            } else {
                json!({"right": decode(right, value)})
            };
            json!({"key": key, "value": value})
        })
    });
    let raw = entries.iter().map(|(key, list)| json!([hex(key), hex(list)]));
    let (shown, raw): (Vec<Json>, Vec<Json>) = (shown.collect(), raw.collect());
    json!({"type": "key_value", "entries": shown, "raw": raw})
}

/// The records of a list, and whether they are of the left side.
fn values(list: &[u8]) -> Vec<(bool, &[u8])> {
    let mut rest = &list[5..];
    let mut values = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).expect("64 bits");
        let (element, behind) = behind.split_at(length);
        let (side, value) = element.split_first().expect("a side");
        values.push((*side == 1, value));
        rest = behind;
    }
    values
}

fn decode(serde: DynSerde, bytes: &[u8]) -> Json {
    let value: Value = serde
        .deserialize(Payload::new(bytes))
        .expect("what a store holds was written by its serde");
    json_of(value)
}

/// The serdes of keys, left and right values, by the stores of both sides: each side's node looks into the other's.
fn serdes(built: &Built, store: &str) -> (DynSerde, DynSerde, DynSerde) {
    let graph = built.topology.graph();
    let sides = graph.nodes().iter().filter_map(|node| match &node.kind {
        NodeKind::Processor { stores } if stores.iter().any(|it| it == store) => {
            stores.iter().find(|it| *it != store)
        }
        _ => None,
    });
    let application = built.topology.for_application("app").expect("it was made before");
    let mut of_sides = sides.map(|windows| {
        let mut stores = application.programs.values().flat_map(|program| &program.stores);
        let found = stores.find(|it| it.spec.name == *windows).expect("a store of the join");
        let formats = found.formats.as_ref().expect("its serdes are known");
        let named = |format: &str| DynSerde::ALL.into_iter().find(|serde| serde.is(format));
        let serdes = named(&formats.key).zip(named(&formats.value));
        serdes.expect("serdes of the cases")
    });
    let (key, right) = of_sides.next().expect("the left side");
    let (_, left) = of_sides.next().expect("the right side");
    (key, left, right)
}

/// What is expected of a store of one side, if that is what was found: keys, windows and values. The times and
/// headers that the original's adapters show beside the values mean nothing, and are not kept here.
pub(super) fn as_expected(expected: &Json, found: Json) -> Json {
    let entries = expected["entries"].as_array().into_iter().flatten();
    let expected_values = entries.map(|entry| {
        let value = entry["value"].get("value").unwrap_or_else(|| &entry["value"]);
        json!({"key": entry["key"], "value": value})
    });
    let expected_values: Vec<Json> = expected_values.collect();
    let is_same = text(&expected["type"]) == "window" && found["entries"] == json!(expected_values);
    if is_same { expected.clone() } else { found }
}
