//! Operators of streams.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use headwater::serde::Serde;
use headwater::{Branched, Printed};
use serde_json::Value as Json;

use super::case::{Missing, text as json_text};
use super::chooser::Chooser;
use super::functions::{Failed, expression, flat_pairs, flat_values, predicate};
use super::made::{Dyn, Made, Show, Stream, named, named_stream};
use super::notes::Notes;
use super::params::{grouped, materialized, processed, produced, repartitioned};
use super::printed::Page;
use super::processors::{Recipe, Running};
use super::serdes::DynSerde;
use super::value::Value;

/// Operators of a stream.
pub(super) fn on_stream<K: Show + Display, V: Dyn>(
    stream: &Stream<V, K>,
    made: &BTreeMap<String, Made>,
    notes: &Notes,
    op: &Json,
) -> Result<Option<Made>, Missing>
where
    DynSerde: Serde<V> + Serde<K>,
{
    let result = match json_text(&op["op"]) {
        "filter" => {
            let predicate = predicate(&op["predicate"])?;
            stream.try_filter(move |k, v| K::show(k, |k| V::show(v, |v| predicate(k, v))))
        }
        "filter_not" => {
            let predicate = predicate(&op["predicate"])?;
            stream.try_filter_not(move |k, v| K::show(k, |k| V::show(v, |v| predicate(k, v))))
        }
        "peek" => stream.peek(note(notes, op)),
        "merge" => match made.get(json_text(&op["with"])) {
            Some(Made::Stream(other)) if other.is::<Stream<V, K>>() => {
                let other = other.downcast_ref::<Stream<V, K>>();
                stream.merge(other.expect("its type was looked at"))
            }
            _ => return Err(Missing("merge of streams of different types".to_owned())),
        },
        "to_table" => {
            let table = stream.to_table(materialized(op.get("materialized"))?);
            return Ok(Some(Made::table(named(table, op))));
        }
        "print" => return Ok(Some(print(stream, op))),
        "repartition" => stream.repartition(repartitioned(op.get("repartitioned"))?),
        "select_key" => {
            let key = expression(&op["key"])?;
            let keyed =
                stream.try_select_key(move |k, v| K::show(k, |k| V::show(v, |v| key(k, v))));
            return Ok(Some(Made::stream(named_stream(keyed, op))));
        }
        "process" | "process_values" | "map" | "map_values" | "flat_map" | "flat_map_values" => {
            return on_stream_to_any(stream, op).map(Some);
        }
        "foreach" | "to" => return end(stream, notes, op).map(|()| None),
        "group_by_key" => {
            let group = stream.group_by_key(grouped(op.get("grouped"))?);
            return Ok(Some(Made::grouped(group)));
        }
        "group_by" => {
            let key = expression(&op["key"])?;
            let group = stream.try_group_by(
                move |k, v| K::show(k, |k| V::show(v, |v| key(k, v))),
                grouped::<Value, V>(op.get("grouped"))?,
            );
            return Ok(Some(Made::grouped(group)));
        }
        other => return Err(Missing(format!("operator {other}"))),
    };
    Ok(Some(Made::stream(named_stream(result, op))))
}

/// Operators whose results are of any type, whatever the stream's type is.
fn on_stream_to_any<K: Show, V: Dyn>(stream: &Stream<V, K>, op: &Json) -> Result<Made, Missing> {
    let result = match json_text(&op["op"]) {
        "map" => {
            let (key, value) = (expression(&op["key"])?, expression(&op["value"])?);
            let mapped = stream.try_map(move |k, v| {
                K::show(k, |k| V::show(v, |v| Ok::<_, Failed>((key(k, v)?, value(k, v)?))))
            });
            return Ok(Made::stream(named_stream(mapped, op)));
        }
        "map_values" => {
            let value = expression(&op["value"])?;
            if op["with_key"] == true {
                stream.try_map_values_with_key(move |k, v| {
                    K::show(k, |k| V::show(v, |v| value(k, v)))
                })
            } else {
                stream.try_map_values(move |v| V::show(v, |v| value(None, v)))
            }
        }
        "flat_map" => {
            let pairs = flat_pairs(&op["pairs"])?;
            let mapped = stream.flat_map(move |k, v, out| {
                for (key, value) in K::show(k, |k| V::show(v, |v| pairs(k, v))) {
                    out.emit(key, value);
                }
            });
            return Ok(Made::stream(named_stream(mapped, op)));
        }
        "flat_map_values" => {
            let values = flat_values(&op["values"])?;
            stream.flat_map_values(move |v, out| {
                for value in V::show(v, &values) {
                    out.emit(value);
                }
            })
        }
        _ => return process(stream, op),
    };
    Ok(Made::stream(named_stream(result, op)))
}

fn process<K: Show, V: Dyn>(stream: &Stream<V, K>, op: &Json) -> Result<Made, Missing> {
    let Some(stream) = (stream as &dyn Any).downcast_ref::<Stream<Value>>() else {
        return Err(Missing("processor of counts or windowed keys".to_owned()));
    };
    let recipe = Arc::new(Recipe::parse(&op["processor"])?);
    let processed = processed(op)?;
    Ok(Made::stream(if op["op"] == "process" {
        stream.process(move |context| Running::new(Arc::clone(&recipe), context), processed)
    } else {
        stream.process_values(move |context| Running::new(Arc::clone(&recipe), context), processed)
    }))
}

fn print<K: Show + Display, V: Dyn>(stream: &Stream<V, K>, op: &Json) -> Made {
    let (page, label) = (Page::default(), json_text(&op["label"]));
    let mut printed = Printed::to_writer(page.clone()).with_label(label);
    if let Some(name) = op.get("named") {
        printed = printed.named(json_text(name));
    }
    stream.print(printed);
    Made::Printed(label.to_owned(), page)
}

/// Notes a call under the operator's label.
fn note<K: Show, V: Dyn>(notes: &Notes, op: &Json) -> impl Fn(Option<&K>, Option<&V>) + use<K, V> {
    let (notes, label) = (notes.clone(), json_text(&op["label"]).to_owned());
    move |key, value| K::show(key, |key| V::show(value, |value| notes.add(&label, key, value)))
}

fn end<K: Show, V: Dyn>(stream: &Stream<V, K>, notes: &Notes, op: &Json) -> Result<(), Missing>
where
    DynSerde: Serde<V> + Serde<K>,
{
    if op["op"] == "foreach" {
        let end = stream.foreach(note(notes, op));
        if let Some(name) = op.get("named") {
            end.named(json_text(name));
        }
        return Ok(());
    }
    let produced = produced(op.get("produced"))?;
    match op.get("topic") {
        Some(topic) => stream.to(json_text(topic), produced),
        None => stream.to_extracted(Chooser::parse(&op["extractor"])?, produced),
    }
    Ok(())
}

pub(super) type Splits = (Vec<(String, Made)>, Vec<String>);

pub(super) fn split_stream<K: Show, V: Dyn>(
    stream: &Stream<V, K>,
    op: &Json,
) -> Result<Splits, Missing> {
    let branched = |json: &Json| match json.get("name") {
        Some(name) => Branched::named(json_text(name)),
        None => Branched::new(),
    };
    let mut split = stream.split();
    if let Some(name) = op.get("named") {
        split = split.named(json_text(name));
    }
    let branches = op["branches"].as_array().expect("a split has branches");
    for branch in branches {
        let predicate = predicate(&branch["predicate"])?;
        split = split.try_branch(
            move |k, v| K::show(k, |k| V::show(v, |v| predicate(k, v))),
            branched(branch),
        );
    }
    let default = op.get("default");
    let result = match default {
        Some(default) => split.default_branch(branched(default)),
        None => split.no_default_branch(),
    };
    let ids = branches.iter().chain(default).map(|branch| json_text(&branch["id"]).to_owned());
    let (names, streams): (Vec<_>, Vec<_>) = result.into_iter().unzip();
    Ok((ids.zip(streams.into_iter().map(Made::stream)).collect(), names))
}
