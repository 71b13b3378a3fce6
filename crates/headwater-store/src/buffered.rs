//! How updates and records that wait in a buffer are written, with the context they came in (feature row
//! P16). All numbers are big endian.
//!
//! | what | bytes |
//! |---|---|
//! | context | timestamp (8), offset (8), topic, partition (4), number of headers (4), for each header name and value |
//! | buffered value | context, prior value, old value, new value, time in the buffer (8) |
//!
//! Texts and values have their length (4) in front; −1 is null. −2 as the length of the old value says
//! that it is the prior one.

#[cfg(test)]
mod tests;

use std::str;

const NULL: i32 = -1;
const SAME_AS_PRIOR: i32 = -2;

/// Why bytes are no buffered value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferedError {
    /// They end too early.
    #[error("{bytes} bytes are too few")]
    TooShort {
        /// How many there are.
        bytes: usize,
    },
    /// A length is negative where it must not be.
    #[error("there is a length of {length}")]
    Length {
        /// The length.
        length: i32,
    },
    /// The topic or a header's name is no text.
    #[error("a name is not UTF-8")]
    NotText,
}

/// Where a record came from, as far as it is kept with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferedContext<'b> {
    /// Its timestamp.
    pub timestamp: i64,
    /// Its offset.
    pub offset: i64,
    /// Its topic; empty for none.
    pub topic: &'b str,
    /// Its partition.
    pub partition: i32,
    /// Its headers, checked when they were read: see [`headers`](Self::headers).
    headers: &'b [u8],
}

impl<'b> BufferedContext<'b> {
    /// Appends a context.
    ///
    /// # Panics
    /// When it has a name or a value of 2 GiB or more, which no record can hold.
    pub fn write<'h>(
        (timestamp, offset): (i64, i64),
        (topic, partition): (&str, i32),
        headers: impl Iterator<Item = (&'h str, Option<&'h [u8]>)> + Clone,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(&timestamp.to_be_bytes());
        out.extend_from_slice(&offset.to_be_bytes());
        push(Some(topic.as_bytes()), out);
        out.extend_from_slice(&partition.to_be_bytes());
        push_length(headers.clone().count(), out);
        for (name, value) in headers {
            push(Some(name.as_bytes()), out);
            push(value, out);
        }
    }

    fn read(bytes: &mut Bytes<'b>) -> Result<Self, BufferedError> {
        let timestamp = bytes.long()?;
        let offset = bytes.long()?;
        let topic = bytes.text()?;
        let partition = bytes.int()?;
        let all = bytes.rest;
        // Versions before 2.3 of Kafka Streams wrote −1 for no headers.
        for _ in 0..bytes.int()?.max(0) {
            bytes.text()?;
            bytes.value()?;
        }
        let headers = &all[..all.len() - bytes.rest.len()];
        Ok(Self { timestamp, offset, topic, partition, headers })
    }

    /// Its headers in order.
    pub fn headers(&self) -> impl Iterator<Item = (&'b str, Option<&'b [u8]>)> + Clone + use<'b> {
        let mut bytes = Bytes { rest: self.headers, length: self.headers.len() };
        let count = bytes.int().unwrap_or_default();
        (0..count).map_while(move |_| Some((bytes.text().ok()?, bytes.value().ok()?)))
    }
}

/// An update or a record that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferedValue<'b> {
    /// Where it came from.
    pub context: BufferedContext<'b>,
    /// The value that was last sent on.
    pub prior: Option<&'b [u8]>,
    /// The value before the update.
    pub old: Option<&'b [u8]>,
    /// The value after it.
    pub new: Option<&'b [u8]>,
    /// Its time in the buffer.
    pub buffer_time: i64,
}

impl<'b> BufferedValue<'b> {
    /// Appends what follows the context.
    pub fn write_values(
        prior: Option<&[u8]>,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
        buffer_time: i64,
        out: &mut Vec<u8>,
    ) {
        push(prior, out);
        if old.is_some() && old == prior {
            out.extend_from_slice(&SAME_AS_PRIOR.to_be_bytes());
        } else {
            push(old, out);
        }
        push(new, out);
        out.extend_from_slice(&buffer_time.to_be_bytes());
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`BufferedError`].
    pub fn read(bytes: &'b [u8]) -> Result<Self, BufferedError> {
        Self::split(bytes).map(|(value, _)| value)
    }

    /// Reads it from the front of bytes, and answers what comes behind it.
    fn split(bytes: &'b [u8]) -> Result<(Self, &'b [u8]), BufferedError> {
        let mut bytes = Bytes { rest: bytes, length: bytes.len() };
        let context = BufferedContext::read(&mut bytes)?;
        let prior = bytes.value()?;
        let old = match bytes.int()? {
            SAME_AS_PRIOR => prior,
            length => bytes.value_of(length)?,
        };
        let (new, buffer_time) = (bytes.value()?, bytes.long()?);
        Ok((Self { context, prior, old, new, buffer_time }, bytes.rest))
    }

    /// How many bytes it counts for in a buffer of limited size, without its key (feature row P16).
    pub fn resident_bytes(&self) -> usize {
        let values = [self.prior, self.old.filter(|_| self.old != self.prior), self.new];
        let values: usize = values.into_iter().flatten().map(<[u8]>::len).sum();
        // Java counts UTF-16 units.
        let length = |text: &str| text.encode_utf16().count();
        let headers = self.context.headers();
        let headers = headers.map(|(name, value)| length(name) + value.map_or(0, <[u8]>::len));
        values + 8 + 8 + 4 + length(self.context.topic) + headers.sum::<usize>()
    }
}

/// An update that waits where stores keep headers (KIP-1271): behind it are timestamp and headers of the value before
/// it, which the changelog has in its record. The store has them behind the value, the changelog has not.
#[derive(Clone, Copy, Debug)]
pub struct BufferedValueWithHeaders<'b> {
    /// The update.
    pub value: BufferedValue<'b>,
    behind: &'b [u8],
    length: usize,
}

/// No headers, and the timestamp −1: what Kafka Streams takes those of a value for that it did not buffer itself.
const UNKNOWN: &[u8] = &[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];

impl<'b> BufferedValueWithHeaders<'b> {
    /// Reads it as the store has it, or as the changelog has it.
    ///
    /// # Errors
    /// [`BufferedError`].
    pub fn read(bytes: &'b [u8]) -> Result<Self, BufferedError> {
        let (value, behind) = BufferedValue::split(bytes)?;
        Ok(Self { value, behind, length: bytes.len() })
    }

    /// Appends what comes behind an update that takes the place of this one: whose old value is this one's new one.
    pub fn push_behind(&self, out: &mut Vec<u8>) {
        if self.value.new.is_some() {
            crate::push_headers(self.value.context.headers(), out);
            out.extend_from_slice(&self.value.context.timestamp.to_be_bytes());
        }
    }

    /// How many of the bytes are logged.
    pub const fn logged_bytes(&self) -> usize {
        self.length - self.behind.len()
    }

    const fn behind(&self) -> &'b [u8] {
        if self.behind.is_empty() { UNKNOWN } else { self.behind }
    }

    fn prior_is_old(&self) -> bool {
        self.value.prior == self.value.old && self.behind() == UNKNOWN
    }

    /// Headers and timestamp of the prior value; `None` without one, and where it is the old one.
    pub fn headers_of_prior(&self) -> Option<&'b [u8]> {
        self.value.prior.filter(|_| !self.prior_is_old()).map(|_| UNKNOWN)
    }

    /// Headers and timestamp of the old value; `None` without one.
    pub fn headers_of_old(&self) -> Option<&'b [u8]> {
        self.value.old.map(|_| self.behind())
    }

    /// How many bytes it counts for in a buffer of limited size, without its key: headers and timestamps of its values
    /// count too.
    pub fn resident_bytes(&self) -> usize {
        let BufferedValue { context, prior, old, new, .. } = &self.value;
        let both = if self.prior_is_old() { None } else { *prior };
        let length = |value: Option<&[u8]>, more: usize| value.map_or(0, |it| it.len() + more);
        let headers = crate::headers::headers_length(context.headers());
        // Of the plain form only what is not a value.
        let plain = BufferedValue { prior: None, old: None, new: None, ..self.value };
        plain.resident_bytes()
            + length(both, UNKNOWN.len())
            + length(*old, self.behind().len())
            + length(*new, headers + 8)
    }
}

fn push_length(length: usize, out: &mut Vec<u8>) {
    let length = i32::try_from(length).expect("less than 2 GiB");
    out.extend_from_slice(&length.to_be_bytes());
}

fn push(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    match bytes {
        Some(bytes) => {
            push_length(bytes.len(), out);
            out.extend_from_slice(bytes);
        }
        None => out.extend_from_slice(&NULL.to_be_bytes()),
    }
}

/// What is left to read.
#[derive(Clone)]
struct Bytes<'b> {
    rest: &'b [u8],
    length: usize,
}

impl<'b> Bytes<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], BufferedError> {
        let too_short = BufferedError::TooShort { bytes: self.length };
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(too_short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BufferedError> {
        let too_short = BufferedError::TooShort { bytes: self.length };
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(too_short)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn long(&mut self) -> Result<i64, BufferedError> {
        self.array().map(i64::from_be_bytes)
    }

    fn int(&mut self) -> Result<i32, BufferedError> {
        self.array().map(i32::from_be_bytes)
    }

    fn value_of(&mut self, length: i32) -> Result<Option<&'b [u8]>, BufferedError> {
        match usize::try_from(length) {
            Ok(length) => self.take(length).map(Some),
            Err(_) if length == NULL => Ok(None),
            Err(_) => Err(BufferedError::Length { length }),
        }
    }

    fn value(&mut self) -> Result<Option<&'b [u8]>, BufferedError> {
        let length = self.int()?;
        self.value_of(length)
    }

    fn text(&mut self) -> Result<&'b str, BufferedError> {
        let bytes = self.value()?.ok_or(BufferedError::Length { length: NULL })?;
        str::from_utf8(bytes).map_err(|_| BufferedError::NotText)
    }
}
