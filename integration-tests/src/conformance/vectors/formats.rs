//! Serdes, texts, and the changes of grouped tables.

use std::collections::BTreeMap;

use anyhow::Context as _;
use headwater::prelude::*;
use headwater::runtime::OffsetMetadata;
use headwater::serde::{Deserializer, Format, NullableList, Payload, Serializer};
use headwater::topology::TaskId;
use headwater_testing::{TestRecord, TopologyTestDriver};
use serde_json::Value as Json;

use super::{Outcome, bytes_of, hex, number_of, text_of};

/// Writes a value, and reads it again.
fn both_ways<T, S>(serde: &S, value: &T, expected: &[u8]) -> anyhow::Result<Outcome>
where
    T: PartialEq + std::fmt::Debug,
    S: Serializer<T> + Deserializer<T>,
{
    let mut bytes = Vec::new();
    serde.serialize(value, &mut bytes)?;
    let read = serde.deserialize(Payload::new(expected))?;
    Ok(Outcome::of(&bytes, &expected.to_vec()).and(|| Outcome::of(&&read, &value)))
}

pub(super) fn serdes(vector: &Json) -> anyhow::Result<Outcome> {
    let (Some(value), Some(expected)) = (vector["value"].as_str(), hex(&vector["bytes"])) else {
        // Null is no bytes, unless a serde has a form for it; these have none.
        let has_form = Serializer::<String>::null_form(&Utf8, &mut Vec::new());
        return Ok(Outcome::of(&(vector["bytes"].is_null(), has_form), &(true, false)));
    };
    match text_of(vector, "serde")? {
        "String" => both_ways(&Utf8, &value.to_owned(), &expected),
        "Long" => both_ways(&Long, &value.parse::<i64>()?, &expected),
        "Integer" => both_ways(&Integer, &value.parse::<i32>()?, &expected),
        "Short" => both_ways(&Short, &value.parse::<i16>()?, &expected),
        // By their bits: not all of them are equal to themselves.
        "Float" => both_ways(&FloatBits, &value.parse::<f32>()?.to_bits(), &expected),
        "Double" => both_ways(&DoubleBits, &value.parse::<f64>()?.to_bits(), &expected),
        "Boolean" => both_ways(&Boolean, &value.parse::<bool>()?, &expected),
        "UUID" => both_ways(&UuidText, &value.parse::<uuid::Uuid>()?, &expected),
        "ByteArray" => {
            let value = hex(&vector["value"]).context("it is hexadecimal")?;
            both_ways(&RawBytes, &bytes::Bytes::from(value), &expected)
        }
        other => anyhow::bail!("serde {other} is known"),
    }
}

pub(super) fn list_serde(vector: &Json) -> anyhow::Result<Outcome> {
    let expected = hex(&vector["bytes"]).context("a list has bytes")?;
    let values = vector["values"].as_array().context("a list of values")?;
    match text_of(vector, "inner")? {
        "String" => list(Utf8, values, &expected, |text| Ok(text.to_owned())),
        "Long" => list(Long, values, &expected, |text| Ok(text.parse::<i64>()?)),
        "Integer" => list(Integer, values, &expected, |text| Ok(text.parse::<i32>()?)),
        "Short" => list(Short, values, &expected, |text| Ok(text.parse::<i16>()?)),
        "Double" => list(Double, values, &expected, |text| Ok(text.parse::<f64>()?)),
        "UUID" => list(UuidText, values, &expected, |text| Ok(text.parse::<uuid::Uuid>()?)),
        "ByteArray" => list(RawBytes, values, &expected, |text| {
            let value = hex(&Json::from(text)).context("it is hexadecimal")?;
            Ok(bytes::Bytes::from(value))
        }),
        other => anyhow::bail!("serde {other} is known"),
    }
}

fn list<T, S>(
    serde: S,
    values: &[Json],
    expected: &[u8],
    parse: impl Fn(&str) -> anyhow::Result<T>,
) -> anyhow::Result<Outcome>
where
    T: std::fmt::Debug + PartialEq,
    S: Serializer<T> + Deserializer<T> + Format,
{
    let values = values.iter().map(|value| value.as_str().map(&parse).transpose());
    let values = values.collect::<anyhow::Result<Vec<Option<T>>>>()?;
    both_ways(&NullableList(serde), &values, expected)
}

macro_rules! bits {
    ($name:ident, $serde:ident, $float:ty, $bits:ty) => {
        struct $name;

        impl Serializer<$bits> for $name {
            fn serialize(
                &self,
                value: &$bits,
                out: &mut Vec<u8>,
            ) -> Result<(), headwater::serde::SerdeError> {
                $serde.serialize(&<$float>::from_bits(*value), out)
            }
        }

        impl Deserializer<$bits> for $name {
            fn deserialize(
                &self,
                payload: Payload<'_>,
            ) -> Result<$bits, headwater::serde::SerdeError> {
                $serde.deserialize(payload).map(<$float>::to_bits)
            }
        }
    };
}

bits!(FloatBits, Float, f32, u32);
bits!(DoubleBits, Double, f64, u64);

pub(super) fn windowed_serde(vector: &Json) -> anyhow::Result<Outcome> {
    let (start, end) = (number_of(vector, "start")?, number_of(vector, "end")?);
    let key = Windowed { key: text_of(vector, "key")?.to_owned(), window: Window { start, end } };
    let expected = bytes_of(vector, "bytes")?;
    match text_of(vector, "kind")? {
        "time" => both_ways(&TimeWindowed::new(Utf8, end - start), &key, &expected),
        _ => both_ways(&SessionWindowed::new(Utf8), &key, &expected),
    }
}

pub(super) fn offset_metadata(vector: &Json) -> anyhow::Result<Outcome> {
    let numbers = vector["processor_metadata"].as_object().into_iter().flatten();
    let number = |(key, number): (&String, &Json)| Some((key.clone(), number.as_i64()?));
    let processor_metadata: BTreeMap<String, i64> = numbers.filter_map(number).collect();
    let partition_time = number_of(vector, "partition_time")?;
    let metadata = OffsetMetadata { partition_time, processor_metadata };
    let text = text_of(vector, "text")?;
    let read = OffsetMetadata::decode(text)?;
    Ok(Outcome::of(&metadata.encode(), &text.to_owned()).and(|| Outcome::of(&read, &metadata)))
}

pub(super) fn task_id(vector: &Json) -> anyhow::Result<Outcome> {
    let (read, text) = match vector["parse"].as_str() {
        Some(parse) => (parse, vector["text"].as_str()),
        None => (text_of(vector, "text")?, vector["text"].as_str()),
    };
    if text.is_some_and(|text| text.contains("__") || text.contains('-')) {
        return Ok(Outcome::LeftOut("no named topologies (P29), no negative numbers"));
    }
    let found = read.parse::<TaskId>().ok().map(|id| id.to_string());
    Ok(Outcome::of(&found.as_deref(), &text))
}

/// What a grouped table sends when a value becomes another one.
pub(super) fn change(vector: &Json) -> anyhow::Result<Outcome> {
    let builder = StreamsBuilder::new();
    builder
        .table("in", Consumed::with(Utf8, Utf8), Materialized::new())
        .group_by(|key, value| (key.clone(), value.clone()), Grouped::with(Utf8, Utf8).named("g"))
        .count(Materialized::named("counts"));
    let driver = TopologyTestDriver::new(builder.build()?)?;
    let input = driver.create_input_topic("in", Utf8, Utf8);
    for value in [&vector["old"], &vector["new"]] {
        let value = value.as_str().map(str::to_owned);
        if value.is_some() || vector["new"].is_null() {
            input.pipe_record(&TestRecord::<String, String>::new(Some("k".to_owned()), value))?;
        }
    }
    let produced = driver.produced_records();
    let mut changes = produced.iter().filter(|it| it.topic.as_str() == "test-g-repartition");
    let last = changes.next_back().context("something was sent")?;
    Ok(Outcome::of(&last.value.clone(), &hex(&vector["bytes"])))
}
