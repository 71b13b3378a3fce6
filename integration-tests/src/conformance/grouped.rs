//! Operators of grouped streams and tables, and of cogroups.

use std::any::Any;
use std::collections::BTreeMap;

use headwater::serde::Serde;
use serde_json::Value as Json;

use super::case::{Missing, text as json_text};
use super::functions::{aggregator, constant, reducer};
use super::made::{
    Cogrouped, Dyn, GroupedStream, GroupedTable, Made, Show, WindowedKey, named, of_each_type,
};
use super::params::materialized;
use super::serdes::DynSerde;
use super::value::Value;
use super::windows::{WindowedCogroup, WindowedGroup};

/// Begins or goes on with a cogroup.
fn cogroup<K: Show, V: Dyn>(
    so_far: Option<&Cogrouped>,
    group: &GroupedStream<V, K>,
    op: &Json,
) -> Result<Made, Missing> {
    let Some(group) = (group as &dyn Any).downcast_ref::<GroupedStream<V>>() else {
        return Err(Missing("cogroup of windowed keys".to_owned()));
    };
    let aggregator = aggregator(&op["aggregator"])?;
    let aggregate = move |k: &Value, v: Option<&V>, a: Option<Value>| {
        V::show(v, |v| aggregator(Some(k), v, a.as_ref()))
    };
    Ok(Made::Cogrouped(match so_far {
        None => group.try_cogroup(aggregate),
        Some(cogrouped) => cogrouped.try_cogroup(group, aggregate),
    }))
}

pub(super) fn on_cogrouped(
    cogrouped: &Cogrouped,
    made: &BTreeMap<String, Made>,
    op: &Json,
) -> Result<Option<Made>, Missing> {
    Ok(Some(match json_text(&op["op"]) {
        "cogroup" => match made.get(json_text(&op["with"])) {
            Some(Made::GroupedStream(any)) => {
                of_each_type!(any, GroupedStream, |group| cogroup(Some(cogrouped), group, op))?
            }
            _ => return Err(Missing("cogroup with what is no group".to_owned())),
        },
        "aggregate" => {
            let initial = constant(&op["initializer"]);
            let table =
                cogrouped.aggregate(move || initial.clone(), materialized(op.get("materialized"))?);
            Made::table(named(table, op))
        }
        "windowed_by" => Made::WindowedCogroup(WindowedCogroup::new(cogrouped, op)?),
        other => return Err(Missing(format!("operator {other} of a cogroup"))),
    }))
}

pub(super) fn on_grouped_stream<K: Show, V: Dyn>(
    group: &GroupedStream<V, K>,
    op: &Json,
) -> Result<Option<Made>, Missing>
where
    DynSerde: Serde<V> + Serde<K>,
{
    let given = op.get("materialized");
    Ok(Some(match json_text(&op["op"]) {
        "cogroup" => cogroup(None, group, op)?,
        "windowed_by" => match (group as &dyn Any).downcast_ref::<GroupedStream<V>>() {
            Some(group) => Made::Windowed(WindowedGroup::new(group, op)?),
            None => return Err(Missing("windows of windowed keys".to_owned())),
        },
        "count" => Made::table(named(group.count(materialized::<K, i64>(given)?), op)),
        "reduce" => {
            let reducer = reducer(&op["reducer"])?;
            let reduce = move |a: &V, b: &V| {
                V::show(Some(a), |a| V::show(Some(b), |b| reducer(a, b))).and_then(V::made)
            };
            Made::table(named(group.try_reduce(reduce, materialized(given)?), op))
        }
        "aggregate" => {
            let aggregator = aggregator(&op["aggregator"])?;
            let initial = constant(&op["initializer"]);
            let table = group.try_aggregate(
                move || Ok(initial.clone()),
                move |k, v, a: Option<Value>| {
                    K::show(Some(k), |k| V::show(Some(v), |v| aggregator(k, v, a.as_ref())))
                },
                materialized::<K, Value>(given)?,
            );
            Made::table(named(table, op))
        }
        other => return Err(Missing(format!("operator {other}"))),
    }))
}

pub(super) fn on_grouped_table(
    group: &GroupedTable<Value>,
    op: &Json,
) -> Result<Option<Made>, Missing> {
    let given = op.get("materialized");
    Ok(Some(match json_text(&op["op"]) {
        "count" => Made::table(named(group.count(materialized(given)?), op)),
        "reduce" => {
            let (adder, subtractor) = (reducer(&op["reducer"])?, reducer(&op["subtractor"])?);
            let table = group.try_reduce(
                move |a, b| adder(Some(a), Some(b)),
                move |a, b| subtractor(Some(a), Some(b)),
                materialized(given)?,
            );
            Made::table(named(table, op))
        }
        "aggregate" => {
            let adder = aggregator(&op["aggregator"])?;
            let subtractor = aggregator(&op["subtractor"])?;
            let initial = constant(&op["initializer"]);
            let table = group.try_aggregate(
                move || Ok(initial.clone()),
                move |k, v, a: Option<Value>| adder(Some(k), Some(v), a.as_ref()),
                move |k, v, a: Option<Value>| subtractor(Some(k), Some(v), a.as_ref()),
                materialized(given)?,
            );
            Made::table(named(table, op))
        }
        other => return Err(Missing(format!("operator {other} of a grouped table"))),
    }))
}
