//! An independent implementation writes what we read, and reads what we write. (Not so transaction
//! markers: rskafka 0.6.0 takes the lengths of their fields for the fields.)

use std::io::Cursor;

use headwater_records::{Batch, BatchBuilder, Compression, Header, ProducerStamp, Record};
use rskafka::protocol::record as theirs;
use rskafka::protocol::record::{
    ControlBatchOrRecords, RecordBatch, RecordBatchCompression, RecordBatchTimestampType,
    RecordHeader,
};
use rskafka::protocol::traits::{ReadType, WriteType};

const COMPRESSIONS: [(Compression, RecordBatchCompression); 5] = [
    (Compression::None, RecordBatchCompression::NoCompression),
    (Compression::Gzip, RecordBatchCompression::Gzip),
    (Compression::Snappy, RecordBatchCompression::Snappy),
    (Compression::Lz4, RecordBatchCompression::Lz4),
    (Compression::Zstd, RecordBatchCompression::Zstd),
];
const BASE_TIMESTAMP: i64 = 1_700_000_000_000;

/// More than one block of every codec: null, empty and long fields, repeated header names.
fn records() -> Vec<theirs::Record> {
    let record = |n: u16| {
        let word = format!("record number {n} of some ");
        theirs::Record {
            timestamp_delta: i64::from(n) * 7919 % 1000 - 500,
            offset_delta: i32::from(n) - 500,
            key: (!n.is_multiple_of(5)).then(|| word.repeat(usize::from(n) % 3).into_bytes()),
            value: (!n.is_multiple_of(7)).then(|| word.repeat(usize::from(n) % 50).into_bytes()),
            headers: (0..n % 4)
                .map(|header| RecordHeader {
                    key: format!("name {}", header / 2),
                    value: word.repeat(usize::from(header)).into_bytes(),
                })
                .collect(),
        }
    };
    (500..800).map(record).collect()
}

fn their_batch(records: Vec<theirs::Record>, compression: RecordBatchCompression) -> RecordBatch {
    let greatest = records.iter().map(|record| record.timestamp_delta).max().expect("records");
    RecordBatch {
        base_offset: 0,
        partition_leader_epoch: -1,
        last_offset_delta: i32::try_from(records.len()).expect("a few") - 1,
        first_timestamp: BASE_TIMESTAMP,
        max_timestamp: BASE_TIMESTAMP + greatest,
        producer_id: 42,
        producer_epoch: 7,
        base_sequence: 1000,
        records: ControlBatchOrRecords::Records(records),
        compression,
        is_transactional: true,
        timestamp_type: RecordBatchTimestampType::CreateTime,
    }
}

fn with_first_as_base(mut records: Vec<theirs::Record>) -> Vec<theirs::Record> {
    let base = records[0].timestamp_delta;
    for record in &mut records {
        record.timestamp_delta -= base;
    }
    records
}

#[test]
fn its_batches_can_be_read() {
    for (ours, theirs) in COMPRESSIONS {
        let expected = with_first_as_base(records());
        let batch = their_batch(with_first_as_base(records()), theirs);
        let greatest = batch.max_timestamp;
        let mut bytes = Vec::new();
        batch.write(&mut bytes).unwrap();

        let batch = Batch::new(bytes.into()).unwrap();
        assert_eq!(batch.header().compression, ours);
        assert_eq!(batch.header().max_timestamp, greatest);
        assert!(batch.header().is_transactional);
        let records = batch.decompress(1 << 20).unwrap();
        let mut count = 0;
        for (record, expected) in records.iter().zip(&expected) {
            let record = record.unwrap();
            assert_eq!(record.offset, i64::from(expected.offset_delta));
            assert_eq!(record.timestamp, BASE_TIMESTAMP + expected.timestamp_delta);
            assert_eq!(record.key, expected.key.as_deref());
            assert_eq!(record.value, expected.value.as_deref());
            let headers: Vec<_> = record.headers.iter().collect();
            assert_eq!(headers, headers_of(expected));
            count += 1;
        }
        assert_eq!((count, records.iter().count()), (300, 300));
    }
}

#[test]
fn it_reads_our_batches() {
    for (ours, theirs) in COMPRESSIONS {
        let expected = with_first_as_base(records());
        let mut builder = BatchBuilder::new(ours);
        for record in &expected {
            builder
                .append(Record {
                    timestamp: BASE_TIMESTAMP + record.timestamp_delta,
                    key: record.key.as_deref(),
                    value: record.value.as_deref(),
                    headers: &headers_of(record),
                })
                .unwrap();
        }
        let bytes = builder.finish().stamp(ProducerStamp {
            producer_id: 42,
            producer_epoch: 7,
            base_sequence: 1000,
            transactional: true,
        });
        let batch = RecordBatch::read(&mut Cursor::new(&bytes)).unwrap();
        assert_eq!(batch, their_batch(expected, theirs));
    }
}

fn headers_of(record: &theirs::Record) -> Vec<Header<'_>> {
    let headers = record.headers.iter();
    headers.map(|header| Header { name: &header.key, value: Some(&header.value) }).collect()
}
