//! Record batches and the default partitioner.

use bytes::{Bytes, BytesMut};
use headwater::records::{
    Batch, BatchBuilder, ControlKind, Header, ProducerStamp, Record, control_batch, murmur2,
    partition_for_key, set_base_offset,
};
use serde_json::Value as Json;

use super::{Outcome, bytes_of, headers_of, hex, number_of, text_of};

pub(super) fn partitioner(vector: &Json) -> anyhow::Result<Outcome> {
    let key = bytes_of(vector, "key")?;
    let hash = i64::from(murmur2(&key));
    let counts = vector["partition_of"].as_object().into_iter().flatten();
    let expected: Vec<i64> = counts.clone().filter_map(|(_, it)| it.as_i64()).collect();
    let found = counts.map(|(count, _)| Ok(i64::from(partition_for_key(&key, count.parse()?))));
    let found = found.collect::<anyhow::Result<Vec<i64>>>()?;
    let expected_hash = number_of(vector, "murmur2")?;
    Ok(Outcome::of(&hash, &expected_hash).and(|| Outcome::of(&found, &expected)))
}

/// Uncompressed batches are written to the byte, markers too; compressed ones are read, and those written
/// here are read in the same way.
pub(super) fn record_batch(vector: &Json) -> anyhow::Result<Outcome> {
    let bytes = bytes_of(vector, "bytes")?;
    match text_of(vector, "name")? {
        "control-commit" => return marker(vector, ControlKind::Commit, &bytes),
        "control-abort" => return marker(vector, ControlKind::Abort, &bytes),
        _ => {}
    }
    let theirs = Batch::new(Bytes::from(bytes.clone()))?;
    if vector["records"].as_array().is_none_or(Vec::is_empty) {
        let time = vector["log_append_time"].as_i64();
        let records = theirs.decompress(1 << 20)?;
        let read = records.iter().next().transpose()?.map(|record| record.timestamp);
        return Ok(Outcome::of(&read, &time));
    }
    let ours = write(vector)?;
    let outcome = if text_of(vector, "codec")? == "none" {
        Outcome::of(&ours.to_vec(), &bytes)
    } else {
        let ours = Batch::new(ours.freeze())?;
        Outcome::of(&contents(&ours)?, &contents(&theirs)?)
    };
    Ok(outcome.and(|| match contents(&theirs) {
        Ok(found) => Outcome::of(&found, &expected(vector)),
        Err(error) => Outcome::Differs(error.to_string()),
    }))
}

fn marker(vector: &Json, kind: ControlKind, expected: &[u8]) -> anyhow::Result<Outcome> {
    let producer = (number_of(vector, "producer_id")?, number_of(vector, "producer_epoch")?);
    let epochs = (number_of(vector, "coordinator_epoch")?, number_of(vector, "leader_epoch")?);
    let marker = control_batch(
        kind,
        producer.0,
        i16::try_from(producer.1)?,
        i32::try_from(epochs.0)?,
        number_of(vector, "ts")?,
    );
    let mut marker = BytesMut::from(marker);
    set_base_offset(&mut marker, number_of(vector, "base_offset")?, i32::try_from(epochs.1)?)?;
    Ok(Outcome::of(&marker.to_vec(), &expected.to_vec()))
}

/// Timestamp, key, value, headers.
type Read = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>);

fn expected(vector: &Json) -> Vec<Read> {
    let records = vector["records"].as_array().into_iter().flatten();
    let record = |json: &Json| {
        let timestamp = json["ts"].as_i64().unwrap_or(-1);
        (timestamp, hex(&json["key"]), hex(&json["value"]), headers_of(&json["headers"]))
    };
    records.map(record).collect()
}

fn contents(batch: &Batch) -> anyhow::Result<Vec<Read>> {
    let mut found = Vec::new();
    for record in &batch.decompress(1 << 20)? {
        let record = record?;
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let headers = record.headers.iter();
        let headers = headers.map(|it| (it.name.to_owned(), owned(it.value))).collect();
        found.push((record.timestamp, owned(record.key), owned(record.value), headers));
    }
    Ok(found)
}

fn write(vector: &Json) -> anyhow::Result<BytesMut> {
    let mut builder = BatchBuilder::new(text_of(vector, "codec")?.parse()?);
    for (timestamp, key, value, headers) in expected(vector) {
        let headers: Vec<Header<'_>> =
            headers.iter().map(|(name, value)| Header { name, value: value.as_deref() }).collect();
        let (key, value) = (key.as_deref(), value.as_deref());
        builder.append(Record { timestamp, key, value, headers: &headers })?;
    }
    let mut pending = builder.finish();
    let mut batch = BytesMut::from(pending.stamp(ProducerStamp {
        producer_id: number_of(vector, "producer_id")?,
        producer_epoch: i16::try_from(number_of(vector, "producer_epoch")?)?,
        base_sequence: i32::try_from(number_of(vector, "base_sequence")?)?,
        transactional: vector["transactional"] == true,
    }));
    set_base_offset(&mut batch, number_of(vector, "base_offset")?, -1)?;
    Ok(batch)
}
