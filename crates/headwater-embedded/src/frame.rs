//! What is needed of a batch to find it, place it and know its producer: the fields of the
//! header at their fixed places, without the records.

use std::io;

/// Bytes of a batch before its records.
pub(crate) const HEADER_SIZE: usize = 61;
/// Bytes before those that the length field counts.
const LENGTH_END: usize = 12;
const MAGIC: u8 = 2;

/// A batch in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) base_offset: i64,
    pub(crate) last_offset: i64,
    /// All bytes of the batch.
    pub(crate) size: usize,
    pub(crate) max_timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequence: i32,
}

impl Frame {
    /// Reads the header of the batch that `bytes` begin with.
    pub(crate) fn read(bytes: &[u8]) -> io::Result<Self> {
        let header = bytes.first_chunk::<HEADER_SIZE>().ok_or_else(|| damaged("a header"))?;
        let base_offset = i64::from_be_bytes(field(header, 0));
        let length = i32::from_be_bytes(field(header, 8));
        let last_offset_delta = i32::from_be_bytes(field(header, 23));
        let size = usize::try_from(length).map_err(|_| damaged("a batch length"))? + LENGTH_END;
        if header[16] != MAGIC || size < HEADER_SIZE || last_offset_delta < 0 || base_offset < 0 {
            return Err(damaged("a batch of format version 2"));
        }
        Ok(Self {
            base_offset,
            last_offset: base_offset + i64::from(last_offset_delta),
            size,
            max_timestamp: i64::from_be_bytes(field(header, 35)),
            producer_id: i64::from_be_bytes(field(header, 43)),
            producer_epoch: i16::from_be_bytes(field(header, 51)),
            base_sequence: i32::from_be_bytes(field(header, 53)),
        })
    }
}

fn field<const N: usize>(header: &[u8; HEADER_SIZE], start: usize) -> [u8; N] {
    *header[start..].first_chunk().expect("the fields lie within the header")
}

fn damaged(expected: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("expected {expected} there"))
}

/// How many bytes of `bytes` are whole batches within `limit` bytes; the first batch counts even if
/// it is larger.
pub(crate) fn whole_batches(bytes: &[u8], limit: usize) -> io::Result<usize> {
    let mut end = 0;
    while let Some(rest) = bytes.get(end..).filter(|rest| rest.len() >= HEADER_SIZE) {
        let next = end + Frame::read(rest)?.size;
        if next > bytes.len() || (end > 0 && next > limit) {
            break;
        }
        end = next;
    }
    Ok(end)
}
