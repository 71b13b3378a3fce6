//! Random groups of streams and tables, and what is made of them.

use serde_json::{Value as Json, json};

use super::generator::{Generator, Kind, Made, Type, Windows};
use super::joins::source_of_texts;

/// A table of a group of a stream or table.
fn table_of(value: Type, is_count: bool, windows: Windows) -> Made {
    Made { value, is_count, windows, can_be_suppressed: true, ..source_of_texts(Kind::Table) }
}

/// Groups a stream by its key or another one.
fn group(generator: &mut Generator, stream: &Made) -> String {
    let grouped = generator.grouped(stream.value);
    let operator = if generator.percent(40) {
        let key = generator.key_expression();
        json!({"op": "group_by", "in": stream.id, "key": key, "grouped": grouped})
    } else {
        json!({"op": "group_by_key", "in": stream.id, "grouped": grouped})
    };
    generator.add_step(operator)
}

/// The aggregation of a group of a stream, without what it is stored in, and what it makes.
fn aggregation(
    generator: &mut Generator,
    group: &str,
    of: &Made,
    windows: Windows,
) -> (Json, Made) {
    // With a cache the original fails when it meets a sliding window whose aggregate has gone.
    let mut made_by = generator.operators.iter().filter(|it| it["id"] == group);
    let slides = made_by.any(|it| it["window"]["type"] == "sliding");
    match generator.chance.in_range(0..4) {
        0 => (json!({"op": "count", "in": group}), table_of(Type::Long, true, windows)),
        1 => {
            let reducers = match of.value {
                Type::Text => vec![
                    json!("concat"),
                    json!("last"),
                    json!("first"),
                    json!("max"),
                    json!(["null_if", "2"]),
                ],
                Type::Long => vec![json!("sum"), json!("max"), json!("min"), json!("last")],
            };
            let mut reducers = reducers;
            reducers.retain(|it| !(slides && it.is_array()));
            let reducer = generator.one(&reducers);
            let operator = json!({"op": "reduce", "in": group, "reducer": reducer});
            (operator, table_of(of.value, of.is_count, windows))
        }
        kind => {
            let (initializer, aggregators, value) = if kind == 2 {
                let last = if slides { json!("concat") } else { json!(["null_if", "2"]) };
                (json!(""), [json!("concat"), json!("key_concat"), last], Type::Text)
            } else {
                (json!(0), [json!("sum"), json!("max"), json!("count")], Type::Long)
            };
            let aggregator = generator.one(&aggregators);
            let mut operator = json!({
                "op": "aggregate", "in": group, "initializer": initializer,
                "aggregator": aggregator,
            });
            if windows == Windows::Session {
                operator["merger"] = merger(value);
            }
            (operator, table_of(value, false, windows))
        }
    }
}

fn merger(value: Type) -> Json {
    match value {
        Type::Text => json!("concat"),
        Type::Long => json!("sum"),
    }
}

pub(super) fn aggregate(generator: &mut Generator, stream: &Made) -> bool {
    let group = group(generator, stream);
    let (mut operator, table) = aggregation(generator, &group, stream, Windows::None);
    operator["materialized"] = generator.materialized(&table, 50);
    generator.add_named(operator, table);
    true
}

/// Windows of a group, which give results early or when they close.
fn windowed_by(generator: &mut Generator, group: &str, on_close: bool) -> (String, Windows) {
    let (window, windows) = generator.window();
    let mut operator = json!({"op": "windowed_by", "in": group, "window": window});
    if on_close && windows != Windows::Unlimited && generator.percent(30) {
        operator["emit"] = json!("on_window_close");
    }
    (generator.add_step(operator), windows)
}

pub(super) fn aggregate_windows(generator: &mut Generator, stream: &Made) -> bool {
    let group = group(generator, stream);
    let (windowed, windows) = windowed_by(generator, &group, true);
    let (mut operator, table) = aggregation(generator, &windowed, stream, windows);
    operator["materialized"] = generator.materialized(&table, 50);
    generator.add_named(operator, table);
    true
}

/// Two streams, or one twice in two groups, in one table.
pub(super) fn aggregate_cogroup(generator: &mut Generator, stream: &Made) -> bool {
    let other = generator.some(|it| it.kind == Kind::Stream && it.windows == Windows::None);
    let Some(other) = other else { return false };
    generator.mark_used(&other.id);
    let mut group = |of: &Made| {
        let name = generator.name("cg");
        let grouped = json!({"key": "string", "value": of.value.serde(), "name": name});
        generator.add_step(json!({"op": "group_by_key", "in": of.id, "grouped": grouped}))
    };
    let (first, second) = (group(stream), group(&other));
    let cogroup = json!({"op": "cogroup", "in": first, "aggregator": "concat"});
    let cogroup = generator.add_step(cogroup);
    let cogroup =
        json!({"op": "cogroup", "in": cogroup, "with": second, "aggregator": "key_concat"});
    let mut cogrouped = generator.add_step(cogroup);
    let mut windows = Windows::None;
    if generator.percent(40) {
        (cogrouped, windows) = windowed_by(generator, &cogrouped, false);
    }
    let table = table_of(Type::Text, false, windows);
    let mut operator = json!({"op": "aggregate", "in": cogrouped, "initializer": ""});
    if windows == Windows::Session {
        operator["merger"] = merger(Type::Text);
    }
    operator["materialized"] = generator.materialized(&table, 50);
    generator.add_named(operator, table);
    true
}

/// Groups a table by another key, and makes a table of that.
pub(super) fn aggregate_table(generator: &mut Generator, table: &Made) -> bool {
    let (key, grouped) = (generator.table_key_expression(), generator.grouped(table.value));
    let group = generator.add_step(json!({
        "op": "group_by", "in": table.id, "key": key, "value": "value", "grouped": grouped,
    }));
    let (mut operator, result) = match generator.chance.in_range(0..4) {
        0 => (json!({"op": "count", "in": group}), table_of(Type::Long, true, Windows::None)),
        1 => {
            let (reducer, subtractor) = match table.value {
                Type::Text => ("concat", "concat_minus"),
                Type::Long => ("sum", "diff"),
            };
            let operator = json!({
                "op": "reduce", "in": group, "reducer": reducer, "subtractor": subtractor,
            });
            (operator, table_of(table.value, false, Windows::None))
        }
        2 => {
            let operator = json!({
                "op": "aggregate", "in": group, "initializer": "", "aggregator": "concat",
                "subtractor": "concat_minus",
            });
            (operator, table_of(Type::Text, false, Windows::None))
        }
        _ => {
            let operator = json!({
                "op": "aggregate", "in": group, "initializer": 0, "aggregator": "sum",
                "subtractor": "diff",
            });
            (operator, table_of(Type::Long, false, Windows::None))
        }
    };
    operator["materialized"] = generator.materialized(&result, 50);
    generator.add_named(operator, result);
    true
}
