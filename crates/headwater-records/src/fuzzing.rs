//! What the fuzz target runs, and the tests over the kept corpus.

use bytes::{Bytes, BytesMut};

use crate::batch::{Batch, Batches};
use crate::builder::BatchBuilder;
use crate::compression::Compression;
use crate::error::RecordsError;
use crate::header::{self, TimestampType};
use crate::record::{Header, Record};
use crate::records::BatchRecords;

/// Bytes that a batch may decompress to.
const LIMIT: usize = 1 << 16;

/// What came of reading some bytes: of every batch its number of records, or what is wrong.
pub type Outcome = Vec<Result<usize, RecordsError>>;

/// Reads everything in `data`, then once more with all checksums made to fit, so that damage
/// behind them is met too; gives what came of the second reading.
///
/// # Panics
/// If something is read that cannot be, or does not read the same when written again.
pub fn read_everything(data: &[u8]) -> Outcome {
    let bytes = Bytes::copy_from_slice(data);
    let sound = Batches::new(bytes).flatten().filter(|batch| read(batch).is_ok()).count();
    let mut repaired = BytesMut::from(data);
    repair_checksums(&mut repaired);
    let mut batches = Batches::new(repaired.freeze());
    let outcome: Outcome = batches.by_ref().map(|batch| read(&batch?)).collect();
    assert!(outcome.iter().flatten().count() >= sound, "a fitting checksum changes nothing");
    assert_eq!(batches.position() + batches.remainder(), data.len(), "no byte gets lost");
    outcome
}

/// Makes the checksum of every whole batch fit its bytes.
pub fn repair_checksums(batches: &mut [u8]) {
    for batch in Batches::new(Bytes::copy_from_slice(batches)).flatten() {
        let end = batch.position() + batch.size_bytes();
        header::repair_checksum(batches.get_mut(batch.position()..end).unwrap_or_default());
    }
}

fn read(batch: &Batch) -> Result<usize, RecordsError> {
    let records = batch.decompress(LIMIT)?;
    let mut cursor = records.cursor();
    let mut written = BatchBuilder::new(Compression::None);
    let mut offsets = Vec::new();
    while let Some(record) = cursor.next(&records) {
        let record = record?;
        let headers: Vec<Header<'_>> = record.headers.iter().collect();
        assert_eq!(headers.len(), record.headers.len(), "headers are counted");
        written.append(Record {
            timestamp: record.timestamp,
            key: record.key,
            value: record.value,
            headers: &headers,
        })?;
        offsets.push(record.offset);
    }
    assert!(offsets.is_sorted_by(|a, b| a < b), "offsets grow: {offsets:?}");
    if !offsets.is_empty() {
        assert_same(&records, written);
    }
    Ok(offsets.len())
}

fn assert_same(records: &BatchRecords, mut written: BatchBuilder) {
    let batch = Batch::new(written.finish().stamp_none());
    let again = batch.and_then(|batch| batch.decompress(2 * LIMIT)).expect("we wrote it");
    assert_eq!(again.header().timestamp_type, TimestampType::CreateTime);
    for (record, again) in records.iter().zip(&again) {
        let (record, again) = (record.expect("it was read"), again.expect("we wrote it"));
        assert_eq!(
            (record.timestamp, record.key, record.value),
            (again.timestamp, again.key, again.value)
        );
        assert!(record.headers.iter().eq(again.headers.iter()));
    }
    assert_eq!(records.iter().count(), again.iter().count());
}
