//! From a case to streams and tables: section 4 of the format.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use headwater::runtime::ConfigError;
use headwater::serde::{Serde, Windowed};
use headwater::{
    Branched, CogroupedKStream, DslError, DslStoreFormat, DslStoreSuppliers, GlobalKTable,
    KGroupedStream, KGroupedTable, KStream, KTable, Nullable, Printed, ProcessingContext,
    StreamsBuilder, StreamsConfig, StrictBufferConfig, Suppressed, TopicSelection,
};
use serde_json::Value as Json;

use super::case::{Case, Missing, text as json_text, texts};
use super::chooser::Chooser;
use super::functions::{
    Failed, aggregator, constant, expression, flat_pairs, flat_values, predicate, reducer,
};
use super::notes::Notes;
use super::params::{
    consumed, grouped, materialized, processed, produced, repartitioned, store, suppressed,
    time_from_value,
};
use super::printed::Page;
use super::processors::{Recipe, Running, Silent};
use super::serdes::DynSerde;
use super::transformers;
use super::value::Value;
use super::windows::{WindowedCogroup, WindowedGroup};
use super::{joins, low_level};

pub(super) type Stream<V, K = Value> = KStream<K, V, Nullable>;
pub(super) type Table<V, K = Value> = KTable<K, V, Nullable>;
pub(super) type GroupedStream<V, K = Value> = KGroupedStream<K, V, Nullable>;
pub(super) type GlobalTable = GlobalKTable<Value, Value>;
pub(super) type WindowedKey = Windowed<Value>;
pub(super) type Cogrouped = CogroupedKStream<Value, Value, Nullable>;
type GroupedTable<V> = KGroupedTable<Value, V, Nullable>;

/// What an operator made. Counts are longs; everything else is of any type. Keys are windowed or not.
pub(super) enum Made {
    /// A [`Stream`] of some type.
    Stream(Box<dyn Any>),
    /// A [`Table`] of some type, and its queryable name.
    Table(Box<dyn Any>, Option<String>),
    GlobalTable(GlobalTable),
    /// A [`GroupedStream`] of some type.
    GroupedStream(Box<dyn Any>),
    GroupedTable(GroupedTable<Value>),
    /// A [`GroupedStream`] in windows.
    Windowed(WindowedGroup),
    Cogrouped(Cogrouped),
    WindowedCogroup(WindowedCogroup),
    /// What was printed under a label.
    Printed(String, Page),
}

impl Made {
    pub(super) fn stream<K: 'static, V: 'static>(stream: Stream<V, K>) -> Self {
        Self::Stream(Box::new(stream))
    }

    pub(super) fn table<K: 'static, V: 'static>(table: Table<V, K>) -> Self {
        let queryable = table.queryable_store_name().map(str::to_owned);
        Self::Table(Box::new(table), queryable)
    }

    fn grouped<K: 'static, V: 'static>(group: GroupedStream<V, K>) -> Self {
        Self::GroupedStream(Box::new(group))
    }
}

/// Does the same to whichever of these types something is of.
macro_rules! of_each_type {
    ($any:expr, $kind:ident, |$it:ident| $done:expr) => {{
        let any: &dyn Any = &**$any;
        if let Some($it) = any.downcast_ref::<$kind<Value>>() {
            $done
        } else if let Some($it) = any.downcast_ref::<$kind<i64>>() {
            $done
        } else if let Some($it) = any.downcast_ref::<$kind<Value, WindowedKey>>() {
            $done
        } else if let Some($it) = any.downcast_ref::<$kind<i64, WindowedKey>>() {
            $done
        } else {
            unreachable!("there are no other types")
        }
    }};
}

/// Keys and values, which the functions of the cases see as values of any type.
pub(super) trait Show: Sized + 'static {
    /// Shows a key or value as one of any type.
    fn show<R>(value: Option<&Self>, f: impl FnOnce(Option<&Value>) -> R) -> R;

    /// Holds updates back until windows close; only keys with windows can.
    fn until_window_closes(_buffer: StrictBufferConfig) -> Option<Suppressed<Self>> {
        None
    }
}

/// The values of a stream or table.
pub(super) trait Dyn: Show + Display {
    /// The value that a function of the cases made of some; `None` if it is of another type.
    fn made(value: Option<Value>) -> Result<Option<Self>, Failed>;
}

impl Show for Value {
    fn show<R>(value: Option<&Self>, f: impl FnOnce(Option<&Self>) -> R) -> R {
        f(value)
    }
}

impl Show for i64 {
    fn show<R>(value: Option<&Self>, f: impl FnOnce(Option<&Value>) -> R) -> R {
        f(value.map(|number| Value::Long(*number)).as_ref())
    }
}

impl Show for WindowedKey {
    fn show<R>(value: Option<&Self>, f: impl FnOnce(Option<&Value>) -> R) -> R {
        f(value.map(|key| Value::Windowed(Box::new(key.clone()))).as_ref())
    }

    fn until_window_closes(buffer: StrictBufferConfig) -> Option<Suppressed<Self>> {
        Some(Suppressed::until_window_closes(buffer))
    }
}

impl Dyn for Value {
    fn made(value: Option<Value>) -> Result<Option<Self>, Failed> {
        Ok(value)
    }
}

impl Dyn for i64 {
    fn made(value: Option<Value>) -> Result<Option<Self>, Failed> {
        match value {
            None => Ok(None),
            Some(Value::Long(number)) => Ok(Some(number)),
            Some(other) => Err(Failed(format!("{other:?} is not a long"))),
        }
    }
}

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

type Splits = (Vec<(String, Made)>, Vec<String>);

fn split_stream<K: Show, V: Dyn>(stream: &Stream<V, K>, op: &Json) -> Result<Splits, Missing> {
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

fn source(builder: &StreamsBuilder, op: &Json) -> Result<Stream<Value>, Missing> {
    let topics = match op.get("pattern") {
        Some(pattern) => TopicSelection::pattern(json_text(pattern)),
        None => TopicSelection::from(texts(&op["topics"])),
    };
    Ok(builder.stream(topics, consumed(op.get("consumed"))?).nullable())
}

/// Operators of a stream.
fn on_stream<K: Show + Display, V: Dyn>(
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

pub(super) fn named_stream<K: 'static, V: 'static>(
    stream: Stream<V, K>,
    op: &Json,
) -> Stream<V, K> {
    match op.get("named") {
        Some(name) => stream.named(json_text(name)),
        None => stream,
    }
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

fn on_cogrouped(
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

fn on_grouped_stream<K: Show, V: Dyn>(
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

fn on_grouped_table(group: &GroupedTable<Value>, op: &Json) -> Result<Option<Made>, Missing> {
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

pub(super) fn named<K: 'static, V: 'static>(table: Table<V, K>, op: &Json) -> Table<V, K> {
    match op.get("named") {
        Some(name) => table.named(json_text(name)),
        None => table,
    }
}
