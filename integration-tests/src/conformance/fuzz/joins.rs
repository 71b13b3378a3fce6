//! Random joins of streams, tables and global tables.

use serde_json::{Value as Json, json};

use super::generator::{Generator, Kind, Made, Type, Versions, Windows};

/// What has text keys and text values, before it has an id.
pub(super) fn source_of_texts(kind: Kind) -> Made {
    Made {
        id: String::new(),
        kind,
        windows: Windows::None,
        value: Type::Text,
        is_count: false,
        is_used: false,
        versions: None,
        can_be_suppressed: kind == Kind::Table,
    }
}

/// Something of a kind that can be joined by key; the same as the left side only if nothing else is there.
fn partner(generator: &mut Generator, left: &Made, kind: Kind) -> Option<Made> {
    let fits = |made: &Made| made.kind == kind && made.windows == Windows::None;
    let other = generator.some(|made| fits(made) && made.id != left.id);
    let partner = other.or_else(|| generator.some(fits))?;
    generator.mark_used(&partner.id);
    Some(partner)
}

fn joined(generator: &mut Generator, left: &Made, right: &Made) -> Json {
    let mut joined = json!({
        "key": "string", "value": left.value.serde(), "other_value": right.value.serde(),
    });
    if generator.percent(30) {
        joined["name"] = json!(generator.name("j"));
    }
    joined
}

pub(super) fn with_stream(generator: &mut Generator, left: &Made) -> bool {
    let Some(right) = partner(generator, left, Kind::Stream) else { return false };
    let name = generator.one(&["join", "left_join", "outer_join", "outer_join"]);
    let mut window = json!({"difference": generator.size_ms});
    let (mut before, mut after, mut grace) = (generator.size_ms, generator.size_ms, 0);
    if generator.percent(60) {
        grace = generator.one(&[0, 2, generator.size_ms]);
        window["grace"] = json!(grace);
    }
    if generator.percent(30) {
        before = generator.one(&[0, 2]);
        window["before"] = json!(before);
    }
    if generator.percent(30) {
        after = generator.one(&[0, 3]);
        window["after"] = json!(after);
    }
    let mut with = joined(generator, left, &right);
    if generator.percent(20) {
        with["store_name"] = json!(generator.name("js"));
    }
    if generator.percent(10) {
        with["type"] = json!("in_memory");
    }
    if generator.percent(10) {
        with["logging"] = json!(false);
    }
    if generator.percent(10) {
        let in_memory = generator.percent(50);
        for side in ["this_store", "other_store"] {
            with[side] = json!({
                "name": generator.name("side"), "retention": before + after + grace,
                "window_size": before + after, "duplicates": true, "in_memory": in_memory,
            });
        }
    }
    let (joiner, value) = generator.joiner();
    let mut operator = json!({
        "op": name, "in": left.id, "with": right.id, "joiner": joiner, "window": window,
        "stream_joined": with,
    });
    if joiner == "key_concat" {
        operator["with_key"] = json!(true);
    }
    generator.add(operator, Made { value, ..source_of_texts(Kind::Stream) });
    true
}

pub(super) fn with_table(generator: &mut Generator, left: &Made) -> bool {
    let Some(right) = partner(generator, left, Kind::Table) else { return false };
    let mut with = joined(generator, left, &right);
    let mut name = generator.one(&["join", "left_join"]);
    if let Some(Versions::Stored(history)) = right.versions
        && generator.percent(75)
    {
        // A left join that waits fails with a record without key.
        name = if generator.percent(10) { "left_join" } else { "join" };
        with["grace"] = json!(generator.one(&[0, 3, history]));
    }
    let (joiner, value) = generator.joiner();
    let mut operator = json!({
        "op": name, "in": left.id, "with": right.id, "joiner": joiner, "joined": with,
    });
    if joiner == "key_concat" {
        operator["with_key"] = json!(true);
    }
    generator.add(operator, Made { value, ..source_of_texts(Kind::Stream) });
    true
}

pub(super) fn with_global_table(generator: &mut Generator, left: &Made) -> bool {
    let known = generator.some(|made| made.kind == Kind::GlobalTable);
    let table = known.unwrap_or_else(|| {
        let topic = generator.topic();
        let operator = json!({"op": "global_table", "topic": topic});
        generator.add(operator, source_of_texts(Kind::GlobalTable))
    });
    let name = generator.one(&["join", "left_join"]);
    let key = generator.one(&[
        json!(["of_key", "to_text"]),
        json!(["chain", ["nth", ":", 0], "to_text"]),
        json!("to_text"),
    ]);
    let operator = json!({
        "op": name, "in": left.id, "with": table.id, "key": key, "joiner": "concat",
    });
    let result = Made { windows: left.windows, ..source_of_texts(Kind::Stream) };
    generator.add_named(operator, result);
    true
}

pub(super) fn tables(generator: &mut Generator, left: &Made) -> bool {
    let Some(right) = partner(generator, left, Kind::Table) else { return false };
    let name = generator.one(&["join", "left_join", "outer_join"]);
    let (mut joiner, mut value) = generator.joiner();
    if joiner == "key_concat" {
        (joiner, value) = ("concat", Type::Text);
    }
    let mut operator = json!({"op": name, "in": left.id, "with": right.id, "joiner": joiner});
    let is_versioned = left.versions.is_some() || right.versions.is_some();
    let mut result = Made { value, ..source_of_texts(Kind::Table) };
    // Without a store nothing knows how its numbers are written.
    if value == Type::Long || generator.percent(50) {
        operator["materialized"] = generator.materialized(&result, 50);
    }
    result.can_be_suppressed = !is_versioned;
    generator.add_named(operator, result);
    true
}

pub(super) fn tables_on_foreign_key(generator: &mut Generator, left: &Made) -> bool {
    let Some(right) = partner(generator, left, Kind::Table) else { return false };
    let name = generator.one(&["join", "left_join"]);
    let foreign_key = generator.one(&[
        json!(["chain", "to_text", ["nth", ":", 0]]),
        json!(["chain", ["nth", ":", 0], "to_text"]),
        json!(["chain", "to_text", ["null_if", "1"]]),
        json!(["const", "a"]),
    ]);
    let result = source_of_texts(Kind::Table);
    let materialized = generator.materialized(&result, 50);
    let mut operator = json!({
        "op": name, "in": left.id, "with": right.id, "foreign_key": foreign_key,
        "joiner": "concat", "materialized": materialized,
    });
    if generator.percent(30) {
        operator["table_joined"] = json!({"name": generator.name("fj")});
    }
    if generator.percent(15) {
        operator["with_key"] = json!(true);
    }
    generator.add(operator, result);
    true
}
