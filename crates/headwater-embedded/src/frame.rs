//! What is needed of a batch to find it, place it and know its producer: some of its header.

use std::error::Error;
use std::io;

use bytes::Bytes;
use headwater_records::{Batch, BatchHeader, ControlKind};

pub(crate) use headwater_records::HEADER_SIZE;

/// No log gets this far: what says so is damaged. Behind it there is room for all that is added.
pub(crate) const OFFSET_MAX: i64 = i64::MAX / 2;

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
    pub(crate) kind: FrameKind,
}

/// What a batch is to transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Of no transaction.
    Plain,
    /// Data of a transaction.
    Transactional,
    /// A marker that ends one.
    Control,
}

impl Frame {
    /// Reads the header of the batch that `bytes` begin with.
    pub(crate) fn read(bytes: &[u8]) -> io::Result<Self> {
        let frame = Self::read_anywhere(bytes)?;
        if frame.is_from(0) {
            return Ok(frame);
        }
        Err(damaged(format!("a batch has the offset {}", frame.base_offset)))
    }

    /// Whether it has this offset or a later one, and ends where a log can.
    pub(crate) const fn is_from(&self, offset: i64) -> bool {
        offset <= self.base_offset && self.last_offset <= OFFSET_MAX
    }

    /// As [`read`](Self::read), wherever the batch says that it lies: its checksum does not cover that.
    pub(crate) fn read_anywhere(bytes: &[u8]) -> io::Result<Self> {
        let (header, size) = BatchHeader::read_first(bytes).map_err(damaged)?;
        Ok(Self {
            base_offset: header.base_offset,
            last_offset: header.last_offset,
            size,
            max_timestamp: header.max_timestamp,
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            kind: match (header.is_control, header.is_transactional) {
                (true, _) => FrameKind::Control,
                (false, true) => FrameKind::Transactional,
                (false, false) => FrameKind::Plain,
            },
        })
    }
}

/// How the transaction ends whose marker this control batch is; `None` if it is no such marker.
pub(crate) fn marker(batch: Bytes) -> io::Result<Option<ControlKind>> {
    // A marker has a few bytes and is never compressed.
    let records = Batch::new(batch).and_then(|batch| batch.decompress(usize::from(u16::MAX)));
    for record in &records.map_err(damaged)? {
        if let Some(kind) = ControlKind::parse(&record.map_err(damaged)?).map_err(damaged)? {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}

fn damaged(what: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// How many bytes of `bytes` are whole batches within `limit` bytes, and the offset after them; the
/// first batch counts even if it is larger. Batches from `until` on do not count.
pub(crate) fn whole_batches(
    bytes: &[u8],
    limit: usize,
    until: i64,
) -> io::Result<(usize, Option<i64>)> {
    let (mut end, mut next_offset) = (0, None);
    while let Some(rest) = bytes.get(end..).filter(|rest| rest.len() >= HEADER_SIZE) {
        let frame = Frame::read(rest)?;
        let next = end + frame.size;
        if next > bytes.len() || (end > 0 && next > limit) || frame.base_offset >= until {
            break;
        }
        (end, next_offset) = (next, Some(frame.last_offset + 1));
    }
    Ok((end, next_offset))
}
