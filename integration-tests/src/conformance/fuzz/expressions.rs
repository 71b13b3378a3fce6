//! Random functions of the cases, windows and parameter objects.

use serde_json::{Value as Json, json};

use super::generator::{Generator, Type, Windows};

impl Generator {
    /// A function of values of a type, and of what type its results are.
    pub(super) fn value_expression(&mut self, of: Type) -> (Json, Type) {
        if self.percent(3) {
            return (json!(["fail_if", "3"]), of);
        }
        let choices = match of {
            Type::Long => vec![
                (json!(["add", 1]), Type::Long),
                (json!(["add", -2]), Type::Long),
                (json!(["mod", 3]), Type::Long),
                (json!(["null_if", "2"]), Type::Long),
                (json!("to_text"), Type::Text),
            ],
            Type::Text => vec![
                (json!(["append", "."]), Type::Text),
                (json!(["prepend", "1"]), Type::Text),
                (json!("upper"), Type::Text),
                (json!(["nth", ":", 0]), Type::Text),
                (json!(["nth", ":", 1]), Type::Text),
                (json!(["null_if", "1"]), Type::Text),
                (json!("to_text"), Type::Text),
                (json!("parse_long"), Type::Long),
                (json!("length"), Type::Long),
            ],
        };
        self.one(&choices)
    }

    /// A function that makes a key.
    pub(super) fn key_expression(&mut self) -> Json {
        self.one(&[
            json!(["chain", ["nth", ":", 0], "to_text"]),
            json!(["chain", "to_text", ["nth", ":", 0]]),
            json!("to_text"),
            json!(["of_key", ["append", "x"]]),
            json!(["const", "one"]),
            json!(["chain", "to_text", ["null_if", "1"]]),
            json!("key"),
        ])
    }

    /// A function that makes a key of a record of a table, which can be null: then the record is left out.
    pub(super) fn table_key_expression(&mut self) -> Json {
        self.one(&[
            json!(["const", "one"]),
            json!(["chain", ["nth", ":", 0], "to_text"]),
            json!("to_text"),
            json!("key"),
            json!(["chain", "to_text", ["null_if", "1"]]),
        ])
    }

    pub(super) fn predicate(&mut self) -> Json {
        self.one(&[
            json!(["value_gt", 1]),
            json!(["value_has", "1"]),
            json!(["not", ["value_has", "2"]]),
            json!(["value_starts", "a"]),
            json!(["key_starts", "a"]),
            json!("value_even"),
            json!(["not", "value_is_null"]),
            json!(["not", "key_is_null"]),
            json!(["or", ["key_eq", "b"], ["value_gt", 2]]),
            json!(["and", ["not", ["key_eq", "c"]], "value_even"]),
        ])
    }

    /// Windows of some kind, and what they make of keys.
    pub(super) fn window(&mut self) -> (Json, Windows) {
        let size = self.size_ms;
        let (mut window, windows) = match self.chance.in_range(0..5) {
            0 => (json!({"type": "tumbling", "size": size}), Windows::OfSize(size)),
            1 => {
                let advance = self.one(&[2, size / 2, size]);
                let window = json!({"type": "hopping", "size": size, "advance": advance});
                (window, Windows::OfSize(size))
            }
            2 => (json!({"type": "sliding", "difference": size}), Windows::OfSize(size)),
            3 => {
                let gap = self.one(&[3, size]);
                (json!({"type": "session", "gap": gap}), Windows::Session)
            }
            _ => {
                let start = self.one(&[0, 100]);
                (json!({"type": "unlimited", "start": start}), Windows::Unlimited)
            }
        };
        if windows != Windows::Unlimited && self.percent(70) {
            window["grace"] = json!(self.one(&[0, 3, size, 2 * size]));
        }
        (window, windows)
    }

    /// Serdes for a group of texts, with a name in some cases.
    pub(super) fn grouped(&mut self, value: Type) -> Json {
        let mut grouped = json!({"key": "string", "value": value.serde()});
        if self.percent(30) {
            grouped["name"] = json!(self.name("g"));
        }
        grouped
    }

    /// A joiner, and the type of its results: texts, unless it only picks one of both sides.
    pub(super) fn joiner(&mut self) -> (&'static str, Type) {
        self.one(&[
            ("concat", Type::Text),
            ("concat", Type::Text),
            ("concat", Type::Text),
            ("key_concat", Type::Text),
            ("null_if_equal", Type::Text),
            ("sum", Type::Long),
        ])
    }
}
