//! From a case to a topology node by node: section 5 of the format.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater::{DslError, TopicSelection, TopologyBuilder};
use serde_json::{Value as Json, json};

use super::build::{BuildFailure, Built};
use super::case::{Case, Missing, text as json_text, texts};
use super::chooser::Chooser;
use super::notes::Notes;
use super::params::{consumed, processed, produced, store};
use super::processors::{Recipe, Running};
use super::serdes::DynSerde;
use super::value::Value;

/// Builds a case with the low-level words.
pub(super) fn build(case: &Case) -> Result<Built, BuildFailure> {
    let mut builder = TopologyBuilder::new();
    if let Some(serde) = case.config.get("default.key.serde") {
        builder.default_key_serde::<Value>(DynSerde::named(serde)?);
    }
    if let Some(serde) = case.config.get("default.value.serde") {
        builder.default_value_serde::<Value>(DynSerde::named(serde)?);
    }
    for (op, json) in case.topology.iter().enumerate() {
        apply(&mut builder, json)?.map_err(|error| BuildFailure::Wrong { op, error })?;
    }
    let op = case.topology.len();
    let topology = builder.build().map_err(|error| BuildFailure::Wrong { op, error })?;
    Ok(Built {
        topology,
        queryable: BTreeMap::new(),
        branches: BTreeMap::new(),
        printed: BTreeMap::new(),
        notes: Notes::default(),
    })
}

/// Applies one operator.
fn apply(builder: &mut TopologyBuilder, op: &Json) -> Result<Result<(), DslError>, Missing> {
    let name = op.get("name").map(json_text).unwrap_or_default();
    let parents = texts(&op["parents"]);
    let result = match json_text(&op["op"]) {
        "add_source" => {
            let topics = match op.get("pattern") {
                Some(pattern) => TopicSelection::pattern(json_text(pattern)),
                None => TopicSelection::from(texts(&op["topics"])),
            };
            builder.add_source(name, topics, consumed(Some(&without_name(op)))?)
        }
        "add_processor" => {
            let recipe = Arc::new(Recipe::parse(&op["processor"])?);
            let supplier = move |context: &mut headwater::ProcessorContext<'_, '_, _, _>| {
                Running::new(Arc::clone(&recipe), context)
            };
            builder.add_processor::<Value, Value, Value, Value, _, _>(
                name,
                supplier,
                processed(op)?,
                parents,
            )
        }
        "add_sink" => {
            let produced = produced::<Value, Value>(Some(&without_name(op)))?;
            if let Some(topic) = op.get("topic") {
                builder.add_sink(name, json_text(topic), produced, parents)
            } else {
                let chooser = Chooser::parse(&op["extractor"])?;
                builder.add_extracted_sink(name, chooser, produced, parents)
            }
        }
        "add_read_only_store" => {
            let recipe = Arc::new(Recipe::parse(&op["processor"])?);
            let supplier = move |context: &mut headwater::ProcessorContext<'_, '_, _, _>| {
                Running::new(Arc::clone(&recipe), context)
            };
            let consumed = consumed(Some(&without_name(op)))?;
            builder.add_read_only_state_store::<_, _, Value, Value, Value, Value, _, _>(
                store(&op["store"])?,
                (json_text(&op["source"]), json_text(&op["topic"]), consumed),
                (name, supplier),
            )
        }
        "add_global_store" => {
            let recipe = Arc::new(Recipe::parse(&op["processor"])?);
            let supplier = move |context: &mut headwater::ProcessorContext<'_, '_, _, _>| {
                Running::new(Arc::clone(&recipe), context)
            };
            let consumed = consumed(Some(&without_name(op)))?;
            builder.add_global_store::<_, _, Value, Value, Value, Value, _, _>(
                store(&op["store"])?,
                (json_text(&op["source"]), json_text(&op["topic"]), consumed),
                (name, supplier),
            )
        }
        "add_state_store" => {
            builder.add_state_store(store(&op["store"])?, texts(&op["processors"]))
        }
        "connect" => builder
            .connect_processor_and_state_stores(json_text(&op["processor"]), texts(&op["stores"])),
        other => return Err(Missing(format!("operator {other}"))),
    };
    Ok(result.map(|_| ()))
}

/// The fields of an operator that parameter objects have too.
fn without_name(op: &Json) -> Json {
    let fields = ["key", "value", "extractor", "reset", "partitioner"];
    let mut params = json!({});
    // The extractor of a sink is another thing than that of a source.
    for field in fields.into_iter().filter(|it| *it != "extractor" || op["op"] != "add_sink") {
        if let Some(value) = op.get(field) {
            params[field] = value.clone();
        }
    }
    params
}
