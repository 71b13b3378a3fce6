//! Whatever is written is read again, for all records and compressions.

use bytes::{Bytes, BytesMut};
use headwater_records::{
    Batch, BatchBuilder, Batches, Compression, Header, ProducerStamp, Record, RecordRef,
    RecordsError,
};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Owned {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Owned {
    fn headers(&self) -> Vec<Header<'_>> {
        self.headers.iter().map(|(name, value)| Header { name, value: value.as_deref() }).collect()
    }

    fn append_to(&self, builder: &mut BatchBuilder) -> u32 {
        let record = Record {
            timestamp: self.timestamp,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &self.headers(),
        };
        builder.append(record).expect("the batch is small")
    }

    fn check(&self, record: RecordRef<'_>, offset: i64) {
        assert_eq!(record.offset, offset);
        assert_eq!(record.timestamp, self.timestamp);
        assert_eq!(record.key, self.key.as_deref());
        assert_eq!(record.value, self.value.as_deref());
        assert_eq!(record.headers.len(), self.headers.len());
        assert_eq!(record.headers.iter().collect::<Vec<_>>(), self.headers());
    }
}

fn field() -> impl Strategy<Value = Option<Vec<u8>>> {
    // Lengths around those where their own form grows by a byte, and compressible contents.
    let bytes = prop_oneof![
        vec(any::<u8>(), 0..20),
        vec(any::<u8>(), 60..70),
        (any::<u8>(), prop_oneof![0_usize..200, 8_150_usize..8_250, 70_000_usize..70_010])
            .prop_map(|(byte, length)| vec![byte; length]),
    ];
    proptest::option::weighted(0.9, bytes)
}

fn record() -> impl Strategy<Value = Owned> {
    let timestamp = prop_oneof![1_700_000_000_000_i64..1_700_000_100_000, any::<i64>()];
    let headers = prop_oneof![
        3 => Just(Vec::new()),
        1 => vec((".{0,10}", field()), 0..4),
    ];
    (timestamp, field(), field(), headers).prop_map(|(timestamp, key, value, headers)| Owned {
        timestamp,
        key,
        value,
        headers,
    })
}

fn compression() -> impl Strategy<Value = Compression> {
    proptest::sample::select(vec![
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn batches_come_back_as_they_were_written(
        batches in vec(vec(record(), 1..12), 1..4),
        compression in compression(),
        cut in any::<proptest::sample::Index>(),
    ) {
        // One builder for all, to see that nothing stays behind in it.
        let mut builder = BatchBuilder::new(compression);
        let mut log = BytesMut::new();
        let mut ends = Vec::new();
        for (number, records) in (0_i32..).zip(&batches) {
            for (index, record) in (0..).zip(records) {
                prop_assert_eq!(record.append_to(&mut builder), index);
            }
            prop_assert_eq!(builder.count() as usize, records.len());
            prop_assert_eq!(
                builder.max_timestamp(),
                records.iter().map(|record| record.timestamp).max(),
            );
            let size = builder.size_bytes();
            let mut pending = builder.finish();
            prop_assert!(builder.is_empty() && builder.size_bytes() == 0);
            prop_assert_eq!(builder.max_timestamp(), None);
            let batch = pending.stamp(ProducerStamp {
                producer_id: 5,
                producer_epoch: 6,
                base_sequence: number,
                transactional: number % 2 == 1,
            });
            prop_assert_eq!(batch.len(), pending.size_bytes());
            if compression == Compression::None {
                prop_assert_eq!(batch.len(), size);
            }
            log.extend_from_slice(&batch);
            ends.push(log.len());
        }
        check_log(&log.clone().freeze(), &batches);

        // Cut anywhere, the whole batches before the cut are still there.
        let end = cut.index(log.len() + 1);
        let whole = ends.iter().filter(|&&batch_end| batch_end <= end).count();
        let mut rest = Batches::new(log.freeze().slice(..end));
        prop_assert_eq!(rest.by_ref().map(Result::unwrap).count(), whole);
        prop_assert_eq!(rest.position(), if whole == 0 { 0 } else { ends[whole - 1] });
        prop_assert_eq!(rest.remainder(), end - rest.position());
    }
}

fn check_log(log: &Bytes, batches: &[Vec<Owned>]) {
    let mut read = Batches::new(log.clone());
    for (number, expected) in (0_i32..).zip(batches) {
        let batch = read.next().expect("a batch").expect("a sound batch");
        let header = *batch.header();
        assert_eq!((header.producer_id, header.producer_epoch), (5, 6));
        assert_eq!(header.base_sequence, number);
        assert_eq!(header.is_transactional, number % 2 == 1);
        assert_eq!(header.record_count as usize, expected.len());
        assert_eq!(header.last_offset, i64::from(header.record_count) - 1);
        let records = batch.decompress(10 << 20).expect("sound records");

        let mut cursor = records.cursor();
        let mut left = header.record_count;
        for ((offset, expected), record) in (0..).zip(expected).zip(&records) {
            expected.check(record.expect("a sound record"), offset);
            assert_eq!(cursor.remaining(&records), left);
            let ahead = cursor.clone().next(&records);
            expected.check(ahead.expect("a record").expect("sound"), offset);
            expected.check(cursor.next(&records).expect("a record").expect("sound"), offset);
            left -= 1;
        }
        assert_eq!(cursor.remaining(&records), 0);
        assert!(cursor.next(&records).is_none());
        assert_eq!(records.iter().count(), expected.len());
    }
    assert!(read.next().is_none());
}

#[test]
fn a_batch_of_many_records_comes_back() {
    // Relative offsets of one, two and three bytes.
    const RECORDS: i64 = 20_000;
    let mut builder = BatchBuilder::new(Compression::None);
    for timestamp in 0..RECORDS {
        let key = timestamp.to_be_bytes();
        let record = Record { timestamp, key: Some(&key), value: None, headers: &[] };
        builder.append(record).expect("the batch is small");
    }
    let batch = Batch::new(builder.finish().stamp_none()).expect("we wrote it");
    let records = batch.decompress(1 << 20).expect("we wrote it");
    let mut offset = 0;
    for record in &records {
        let record = record.expect("we wrote it");
        assert_eq!((record.offset, record.timestamp), (offset, offset));
        assert_eq!((record.key, record.value), (Some(&offset.to_be_bytes()[..]), None));
        offset += 1;
    }
    assert_eq!(offset, RECORDS);
}

#[test]
fn a_record_beyond_kafkas_sizes_is_refused_and_leaves_the_batch_alone() {
    let record = |value| Record { timestamp: 1, key: None, value: Some(value), headers: &[] };
    // Never touched, so never really there.
    let huge = vec![0; i32::MAX as usize];
    let mut builder = BatchBuilder::new(Compression::None);
    assert!(matches!(builder.append(record(&huge)), Err(RecordsError::BatchFull { size: 0, .. })));
    assert!(builder.is_empty());
    builder.append(record(b"small")).unwrap();
    let size = builder.size_bytes();
    let error = builder.append(record(&huge)).unwrap_err();
    assert!(matches!(error, RecordsError::BatchFull { size: before, .. } if before == size));
    assert_eq!((builder.count(), builder.size_bytes()), (1, size));

    let batch = Batches::new(builder.finish().stamp_none()).next().unwrap().unwrap();
    let records = batch.decompress(0).unwrap();
    assert_eq!(records.iter().next().unwrap().unwrap().value, Some(&b"small"[..]));
}

/// A retry under a new epoch: the bytes of the first attempt stay as they were.
#[test]
fn a_batch_can_be_stamped_again() {
    let mut builder = BatchBuilder::new(Compression::Lz4);
    let record = Record { timestamp: 1, key: None, value: Some(b"value"), headers: &[] };
    builder.append(record).unwrap();
    let mut pending = builder.finish();
    let stamp = |producer_epoch, transactional| ProducerStamp {
        producer_id: 9,
        producer_epoch,
        base_sequence: 3,
        transactional,
    };
    let first = pending.stamp(stamp(1, true));
    let second = pending.stamp(stamp(2, true));
    let third = pending.clone().stamp_none();
    let seen: Vec<_> = [first, second, third]
        .into_iter()
        .map(|bytes| {
            let batch = Batches::new(bytes).next().unwrap().unwrap();
            batch.check_crc().unwrap();
            let header = batch.header();
            (
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.is_transactional,
            )
        })
        .collect();
    assert_eq!(seen, [(9, 1, 3, true), (9, 2, 3, true), (-1, -1, -1, false)]);
}
