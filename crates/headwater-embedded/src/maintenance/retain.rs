//! A batch without some of its records.

use bytes::{Bytes, BytesMut};
use headwater_records::{Batch, RecordRef, RecordsError};

use crate::frame::HEADER_SIZE;
use crate::log::DECOMPRESSED_MAX;

/// What is left of a batch.
#[derive(Debug)]
pub(super) enum Retained {
    /// All of it.
    All,
    /// Some of it: a new batch, and how many records are gone.
    Some(Bytes, u64),
    /// Nothing; so many records are gone.
    Nothing(u64),
}

/// Takes the records out that are not to be kept. What stays keeps its bytes, offset and
/// timestamp; the batch keeps its first and last offset and its producer, as Kafka's cleaner
/// leaves them, but not its compression.
pub(super) fn retain(
    batch: &Batch,
    mut keep: impl FnMut(&RecordRef<'_>) -> bool,
) -> Result<Retained, RecordsError> {
    let records = batch.decompress(DECOMPRESSED_MAX)?;
    let mut rest: &[u8] = records.bytes();
    let mut out = BytesMut::from(&batch.bytes()[..HEADER_SIZE]);
    let (mut kept, mut removed) = (0_i32, 0);
    for record in &records {
        let (bytes, after) = rest.split_at(encoded_size(rest));
        rest = after;
        if keep(&record?) {
            out.extend_from_slice(bytes);
            kept += 1;
        } else {
            removed += 1;
        }
    }
    if removed == 0 {
        return Ok(Retained::All);
    }
    if kept == 0 {
        return Ok(Retained::Nothing(removed));
    }
    seal(&mut out, kept);
    Ok(Retained::Some(out.freeze(), removed))
}

/// The bytes that the record at the start of `bytes` takes, which was read before: its length is a
/// zigzag varint before it.
fn encoded_size(bytes: &[u8]) -> usize {
    let mut length: u64 = 0;
    for (number, byte) in bytes.iter().enumerate() {
        length |= u64::from(byte & 0x7f) << (7 * number.min(9));
        if byte & 0x80 == 0 {
            let length = usize::try_from(length >> 1).unwrap_or(usize::MAX);
            return length.saturating_add(number + 1).min(bytes.len());
        }
    }
    bytes.len()
}

/// Makes the header fit the records: length, no compression, count, checksum.
fn seal(batch: &mut [u8], count: i32) {
    const COMPRESSION_BITS: u8 = 0b111;
    let length = i32::try_from(batch.len() - 12).expect("a batch does not grow by losing records");
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[22] &= !COMPRESSION_BITS;
    batch[57..HEADER_SIZE].copy_from_slice(&count.to_be_bytes());
    let checksum = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&checksum.to_be_bytes());
}
