//! The functions of the cases: section 3 of the format.

use headwater::serde::Window;
use serde_json::Value as Json;

use super::case::{Missing, call, text as json_text};
use super::value::{Value, num, parse, parts, text};

/// A function that fails with `fail:` and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed(pub(super) String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "fail:{}", self.0)
    }
}

impl std::error::Error for Failed {}

type Arg<'a> = Option<&'a Value>;
type Made = Result<Option<Value>, Failed>;

/// (k, v) -> value.
pub(super) type Expression = Box<dyn Fn(Arg<'_>, Arg<'_>) -> Made + Send + Sync>;
/// (k, v) -> bool.
pub(super) type Predicate = Box<dyn Fn(Arg<'_>, Arg<'_>) -> Result<bool, Failed> + Send + Sync>;
/// (k, v, aggregate) -> aggregate.
pub(super) type Aggregator = Box<dyn Fn(Arg<'_>, Arg<'_>, Arg<'_>) -> Made + Send + Sync>;
/// (older, newer) -> value.
pub(super) type Reducer = Box<dyn Fn(Arg<'_>, Arg<'_>) -> Made + Send + Sync>;
/// (k, left, right) -> value.
pub(super) type Joiner = Box<dyn Fn(Arg<'_>, Arg<'_>, Arg<'_>) -> Made + Send + Sync>;
/// v -> values.
pub(super) type FlatValues = Box<dyn Fn(Arg<'_>) -> Vec<Option<Value>> + Send + Sync>;
/// (k, v) -> pairs.
pub(super) type FlatPairs = Box<dyn Fn(Arg<'_>, Arg<'_>) -> Vec<Pair> + Send + Sync>;
pub(super) type Pair = (Option<Value>, Option<Value>);

fn missing(kind: &str, json: &Json) -> Missing {
    Missing(format!("{kind} {}", call(json).0))
}

fn string(json: &Json) -> String {
    json_text(json).to_owned()
}

fn number(json: &Json) -> i64 {
    json.as_i64().unwrap_or_else(|| panic!("{json} is not a whole number"))
}

#[expect(clippy::unnecessary_wraps, reason = "functions of the cases answer optional values")]
fn some_text(text: impl Into<String>) -> Option<Value> {
    Some(Value::Text(text.into()))
}

/// A constant: null, a long or a string.
pub(super) fn constant(json: &Json) -> Option<Value> {
    match json {
        Json::Null => None,
        Json::String(text) => some_text(text.as_str()),
        other => Some(Value::Long(number(other))),
    }
}

fn window(value: Arg<'_>) -> Option<Window> {
    match value {
        Some(Value::Windowed(windowed)) => Some(windowed.window),
        _ => None,
    }
}

pub(super) fn expression(json: &Json) -> Result<Expression, Missing> {
    let (name, args) = call(json);
    Ok(match name {
        "key" => Box::new(|k, _| Ok(k.cloned())),
        "value" => Box::new(|_, v| Ok(v.cloned())),
        "null" => Box::new(|_, _| Ok(None)),
        "const" => {
            let constant = constant(&args[0]);
            Box::new(move |_, _| Ok(constant.clone()))
        }
        "append" => {
            let end = string(&args[0]);
            on_value(move |v| some_text(text(Some(v)) + &end))
        }
        "prepend" => {
            let start = string(&args[0]);
            on_value(move |v| some_text(start.clone() + &text(Some(v))))
        }
        "upper" => on_value(|v| some_text(text(Some(v)).to_ascii_uppercase())),
        "nth" => {
            let separator = string(&args[0]);
            let at = usize::try_from(number(&args[1])).expect("an index");
            on_value(move |v| {
                let text = text(Some(v));
                let part = *parts(&text, &separator).get(at)?;
                (!part.is_empty()).then(|| Value::Text(part.to_owned()))
            })
        }
        "length" => on_value(|v| {
            let units = text(Some(v)).encode_utf16().count();
            Some(Value::Long(i64::try_from(units).expect("a short text")))
        }),
        "parse_long" => Box::new(|_, v| Ok(parse(v).map(Value::Long))),
        "add" => {
            let n = number(&args[0]);
            on_value(move |v| Some(Value::Long(num(Some(v)).wrapping_add(n))))
        }
        "mod" => {
            let n = number(&args[0]);
            on_value(move |v| Some(Value::Long(num(Some(v)).rem_euclid(n))))
        }
        "to_text" => on_value(|v| some_text(text(Some(v)))),
        "key_value" => Box::new(|k, v| Ok(some_text(format!("{}={}", text(k), text(v))))),
        "window_key" => Box::new(|_, v| {
            Ok(match v {
                Some(Value::Windowed(windowed)) => Some(windowed.key.clone()),
                other => other.cloned(),
            })
        }),
        "window_start" => Box::new(|_, v| Ok(window(v).map(|it| Value::Long(it.start)))),
        "window_end" => Box::new(|_, v| Ok(window(v).map(|it| Value::Long(it.end)))),
        "null_if" => {
            let found = string(&args[0]);
            on_value(move |v| (text(Some(v)) != found).then(|| v.clone()))
        }
        "fail_if" => {
            let found = string(&args[0]);
            Box::new(move |_, v| fail_if(&found, v).map(|()| v.cloned()))
        }
        "of_key" => {
            let inner = expression(&args[0])?;
            Box::new(move |k, _| inner(k, k))
        }
        "chain" => {
            let links = args.iter().map(expression).collect::<Result<Vec<_>, _>>()?;
            Box::new(move |k, v| {
                links.iter().try_fold(v.cloned(), |value, link| link(k, value.as_ref()))
            })
        }
        _ => return Err(missing("expression", json)),
    })
}

fn on_value(f: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static) -> Expression {
    Box::new(move |_, v| Ok(v.and_then(&f)))
}

fn fail_if(found: &str, v: Arg<'_>) -> Result<(), Failed> {
    match v {
        Some(v) if text(Some(v)) == found => Err(Failed(found.to_owned())),
        _ => Ok(()),
    }
}

pub(super) fn predicate(json: &Json) -> Result<Predicate, Missing> {
    let (name, args) = call(json);
    Ok(match name {
        "true" => Box::new(|_, _| Ok(true)),
        "false" => Box::new(|_, _| Ok(false)),
        "value_is_null" => Box::new(|_, v| Ok(v.is_none())),
        "key_is_null" => Box::new(|k, _| Ok(k.is_none())),
        "value_even" => Box::new(|_, v| Ok(parse(v).is_some_and(|n| n % 2 == 0))),
        "value_gt" => {
            let n = number(&args[0]);
            Box::new(move |_, v| Ok(parse(v).is_some_and(|value| value > n)))
        }
        "value_eq" => on_text(&args[0], Side::Value, |text, s| text == s),
        "key_eq" => on_text(&args[0], Side::Key, |text, s| text == s),
        "value_has" => on_text(&args[0], Side::Value, |text, s| text.contains(s)),
        "value_starts" => on_text(&args[0], Side::Value, |text, s| text.starts_with(s)),
        "key_starts" => on_text(&args[0], Side::Key, |text, s| text.starts_with(s)),
        "fail_if" => {
            let found = string(&args[0]);
            Box::new(move |_, v| fail_if(&found, v).map(|()| true))
        }
        "not" => {
            let inner = predicate(&args[0])?;
            Box::new(move |k, v| inner(k, v).map(|holds| !holds))
        }
        "and" => {
            let (left, right) = (predicate(&args[0])?, predicate(&args[1])?);
            Box::new(move |k, v| Ok(left(k, v)? && right(k, v)?))
        }
        "or" => {
            let (left, right) = (predicate(&args[0])?, predicate(&args[1])?);
            Box::new(move |k, v| Ok(left(k, v)? || right(k, v)?))
        }
        _ => return Err(missing("predicate", json)),
    })
}

#[derive(Clone, Copy)]
enum Side {
    Key,
    Value,
}

fn on_text(argument: &Json, side: Side, f: fn(&str, &str) -> bool) -> Predicate {
    let argument = string(argument);
    Box::new(move |k, v| {
        let subject = match side {
            Side::Key => k,
            Side::Value => v,
        };
        Ok(subject.is_some_and(|subject| f(&text(Some(subject)), &argument)))
    })
}

pub(super) fn flat_values(json: &Json) -> Result<FlatValues, Missing> {
    let (name, args) = call(json);
    Ok(match name {
        "none" => Box::new(|_| Vec::new()),
        "split" => {
            let separator = string(&args[0]);
            Box::new(move |v| split(v, &separator))
        }
        "repeat" => {
            let times = usize::try_from(number(&args[0])).expect("a count");
            Box::new(move |v| vec![v.cloned(); times])
        }
        _ => return Err(missing("flat function", json)),
    })
}

pub(super) fn flat_pairs(json: &Json) -> Result<FlatPairs, Missing> {
    let (name, args) = call(json);
    Ok(match name {
        "none" => Box::new(|_, _| Vec::new()),
        "split_to_keys" => {
            let separator = string(&args[0]);
            Box::new(move |_, v| {
                split(v, &separator).into_iter().map(|part| (part, v.cloned())).collect()
            })
        }
        "split_pairs" => {
            let (separator, inner) = (string(&args[0]), string(&args[1]));
            Box::new(move |_, v| {
                let pair = |part: Option<Value>| {
                    let part = text(part.as_ref());
                    let mut halves = parts(&part, &inner)
                        .into_iter()
                        .map(|half| (!half.is_empty()).then(|| Value::Text(half.to_owned())));
                    (halves.next().flatten(), halves.next().flatten())
                };
                split(v, &separator).into_iter().map(pair).collect()
            })
        }
        "repeat" => {
            let times = usize::try_from(number(&args[0])).expect("a count");
            Box::new(move |k, v| vec![(k.cloned(), v.cloned()); times])
        }
        _ => return Err(missing("flat function", json)),
    })
}

fn split(v: Arg<'_>, separator: &str) -> Vec<Option<Value>> {
    let Some(v) = v else { return Vec::new() };
    let text = text(Some(v));
    let found = parts(&text, separator).into_iter().filter(|part| !part.is_empty());
    found.map(some_text).collect()
}

pub(super) fn aggregator(json: &Json) -> Result<Aggregator, Missing> {
    fn concat(a: Arg<'_>, v: Arg<'_>) -> Option<Value> {
        some_text(format!("{}+{}", text(a), text(v)))
    }
    #[expect(clippy::unnecessary_wraps, reason = "functions of the cases can fail")]
    fn long(number: i64) -> Made {
        Ok(Some(Value::Long(number)))
    }
    let (name, args) = call(json);
    Ok(match name {
        "concat" => Box::new(|_, v, a| Ok(concat(a, v))),
        "concat_minus" => Box::new(|_, v, a| Ok(some_text(format!("{}-{}", text(a), text(v))))),
        "key_concat" => {
            Box::new(|k, v, a| Ok(some_text(format!("{}+{}:{}", text(a), text(k), text(v)))))
        }
        "sum" => Box::new(|_, v, a| long(num(a).wrapping_add(num(v)))),
        "diff" => Box::new(|_, v, a| long(num(a).wrapping_sub(num(v)))),
        "count" => Box::new(|_, _, a| long(num(a).wrapping_add(1))),
        "uncount" => Box::new(|_, _, a| long(num(a).wrapping_sub(1))),
        "max" => Box::new(|_, v, a| long(num(a).max(num(v)))),
        "last" => Box::new(|_, v, _| Ok(v.cloned())),
        "null_if" => {
            let found = string(&args[0]);
            Box::new(move |_, v, a| {
                let is_it = v.is_some() && text(v) == found;
                Ok(if is_it { None } else { concat(a, v) })
            })
        }
        "fail_if" => {
            let found = string(&args[0]);
            Box::new(move |_, v, a| fail_if(&found, v).map(|()| concat(a, v)))
        }
        _ => return Err(missing("aggregator", json)),
    })
}

pub(super) fn reducer(json: &Json) -> Result<Reducer, Missing> {
    fn concat(a: Arg<'_>, b: Arg<'_>) -> Option<Value> {
        some_text(format!("{}+{}", text(a), text(b)))
    }
    fn numbers(f: fn(i64, i64) -> i64) -> Reducer {
        Box::new(move |a, b| {
            let result = f(num(a), num(b));
            Ok(match a {
                Some(Value::Long(_)) => Some(Value::Long(result)),
                _ => some_text(result.to_string()),
            })
        })
    }
    let (name, args) = call(json);
    Ok(match name {
        "concat" => Box::new(|a, b| Ok(concat(a, b))),
        "concat_minus" => Box::new(|a, b| Ok(some_text(format!("{}-{}", text(a), text(b))))),
        "first" => Box::new(|a, _| Ok(a.cloned())),
        "last" => Box::new(|_, b| Ok(b.cloned())),
        "null_if" => {
            let found = string(&args[0]);
            Box::new(move |a, b| {
                let is_it = b.is_some() && text(b) == found;
                Ok(if is_it { None } else { concat(a, b) })
            })
        }
        "sum" => numbers(i64::wrapping_add),
        "diff" => numbers(i64::wrapping_sub),
        "max" => numbers(i64::max),
        "min" => numbers(i64::min),
        _ => return Err(missing("reducer", json)),
    })
}

/// (key, so far, of a session) -> aggregate.
pub(super) type Merger = Box<dyn Fn(Arg<'_>, Arg<'_>) -> Option<Value> + Send + Sync>;

/// Makes one aggregate of those of sessions.
pub(super) fn merger(json: &Json) -> Result<Merger, Missing> {
    let long = |f: fn(i64, i64) -> i64| -> Merger {
        Box::new(move |a, b| Some(Value::Long(f(num(a), num(b)))))
    };
    Ok(match call(json).0 {
        "concat" => Box::new(|a, b| some_text(format!("{}~{}", text(a), text(b)))),
        "sum" => long(i64::wrapping_add),
        "max" => long(i64::max),
        _ => return Err(missing("merger", json)),
    })
}

pub(super) fn joiner(json: &Json) -> Result<Joiner, Missing> {
    fn concat(l: Arg<'_>, r: Arg<'_>) -> Option<Value> {
        some_text(format!("{}|{}", text(l), text(r)))
    }
    Ok(match call(json).0 {
        "concat" => Box::new(|_, l, r| Ok(concat(l, r))),
        "key_concat" => {
            Box::new(|k, l, r| Ok(some_text(format!("{}:{}|{}", text(k), text(l), text(r)))))
        }
        "left" => Box::new(|_, l, _| Ok(l.cloned())),
        "right" => Box::new(|_, _, r| Ok(r.cloned())),
        "sum" => Box::new(|_, l, r| Ok(Some(Value::Long(num(l).wrapping_add(num(r)))))),
        "null_if_equal" => {
            Box::new(|_, l, r| Ok(if text(l) == text(r) { None } else { concat(l, r) }))
        }
        _ => return Err(missing("joiner", json)),
    })
}
