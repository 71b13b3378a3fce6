//! From a case to streams and tables: section 4 of the format.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use headwater::runtime::ConfigError;
use headwater::serde::Serde;
use headwater::{
    DslError, DslStoreFormat, DslStoreSuppliers, ProcessingContext, StreamsBuilder, StreamsConfig,
    TopicSelection,
};
use serde_json::Value as Json;

use super::case::{Case, Missing, text as json_text, texts};
use super::functions::{Failed, expression, predicate};
use super::grouped::{on_cogrouped, on_grouped_stream, on_grouped_table};
use super::made::{
    Dyn, GroupedStream, Made, Show, Stream, Table, WindowedKey, named, of_each_type,
};
use super::notes::Notes;
use super::params::{
    consumed, grouped, materialized, processed, store, suppressed, time_from_value,
};
use super::printed::Page;
use super::processors::{Recipe, Running, Silent};
use super::serdes::DynSerde;
use super::streams::{on_stream, split_stream};
use super::value::Value;
use super::{joins, low_level, transformers};

/// Why a case could not be built.
pub(super) enum BuildFailure {
    /// It needs what is not there.
    Missing(String),
    /// The program is wrong; the operator it shows at, the number of operators if only in the end.
    Wrong { op: usize, error: DslError },
    /// The configuration it is built with is wrong.
    WrongConfig(ConfigError),
}

impl From<Missing> for BuildFailure {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing.0)
    }
}

/// A case that has been built.
pub(super) struct Built {
    pub(super) topology: headwater::Topology,
    /// The names of queryable stores, by the id of the table.
    pub(super) queryable: BTreeMap<String, Option<String>>,
    /// The calls of peek and foreach.
    pub(super) notes: Notes,
    /// What was printed, by label.
    pub(super) printed: BTreeMap<String, Page>,
    /// The names of the branches of a split, by the number of its operator.
    pub(super) branches: BTreeMap<usize, Vec<String>>,
}

/// Builds a case, with the DSL unless it says otherwise.
pub(super) fn build(case: &Case) -> Result<Built, BuildFailure> {
    if case.low_level {
        return low_level::build(case);
    }
    let builder = StreamsBuilder::new();
    if let Some(serde) = case.config.get("default.key.serde") {
        builder.default_key_serde::<Value>(DynSerde::named(serde)?);
    }
    if let Some(serde) = case.config.get("default.value.serde") {
        builder.default_value_serde::<Value>(DynSerde::named(serde)?);
    }
    configure(&builder, &case.config);
    let mut made = BTreeMap::new();
    let mut branches = BTreeMap::new();
    let notes = Notes::default();
    for (op, json) in case.topology.iter().enumerate() {
        if json["op"] == "split" {
            branches.insert(op, split(&mut made, json)?);
        } else if let Some(result) = apply(&builder, &made, &notes, (json, &case.config))? {
            let id = json.get("id").map_or_else(|| format!("#{op}"), |id| json_text(id).to_owned());
            made.insert(id, result);
        }
        builder.check().map_err(|error| BuildFailure::Wrong { op, error })?;
    }
    let op = case.topology.len();
    let built = match config(case) {
        Some(config) => builder.build_with(&config.map_err(BuildFailure::WrongConfig)?),
        None => builder.build(),
    };
    let topology = built.map_err(|error| BuildFailure::Wrong { op, error })?;
    let printed = made.values().filter_map(|made| match made {
        Made::Printed(label, page) => Some((label.clone(), page.clone())),
        _ => None,
    });
    let printed = printed.collect();
    let queryable = made
        .into_iter()
        .filter_map(|(id, made)| match made {
            Made::Table(_, queryable) => Some((id, queryable)),
            Made::GlobalTable(table) => Some((id, Some(table.queryable_store_name().to_owned()))),
            _ => None,
        })
        .collect();
    Ok(Built { topology, queryable, notes, printed, branches })
}

/// What the configuration says to the builder.
fn configure(builder: &StreamsBuilder, config: &Json) {
    if config.get("default.timestamp.extractor").is_some_and(|it| it == "from_value") {
        builder.default_timestamp_extractor(time_from_value);
    }
    if config.get("ensure.explicit.internal.resource.naming") == Some(&Json::Bool(true)) {
        builder.ensure_explicit_internal_resource_naming();
    }
    if config.get("dsl.store").is_some_and(|store| store == "in_memory") {
        builder.dsl_store_suppliers(DslStoreSuppliers::InMemory);
    }
    if config.get("dsl.store.format").is_some_and(|it| it == "HEADERS") {
        builder.dsl_store_format(DslStoreFormat::Headers);
    }
}

/// The configuration that the builder is given; `None` if it is built without.
fn config(case: &Case) -> Option<Result<StreamsConfig, ConfigError>> {
    if case.config["build_without_config"] == true {
        return None;
    }
    let key = "topology.optimization";
    let set = case.config.get(key).map(|value| format!("{key}={}", json_text(value)));
    Some(StreamsConfig::from_properties(&set.unwrap_or_default()))
}

/// Applies one operator.
fn apply(
    builder: &StreamsBuilder,
    made: &BTreeMap<String, Made>,
    notes: &Notes,
    (op, config): (&Json, &Json),
) -> Result<Option<Made>, Missing> {
    let name = json_text(&op["op"]);
    match name {
        "stream" => return source(builder, op).map(|stream| Some(Made::stream(stream))),
        "table" => {
            let materialized = materialized(op.get("materialized"))?;
            let topic = json_text(&op["topic"]);
            let table = builder.table(topic, consumed(op.get("consumed"))?, materialized);
            return Ok(Some(Made::table(table.nullable())));
        }
        "add_state_store" => {
            builder.add_state_store(store(&op["store"])?);
            return Ok(None);
        }
        "global_table" => {
            let materialized = materialized(op.get("materialized"))?;
            let topic = json_text(&op["topic"]);
            let table = builder.global_table(topic, consumed(op.get("consumed"))?, materialized);
            return Ok(Some(Made::GlobalTable(table)));
        }
        "add_global_store" => {
            let recipe = Arc::new(Recipe::parse(&op["processor"])?);
            builder.add_global_store::<_, _, Value, Value, _, _>(
                store(&op["store"])?,
                json_text(&op["topic"]),
                consumed(op.get("consumed"))?,
                move |context| Running::new(Arc::clone(&recipe), context).map(Silent),
            );
            return Ok(None);
        }
        _ => {}
    }
    if let Some(joined) = joins::join(made, op, config)? {
        return Ok(Some(joined));
    }
    let input = op.get("in").and_then(|input| made.get(json_text(input)));
    match input {
        Some(Made::Stream(any)) => {
            of_each_type!(any, Stream, |stream| on_stream(stream, made, notes, op))
        }
        Some(Made::Table(any, _)) => of_each_type!(any, Table, |table| on_table(table, op)),
        Some(Made::GroupedStream(any)) => {
            of_each_type!(any, GroupedStream, |group| on_grouped_stream(group, op))
        }
        Some(Made::GroupedTable(group)) => on_grouped_table(group, op),
        Some(Made::GlobalTable(_)) => Err(Missing(format!("operator {name} of a global table"))),
        Some(Made::Windowed(group)) => group.apply(op).map(Some),
        Some(Made::Cogrouped(cogrouped)) => on_cogrouped(cogrouped, made, op),
        Some(Made::WindowedCogroup(cogroup)) => cogroup.apply(op).map(Some),
        Some(Made::Printed(..)) => Err(Missing("what follows a print".to_owned())),
        None => Err(Missing(format!("operator {name}"))),
    }
}

/// Splits a stream; answers the names of the branches.
fn split(made: &mut BTreeMap<String, Made>, op: &Json) -> Result<Vec<String>, Missing> {
    let input = op.get("in").and_then(|input| made.get(json_text(input)));
    let (streams, names) = match input {
        Some(Made::Stream(any)) => of_each_type!(any, Stream, |stream| split_stream(stream, op))?,
        _ => return Err(Missing("split of what is no stream".to_owned())),
    };
    made.extend(streams);
    Ok(names)
}

fn source(builder: &StreamsBuilder, op: &Json) -> Result<Stream<Value>, Missing> {
    let topics = match op.get("pattern") {
        Some(pattern) => TopicSelection::pattern(json_text(pattern)),
        None => TopicSelection::from(texts(&op["topics"])),
    };
    Ok(builder.stream(topics, consumed(op.get("consumed"))?).nullable())
}

/// Operators of a table.
fn on_table<K: Show, V: Dyn>(table: &Table<V, K>, op: &Json) -> Result<Option<Made>, Missing>
where
    DynSerde: Serde<V> + Serde<K>,
{
    let name = json_text(&op["op"]);
    let given = op.get("materialized");
    Ok(Some(match name {
        "filter" | "filter_not" => {
            let predicate = predicate(&op["predicate"])?;
            let wanted = name == "filter";
            let holds = move |k: &K, v: &V| {
                let holds = K::show(Some(k), |k| V::show(Some(v), |v| predicate(k, v)));
                holds.map(|holds| holds == wanted)
            };
            Made::table(named(
                match given {
                    None => table.try_filter(holds),
                    given => table.try_filter_materialized(holds, materialized(given)?),
                },
                op,
            ))
        }
        "map_values" => {
            let value = expression(&op["value"])?;
            let with_key = op["with_key"] == true;
            let map = move |k: &K, v: &V| {
                K::show(Some(k).filter(|_| with_key), |k| V::show(Some(v), |v| value(k, v)))
            };
            Made::table(named(
                match given {
                    None => table.try_map_values_with_key(map),
                    given => {
                        table.try_map_values_materialized(map, materialized::<K, Value>(given)?)
                    }
                },
                op,
            ))
        }
        "transform_values" => transform(table, op)?,
        "suppress" => Made::table(table.suppress(suppressed(op)?)),
        "to_stream" => {
            let mut stream = table.to_stream();
            if let Some(name) = op.get("named") {
                stream = stream.named(json_text(name));
            }
            match op.get("key") {
                Some(key) => {
                    let key = expression(key)?;
                    Made::stream(
                        stream
                            .try_select_key(move |k, v| K::show(k, |k| V::show(v, |v| key(k, v)))),
                    )
                }
                None => Made::stream(stream),
            }
        }
        "group_by" => {
            let (key, value) = (expression(&op["key"])?, expression(&op["value"])?);
            Made::GroupedTable(table.try_group_by(
                move |k, v| {
                    K::show(Some(k), |k| {
                        V::show(Some(v), |v| Ok::<_, Failed>((key(k, v)?, value(k, v)?)))
                    })
                },
                grouped::<Value, Value>(op.get("grouped"))?,
            ))
        }
        other => return Err(Missing(format!("operator {other} of a table"))),
    }))
}

fn transform<K: Show, V: Dyn>(table: &Table<V, K>, op: &Json) -> Result<Made, Missing> {
    let Some(table) = (table as &dyn Any).downcast_ref::<Table<Value>>() else {
        return Err(Missing("transformer of counts or windowed keys".to_owned()));
    };
    let recipe = Arc::new(transformers::Recipe::parse(&op["transformer"])?);
    let processed = processed(op)?;
    let supplier = move |context: &mut ProcessingContext<'_, '_>| {
        transformers::Transformer::new(&recipe, context)
    };
    Ok(Made::table(match op.get("materialized") {
        None => table.transform_values(supplier, processed),
        given => table.transform_values_materialized(supplier, materialized(given)?, processed),
    }))
}
