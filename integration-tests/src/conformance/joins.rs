//! Joins of the cases.

use std::any::Any;
use std::collections::BTreeMap;

use headwater::serde::Serde;
use headwater::{JoinWindows, Joined};
use serde_json::Value as Json;

use super::case::{Missing, text as json_text};
use super::functions::{expression, joiner};
use super::made::{Dyn, GlobalTable, Made, Show, Stream, Table, WindowedKey, named, named_stream};
use super::params::{joined, materialized, milliseconds, stream_joined, table_joined};
use super::serdes::DynSerde;
use super::value::Value;

/// Which of both sides are kept without a partner.
#[derive(Clone, Copy)]
enum Kind {
    Inner,
    Left,
    Outer,
}

/// Does something to two sides with keys of one type, of whichever types their values are.
macro_rules! of_two_types {
    ($key:ty, ($left:ident, $of_left:ident), ($right:ident, $of_right:ident), |$l:ident, $r:ident| $done:expr) => {{
        let left: &dyn Any = &**$left;
        let right: &dyn Any = &**$right;
        let texts = (
            left.downcast_ref::<$of_left<Value, $key>>(),
            right.downcast_ref::<$of_right<Value, $key>>(),
        );
        let longs = (
            left.downcast_ref::<$of_left<i64, $key>>(),
            right.downcast_ref::<$of_right<i64, $key>>(),
        );
        match (texts, longs) {
            ((Some($l), Some($r)), _) => $done,
            ((Some($l), _), (_, Some($r))) => $done,
            ((_, Some($r)), (Some($l), _)) => $done,
            (_, (Some($l), Some($r))) => $done,
            _ => Err(Missing("join of keys with windows and keys without".to_owned())),
        }
    }};
}

/// Applies an operator if it is a join.
pub(super) fn join(
    made: &BTreeMap<String, Made>,
    op: &Json,
    config: &Json,
) -> Result<Option<Made>, Missing> {
    let kind = match json_text(&op["op"]) {
        "join" => Kind::Inner,
        "left_join" => Kind::Left,
        "outer_join" => Kind::Outer,
        _ => return Ok(None),
    };
    let side = |field: &str| op.get(field).and_then(|it| made.get(json_text(it)));
    let unknown = || Missing(format!("operator {}", json_text(&op["op"])));
    match (side("in"), side("with")) {
        (Some(Made::Table(left, _)), Some(Made::Table(right, _))) if is_windowed(&**right) => {
            of_two_types!(WindowedKey, (left, Table), (right, Table), |l, r| {
                windowed_tables(l, r, kind, op)
            })
        }
        (Some(Made::Stream(left)), Some(Made::Table(right, _))) if is_windowed(&**right) => {
            of_two_types!(WindowedKey, (left, Stream), (right, Table), |l, r| {
                stream_with_table(l, r, kind, (op, Joined::new()))
            })
        }
        (Some(Made::Table(left, _)), Some(Made::Table(right, _))) => {
            of_two_types!(Value, (left, Table), (right, Table), |l, r| tables(l, r, kind, op))
        }
        (Some(Made::Stream(left)), Some(Made::Table(right, _))) => {
            of_two_types!(Value, (left, Stream), (right, Table), |l, r| {
                stream_with_table(l, r, kind, (op, joined(op.get("joined"))?))
            })
        }
        (Some(Made::Stream(left)), Some(Made::GlobalTable(table))) => {
            let left: &dyn Any = &**left;
            if let Some(stream) = left.downcast_ref::<Stream<Value>>() {
                stream_with_global_table(stream, table, kind, op)
            } else if let Some(stream) = left.downcast_ref::<Stream<i64>>() {
                stream_with_global_table(stream, table, kind, op)
            } else if let Some(stream) = left.downcast_ref::<Stream<Value, WindowedKey>>() {
                stream_with_global_table(stream, table, kind, op)
            } else if let Some(stream) = left.downcast_ref::<Stream<i64, WindowedKey>>() {
                stream_with_global_table(stream, table, kind, op)
            } else {
                unreachable!("there are no other types")
            }
        }
        (Some(Made::Stream(left)), Some(Made::Stream(right))) => {
            of_two_types!(Value, (left, Stream), (right, Stream), |l, r| streams(
                l,
                r,
                kind,
                (op, config)
            ))
        }
        _ => Err(unknown()),
    }
    .map(Some)
}

fn streams<V: Dyn, W: Dyn>(
    left: &Stream<V>,
    right: &Stream<W>,
    kind: Kind,
    (op, config): (&Json, &Json),
) -> Result<Made, Missing>
where
    DynSerde: Serde<V> + Serde<W>,
{
    let joiner = joiner(&op["joiner"])?;
    let with_key = op["with_key"] == true;
    let join = move |k: Option<&Value>, l: Option<&V>, r: Option<&W>| {
        let k = k.filter(|_| with_key);
        V::show(l, |l| W::show(r, |r| joiner(k, l, r)))
    };
    let windows = join_windows(&op["window"])?;
    let joined = stream_joined::<V, W>(op.get("stream_joined"), config)?;
    Ok(Made::stream(match kind {
        Kind::Inner => {
            let join = move |k: &Value, l: &V, r: &W| join(Some(k), Some(l), Some(r));
            left.try_join_with_key(right, join, windows, joined)
        }
        Kind::Left => {
            let join = move |k: Option<&Value>, l: &V, r: Option<&W>| join(k, Some(l), r);
            left.try_left_join_with_key(right, join, windows, joined)
        }
        Kind::Outer => left.try_outer_join_with_key(right, join, windows, joined),
    }))
}

fn join_windows(json: &Json) -> Result<JoinWindows, Missing> {
    let difference = milliseconds(&json["difference"])?;
    let mut windows = match json.get("grace") {
        Some(grace) => JoinWindows::of_time_difference_and_grace(difference, milliseconds(grace)?),
        None => JoinWindows::of_time_difference_with_no_grace(difference),
    };
    if let Some(before_ms) = json["before"].as_i64() {
        windows = windows.before_ms(before_ms);
    }
    if let Some(after_ms) = json["after"].as_i64() {
        windows = windows.after_ms(after_ms);
    }
    Ok(windows)
}

fn tables<V: Dyn, W: Dyn>(
    left: &Table<V>,
    right: &Table<W>,
    kind: Kind,
    op: &Json,
) -> Result<Made, Missing>
where
    DynSerde: Serde<V> + Serde<W>,
{
    if op.get("foreign_key").is_some() {
        return by_foreign_key(left, right, kind, op);
    }
    let joiner = joiner(&op["joiner"])?;
    let join =
        move |l: Option<&V>, r: Option<&W>| V::show(l, |l| W::show(r, |r| joiner(None, l, r)));
    let table = match (kind, op.get("materialized")) {
        (Kind::Inner, None) => left.try_join(right, move |l, r| join(Some(l), Some(r))),
        (Kind::Left, None) => left.try_left_join(right, move |l, r| join(Some(l), r)),
        (Kind::Outer, None) => left.try_outer_join(right, join),
        (kind, given) => {
            let materialized = materialized::<Value, Value>(given)?;
            match kind {
                Kind::Inner => left.try_join_materialized(
                    right,
                    move |l, r| join(Some(l), Some(r)),
                    materialized,
                ),
                Kind::Left => left.try_left_join_materialized(
                    right,
                    move |l, r| join(Some(l), r),
                    materialized,
                ),
                Kind::Outer => left.try_outer_join_materialized(right, join, materialized),
            }
        }
    };
    Ok(Made::table(named(table, op)))
}

fn by_foreign_key<V: Dyn, W: Dyn>(
    left: &Table<V>,
    right: &Table<W>,
    kind: Kind,
    op: &Json,
) -> Result<Made, Missing>
where
    DynSerde: Serde<V> + Serde<W>,
{
    let extract = expression(&op["foreign_key"])?;
    let with_key = op["with_key"] == true;
    let extractor = move |k: &Value, v: &V| V::show(Some(v), |v| extract(with_key.then_some(k), v));
    let joiner = joiner(&op["joiner"])?;
    let join = move |l: &V, r: Option<&W>| V::show(Some(l), |l| W::show(r, |r| joiner(None, l, r)));
    let joined = table_joined(op.get("table_joined"));
    let materialized = materialized::<Value, Value>(op.get("materialized"))?;
    Ok(Made::table(match kind {
        Kind::Inner => left.try_join_on_foreign_key(
            right,
            extractor,
            move |l, r| join(l, Some(r)),
            joined,
            materialized,
        ),
        Kind::Left => {
            left.try_left_join_on_foreign_key(right, extractor, join, joined, materialized)
        }
        Kind::Outer => return Err(Missing("outer join by foreign key".to_owned())),
    }))
}

/// Whether the keys of a table have windows.
fn is_windowed(table: &dyn Any) -> bool {
    table.is::<Table<Value, WindowedKey>>() || table.is::<Table<i64, WindowedKey>>()
}

fn windowed_tables<V: Dyn, W: Dyn>(
    left: &Table<V, WindowedKey>,
    right: &Table<W, WindowedKey>,
    kind: Kind,
    op: &Json,
) -> Result<Made, Missing> {
    let joiner = joiner(&op["joiner"])?;
    let join =
        move |l: Option<&V>, r: Option<&W>| V::show(l, |l| W::show(r, |r| joiner(None, l, r)));
    if op.get("foreign_key").is_some() || op.get("materialized").is_some() {
        return Err(Missing("windowed tables that are joined otherwise".to_owned()));
    }
    let table = match kind {
        Kind::Inner => left.try_join(right, move |l, r| join(Some(l), Some(r))),
        Kind::Left => left.try_left_join(right, move |l, r| join(Some(l), r)),
        Kind::Outer => left.try_outer_join(right, join),
    };
    Ok(Made::table(named(table, op)))
}

fn stream_with_table<K: Show, V: Dyn, W: Dyn>(
    stream: &Stream<V, K>,
    table: &Table<W, K>,
    kind: Kind,
    (op, joined): (&Json, Joined<K, V>),
) -> Result<Made, Missing> {
    let joiner = joiner(&op["joiner"])?;
    let with_key = op["with_key"] == true;
    let join = move |k: Option<&K>, l: &V, r: Option<&W>| {
        K::show(k.filter(|_| with_key), |k| V::show(Some(l), |l| W::show(r, |r| joiner(k, l, r))))
    };
    Ok(Made::stream(match kind {
        Kind::Inner => {
            stream.try_join_table_with_key(table, move |k, l, r| join(Some(k), l, Some(r)), joined)
        }
        Kind::Left => stream.try_left_join_table_with_key(table, join, joined),
        Kind::Outer => return Err(Missing("outer join of a stream and a table".to_owned())),
    }))
}

fn stream_with_global_table<K: Show, V: Dyn>(
    stream: &Stream<V, K>,
    table: &GlobalTable,
    kind: Kind,
    op: &Json,
) -> Result<Made, Missing> {
    let key = expression(&op["key"])?;
    let mapper = move |k: Option<&K>, v: &V| K::show(k, |k| V::show(Some(v), |v| key(k, v)));
    let joiner = joiner(&op["joiner"])?;
    let with_key = op["with_key"] == true;
    let join = move |k: Option<&K>, l: &V, r: Option<&Value>| {
        K::show(k.filter(|_| with_key), |k| V::show(Some(l), |l| joiner(k, l, r)))
    };
    let joined = match kind {
        Kind::Inner => {
            stream.try_join_global_table_with_key(table, mapper, move |k, l, r| join(k, l, Some(r)))
        }
        Kind::Left => stream.try_left_join_global_table_with_key(table, mapper, join),
        Kind::Outer => return Err(Missing("outer join of a stream and a global table".to_owned())),
    };
    Ok(Made::stream(named_stream(joined, op)))
}
