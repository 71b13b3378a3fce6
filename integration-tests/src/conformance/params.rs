//! Parameter objects of the cases: section 4 of the format.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater::serde::Serde;
use headwater::{
    Consumed, EagerBufferConfig, FailOnInvalidTimestamp, Grouped, Joined,
    LogAndSkipOnInvalidTimestamp, Materialized, OffsetReset, Partitions, Processed, Produced,
    Record, Repartitioned, StoreSupplier, Stores, StreamJoined, StrictBufferConfig, Suppressed,
    TableJoined, UsePartitionTimeOnInvalidTimestamp,
};
use serde_json::Value as Json;

use super::case::{Missing, call, text as json_text, texts};
use super::made::Show;
use super::serdes::DynSerde;
use super::value::{Value, parse, text};

/// The serde in a field, if there is one.
fn serde(json: &Json, field: &str) -> Result<Option<DynSerde>, Missing> {
    json.get(field).map(DynSerde::named).transpose()
}

fn name(json: &Json) -> Option<&str> {
    json.get("name").map(json_text)
}

/// Sets what is given on a parameter object: name and serdes, for all that have them.
macro_rules! with_common {
    ($params:expr, $json:expr) => {{
        let mut params = $params;
        if let Some(name) = name($json) {
            params = params.named(name);
        }
        if let Some(serde) = serde($json, "key")? {
            params = params.with_key_serde(serde);
        }
        if let Some(serde) = serde($json, "value")? {
            params = params.with_value_serde(serde);
        }
        params
    }};
}

pub(super) fn consumed(json: Option<&Json>) -> Result<Consumed<Value, Value>, Missing> {
    let Some(json) = json else { return Ok(Consumed::new()) };
    let mut consumed = with_common!(Consumed::<Value, Value>::new(), json);
    if let Some(extractor) = json.get("extractor") {
        consumed = match call(extractor).0 {
            "fail" => consumed.with_timestamp_extractor(FailOnInvalidTimestamp),
            "skip" => consumed.with_timestamp_extractor(LogAndSkipOnInvalidTimestamp),
            "partition_time" => {
                consumed.with_timestamp_extractor(UsePartitionTimeOnInvalidTimestamp)
            }
            "from_value" => consumed.with_timestamp_extractor(time_from_value),
            other => return Err(Missing(format!("extractor {other}"))),
        };
    }
    if let Some(reset) = json.get("reset") {
        consumed = consumed.with_offset_reset_policy(match json_text(reset) {
            "earliest" => OffsetReset::Earliest,
            "latest" => OffsetReset::Latest,
            "none" => OffsetReset::None,
            other => return Err(Missing(format!("reset {other}"))),
        });
    }
    Ok(consumed)
}

pub(super) fn time_from_value(record: Record<'_, Value, Value>, _partition_time: i64) -> i64 {
    let from_value = record.value.and_then(|value| {
        let text = text(Some(value));
        let (_, time) = text.rsplit_once('@')?;
        parse(Some(&Value::Text(time.to_owned())))
    });
    from_value.unwrap_or(record.timestamp)
}

pub(super) fn produced<K: 'static, V: 'static>(
    json: Option<&Json>,
) -> Result<Produced<K, V>, Missing>
where
    DynSerde: Serde<V> + Serde<K>,
{
    let Some(json) = json else { return Ok(Produced::new()) };
    let produced = with_common!(Produced::<K, V>::new(), json);
    Ok(match partitioner(json)? {
        Some(partitions) => produced.with_stream_partitioner(move |_, _, _| partitions.clone()),
        None => produced,
    })
}

pub(super) fn repartitioned<K: 'static, V: 'static>(
    json: Option<&Json>,
) -> Result<Repartitioned<K, V>, Missing>
where
    DynSerde: Serde<V> + Serde<K>,
{
    let Some(json) = json else { return Ok(Repartitioned::new()) };
    let mut repartitioned = with_common!(Repartitioned::<K, V>::new(), json);
    if let Some(partitions) = json.get("partitions").and_then(Json::as_i64) {
        let partitions = u32::try_from(partitions).map_err(|_| {
            Missing("negative number of partitions, which has no form here".to_owned())
        })?;
        repartitioned = repartitioned.with_number_of_partitions(partitions);
    }
    Ok(match partitioner(json)? {
        Some(partitions) => {
            repartitioned.with_stream_partitioner(move |_, _, _| partitions.clone())
        }
        None => repartitioned,
    })
}

fn partitioner(json: &Json) -> Result<Option<Partitions>, Missing> {
    let Some(partitioner) = json.get("partitioner") else { return Ok(None) };
    Ok(Some(match call(partitioner) {
        ("default", _) => Partitions::Default,
        ("drop", _) => Partitions::from_iter([]),
        ("to", partitions) => partitions
            .iter()
            .map(|partition| {
                partition.as_i64().and_then(|it| it.try_into().ok()).expect("a partition number")
            })
            .collect(),
        (other, _) => return Err(Missing(format!("partitioner {other}"))),
    }))
}

/// When updates are held back.
pub(super) fn suppressed<K: Show>(op: &Json) -> Result<Suppressed<K>, Missing> {
    let given = &op["buffer"];
    let mut buffer = EagerBufferConfig::from(StrictBufferConfig::unbounded());
    if let Some(records) = given["max_records"].as_u64() {
        buffer = EagerBufferConfig::max_records(records);
        if let Some(bytes) = given["max_bytes"].as_u64() {
            buffer = buffer.with_max_bytes(bytes);
        }
    } else if let Some(bytes) = given["max_bytes"].as_u64() {
        buffer = EagerBufferConfig::max_bytes(bytes);
    }
    if given["full"] == "shut_down" {
        buffer = buffer.shut_down_when_full().into();
    }
    buffer = match given.get("logging") {
        None => buffer,
        Some(Json::Bool(false)) => buffer.with_logging_disabled(),
        Some(config) => buffer.with_logging_enabled(topic_config(config)),
    };
    let suppressed = match json_text(&op["until"]) {
        "time_limit" => Suppressed::until_time_limit(milliseconds(&op["ms"])?, buffer),
        "window_closes" => K::until_window_closes(buffer.shut_down_when_full())
            .ok_or_else(|| Missing("windows to close without windows".to_owned()))?,
        other => return Err(Missing(format!("suppress until {other}"))),
    };
    Ok(match op.get("named") {
        Some(name) => suppressed.named(json_text(name)),
        None => suppressed,
    })
}

pub(super) fn joined<V: 'static>(json: Option<&Json>) -> Result<Joined<Value, V>, Missing>
where
    DynSerde: Serde<V>,
{
    let Some(json) = json else { return Ok(Joined::new()) };
    let joined = with_common!(Joined::<Value, V>::new(), json);
    Ok(match json.get("grace") {
        Some(grace) => joined.with_grace_period(milliseconds(grace)?),
        None => joined,
    })
}

pub(super) fn stream_joined<V: 'static, W: 'static>(
    json: Option<&Json>,
    config: &Json,
) -> Result<StreamJoined<Value, V, W>, Missing>
where
    DynSerde: Serde<V> + Serde<W>,
{
    let nothing = Json::Null;
    let json = json.unwrap_or(&nothing);
    let mut joined = StreamJoined::<Value, V, W>::new();
    // In the cases a name is that of `StreamJoined.as`, which names the stores.
    if let Some(name) = json.get("store_name").map(json_text).or_else(|| name(json)) {
        joined = joined.with_store_name(name);
    }
    if let Some(serde) = serde(json, "key")? {
        joined = joined.with_key_serde(serde);
    }
    if let Some(serde) = serde(json, "value")? {
        joined = joined.with_value_serde(serde);
    }
    if let Some(serde) = serde(json, "other_value")? {
        joined = joined.with_other_value_serde(serde);
    }
    joined = match json.get("logging") {
        None => joined,
        Some(Json::Bool(false)) => joined.with_logging_disabled(),
        Some(config) => joined.with_logging_enabled(topic_config(config)),
    };
    let kind = json.get("type").or_else(|| config.get("dsl.store"));
    if kind.is_some_and(|kind| kind == "in_memory") {
        joined = joined.in_memory();
    }
    if let Some(store) = json.get("this_store") {
        joined = joined.with_this_store_supplier(window_supplier(store)?);
    }
    if let Some(store) = json.get("other_store") {
        joined = joined.with_other_store_supplier(window_supplier(store)?);
    }
    Ok(joined)
}

pub(super) fn table_joined(json: Option<&Json>) -> TableJoined<Value, Value> {
    let Some(json) = json else { return TableJoined::new() };
    let mut joined = match name(json) {
        Some(name) => TableJoined::named(name),
        None => TableJoined::new(),
    };
    if let Some(partition) = one_partition(json, "partitioner") {
        joined = joined.with_partitioner(move |_, _, _| partition);
    }
    if let Some(partition) = one_partition(json, "other_partitioner") {
        joined = joined.with_other_partitioner(move |_, _, _| partition);
    }
    joined
}

/// What a partitioner of a foreign-key join answers; `None` for the default. Other than one partition has no form
/// here (see `structure::ruled_out`).
fn one_partition(json: &Json, field: &str) -> Option<i32> {
    match json.get(field).map(call)? {
        ("to", [partition]) => partition.as_i64()?.try_into().ok(),
        _ => None,
    }
}

pub(super) fn grouped<K: 'static, V: 'static>(json: Option<&Json>) -> Result<Grouped<K, V>, Missing>
where
    DynSerde: Serde<V> + Serde<K>,
{
    let Some(json) = json else { return Ok(Grouped::new()) };
    Ok(with_common!(Grouped::<K, V>::new(), json))
}

pub(super) fn materialized<K: 'static, V: 'static>(
    json: Option<&Json>,
) -> Result<Materialized<K, V>, Missing>
where
    DynSerde: Serde<V> + Serde<K>,
{
    let Some(json) = json else { return Ok(Materialized::new()) };
    let mut materialized: Materialized<K, V> = match json.get("store").map(json_text) {
        Some(store) => match json.get("supplier") {
            Some(supplier) => Materialized::from_supplier(self::supplier(store, supplier)?),
            None => Materialized::named(store),
        },
        // Something is said, if only the default.
        None => Materialized::new().with_caching_enabled(),
    };
    if let Some(serde) = serde(json, "key")? {
        materialized = materialized.with_key_serde(serde);
    }
    if let Some(serde) = serde(json, "value")? {
        materialized = materialized.with_value_serde(serde);
    }
    if json.get("caching") == Some(&Json::Bool(false)) {
        materialized = materialized.with_caching_disabled();
    }
    materialized = match json.get("logging") {
        None => materialized,
        Some(Json::Bool(false)) => materialized.with_logging_disabled(),
        Some(config) => materialized.with_logging_enabled(topic_config(config)),
    };
    if let Some(retention) = json.get("retention").and_then(Json::as_u64) {
        materialized = materialized.with_retention(Duration::from_millis(retention));
    }
    if json.get("type").is_some_and(|kind| kind == "in_memory") {
        materialized = materialized.in_memory();
    }
    Ok(materialized)
}

/// A supplier of one side of a join: in memory unless the case says otherwise.
fn window_supplier(json: &Json) -> Result<StoreSupplier, Missing> {
    let (name, duplicates) = (json_text(&json["name"]), json["duplicates"] == true);
    let (retention, size) =
        (milliseconds(&json["retention"])?, milliseconds(&json["window_size"])?);
    Ok(if json["in_memory"] == false {
        StoreSupplier::persistent_window_store(name, retention, size, duplicates)
    } else {
        StoreSupplier::in_memory_window_store(name, retention, size, duplicates)
    })
}

fn supplier(store: &str, json: &Json) -> Result<StoreSupplier, Missing> {
    Ok(match json_text(&json["kind"]) {
        "kv" => StoreSupplier::in_memory_key_value_store(store),
        "plain_kv" => StoreSupplier::persistent_key_value_store(store),
        "versioned" => {
            let history = milliseconds(&json["history"])?;
            let supplier = StoreSupplier::persistent_versioned_key_value_store(store, history);
            match json.get("segment_interval") {
                Some(interval) => supplier.with_segment_interval(milliseconds(interval)?),
                None => supplier,
            }
        }
        "window" => {
            let (retention, size) =
                (milliseconds(&json["retention"])?, milliseconds(&json["window_size"])?);
            StoreSupplier::in_memory_window_store(store, retention, size, false)
        }
        "session" => {
            StoreSupplier::in_memory_session_store(store, milliseconds(&json["retention"])?)
        }
        other => return Err(Missing(format!("store supplier {other}"))),
    })
}

/// A length of time. Negative ones cannot be written (see `structure::ruled_out`).
pub(super) fn milliseconds(json: &Json) -> Result<Duration, Missing> {
    let milliseconds = json.as_u64().ok_or_else(|| Missing(format!("length of time {json}")))?;
    Ok(Duration::from_millis(milliseconds))
}

fn topic_config(json: &Json) -> BTreeMap<String, String> {
    let entries = json.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.clone(), json_text(value).to_owned())).collect()
}

/// The processor parameters, with stores named and brought along.
pub(super) fn processed(op: &Json) -> Result<Processed, Missing> {
    let mut processed = Processed::new().with_stores(texts(&op["stores"]));
    for own in op["provides"].as_array().into_iter().flatten() {
        processed = processed.with_own_store(store(own)?);
    }
    if let Some(name) = op.get("named") {
        processed = processed.named(json_text(name));
    }
    Ok(processed)
}

pub(super) fn store(json: &Json) -> Result<Stores<Value, Value>, Missing> {
    let name = json_text(&json["name"]);
    let (key, value) = (DynSerde::named(&json["key"])?, DynSerde::named(&json["value"])?);
    let mut store = match json_text(&json["type"]) {
        "kv" => Stores::key_value(name, key, value),
        "ts_kv" => Stores::timestamped_key_value(name, key, value),
        "lru" => {
            let max_entries = json["max_entries"].as_u64().and_then(|it| it.try_into().ok());
            Stores::lru_map(name, max_entries.expect("a number of entries"), key, value)
        }
        "versioned" => {
            let store =
                Stores::versioned_key_value(name, milliseconds(&json["history"])?, key, value);
            match json.get("segment_interval") {
                Some(interval) => store.with_segment_interval(milliseconds(interval)?),
                None => store,
            }
        }
        "window" => {
            let (retention, size) =
                (milliseconds(&json["retention"])?, milliseconds(&json["window_size"])?);
            Stores::window(name, retention, size, json["duplicates"] == true, key, value)
        }
        "session" => Stores::session(name, milliseconds(&json["retention"])?, key, value),
        other => return Err(Missing(format!("store type {other}"))),
    };
    if json.get("in_memory") == Some(&Json::Bool(true)) {
        store = store.in_memory();
    }
    if json.get("caching") == Some(&Json::Bool(true)) {
        store = store.with_caching_enabled();
    }
    Ok(match json.get("logging") {
        None => store,
        Some(Json::Bool(false)) => store.with_logging_disabled(),
        Some(config) => store.with_logging_enabled(topic_config(config)),
    })
}
