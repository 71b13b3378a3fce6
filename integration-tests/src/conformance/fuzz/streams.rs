//! Random operators of streams.

use serde_json::{Value as Json, json};

use super::generator::{Generator, Kind, Made, Type, Versions, Windows};
use super::{groups, joins, processors};

/// Adds an operator that takes a stream; whether one could be added.
type Grow = fn(&mut Generator, &Made) -> bool;

/// Operators, and how often they come up.
const OPERATORS: [(u64, Grow); 18] = [
    (3, filter),
    (3, map_values),
    (2, flat_map_values),
    (3, select_key),
    (2, map),
    (1, flat_map),
    (2, peek),
    (2, merge),
    (2, split),
    (2, repartition),
    (3, to_table),
    (6, groups::aggregate),
    (10, groups::aggregate_windows),
    (3, groups::aggregate_cogroup),
    (8, joins::with_stream),
    (6, joins::with_table),
    (3, joins::with_global_table),
    (5, processors::process),
];

/// Operators of streams whose keys have windows.
const WINDOWED_OPERATORS: [(u64, Grow); 6] = [
    (2, filter),
    (2, map_values),
    (1, peek),
    (4, select_key_of_window),
    (1, joins::with_global_table),
    (1, merge),
];

pub(super) fn grow(generator: &mut Generator, stream: &Made) -> bool {
    let operators: &[(u64, Grow)] =
        if stream.windows == Windows::None { &OPERATORS } else { &WINDOWED_OPERATORS };
    let grow = weighted(generator, operators);
    grow(generator, stream)
}

/// One of several, as often as their weights say.
pub(super) fn weighted<T: Copy>(generator: &mut Generator, choices: &[(u64, T)]) -> T {
    let total: u64 = choices.iter().map(|(weight, _)| weight).sum();
    let mut left = generator.chance.in_range(0..total);
    for (weight, choice) in choices {
        if left < *weight {
            return *choice;
        }
        left -= weight;
    }
    unreachable!("the number is below the sum of the weights")
}

/// What has other values than what it is made of.
pub(super) fn with_values(made: &Made, value: Type) -> Made {
    Made { value, is_count: false, is_used: false, ..made.clone() }
}

fn filter(generator: &mut Generator, stream: &Made) -> bool {
    let name = generator.one(&["filter", "filter_not"]);
    let predicate = generator.predicate();
    let operator = json!({"op": name, "in": stream.id, "predicate": predicate});
    generator.add_named(operator, stream.as_kind(Kind::Stream));
    true
}

fn map_values(generator: &mut Generator, stream: &Made) -> bool {
    let (value, to) = generator.value_expression(stream.value);
    let mut operator = json!({"op": "map_values", "in": stream.id, "value": value});
    if generator.percent(20) {
        operator["with_key"] = json!(true);
    }
    generator.add_named(operator, with_values(stream, to));
    true
}

fn flat_map_values(generator: &mut Generator, stream: &Made) -> bool {
    let (values, to) = match generator.chance.in_range(0..3) {
        0 => (json!(["repeat", 2]), stream.value),
        _ => (json!(["split", ":"]), Type::Text),
    };
    let operator = json!({"op": "flat_map_values", "in": stream.id, "values": values});
    generator.add_named(operator, with_values(stream, to));
    true
}

fn select_key(generator: &mut Generator, stream: &Made) -> bool {
    let key = generator.key_expression();
    let operator = json!({"op": "select_key", "in": stream.id, "key": key});
    generator.add_named(operator, stream.as_kind(Kind::Stream));
    true
}

/// Makes texts of keys with windows.
fn select_key_of_window(generator: &mut Generator, stream: &Made) -> bool {
    let key = generator.one(&[
        json!(["of_key", "to_text"]),
        json!(["of_key", ["chain", "window_key", "to_text"]]),
        json!(["of_key", ["chain", "window_start", "to_text"]]),
    ]);
    let operator = json!({"op": "select_key", "in": stream.id, "key": key});
    let result = Made { windows: Windows::None, ..stream.as_kind(Kind::Stream) };
    generator.add_named(operator, result);
    true
}

fn map(generator: &mut Generator, stream: &Made) -> bool {
    let (value, to) = generator.value_expression(stream.value);
    let key = generator.key_expression();
    let operator = json!({"op": "map", "in": stream.id, "key": key, "value": value});
    generator.add_named(operator, with_values(stream, to));
    true
}

fn flat_map(generator: &mut Generator, stream: &Made) -> bool {
    let (pairs, to) = match generator.chance.in_range(0..4) {
        0 => (json!(["repeat", 2]), stream.value),
        1 => (json!(["split_to_keys", ":"]), stream.value),
        _ => (json!(["split_pairs", ".", ":"]), Type::Text),
    };
    let operator = json!({"op": "flat_map", "in": stream.id, "pairs": pairs});
    generator.add_named(operator, with_values(stream, to));
    true
}

fn peek(generator: &mut Generator, stream: &Made) -> bool {
    let label = generator.name("seen");
    let operator = json!({"op": "peek", "in": stream.id, "label": label});
    generator.add_named(operator, stream.as_kind(Kind::Stream));
    true
}

fn merge(generator: &mut Generator, stream: &Made) -> bool {
    let other = generator.some(|other| {
        other.kind == Kind::Stream
            && other.windows == stream.windows
            && other.value == stream.value
            && other.is_count == stream.is_count
    });
    let Some(other) = other else { return false };
    generator.mark_used(&other.id);
    let operator = json!({"op": "merge", "in": stream.id, "with": other.id});
    generator.add_named(operator, stream.as_kind(Kind::Stream));
    true
}

fn split(generator: &mut Generator, stream: &Made) -> bool {
    let branches = generator.chance.index(1..3);
    let branches: Vec<(String, Json)> =
        (0..branches).map(|_| (generator.name("r"), generator.predicate())).collect();
    let default = generator.percent(60).then(|| generator.name("r"));
    let ids = branches.iter().map(|(id, _)| id).chain(&default).cloned();
    let results: Vec<Made> = ids.map(|id| Made { id, ..stream.as_kind(Kind::Stream) }).collect();
    generator.made.extend(results);
    let branches: Json =
        branches.iter().map(|(id, predicate)| json!({"id": id, "predicate": predicate})).collect();
    let mut operator = json!({"op": "split", "in": stream.id, "branches": branches});
    if let Some(id) = default {
        operator["default"] = json!({"id": id});
    }
    generator.operators.push(operator);
    true
}

fn repartition(generator: &mut Generator, stream: &Made) -> bool {
    let mut repartitioned = json!({"key": "string", "value": stream.value.serde()});
    if generator.percent(50) {
        repartitioned["name"] = json!(generator.name("rp"));
    }
    let operator = json!({"op": "repartition", "in": stream.id, "repartitioned": repartitioned});
    generator.add(operator, stream.as_kind(Kind::Stream));
    true
}

fn to_table(generator: &mut Generator, stream: &Made) -> bool {
    let mut table = stream.as_kind(Kind::Table);
    table.can_be_suppressed = true;
    let materialized = if generator.percent(15) {
        let history = generator.one(&[10, 30, 100]);
        table.versions = Some(Versions::Stored(history));
        table.can_be_suppressed = false;
        json!({
            "key": "string", "value": table.value.serde(), "store": generator.name("st"),
            "supplier": {"kind": "versioned", "history": history},
        })
    } else {
        generator.materialized(&table, 50)
    };
    let operator = json!({"op": "to_table", "in": stream.id, "materialized": materialized});
    generator.add_named(operator, table);
    true
}
