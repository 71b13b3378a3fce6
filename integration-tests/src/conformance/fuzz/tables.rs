//! Random operators of tables.

use serde_json::json;

use super::generator::{Generator, Kind, Made, Type, Versions, Windows};
use super::streams::{weighted, with_values};
use super::{groups, joins};

/// Adds an operator that takes a table; whether one could be added.
type Grow = fn(&mut Generator, &Made) -> bool;

/// Operators, and how often they come up.
const OPERATORS: [(u64, Grow); 8] = [
    (3, filter),
    (3, map_values),
    (2, transform_values),
    (5, groups::aggregate_table),
    (6, joins::tables),
    (5, joins::tables_on_foreign_key),
    (3, suppress),
    (3, to_stream),
];

/// Operators of tables whose keys have windows.
const WINDOWED_OPERATORS: [(u64, Grow); 4] =
    [(1, filter), (1, map_values), (5, suppress), (3, to_stream)];

pub(super) fn grow(generator: &mut Generator, table: &Made) -> bool {
    let operators: &[(u64, Grow)] =
        if table.windows == Windows::None { &OPERATORS } else { &WINDOWED_OPERATORS };
    let grow = weighted(generator, operators);
    grow(generator, table)
}

/// What is made of each value of a table: of versions if the table is.
fn derived(table: &Made) -> Made {
    let versions = table.versions.map(|_| Versions::Derived);
    Made { versions, ..table.as_kind(Kind::Table) }
}

fn filter(generator: &mut Generator, table: &Made) -> bool {
    let name = generator.one(&["filter", "filter_not"]);
    let mut operator = json!({"op": name, "in": table.id, "predicate": generator.predicate()});
    let mut result = derived(table);
    if table.windows == Windows::None && generator.percent(30) {
        operator["materialized"] = generator.materialized(&result, 50);
        result.versions = None;
    }
    generator.add_named(operator, result);
    true
}

fn map_values(generator: &mut Generator, table: &Made) -> bool {
    let (value, to) = generator.value_expression(table.value);
    let mut operator = json!({"op": "map_values", "in": table.id, "value": value});
    if generator.percent(20) {
        operator["with_key"] = json!(true);
    }
    let mut result = with_values(&derived(table), to);
    if table.windows == Windows::None {
        operator["materialized"] = generator.materialized(&result, 50);
        result.versions = None;
    } else if to == Type::Long {
        // Nothing says how its numbers are written, so a buffer would take the default.
        result.can_be_suppressed = false;
    }
    generator.add_named(operator, result);
    true
}

fn transform_values(generator: &mut Generator, table: &Made) -> bool {
    if table.is_count {
        return false;
    }
    let mut operator = json!({"op": "transform_values", "in": table.id});
    let to = if generator.percent(50) {
        let store = generator.name("ts");
        let declared = json!({"name": store, "type": "kv", "key": "string", "value": "long"});
        generator.operators.push(json!({"op": "add_state_store", "store": declared}));
        operator["transformer"] = json!(["count", store]);
        operator["stores"] = json!([store]);
        Type::Text
    } else {
        let (value, to) = generator.value_expression(table.value);
        operator["transformer"] = json!(["map_value", value]);
        to
    };
    let mut result = with_values(&derived(table), to);
    // A join that looks keys up in what is not kept transforms anew, and in the original fails when that needs stores:
    // these are not connected to the join.
    let named_percent = if operator["stores"].is_null() { 50 } else { 100 };
    operator["materialized"] = generator.materialized(&result, named_percent);
    result.versions = None;
    generator.add_named(operator, result);
    true
}

fn to_stream(generator: &mut Generator, table: &Made) -> bool {
    let mut operator = json!({"op": "to_stream", "in": table.id});
    let mut stream = table.as_kind(Kind::Stream);
    stream.versions = None;
    if table.windows != Windows::None && generator.percent(60) {
        operator["key"] = json!(["of_key", "to_text"]);
        stream.windows = Windows::None;
    }
    generator.add_named(operator, stream);
    true
}

fn suppress(generator: &mut Generator, table: &Made) -> bool {
    if !table.can_be_suppressed {
        return false;
    }
    let mut operator = json!({"op": "suppress", "in": table.id});
    let closes = !matches!(table.windows, Windows::None | Windows::Unlimited);
    if closes && generator.percent(70) {
        operator["until"] = json!("window_closes");
    } else {
        operator["until"] = json!("time_limit");
        operator["ms"] = json!(generator.one(&[0, 3, 10]));
        if generator.percent(40) {
            let records = generator.one(&[1, 2, 3]);
            operator["buffer"] = json!({"max_records": records, "full": "emit_early"});
        } else if generator.percent(10) {
            operator["buffer"] = json!({"max_bytes": 150, "full": "emit_early"});
        }
    }
    let result = Made { can_be_suppressed: false, ..derived(table) };
    generator.add_named(operator, result);
    true
}
