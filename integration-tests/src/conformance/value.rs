//! The values of the cases, of whatever type.

use std::fmt::{self, Write as _};

use headwater::serde::{Window, Windowed};
use uuid::Uuid;

/// A value that is not null.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Long(i64),
    Int(i32),
    Double(f64),
    Boolean(bool),
    Bytes(Vec<u8>),
    Uuid(Uuid),
    Windowed(Box<Windowed<Self>>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(Some(self)))
    }
}

/// `text(x)` of the format.
pub(super) fn text(value: Option<&Value>) -> String {
    match value {
        None => "null".to_owned(),
        Some(Value::Text(text)) => text.clone(),
        Some(Value::Long(number)) => number.to_string(),
        Some(Value::Int(number)) => number.to_string(),
        Some(Value::Boolean(value)) => value.to_string(),
        Some(Value::Bytes(bytes)) => hex(bytes),
        Some(Value::Uuid(uuid)) => uuid.to_string(),
        Some(Value::Windowed(windowed)) => {
            let Window { start, end } = windowed.window;
            format!("[{}@{start}/{end}]", text(Some(&windowed.key)))
        }
        Some(Value::Double(number)) => panic!("{number}: doubles never reach text()"),
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").expect("a string takes any text");
        digits
    })
}

/// `parse(x)` of the format.
pub(super) fn parse(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::Long(number) => Some(*number),
        Value::Int(number) => Some(i64::from(*number)),
        Value::Text(text) => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let is_number = (1..=18).contains(&digits.len())
                && digits.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { text.parse().ok() } else { None }
        }
        _ => None,
    }
}

/// `num(x)` of the format.
pub(super) fn num(value: Option<&Value>) -> i64 {
    parse(value).unwrap_or(0)
}

/// `parts(s, sep)` of the format.
pub(super) fn parts<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    text.split(separator).collect()
}
