//! What the Java client writes and computes, byte for byte.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use headwater_records::{
    Batch, BatchBuilder, Compression, ControlKind, ControlMarker, Header, ProducerStamp, Record,
    TimestampType, control_batch, murmur2, partition_for_key, set_base_offset,
    set_max_timestamp_log_append,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors {
    partitioner: Group<PartitionVector>,
    record_batch: Group<BatchVector>,
}

#[derive(Deserialize)]
struct Group<T> {
    vectors: Vec<T>,
}

#[derive(Deserialize)]
struct PartitionVector {
    key: Hex,
    murmur2: i32,
    partition_of: BTreeMap<String, i32>,
}

#[derive(Deserialize)]
struct BatchVector {
    name: String,
    codec: String,
    base_offset: i64,
    producer_id: Option<i64>,
    producer_epoch: Option<i16>,
    base_sequence: Option<i32>,
    #[serde(default)]
    transactional: bool,
    #[serde(default)]
    records: Vec<RecordVector>,
    ts: Option<i64>,
    leader_epoch: Option<i32>,
    coordinator_epoch: Option<i32>,
    log_append_time: Option<i64>,
    bytes: Hex,
}

#[derive(Deserialize)]
struct RecordVector {
    ts: i64,
    key: Option<Hex>,
    value: Option<Hex>,
    headers: Vec<(String, Option<Hex>)>,
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Hex(Vec<u8>);

impl TryFrom<String> for Hex {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digit = |byte: u8| -> Option<u8> { char::from(byte).to_digit(16)?.try_into().ok() };
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err("half a byte") };
        let byte = |&[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
        pairs.iter().map(byte).collect::<Option<_>>().map(Self).ok_or("not a hex digit")
    }
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("data/vectors.json")).expect("the vectors are readable")
}

fn bytes(hex: Option<&Hex>) -> Option<&[u8]> {
    hex.map(|hex| hex.0.as_slice())
}

#[test]
fn keys_go_where_the_java_client_puts_them() {
    let vectors = vectors().partitioner.vectors;
    assert!(vectors.len() > 20, "only {} vectors", vectors.len());
    for vector in vectors {
        assert_eq!(murmur2(&vector.key.0), vector.murmur2, "{:?}", vector.key.0);
        for (partitions, partition) in vector.partition_of {
            let partitions = partitions.parse().unwrap();
            assert_eq!(partition_for_key(&vector.key.0, partitions), partition);
        }
    }
}

#[test]
fn batches_of_the_java_client_read_as_it_means_them() {
    let mut read = BTreeMap::<String, u32>::new();
    for vector in vectors().record_batch.vectors {
        if vector.records.is_empty() {
            continue;
        }
        *read.entry(vector.codec.clone()).or_default() += 1;
        let batch = Batch::new(Bytes::copy_from_slice(&vector.bytes.0)).unwrap();
        let header = batch.header();
        assert_eq!(header.compression, vector.codec.parse().unwrap(), "{}", vector.name);
        assert_eq!(header.base_offset, vector.base_offset);
        assert_eq!(Some(header.producer_id), vector.producer_id);
        assert_eq!(Some(header.producer_epoch), vector.producer_epoch);
        assert_eq!(Some(header.base_sequence), vector.base_sequence);
        assert_eq!(header.is_transactional, vector.transactional);
        assert!(!header.is_control);
        check_records(&batch, &vector);
    }
    let codecs: Vec<_> = read.into_iter().collect();
    let expected = [("gzip", 4), ("lz4", 4), ("none", 6), ("snappy", 4), ("zstd", 4)];
    assert_eq!(codecs, expected.map(|(codec, count)| (codec.to_owned(), count)));
}

fn check_records(batch: &Batch, vector: &BatchVector) {
    let records = batch.decompress(1 << 20).expect("the vector holds");
    let mut cursor = records.cursor();
    for (index, expected) in (0..).zip(&vector.records) {
        let record = cursor.next(&records).expect("the vector holds").expect("the vector holds");
        assert_eq!(record.offset, vector.base_offset + index);
        assert_eq!(record.timestamp, expected.ts);
        assert_eq!(record.key, bytes(expected.key.as_ref()));
        assert_eq!(record.value, bytes(expected.value.as_ref()));
        assert_eq!(record.headers.len(), expected.headers.len());
        let headers: Vec<_> = record.headers.iter().collect();
        assert_eq!(headers, headers_of(expected));
    }
    assert!(cursor.next(&records).is_none());
}

fn headers_of(record: &RecordVector) -> Vec<Header<'_>> {
    record
        .headers
        .iter()
        .map(|(name, value)| Header { name, value: bytes(value.as_ref()) })
        .collect()
}

/// Builds the batch that `vector` describes.
fn build(vector: &BatchVector) -> BytesMut {
    let mut builder = BatchBuilder::new(vector.codec.parse().expect("the vector holds"));
    for record in &vector.records {
        let headers = headers_of(record);
        builder
            .append(Record {
                timestamp: record.ts,
                key: bytes(record.key.as_ref()),
                value: bytes(record.value.as_ref()),
                headers: &headers,
            })
            .expect("the vector holds");
    }
    let mut pending = builder.finish();
    let mut batch = BytesMut::from(pending.stamp(ProducerStamp {
        producer_id: vector.producer_id.expect("the vector holds"),
        producer_epoch: vector.producer_epoch.expect("the vector holds"),
        base_sequence: vector.base_sequence.expect("the vector holds"),
        transactional: vector.transactional,
    }));
    set_base_offset(&mut batch, vector.base_offset, -1).expect("the vector holds");
    batch
}

#[test]
fn uncompressed_batches_are_the_java_clients_to_the_byte() {
    let mut written = 0;
    for vector in vectors().record_batch.vectors {
        if !vector.records.is_empty() && vector.codec == "none" {
            assert_eq!(build(&vector), vector.bytes.0, "{}", vector.name);
            written += 1;
        }
    }
    assert_eq!(written, 6);
}

#[test]
fn compressed_batches_read_like_the_java_clients() {
    for vector in vectors().record_batch.vectors {
        if !vector.records.is_empty() && vector.codec != "none" {
            let batch = Batch::new(build(&vector).freeze()).unwrap();
            let theirs = Batch::new(Bytes::copy_from_slice(&vector.bytes.0)).unwrap();
            assert_eq!(batch.header(), theirs.header());
            check_records(&batch, &vector);
        }
    }
}

#[test]
fn markers_are_the_java_brokers_to_the_byte() {
    let mut seen = 0;
    for vector in vectors().record_batch.vectors {
        let kind = match vector.name.as_str() {
            "control-commit" => ControlKind::Commit,
            "control-abort" => ControlKind::Abort,
            _ => continue,
        };
        seen += 1;
        let coordinator_epoch = vector.coordinator_epoch.unwrap();
        let mut batch = BytesMut::from(control_batch(
            kind,
            vector.producer_id.unwrap(),
            vector.producer_epoch.unwrap(),
            coordinator_epoch,
            vector.ts.unwrap(),
        ));
        set_base_offset(&mut batch, vector.base_offset, vector.leader_epoch.unwrap()).unwrap();
        assert_eq!(batch, vector.bytes.0, "{}", vector.name);

        let records = Batch::new(batch.freeze()).unwrap().decompress(1000).unwrap();
        assert!(records.header().is_control && records.header().is_transactional);
        let record = records.iter().next().unwrap().unwrap();
        let marker = ControlMarker::parse(&record).unwrap().unwrap();
        assert_eq!((marker.kind, marker.coordinator_epoch), (kind, coordinator_epoch));
    }
    assert_eq!(seen, 2);
}

#[test]
fn the_brokers_clock_can_stamp_a_batch() {
    let vectors = vectors().record_batch.vectors;
    let named = |name| vectors.iter().find(|vector| vector.name == name).unwrap();
    let expected = named("log-append-time");
    let mut batch = BytesMut::from(named("one").bytes.0.as_slice());
    set_base_offset(&mut batch, expected.base_offset, -1).unwrap();
    set_max_timestamp_log_append(&mut batch, expected.log_append_time.unwrap()).unwrap();
    assert_eq!(batch, expected.bytes.0);

    let records = Batch::new(batch.freeze()).unwrap().decompress(1000).unwrap();
    assert_eq!(records.header().timestamp_type, TimestampType::LogAppendTime);
    assert_eq!(records.header().compression, Compression::None);
    assert_eq!(records.iter().next().unwrap().unwrap().timestamp, 7777);
}
