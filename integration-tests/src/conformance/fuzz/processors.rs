//! Random processors, with stores of all kinds.

use serde_json::{Value as Json, json};

use super::generator::{Generator, Kind, Made, Type, Windows};
use super::streams::with_values;

/// A processor, the store that it needs, and the type of what it forwards.
struct Chosen {
    processor: Json,
    store: Option<Json>,
    value: Type,
    /// It forwards other keys than that of its record, which only `process` may.
    changes_keys: bool,
}

impl Chosen {
    fn without_store(processor: Json, value: Type) -> Self {
        Self { processor, store: None, value, changes_keys: false }
    }
}

/// A processor of a stream.
pub(super) fn process(generator: &mut Generator, stream: &Made) -> bool {
    // The runner has processors for values of any type and keys without windows.
    if stream.is_count || stream.windows != Windows::None {
        return false;
    }
    let chosen = if generator.percent(60) {
        with_store(generator, stream.value)
    } else {
        without_store(generator, stream.value)
    };
    let fixed = !chosen.changes_keys && generator.percent(50);
    let name = if fixed { "process_values" } else { "process" };
    let mut operator = json!({"op": name, "in": stream.id, "processor": chosen.processor});
    if let Some(store) = chosen.store {
        if generator.percent(70) {
            operator["stores"] = json!([store["name"]]);
            generator.operators.push(json!({"op": "add_state_store", "store": store}));
        } else {
            operator["provides"] = json!([store]);
        }
    }
    generator.add_named(operator, with_values(&stream.as_kind(Kind::Stream), chosen.value));
    true
}

fn without_store(generator: &mut Generator, value: Type) -> Chosen {
    let every = generator.one(&[2, 10, 50]);
    let mut choices = vec![
        (json!("forward"), value),
        (json!(["map_value", "to_text"]), Type::Text),
        (json!(["add_header", "p", "q"]), value),
        (json!(["add_header_in_place", "p", "r"]), value),
        (json!(["remove_header", "h"]), value),
        (json!(["delay", 2]), value),
        (json!("times"), Type::Text),
        (json!("metadata"), Type::Text),
        (json!("commit"), value),
        (json!(["fail_if", "c"]), value),
    ];
    if value == Type::Text {
        choices.push((json!(["tick", "stream", every]), value));
        choices.push((json!(["tick", "wall", every]), value));
        choices.push((json!(["tick_once", "stream", every]), value));
    }
    let (processor, value) = generator.one(&choices);
    let changes_keys = processor[0].as_str().is_some_and(|name| name.starts_with("tick"));
    Chosen { changes_keys, ..Chosen::without_store(processor, value) }
}

fn with_store(generator: &mut Generator, value: Type) -> Chosen {
    let store = generator.name("ps");
    let size = generator.size_ms;
    let kind = generator.chance.in_range(0..9);
    let (processor, kind, held, forwarded) = match kind {
        0 => (json!(["dedup", store]), "kv", value, value),
        1 => (json!(["count", store]), "kv", Type::Long, Type::Long),
        2 => (json!(["put_if_absent", store]), "kv", value, Type::Text),
        3 => (json!(["delete", store]), "kv", value, Type::Text),
        4 => (json!(["ts_last", store]), "ts_kv", value, Type::Text),
        5 => {
            let clock = generator.one(&["stream", "wall"]);
            (json!(["buffer", store, clock, size]), "kv", value, value)
        }
        6 => (json!(["window_put", store, size]), "window", value, Type::Text),
        7 => (json!(["session_put", store, size]), "session", Type::Text, Type::Text),
        _ => (json!(["dedup", store]), "lru", value, value),
    };
    let mut declared = json!({"name": store, "type": kind, "key": "string", "value": held.serde()});
    match kind {
        "window" => {
            declared["retention"] = json!(generator.one(&[4 * size, 1000]));
            declared["window_size"] = json!(size);
            declared["duplicates"] = json!(generator.percent(30));
        }
        "session" => declared["retention"] = json!(generator.one(&[4 * size, 1000])),
        "lru" => declared["max_entries"] = json!(generator.one(&[1, 2])),
        _ => generator.stores.push(store),
    }
    if kind != "lru" && generator.percent(20) {
        declared["in_memory"] = json!(true);
    }
    if generator.percent(15) {
        declared["logging"] = json!(false);
    }
    let changes_keys = processor[0] == "buffer";
    Chosen { processor, store: Some(declared), value: forwarded, changes_keys }
}
