//! Taking one record apart: where its fields lie, and what can be wrong with it.

use std::ops::Range;

use crate::record::Header;
use crate::varint;

/// A header has at least the lengths of its name and value.
const MIN_HEADER: usize = 2;

/// A range of the records of a batch, which are below 4 GiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    #[inline]
    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Where the fields of a record lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
    pub(super) header_count: u32,
    pub(super) key: Option<Span>,
    pub(super) value: Option<Span>,
    pub(super) headers: Span,
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

/// The record at `byte` of `records`, and the byte after it.
#[inline]
pub(super) fn record(records: &[u8], byte: usize) -> Result<(Fields, usize), Fault> {
    let mut reader = Reader { rest: records.get(byte..).unwrap_or_default(), end: records.len() };
    let length = reader.length("length")?;
    let body = reader.bytes(length, "body")?;
    let end = reader.byte();
    let mut body = Reader { rest: body, end };
    body.bytes(1, "attributes")?;
    let timestamp_delta = body.i64("relative timestamp")?;
    let offset_delta = body.i32("relative offset")?;
    let key = body.nullable("key")?;
    let value = body.nullable("value")?;
    let header_count = body.header_count()?;
    let headers = body.span(body.rest.len());
    if header_count > 0 {
        body.headers(header_count, offset_delta)?;
    }
    if !body.rest.is_empty() {
        return Err(body.fault("end", FaultKind::LeftOver(body.rest.len())));
    }
    Ok((Fields { timestamp_delta, offset_delta, header_count, key, value, headers }, end))
}

/// The byte after the record at `byte`, whatever is in it.
pub(super) fn skip(records: &[u8], byte: usize) -> Option<usize> {
    let mut rest = records.get(byte..)?;
    let length = usize::try_from(varint::take_i32(&mut rest).ok()?).ok()?;
    let rest = rest.get(length..)?;
    Some(records.len() - rest.len())
}

/// The first of the checked headers in `rest`.
pub(super) fn next_header<'a>(rest: &mut &'a [u8]) -> Option<Header<'a>> {
    if rest.is_empty() {
        return None;
    }
    let mut reader = Reader { end: rest.len(), rest };
    let header = reader.header(0).expect("the headers were checked when the record was read");
    *rest = reader.rest;
    Some(header)
}

/// Takes fields off the front of `rest`, which ends at byte `end` of the records.
struct Reader<'a> {
    rest: &'a [u8],
    end: usize,
}

impl<'a> Reader<'a> {
    /// The next byte's place in the records.
    #[inline]
    fn byte(&self) -> usize {
        self.end - self.rest.len()
    }

    #[inline]
    fn i32(&mut self, field: &'static str) -> Result<i32, Fault> {
        varint::take_i32(&mut self.rest).map_err(|fault| self.varint_fault(field, fault))
    }

    #[inline]
    fn i64(&mut self, field: &'static str) -> Result<i64, Fault> {
        varint::take_i64(&mut self.rest).map_err(|fault| self.varint_fault(field, fault))
    }

    /// A length that must not be negative.
    #[inline]
    fn length(&mut self, field: &'static str) -> Result<usize, Fault> {
        let before = self.rest;
        let length = self.i32(field)?;
        usize::try_from(length).map_err(|_| {
            self.rest = before;
            self.fault(field, FaultKind::Value(i64::from(length)))
        })
    }

    #[inline]
    fn bytes(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], Fault> {
        match self.rest.split_at_checked(length) {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(bytes)
            }
            None => Err(self.fault(field, FaultKind::CutOff)),
        }
    }

    /// The next `length` bytes as a span, without taking them.
    #[inline]
    fn span(&self, length: usize) -> Span {
        let place = |byte| u32::try_from(byte).expect("the records are below 2 GiB");
        Span { start: place(self.byte()), end: place(self.byte() + length) }
    }

    #[inline]
    fn nullable(&mut self, field: &'static str) -> Result<Option<Span>, Fault> {
        let Some(length) = self.nullable_length(field)? else { return Ok(None) };
        let start = self.byte();
        self.bytes(length, field)?;
        let place = |byte| u32::try_from(byte).expect("the records are below 2 GiB");
        Ok(Some(Span { start: place(start), end: place(self.byte()) }))
    }

    #[inline]
    fn nullable_length(&mut self, field: &'static str) -> Result<Option<usize>, Fault> {
        let before = self.rest;
        match self.i32(field)? {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).map_err(|_| {
                self.rest = before;
                self.fault(field, FaultKind::Value(i64::from(length)))
            }),
        }
    }

    #[inline]
    fn header_count(&mut self) -> Result<u32, Fault> {
        let before = self.rest;
        let count = self.i32("header count")?;
        match u32::try_from(count) {
            Ok(count) if count as usize <= self.rest.len() / MIN_HEADER => Ok(count),
            _ => {
                self.rest = before;
                Err(self.fault("header count", FaultKind::Value(i64::from(count))))
            }
        }
    }

    fn headers(&mut self, count: u32, offset_delta: i32) -> Result<(), Fault> {
        for _ in 0..count {
            self.header(offset_delta)?;
        }
        Ok(())
    }

    fn header(&mut self, offset_delta: i32) -> Result<Header<'a>, Fault> {
        let length = self.length("header name")?;
        let byte = self.byte();
        let name = self.bytes(length, "header name")?;
        let name = std::str::from_utf8(name).map_err(|_| Fault {
            byte,
            field: "header name",
            kind: FaultKind::HeaderName { offset_delta },
        })?;
        let value = match self.nullable_length("header value")? {
            Some(length) => Some(self.bytes(length, "header value")?),
            None => None,
        };
        Ok(Header { name, value })
    }

    #[cold]
    fn fault(&self, field: &'static str, kind: FaultKind) -> Fault {
        Fault { byte: self.byte(), field, kind }
    }

    #[cold]
    fn varint_fault(&self, field: &'static str, fault: varint::Fault) -> Fault {
        let kind = match fault {
            varint::Fault::CutOff => FaultKind::CutOff,
            varint::Fault::TooLong => FaultKind::TooLong,
        };
        self.fault(field, kind)
    }
}
