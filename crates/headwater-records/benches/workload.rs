//! What is measured: records with a 16-byte key and a 100-byte value, 500 to a batch, 10 batches
//! to a fetched buffer.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use headwater_records::{BatchBuilder, Batches, Compression, ProducerStamp, Record};

pub(crate) const BATCHES: usize = 10;
pub(crate) const RECORDS: usize = 500;

/// The records, made before anything is measured.
pub(crate) struct Workload {
    records: Vec<(String, String)>,
}

impl Workload {
    pub(crate) fn new() -> Self {
        let record = |n: usize| {
            let (mixed, number) = (n.wrapping_mul(2_654_435_761) % 1_000_000_007, n % 1000);
            let key = format!("customer-{number:07}");
            let mut value = format!(
                "{{\"id\":{n},\"customer\":{number},\"amount\":{mixed},\"note\":\"order no. {n}\""
            );
            value.extend(std::iter::repeat_n(' ', 99 - value.len()));
            value.push('}');
            assert_eq!((key.len(), value.len()), (16, 100));
            (key, value)
        };
        Self { records: (0..BATCHES * RECORDS).map(record).collect() }
    }

    /// Writes all records, handing each batch to `sent`.
    pub(crate) fn write(&self, builder: &mut BatchBuilder, mut sent: impl FnMut(Bytes)) {
        let mut timestamp = 1_700_000_000_000;
        for (base_sequence, records) in (0..).zip(self.records.chunks(RECORDS)) {
            for (key, value) in records {
                timestamp += 1;
                let record = Record {
                    timestamp,
                    key: Some(key.as_bytes()),
                    value: Some(value.as_bytes()),
                    headers: &[],
                };
                builder.append(black_box(record)).expect("the batch is small");
            }
            sent(builder.finish().stamp(ProducerStamp {
                producer_id: 1,
                producer_epoch: 0,
                base_sequence,
                transactional: false,
            }));
        }
    }

    /// The buffer with all records.
    pub(crate) fn buffer(&self, compression: Compression) -> Bytes {
        let mut buffer = BytesMut::new();
        let mut builder = BatchBuilder::new(compression);
        self.write(&mut builder, |batch| buffer.extend_from_slice(&batch));
        buffer.freeze()
    }
}

/// Reads all records of `buffer`, checksums and decompression included; gives their number.
pub(crate) fn read(buffer: &Bytes) -> usize {
    let mut count = 0;
    for batch in Batches::new(buffer.clone()) {
        let records =
            batch.and_then(|batch| batch.decompress(1 << 20)).expect("the batch is sound");
        for record in &records {
            black_box(record.expect("the record is sound"));
            count += 1;
        }
    }
    count
}
