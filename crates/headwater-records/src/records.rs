//! The records of one batch, read one by one as slices of it.

use bytes::Bytes;

use crate::error::{Position, RecordsError};
use crate::header::{BatchHeader, TimestampType};
use crate::record::Header;
use decode::{Decoded, Fault, FaultKind, Wrong};

mod decode;

/// The records of one batch, checked and decompressed.
///
/// A clone shares the bytes.
#[derive(Clone, Debug)]
pub struct BatchRecords {
    header: BatchHeader,
    records: Bytes,
    origin: Position,
}

impl BatchRecords {
    pub(crate) fn new(header: BatchHeader, records: Bytes, origin: Position) -> Self {
        Self { header, records, origin }
    }

    /// The header of the batch.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The bytes that keys, values and headers are slices of: `bytes().slice_ref(key)` keeps a
    /// key for longer than the borrow, without a copy. It pins what the slice belongs to: the
    /// fetched buffer, or for a compressed batch the decompressed records.
    pub fn bytes(&self) -> &Bytes {
        &self.records
    }

    /// The records from the first.
    pub fn iter(&self) -> Records<'_> {
        Records { records: self, cursor: Cursor::default() }
    }

    /// A place before the first record that does not borrow these records, to be kept between
    /// two slices of work.
    pub fn cursor(&self) -> Cursor {
        Cursor::default()
    }

    #[inline]
    fn view<'a>(&'a self, record: Decoded<'a>) -> RecordRef<'a> {
        RecordRef {
            offset: self.header.base_offset + i64::from(record.offset_delta),
            timestamp: match self.header.timestamp_type {
                // Wraps as Kafka's arithmetic does, so that every timestamp can be written.
                TimestampType::CreateTime => {
                    self.header.base_timestamp.wrapping_add(record.timestamp_delta)
                }
                TimestampType::LogAppendTime => self.header.max_timestamp,
            },
            key: record.key,
            value: record.value,
            headers: HeadersRef { count: record.header_count, bytes: record.headers },
        }
    }

    #[cold]
    fn error(&self, fault: Fault) -> RecordsError {
        let at = |byte: usize| match self.origin.decompressed {
            None => Position::in_buffer(self.origin.buffer + byte),
            Some(_) => Position { buffer: self.origin.buffer, decompressed: Some(byte) },
        };
        let Fault { byte, field, kind } = fault;
        let position = at(byte);
        match kind {
            FaultKind::CutOff => RecordsError::CutOff { position, field },
            FaultKind::TooLong => RecordsError::Varint { position, field },
            FaultKind::Value(value) => RecordsError::Field { position, field, value },
            FaultKind::LeftOver(count) => RecordsError::LeftOver { position, count },
            FaultKind::HeaderName { offset_delta } => RecordsError::HeaderName {
                position,
                offset: self.header.base_offset.wrapping_add(i64::from(offset_delta)),
            },
        }
    }
}

impl<'a> IntoIterator for &'a BatchRecords {
    type Item = Result<RecordRef<'a>, RecordsError>;
    type IntoIter = Records<'a>;

    fn into_iter(self) -> Records<'a> {
        self.iter()
    }
}

/// A record, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordRef<'a> {
    /// The record's offset in its partition.
    pub offset: i64,
    /// Milliseconds since 1970, −1 for none; the time of the append if the topic says so.
    pub timestamp: i64,
    /// The key; `None` is Kafka's null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is Kafka's null.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: HeadersRef<'a>,
}

/// The headers of a record: checked when the record is read, taken apart only when asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadersRef<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> HeadersRef<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The headers, in order.
    pub fn iter(&self) -> HeadersIter<'a> {
        HeadersIter { rest: self.bytes }
    }
}

impl<'a> IntoIterator for &HeadersRef<'a> {
    type Item = Header<'a>;
    type IntoIter = HeadersIter<'a>;

    fn into_iter(self) -> HeadersIter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for HeadersRef<'a> {
    type Item = Header<'a>;
    type IntoIter = HeadersIter<'a>;

    fn into_iter(self) -> HeadersIter<'a> {
        self.iter()
    }
}

/// The headers of a record, one by one.
#[derive(Clone, Debug)]
pub struct HeadersIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for HeadersIter<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        decode::next_header(&mut self.rest)
    }
}

/// The records of a batch, one by one, borrowed from it.
///
/// After an error the iteration ends, save after [`RecordsError::HeaderName`]: there the next
/// record can still be found.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    records: &'a BatchRecords,
    cursor: Cursor,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RecordRef<'a>, RecordsError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.cursor.next(self.records)
    }
}

/// A place in the records of a batch that does not borrow them, so that a task can process some,
/// pause and go on. It must always be given the same records.
///
/// A clone looks ahead: it goes past records while this one stays.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    /// First byte not read yet.
    byte: usize,
    /// Records read.
    read: u32,
    /// The smallest relative offset that the next record may have.
    least_offset_delta: i32,
    ended: bool,
}

impl Cursor {
    /// The next record, going past it; `None` after the last one.
    ///
    /// # Errors
    /// If the record is cut off or lies, with the place in the buffer. The cursor then is at its
    /// end, save after [`RecordsError::HeaderName`]: there it goes on with the next record.
    #[inline]
    pub fn next<'a>(
        &mut self,
        records: &'a BatchRecords,
    ) -> Option<Result<RecordRef<'a>, RecordsError>> {
        match self.usual(records) {
            Some(record) => Some(Ok(record)),
            // Taken apart, so that the usual record can stay in registers.
            None => match self.any(records) {
                Some(Ok(RecordRef { offset, timestamp, key, value, headers })) => {
                    Some(Ok(RecordRef { offset, timestamp, key, value, headers }))
                }
                other => other,
            },
        }
    }

    /// The byte of the records at which the next one begins.
    pub(crate) fn byte(&self) -> usize {
        self.byte
    }

    /// Records that this cursor has not gone past yet, as the batch announces them.
    pub fn remaining(&self, records: &BatchRecords) -> u32 {
        if self.ended { 0 } else { records.header.record_count - self.read }
    }

    /// The next record, if it is of the kind that nearly all are; else nothing has happened.
    #[inline]
    fn usual<'a>(&mut self, records: &'a BatchRecords) -> Option<RecordRef<'a>> {
        if self.ended || self.read == records.header.record_count {
            return None;
        }
        let record = decode::usual(&records.records, self.byte)?;
        if !self.may_follow(records, record.offset_delta) {
            return None;
        }
        Some(self.pass(records, record))
    }

    /// The next record of whatever kind.
    #[inline(never)]
    fn any<'a>(
        &mut self,
        records: &'a BatchRecords,
    ) -> Option<Result<RecordRef<'a>, RecordsError>> {
        if self.ended {
            return None;
        }
        if self.read == records.header.record_count {
            return self.end(records).map(Err);
        }
        match decode::record::<Wrong>(&records.records, self.byte) {
            Ok(record) if self.may_follow(records, record.offset_delta) => {
                Some(Ok(self.pass(records, record)))
            }
            _ => {
                self.read += 1;
                Some(Err(self.fail(records)))
            }
        }
    }

    #[inline]
    fn pass<'a>(&mut self, records: &'a BatchRecords, record: Decoded<'a>) -> RecordRef<'a> {
        self.read += 1;
        self.byte = record.end;
        self.least_offset_delta = record.offset_delta.saturating_add(1);
        records.view(record)
    }

    /// Offsets grow within the batch and stay within what it announces, gaps allowed.
    #[inline]
    fn may_follow(&self, records: &BatchRecords, offset_delta: i32) -> bool {
        let last = records.header.last_offset - records.header.base_offset;
        offset_delta >= self.least_offset_delta && i64::from(offset_delta) <= last
    }

    /// Says what is wrong with the record at hand, and goes on behind it if that can be.
    #[cold]
    fn fail(&mut self, records: &BatchRecords) -> RecordsError {
        let fault = match decode::record::<Fault>(&records.records, self.byte) {
            Err(fault) => fault,
            Ok(record) => Fault {
                byte: self.byte,
                field: "relative offset",
                kind: FaultKind::Value(i64::from(record.offset_delta)),
            },
        };
        match (fault.kind, decode::skip(&records.records, self.byte)) {
            (FaultKind::HeaderName { .. }, Some(end)) => self.byte = end,
            _ => self.ended = true,
        }
        records.error(fault)
    }

    #[cold]
    fn end(&mut self, records: &BatchRecords) -> Option<RecordsError> {
        self.ended = true;
        let count = records.records.len() - self.byte;
        let kind = FaultKind::LeftOver(count);
        (count > 0).then(|| records.error(Fault { byte: self.byte, field: "batch", kind }))
    }
}
