//! What is needed of a batch to find it, place it and know its producer: some of its header.

use std::error::Error;
use std::io;

use headwater_records::BatchHeader;

pub(crate) use headwater_records::HEADER_SIZE;

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
        let (header, size) = BatchHeader::read_first(bytes).map_err(damaged)?;
        if header.base_offset < 0 {
            let offset = header.base_offset;
            return Err(damaged(format!("a batch has the offset {offset}")));
        }
        Ok(Self {
            base_offset: header.base_offset,
            last_offset: header.last_offset,
            size,
            max_timestamp: header.max_timestamp,
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
        })
    }
}

fn damaged(what: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
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
