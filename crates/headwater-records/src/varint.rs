//! Kafka's variable-length numbers: zigzag, seven bits a byte, lowest first.

/// Longest form of a 32-bit number.
const MAX_VARINT: usize = 5;
/// Longest form of a 64-bit number.
const MAX_VARLONG: usize = 10;

/// Why a number could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    CutOff,
    TooLong,
}

/// A number in its variable-length form, kept in registers until it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Varint {
    /// The bytes, the first one lowest and zeros behind; beyond eight bytes the zigzag form.
    bits: u64,
    length: usize,
}

impl Varint {
    /// Bytes that [`put_to`](Self::put_to) needs room for, though it may use fewer.
    pub(crate) const ROOM: usize = MAX_VARLONG;
    /// Most bytes that are kept ready to be written at once.
    const READY: usize = size_of::<u64>();

    /// The number 0, a byte of zero.
    pub(crate) const ZERO: Self = Self { bits: 0, length: 1 };

    /// Bytes of a short number, and the highest zigzag form and length that are short.
    pub(crate) const SHORT: usize = 2;
    pub(crate) const MAX_SHORT: u64 = (1 << 14) - 1;
    pub(crate) const MAX_SHORT_LENGTH: usize = (1 << 13) - 1;

    /// A number of one or two bytes, by its zigzag form, which is at most [`MAX_SHORT`](Self::MAX_SHORT).
    #[inline]
    pub(crate) fn short(zigzag: u64) -> Self {
        debug_assert!(zigzag <= Self::MAX_SHORT, "{zigzag} is not short");
        if zigzag < 1 << 7 {
            Self { bits: zigzag, length: 1 }
        } else {
            Self { bits: zigzag & 0x7f | 0x80 | zigzag >> 7 << 8, length: 2 }
        }
    }

    /// This number and a short one behind it, to be written at once; no more than eight bytes.
    #[inline]
    pub(crate) fn then(self, short: Self) -> Self {
        debug_assert!(self.length + short.length <= Self::READY, "too long to be written at once");
        Self {
            bits: self.bits | short.bits << (8 * self.length),
            length: self.length + short.length,
        }
    }

    #[inline]
    pub(crate) fn new(value: i64) -> Self {
        Self::of_zigzag(zigzag(value))
    }

    /// A length or count; such are below 2³¹ in a batch.
    #[inline]
    pub(crate) fn of_length(length: usize) -> Self {
        Self::of_zigzag((length as u64) << 1)
    }

    /// The length of bytes that may be null.
    #[inline]
    pub(crate) fn of_nullable(bytes: Option<&[u8]>) -> Self {
        Self::of_zigzag(zigzag_length(bytes))
    }

    #[inline]
    fn of_zigzag(zigzag: u64) -> Self {
        if zigzag < 1 << 7 {
            Self { bits: zigzag, length: 1 }
        } else if zigzag < 1 << 14 {
            Self { bits: zigzag & 0x7f | 0x80 | zigzag >> 7 << 8, length: 2 }
        } else {
            Self::long(zigzag)
        }
    }

    #[cold]
    fn long(zigzag: u64) -> Self {
        let length = (u64::BITS - zigzag.leading_zeros()).div_ceil(7) as usize;
        if length > Self::READY {
            return Self { bits: zigzag, length };
        }
        let group = |index: usize| zigzag >> (7 * index) & 0x7f | 0x80;
        let last = zigzag >> (7 * (length - 1)) << (8 * (length - 1));
        let bits = (0..length - 1).fold(last, |bits, index| bits | group(index) << (8 * index));
        Self { bits, length }
    }

    /// Bytes of the variable-length form.
    #[inline]
    pub(crate) fn length(self) -> usize {
        self.length
    }

    /// Writes the number to the start of `out`, which has [`ROOM`](Self::ROOM). What is there behind the
    /// number may be overwritten.
    #[inline]
    pub(crate) fn put_to(self, out: &mut [u8]) {
        match out.first_chunk_mut() {
            // A store of fixed length costs less than one of the right length.
            Some(ready) if self.length <= Self::READY => *ready = self.bits.to_le_bytes(),
            _ => self.put_bytes_to(out),
        }
    }

    #[cold]
    fn put_bytes_to(self, out: &mut [u8]) {
        let mut rest = self.bits;
        for slot in out.iter_mut().take(self.length - 1) {
            *slot = (rest & 0x7f | 0x80).to_le_bytes()[0];
            rest >>= 7;
        }
        if let Some(slot) = out.get_mut(self.length - 1) {
            *slot = rest.to_le_bytes()[0];
        }
    }
}

/// Kafka's form of signed numbers: the sign in the lowest bit.
#[inline]
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The zigzag form of the length of bytes that may be null, whose length is −1.
#[inline]
pub(crate) fn zigzag_length(bytes: Option<&[u8]>) -> u64 {
    bytes.map_or(1, |bytes| (bytes.len() as u64) << 1)
}

/// The 32-bit number at `*at`, which then is the byte behind it.
#[inline]
pub(crate) fn read_i32(bytes: &[u8], at: &mut usize) -> Result<i32, Fault> {
    let encoded = read::<MAX_VARINT>(bytes, at)?;
    let encoded = u32::try_from(encoded).map_err(|_| Fault::TooLong)?;
    Ok((encoded >> 1).cast_signed() ^ -(encoded & 1).cast_signed())
}

/// The 64-bit number at `*at`, which then is the byte behind it.
#[inline]
pub(crate) fn read_i64(bytes: &[u8], at: &mut usize) -> Result<i64, Fault> {
    let encoded = read::<MAX_VARLONG>(bytes, at)?;
    Ok((encoded >> 1).cast_signed() ^ -(encoded & 1).cast_signed())
}

/// One and two bytes are nearly all there is in a batch, so they are read without a loop.
#[inline]
fn read<const MAX: usize>(bytes: &[u8], at: &mut usize) -> Result<u64, Fault> {
    let &first = bytes.get(*at).ok_or(Fault::CutOff)?;
    if first < 0x80 {
        *at += 1;
        return Ok(u64::from(first));
    }
    let &second = bytes.get(*at + 1).ok_or(Fault::CutOff)?;
    if second < 0x80 {
        *at += 2;
        return Ok(u64::from(first & 0x7f) | u64::from(second) << 7);
    }
    read_long::<MAX>(bytes, at)
}

fn read_long<const MAX: usize>(bytes: &[u8], at: &mut usize) -> Result<u64, Fault> {
    let bytes = bytes.get(*at..).unwrap_or_default();
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().take(MAX).enumerate() {
        let bits = u64::from(byte & 0x7f);
        // The tenth byte of a 64-bit number has room for one bit.
        if index == MAX_VARLONG - 1 && bits > 1 {
            return Err(Fault::TooLong);
        }
        value |= bits << (7 * index);
        if byte < 0x80 {
            *at += index + 1;
            return Ok(value);
        }
    }
    if bytes.len() < MAX { Err(Fault::CutOff) } else { Err(Fault::TooLong) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: i64, bytes: &[u8]) {
        let mut out = [0; Varint::ROOM];
        let varint = Varint::new(value);
        varint.put_to(&mut out);
        assert_eq!(varint.length(), bytes.len(), "{value}");
        assert_eq!(out[..bytes.len()], *bytes, "{value}");
        let mut at = 0;
        assert_eq!(read_i64(&out, &mut at), Ok(value));
        assert_eq!(at, bytes.len());
        for end in 0..bytes.len() {
            assert_eq!(read_i64(&bytes[..end], &mut 0), Err(Fault::CutOff), "{value} to {end}");
        }
        if let Ok(value) = i32::try_from(value) {
            assert_eq!(read_i32(bytes, &mut 0), Ok(value));
        }
    }

    #[test]
    fn numbers_have_kafkas_form() {
        check(0, &[0]);
        check(-1, &[1]);
        check(1, &[2]);
        check(63, &[0x7e]);
        check(-64, &[0x7f]);
        check(64, &[0x80, 1]);
        check(8191, &[0xfe, 0x7f]);
        check(8192, &[0x80, 0x80, 1]);
        check(1 << 20, &[0x80, 0x80, 0x80, 1]);
        check((1 << 55) - 1, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
        check(1 << 55, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]);
        check(i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]);
        check(i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]);
        check(i64::MAX, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
        check(i64::MIN, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }

    #[test]
    fn numbers_too_long_for_their_type_are_refused() {
        let refused = Err(Fault::TooLong);
        assert_eq!(read_i32(&[0xff, 0xff, 0xff, 0xff, 0x1f], &mut 0), refused);
        assert_eq!(read_i32(&[0x80; 5], &mut 0), refused);
        assert_eq!(read_i32(&[0x80; 4], &mut 0), Err(Fault::CutOff));
        assert_eq!(read_i64(&[0xff; 10], &mut 0), Err(Fault::TooLong));
        let mut eleven_bits = [0x80; 10];
        eleven_bits[9] = 2;
        assert_eq!(read_i64(&eleven_bits, &mut 0), Err(Fault::TooLong));
    }
}
