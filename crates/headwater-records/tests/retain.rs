//! Batches that lose some of their records.

use bytes::Bytes;
use headwater_records::{
    Batch, BatchBuilder, Compression, HEADER_SIZE, Header, ProducerStamp, Record, Retained,
};

const LIMIT: usize = 1 << 20;

/// A batch of records with the offsets 40 to 44, keys `k0` to `k4` and a header each.
fn batch(compression: Compression) -> Batch {
    let mut builder = BatchBuilder::new(compression);
    for number in 0..5_u8 {
        let key = [b'k', b'0' + number];
        let headers = [Header { name: "number", value: Some(&[number]) }];
        let timestamp = 1_000 + i64::from(number);
        let record = Record { timestamp, key: Some(&key), value: None, headers: &headers };
        builder.append(record).expect("the batch is small");
    }
    let stamp =
        ProducerStamp { producer_id: 7, producer_epoch: 8, base_sequence: 9, transactional: true };
    let mut bytes = builder.finish().stamp(stamp).to_vec();
    headwater_records::set_base_offset(&mut bytes, 40, 3).expect("a batch of our own");
    Batch::new(bytes.into()).expect("a batch of our own")
}

/// Offset, timestamp and key of each record.
fn contents(batch: &Batch) -> Vec<(i64, i64, Vec<u8>)> {
    let records = batch.decompress(LIMIT).expect("a sound batch");
    let records = records.iter().map(|record| {
        let record = record.expect("a sound record");
        assert_eq!(record.headers.len(), 1);
        (record.offset, record.timestamp, record.key.expect("a key").to_vec())
    });
    records.collect()
}

#[test]
fn what_stays_is_as_it_was() {
    for compression in [Compression::None, Compression::Lz4] {
        let batch = batch(compression);
        let retained = batch.retain(LIMIT, |record| record.offset % 2 == 1).expect("sound");
        let Retained::Some { batch: bytes, removed: 3 } = retained else {
            panic!("two of five records stay, not {retained:?}");
        };
        let retained = Batch::new(bytes).expect("a whole batch");
        let left: Vec<_> =
            contents(&batch).into_iter().filter(|(offset, ..)| offset % 2 == 1).collect();
        assert_eq!(contents(&retained), left);
        let mut expected = *batch.header();
        expected.record_count = 2;
        expected.compression = Compression::None;
        assert_eq!(*retained.header(), expected, "offsets, times and producer stay");
    }
}

#[test]
fn all_or_nothing_is_told() {
    let batch = batch(Compression::None);
    let retain = |keep: bool| batch.retain(LIMIT, |_| keep).expect("sound");
    assert_eq!(retain(true), Retained::All);
    assert_eq!(retain(false), Retained::Nothing { removed: 5 });
}

#[test]
fn a_damaged_batch_is_refused() {
    let mut bytes = batch(Compression::None).bytes().to_vec();
    *bytes.last_mut().expect("not empty") ^= 1;
    let damaged = Batch::new(Bytes::from(bytes)).expect("the header is whole");
    damaged.retain(LIMIT, |_| true).expect_err("the checksum does not fit");
}

#[test]
fn a_header_tells_the_size_of_its_batch() {
    let batch = batch(Compression::None);
    let header = batch.bytes().get(..HEADER_SIZE).expect("a whole header");
    let (read, size) = headwater_records::BatchHeader::read_first(header).expect("a header");
    assert_eq!((read, size), (*batch.header(), batch.size_bytes()));
    let cut = header.get(..HEADER_SIZE - 1).expect("a part of it");
    headwater_records::BatchHeader::read_first(cut).expect_err("the header is cut off");
}
