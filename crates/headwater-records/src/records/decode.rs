//! Taking one record apart: where its fields lie, and what can be wrong with it.

use crate::record::Header;
use crate::varint;

/// A header has at least the lengths of its name and value.
const MIN_HEADER: usize = 2;

/// A record taken apart.
#[derive(Clone, Copy)]
pub(super) struct Decoded<'a> {
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
    pub(super) key: Nullable<'a>,
    pub(super) value: Nullable<'a>,
    pub(super) header_count: u32,
    /// The headers, their count not among them: the end of the record.
    pub(super) headers: &'a [u8],
    /// The byte after the record.
    pub(super) end: usize,
}

/// Bytes that may be null, and where in the records they begin.
#[derive(Clone, Copy)]
pub(super) struct Nullable<'a> {
    pub(super) bytes: Option<&'a [u8]>,
    start: usize,
}

/// A record taken apart, kept without borrowing the records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    timestamp_delta: i64,
    offset_delta: i32,
    header_count: u32,
    key: Span,
    value: Span,
    headers_length: u32,
    end: u32,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    length: Option<u32>,
}

const OWN_RECORDS: &str = "a cursor is used with its own records";

impl Places {
    pub(super) fn of(record: &Decoded<'_>) -> Self {
        let span = |field: Nullable<'_>| Span {
            start: place(field.start),
            length: field.bytes.map(|bytes| place(bytes.len())),
        };
        Self {
            timestamp_delta: record.timestamp_delta,
            offset_delta: record.offset_delta,
            header_count: record.header_count,
            key: span(record.key),
            value: span(record.value),
            headers_length: place(record.headers.len()),
            end: place(record.end),
        }
    }

    pub(super) fn look_up(self, records: &[u8]) -> Decoded<'_> {
        let bytes = |start: u32, length: u32| {
            let start = start as usize;
            records.get(start..start + length as usize).expect(OWN_RECORDS)
        };
        let field = |span: Span| Nullable {
            bytes: span.length.map(|length| bytes(span.start, length)),
            start: span.start as usize,
        };
        Decoded {
            timestamp_delta: self.timestamp_delta,
            offset_delta: self.offset_delta,
            header_count: self.header_count,
            key: field(self.key),
            value: field(self.value),
            headers: bytes(self.end - self.headers_length, self.headers_length),
            end: self.end as usize,
        }
    }
}

/// Sizes and places in the records of a batch: those are below 2 GiB.
fn place(byte: usize) -> u32 {
    u32::try_from(byte).expect("the records of a batch are below 2 GiB")
}

/// What is wrong, and at which byte of the records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) byte: usize,
    pub(super) field: &'static str,
    pub(super) kind: FaultKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum FaultKind {
    CutOff,
    TooLong,
    Value(i64),
    LeftOver(usize),
    HeaderName { offset_delta: i32 },
}

/// Something is wrong. The path of every record asks no more than that, because a description
/// handed through every step would cost more than the steps; it is asked for by reading again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrong;

impl From<Fault> for Wrong {
    #[inline]
    fn from(_: Fault) -> Self {
        Self
    }
}

/// The record at `byte` of `records`. The error is [`Wrong`] or its description, a [`Fault`].
#[inline]
pub(super) fn record<E: From<Fault>>(records: &[u8], byte: usize) -> Result<Decoded<'_>, E> {
    let mut reader = Reader { bytes: records, at: byte };
    let length = reader.length("length")?;
    let start = reader.at;
    reader.take(length, "body")?;
    let end = reader.at;
    // From here on nothing is read behind the record's end.
    let mut reader = Reader { bytes: records.get(..end).unwrap_or_default(), at: start };
    reader.take(1, "attributes")?;
    let timestamp_delta = reader.i64("relative timestamp")?;
    let offset_delta = reader.i32("relative offset")?;
    let key = reader.nullable("key")?;
    let value = reader.nullable("value")?;
    let header_count = reader.header_count()?;
    let headers = reader.bytes.get(reader.at..).unwrap_or_default();
    if header_count > 0 {
        reader.headers(header_count, offset_delta)?;
    }
    if reader.at < end {
        return Err(fault(reader.at, "end", FaultKind::LeftOver(end - reader.at)));
    }
    Ok(Decoded { timestamp_delta, offset_delta, key, value, header_count, headers, end })
}

/// The byte after the record at `byte`, whatever is in it.
pub(super) fn skip(records: &[u8], byte: usize) -> Option<usize> {
    let mut reader = Reader { bytes: records, at: byte };
    let length = reader.length::<Wrong>("length").ok()?;
    reader.take::<Wrong>(length, "body").ok()?;
    Some(reader.at)
}

/// The first of the checked headers in `rest`.
pub(super) fn next_header<'a>(rest: &mut &'a [u8]) -> Option<Header<'a>> {
    if rest.is_empty() {
        return None;
    }
    let mut reader = Reader { bytes: rest, at: 0 };
    let header: Result<_, Fault> = reader.header(0);
    *rest = rest.get(reader.at..).unwrap_or_default();
    Some(header.expect("the headers were checked when the record was read"))
}

/// Takes fields of `bytes` from byte `at` on.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    fn i32<E: From<Fault>>(&mut self, field: &'static str) -> Result<i32, E> {
        varint::read_i32(self.bytes, &mut self.at).map_err(|fault| self.varint_fault(field, fault))
    }

    #[inline]
    fn i64<E: From<Fault>>(&mut self, field: &'static str) -> Result<i64, E> {
        varint::read_i64(self.bytes, &mut self.at).map_err(|fault| self.varint_fault(field, fault))
    }

    /// A length that must not be negative.
    #[inline]
    fn length<E: From<Fault>>(&mut self, field: &'static str) -> Result<usize, E> {
        let byte = self.at;
        let length = self.i32(field)?;
        usize::try_from(length).map_err(|_| fault(byte, field, FaultKind::Value(i64::from(length))))
    }

    /// The next `length` bytes, if there are as many.
    #[inline]
    fn take<E: From<Fault>>(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], E> {
        let end = self.at.wrapping_add(length);
        match self.bytes.get(self.at..end) {
            Some(bytes) => {
                self.at = end;
                Ok(bytes)
            }
            None => Err(fault(self.at, field, FaultKind::CutOff)),
        }
    }

    #[inline]
    fn nullable<E: From<Fault>>(&mut self, field: &'static str) -> Result<Nullable<'a>, E> {
        let byte = self.at;
        let length = self.i32(field)?;
        let start = self.at;
        let bytes = match usize::try_from(length) {
            Ok(length) => Some(self.take(length, field)?),
            Err(_) if length == -1 => None,
            Err(_) => return Err(fault(byte, field, FaultKind::Value(i64::from(length)))),
        };
        Ok(Nullable { bytes, start })
    }

    #[inline]
    fn header_count<E: From<Fault>>(&mut self) -> Result<u32, E> {
        const FIELD: &str = "header count";
        let byte = self.at;
        let count = self.i32(FIELD)?;
        match u32::try_from(count) {
            Ok(0) => Ok(0),
            Ok(count) if count as usize <= (self.bytes.len() - self.at) / MIN_HEADER => Ok(count),
            _ => Err(fault(byte, FIELD, FaultKind::Value(i64::from(count)))),
        }
    }

    fn headers<E: From<Fault>>(&mut self, count: u32, offset_delta: i32) -> Result<(), E> {
        for _ in 0..count {
            self.header(offset_delta)?;
        }
        Ok(())
    }

    fn header<E: From<Fault>>(&mut self, offset_delta: i32) -> Result<Header<'a>, E> {
        let length = self.length("header name")?;
        let byte = self.at;
        let name = self.take(length, "header name")?;
        let name = std::str::from_utf8(name)
            .map_err(|_| fault(byte, "header name", FaultKind::HeaderName { offset_delta }))?;
        let value = self.nullable("header value")?.bytes;
        Ok(Header { name, value })
    }

    #[inline]
    fn varint_fault<E: From<Fault>>(&self, field: &'static str, wrong: varint::Fault) -> E {
        let kind = match wrong {
            varint::Fault::CutOff => FaultKind::CutOff,
            varint::Fault::TooLong => FaultKind::TooLong,
        };
        fault(self.at, field, kind)
    }
}

#[inline]
fn fault<E: From<Fault>>(byte: usize, field: &'static str, kind: FaultKind) -> E {
    E::from(Fault { byte, field, kind })
}
