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
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) header_count: u32,
    /// The headers, their count not among them: the end of the record.
    pub(super) headers: &'a [u8],
    /// The byte after the record.
    pub(super) end: usize,
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

/// The record at `byte` of `records`, if it is of the kind that nearly all are: without headers, each
/// number in at most two bytes, and nothing wrong with it. All others are for [`record`].
#[inline]
pub(super) fn usual(records: &[u8], byte: usize) -> Option<Decoded<'_>> {
    const ATTRIBUTES: usize = 1;
    let mut numbers = Numbers::at(records, byte)?;
    let length = numbers.length()?.known()?;
    let start = byte + numbers.taken;
    let end = start + length;
    let mut numbers = Numbers::at(records, start + ATTRIBUTES)?;
    let timestamp_delta = numbers.signed()?;
    let offset_delta = i32::try_from(numbers.signed()?).ok()?;
    let key_length = numbers.length()?.known();
    let key_start = start + ATTRIBUTES + numbers.taken;
    let key_end = key_start + key_length.unwrap_or(0);
    let mut numbers = Numbers::at(records, key_end)?;
    let value_length = numbers.length()?.known();
    let value_start = key_end + numbers.taken;
    let value_end = value_start + value_length.unwrap_or(0);
    // A header count of zero ends the record.
    if value_end + 1 != end || *records.get(value_end)? != 0 {
        return None;
    }
    let (key, value) = (records.get(key_start..key_end)?, records.get(value_start..value_end)?);
    Some(Decoded {
        timestamp_delta,
        offset_delta,
        key: key_length.map(|_| key),
        value: value_length.map(|_| value),
        header_count: 0,
        headers: &[],
        end,
    })
}

/// Eight bytes ahead, to take short numbers from without looking at every byte's place.
struct Numbers {
    ahead: u64,
    taken: usize,
}

impl Numbers {
    /// Three numbers of two bytes fit.
    #[inline]
    fn at(records: &[u8], byte: usize) -> Option<Self> {
        let ahead = records.get(byte..)?.first_chunk()?;
        Some(Self { ahead: u64::from_le_bytes(*ahead), taken: 0 })
    }

    /// The next number in its zigzag form, if it has at most two bytes.
    #[inline]
    fn zigzag(&mut self) -> Option<u64> {
        let ahead = self.ahead;
        if ahead & 0x80 == 0 {
            self.ahead >>= 8;
            self.taken += 1;
            Some(ahead & 0x7f)
        } else if ahead & 0x8000 == 0 {
            self.ahead >>= 16;
            self.taken += 2;
            Some(ahead & 0x7f | ahead >> 1 & 0x3f80)
        } else {
            None
        }
    }

    #[inline]
    fn signed(&mut self) -> Option<i64> {
        let zigzag = self.zigzag()?;
        Some((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    #[inline]
    fn length(&mut self) -> Option<Length> {
        const NULL: u64 = 1;
        match self.zigzag()? {
            NULL => Some(Length::Null),
            zigzag if zigzag & 1 == 0 => Some(Length::Known(usize::try_from(zigzag >> 1).ok()?)),
            _ => None,
        }
    }
}

/// A length as a batch has it: −1 is that of null.
#[derive(Clone, Copy)]
enum Length {
    Null,
    Known(usize),
}

impl Length {
    #[inline]
    fn known(self) -> Option<usize> {
        match self {
            Self::Null => None,
            Self::Known(length) => Some(length),
        }
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
    fn nullable<E: From<Fault>>(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, E> {
        let byte = self.at;
        let length = self.i32(field)?;
        match usize::try_from(length) {
            Ok(length) => self.take(length, field).map(Some),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(fault(byte, field, FaultKind::Value(i64::from(length)))),
        }
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
        let value = self.nullable("header value")?;
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
