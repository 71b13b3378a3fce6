//! Windows of the cases.

use std::time::Duration;

use headwater::serde::Serde;
use headwater::{
    EmitStrategy, Nullable, SessionWindowedCogroupedKStream, SessionWindowedKStream,
    SessionWindows, SlidingWindows, TimeWindowedCogroupedKStream, TimeWindowedKStream, TimeWindows,
    UnlimitedWindows,
};
use serde_json::Value as Json;

use super::case::{Missing, text as json_text};
use super::functions::{Failed, aggregator, constant, merger, reducer};
use super::made::{Cogrouped, Dyn, GroupedStream, Made, named};
use super::params::{materialized, milliseconds};
use super::serdes::DynSerde;
use super::value::Value;

/// Windows of some kind.
enum Windows {
    Time(TimeWindows),
    Sliding(SlidingWindows),
    Session(SessionWindows),
    Unlimited(UnlimitedWindows),
}

impl Windows {
    fn parse(json: &Json) -> Result<Self, Missing> {
        let ms = |field: &str| milliseconds(&json[field]);
        let grace = json.get("grace").map_or(Ok(Duration::ZERO), milliseconds)?;
        Ok(match json_text(&json["type"]) {
            "tumbling" => Self::Time(TimeWindows::of_size_and_grace(ms("size")?, grace)),
            "hopping" => Self::Time(
                TimeWindows::of_size_and_grace(ms("size")?, grace).advance_by(ms("advance")?),
            ),
            "sliding" => Self::Sliding(SlidingWindows::of_time_difference_and_grace(
                ms("difference")?,
                grace,
            )),
            "session" => {
                Self::Session(SessionWindows::of_inactivity_gap_and_grace(ms("gap")?, grace))
            }
            "unlimited" => {
                let start = json["start"].as_i64().unwrap_or(0);
                Self::Unlimited(UnlimitedWindows::of().start_on(start))
            }
            other => return Err(Missing(format!("windows {other}"))),
        })
    }
}

fn emit(op: &Json) -> EmitStrategy {
    if op.get("emit").is_some_and(|emit| emit == "on_window_close") {
        EmitStrategy::OnWindowClose
    } else {
        EmitStrategy::OnWindowUpdate
    }
}

/// A grouped stream in windows.
pub(super) enum WindowedGroup {
    Time(TimeWindowedKStream<Value, Value, Nullable>),
    TimeLongs(TimeWindowedKStream<Value, i64, Nullable>),
    Session(SessionWindowedKStream<Value, Value, Nullable>),
    SessionLongs(SessionWindowedKStream<Value, i64, Nullable>),
}

impl WindowedGroup {
    pub(super) fn new<V: Dyn>(group: &GroupedStream<V>, op: &Json) -> Result<Self, Missing> {
        let windows = Windows::parse(&op["window"])?;
        let any = group as &dyn std::any::Any;
        Ok(
            match (
                any.downcast_ref::<GroupedStream<Value>>(),
                any.downcast_ref::<GroupedStream<i64>>(),
            ) {
                (Some(group), _) => match windows {
                    Windows::Session(it) => {
                        Self::Session(group.windowed_by(it).emit_strategy(emit(op)))
                    }
                    Windows::Time(it) => Self::Time(group.windowed_by(it).emit_strategy(emit(op))),
                    Windows::Sliding(it) => {
                        Self::Time(group.windowed_by(it).emit_strategy(emit(op)))
                    }
                    Windows::Unlimited(it) => {
                        Self::Time(group.windowed_by(it).emit_strategy(emit(op)))
                    }
                },
                (None, Some(group)) => match windows {
                    Windows::Session(it) => {
                        Self::SessionLongs(group.windowed_by(it).emit_strategy(emit(op)))
                    }
                    Windows::Time(it) => {
                        Self::TimeLongs(group.windowed_by(it).emit_strategy(emit(op)))
                    }
                    Windows::Sliding(it) => {
                        Self::TimeLongs(group.windowed_by(it).emit_strategy(emit(op)))
                    }
                    Windows::Unlimited(it) => {
                        Self::TimeLongs(group.windowed_by(it).emit_strategy(emit(op)))
                    }
                },
                (None, None) => return Err(Missing("windows of another type".to_owned())),
            },
        )
    }

    pub(super) fn apply(&self, op: &Json) -> Result<Made, Missing> {
        match self {
            Self::Time(windowed) => on_time(windowed, op),
            Self::TimeLongs(windowed) => on_time(windowed, op),
            Self::Session(windowed) => on_session(windowed, op),
            Self::SessionLongs(windowed) => on_session(windowed, op),
        }
    }
}

fn on_time<V: Dyn>(
    windowed: &TimeWindowedKStream<Value, V, Nullable>,
    op: &Json,
) -> Result<Made, Missing>
where
    DynSerde: Serde<V>,
{
    let given = op.get("materialized");
    Ok(match json_text(&op["op"]) {
        "count" => Made::table(named(windowed.count(materialized::<Value, i64>(given)?), op)),
        "reduce" => {
            let reducer = reducer(&op["reducer"])?;
            let reduce = move |a: &V, b: Option<&V>| {
                V::show(Some(a), |a| V::show(b, |b| reducer(a, b))).and_then(V::made)
            };
            Made::table(named(windowed.try_reduce(reduce, materialized::<Value, V>(given)?), op))
        }
        "aggregate" => {
            let (aggregator, initial) =
                (aggregator(&op["aggregator"])?, constant(&op["initializer"]));
            let table = windowed.try_aggregate(
                move || Ok(initial.clone()),
                move |k, v: Option<&V>, a: Option<Value>| {
                    V::show(v, |v| aggregator(Some(k), v, a.as_ref()))
                },
                materialized::<Value, Value>(given)?,
            );
            Made::table(named(table, op))
        }
        other => return Err(Missing(format!("operator {other} of windows"))),
    })
}

fn on_session<V: Dyn>(
    windowed: &SessionWindowedKStream<Value, V, Nullable>,
    op: &Json,
) -> Result<Made, Missing>
where
    DynSerde: Serde<V>,
{
    let given = op.get("materialized");
    Ok(match json_text(&op["op"]) {
        "count" => Made::table(named(windowed.count(materialized::<Value, i64>(given)?), op)),
        "reduce" => {
            let reducer = reducer(&op["reducer"])?;
            let reduce = move |a: &V, b: Option<&V>| {
                V::show(Some(a), |a| V::show(b, |b| reducer(a, b))).and_then(V::made)
            };
            Made::table(named(windowed.try_reduce(reduce, materialized::<Value, V>(given)?), op))
        }
        "aggregate" => {
            let (aggregator, initial) =
                (aggregator(&op["aggregator"])?, constant(&op["initializer"]));
            let merger = merger(&op["merger"])?;
            let table = windowed.try_aggregate(
                move || Ok::<_, Failed>(initial.clone()),
                move |k, v: Option<&V>, a: Option<Value>| {
                    V::show(v, |v| aggregator(Some(k), v, a.as_ref()))
                },
                move |_, a, b| Ok(merger(a.as_ref(), Some(&b))),
                materialized::<Value, Value>(given)?,
            );
            Made::table(named(table, op))
        }
        other => return Err(Missing(format!("operator {other} of sessions"))),
    })
}

/// Several grouped streams in windows.
pub(super) enum WindowedCogroup {
    Time(TimeWindowedCogroupedKStream<Value, Value, Nullable>),
    Session(SessionWindowedCogroupedKStream<Value, Value, Nullable>),
}

impl WindowedCogroup {
    pub(super) fn new(cogrouped: &Cogrouped, op: &Json) -> Result<Self, Missing> {
        Ok(match Windows::parse(&op["window"])? {
            Windows::Session(it) => Self::Session(cogrouped.windowed_by(it)),
            Windows::Time(it) => Self::Time(cogrouped.windowed_by(it)),
            Windows::Sliding(it) => Self::Time(cogrouped.windowed_by(it)),
            Windows::Unlimited(it) => Self::Time(cogrouped.windowed_by(it)),
        })
    }

    pub(super) fn apply(&self, op: &Json) -> Result<Made, Missing> {
        if op["op"] != "aggregate" {
            return Err(Missing(format!("operator {} of a windowed cogroup", op["op"])));
        }
        let initial = constant(&op["initializer"]);
        let initializer = move || initial.clone();
        let materialized = materialized(op.get("materialized"))?;
        Ok(Made::table(match self {
            Self::Time(cogroup) => named(cogroup.aggregate(initializer, materialized), op),
            Self::Session(cogroup) => {
                let merger = merger(&op["merger"])?;
                let merge =
                    move |_: &Value, a: Option<Value>, b: Value| merger(a.as_ref(), Some(&b));
                named(cogroup.aggregate(initializer, merge, materialized), op)
            }
        }))
    }
}
