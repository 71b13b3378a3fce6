//! Requests and answers as bytes: encoding, and decoding that believes no length.
//!
//! kafka-protocol reserves room for as many elements as an array says it has, before it has read
//! one. A length that lies would end the process. So the decoder reads through [`Guarded`], which
//! refuses a length that the rest of the answer cannot hold.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut, TryGetError};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::buf::ByteBuf;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

/// A request ready for the wire: length, header and body in `head`, which may be continued by
/// `rest` without a copy. The correlation id is stamped when it is sent.
pub(crate) struct Frame {
    /// Begins with the length of all that follows it, `rest` included.
    head: BytesMut,
    /// What follows.
    rest: Vec<Bytes>,
}

// What is said to prove who a client is is in it.
impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.head.len() + self.rest.iter().map(Bytes::len).sum::<usize>();
        f.debug_struct("Frame").field("bytes", &bytes).finish_non_exhaustive()
    }
}

/// Where the correlation id stands: after length, API key and version.
const CORRELATION_ID_AT: usize = 8;

impl Frame {
    /// Encodes a request.
    ///
    /// # Errors
    /// What cannot be said in this version.
    pub(crate) fn encode<R: Request>(
        request: &R,
        version: i16,
        client_id: &StrBytes,
    ) -> Result<Self, String> {
        let mut builder = FrameBuilder::new::<R>(version, client_id)?;
        request.encode(builder.buffer(), version).map_err(|error| error.to_string())?;
        Ok(builder.finish())
    }

    /// The bytes, with this correlation id.
    pub(crate) fn stamped(mut self, correlation_id: i32) -> impl Iterator<Item = Bytes> {
        self.head[CORRELATION_ID_AT..CORRELATION_ID_AT + 4]
            .copy_from_slice(&correlation_id.to_be_bytes());
        std::iter::once(self.head.freeze()).chain(self.rest)
    }
}

/// A request in the making, for bodies with bytes in them that are not to be copied.
pub(crate) struct FrameBuilder {
    /// The first piece, once it is complete.
    head: Option<BytesMut>,
    rest: Vec<Bytes>,
    /// The piece being written.
    open: BytesMut,
}

impl FrameBuilder {
    /// Writes the header; the body is to follow.
    ///
    /// # Errors
    /// What cannot be said in this version.
    pub(crate) fn new<R: Request>(version: i16, client_id: &StrBytes) -> Result<Self, String> {
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_client_id(Some(client_id.clone()));
        let mut open = BytesMut::with_capacity(HEAD_BYTES);
        open.put_i32(0);
        header.encode(&mut open, R::header_version(version)).map_err(|error| error.to_string())?;
        Ok(Self { head: None, rest: Vec::new(), open })
    }

    /// Where the next bytes of the body go.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.open
    }

    /// Puts these bytes next, as they are.
    pub(crate) fn put_shared(&mut self, bytes: Bytes) {
        self.close_piece();
        self.rest.push(bytes);
    }

    /// The request, with its length.
    pub(crate) fn finish(mut self) -> Frame {
        self.close_piece();
        let mut head = self.head.unwrap_or_default();
        let size = head.len() - 4 + self.rest.iter().map(Bytes::len).sum::<usize>();
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        head[..4].copy_from_slice(&size.to_be_bytes());
        Frame { head, rest: self.rest }
    }

    fn close_piece(&mut self) {
        let piece = self.open.split();
        match self.head {
            None => self.head = Some(piece),
            Some(_) if piece.is_empty() => {}
            Some(_) => self.rest.push(piece.freeze()),
        }
    }
}

/// Room for a header and a small body.
const HEAD_BYTES: usize = 128;

/// The correlation id an answer begins with, if it is that long.
pub(crate) fn correlation_id(answer: &Bytes) -> Option<i32> {
    answer.first_chunk().map(|bytes| i32::from_be_bytes(*bytes))
}

/// Reads an answer of a request of type `R`. Byte fields of the result are slices of `answer`.
///
/// # Errors
/// What is wrong with the bytes.
pub(crate) fn decode<R: Request>(answer: Bytes, version: i16) -> Result<R::Response, String> {
    let header_version = R::Response::header_version(version);
    // ApiVersions answers have the old header in all versions, so that anybody can read them.
    let flexible = header_version >= 1 || R::header_version(version) >= 2;
    if !flexible {
        // Lengths of the old encoding are plain 32-bit integers, which cannot be told from data.
        // With every integer cut down to just more than the rest can hold, a length that lied makes
        // the reading run out of bytes, and all else reads alike.
        read::<R::Response>(
            Guarded::new(answer.clone(), Integers::CutDown),
            header_version,
            version,
        )?;
    }
    read(Guarded::new(answer, Integers::AsTheyAre), header_version, version)
}

fn read<T: Decodable>(mut from: Guarded, header_version: i16, version: i16) -> Result<T, String> {
    ResponseHeader::decode(&mut from, header_version).map_err(|error| error.to_string())?;
    let body = T::decode(&mut from, version).map_err(|error| error.to_string())?;
    if from.has_remaining() {
        return Err(format!("{} bytes follow its end", from.remaining()));
    }
    Ok(body)
}

/// What a reader is told of 32-bit integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Integers {
    AsTheyAre,
    CutDown,
}

/// Bytes to decode from that refuse lengths beyond their end.
///
/// In the flexible encodings (KIP-482) every variable-length integer is a length, a count or a
/// tag. Lengths and counts are below the number of bytes that follow, so each of them is looked at
/// as a whole before its first byte is given out. Not so those of one byte: a tag may be larger than
/// what little follows it, and a lie that small costs little.
struct Guarded {
    bytes: Bytes,
    integers: Integers,
    /// Bytes of the present variable-length integer that are still to come.
    of_checked: usize,
}

impl Guarded {
    fn new(bytes: Bytes, integers: Integers) -> Self {
        Self { bytes, integers, of_checked: 0 }
    }

    /// Looks at the variable-length integer that begins here.
    fn check_length(&mut self) -> Result<(), TryGetError> {
        let mut value = 0_u64;
        let mut size = 0;
        for byte in self.bytes.iter().take(5) {
            value |= u64::from(byte & 0x7f) << (7 * size);
            size += 1;
            if *byte < 0x80 {
                break;
            }
        }
        let available = self.bytes.len() - size;
        // Compact lengths are one more than what they count.
        let requested = usize::try_from(value.saturating_sub(1)).unwrap_or(usize::MAX);
        if requested > available && size > 1 {
            return Err(TryGetError { requested, available });
        }
        self.of_checked = size;
        Ok(())
    }
}

impl Buf for Guarded {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }

    fn try_get_u8(&mut self) -> Result<u8, TryGetError> {
        if self.of_checked == 0 {
            self.check_length()?;
        }
        self.of_checked = self.of_checked.saturating_sub(1);
        self.bytes.try_get_u8()
    }

    fn try_get_i32(&mut self) -> Result<i32, TryGetError> {
        let value = self.bytes.try_get_i32()?;
        match self.integers {
            Integers::AsTheyAre => Ok(value),
            // One more than there can be, so that also a count with nothing behind it is found out.
            Integers::CutDown => {
                Ok(value.min(i32::try_from(self.bytes.len() + 1).unwrap_or(i32::MAX)))
            }
        }
    }
}

impl ByteBuf for Guarded {
    fn peek_bytes(&mut self, range: std::ops::Range<usize>) -> Bytes {
        self.bytes.peek_bytes(range)
    }

    fn get_bytes(&mut self, size: usize) -> Bytes {
        self.bytes.get_bytes(size)
    }
}

#[cfg(test)]
mod tests;
