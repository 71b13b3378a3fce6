//! Kafka's variable-length numbers: zigzag, seven bits a byte, lowest first.

/// Longest form of a 32-bit number.
pub(crate) const MAX_VARINT: usize = 5;
/// Longest form of a 64-bit number.
pub(crate) const MAX_VARLONG: usize = 10;

/// Why a number could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    CutOff,
    TooLong,
}

/// Bytes that [`put`] needs for the zigzag form of `value`.
#[inline]
pub(crate) fn length(value: i64) -> usize {
    // One byte per seven significant bits; zero has one byte too.
    let bits = 64 - (zigzag(value) | 1).leading_zeros();
    (bits as usize).div_ceil(7)
}

/// Writes `value` to the start of `out`, which has room for it, and gives the bytes written.
#[inline]
pub(crate) fn put(out: &mut [u8], value: i64) -> usize {
    let mut rest = zigzag(value);
    let mut written = 0;
    for slot in out {
        written += 1;
        if rest < 0x80 {
            *slot = low_byte(rest);
            break;
        }
        *slot = low_byte(rest) | 0x80;
        rest >>= 7;
    }
    written
}

/// Takes a 32-bit number off the front of `input`.
#[inline]
pub(crate) fn take_i32(input: &mut &[u8]) -> Result<i32, Fault> {
    let encoded = take::<MAX_VARINT>(input)?;
    let encoded = u32::try_from(encoded).map_err(|_| Fault::TooLong)?;
    Ok((encoded >> 1).cast_signed() ^ -(encoded & 1).cast_signed())
}

/// Takes a 64-bit number off the front of `input`.
#[inline]
pub(crate) fn take_i64(input: &mut &[u8]) -> Result<i64, Fault> {
    let encoded = take::<MAX_VARLONG>(input)?;
    Ok((encoded >> 1).cast_signed() ^ -(encoded & 1).cast_signed())
}

/// One and two bytes are nearly all there is in a batch, so they are read without a loop.
#[inline]
fn take<const MAX: usize>(input: &mut &[u8]) -> Result<u64, Fault> {
    match **input {
        [a, ref rest @ ..] if a < 0x80 => {
            *input = rest;
            Ok(u64::from(a))
        }
        [a, b, ref rest @ ..] if b < 0x80 => {
            *input = rest;
            Ok(u64::from(a & 0x7f) | u64::from(b) << 7)
        }
        _ => take_long::<MAX>(input),
    }
}

fn take_long<const MAX: usize>(input: &mut &[u8]) -> Result<u64, Fault> {
    let mut value = 0_u64;
    for (index, &byte) in input.iter().take(MAX).enumerate() {
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * index;
        // The tenth byte of a 64-bit number has room for one bit.
        if shift == 63 && bits > 1 {
            return Err(Fault::TooLong);
        }
        value |= bits << shift;
        if byte < 0x80 {
            *input = input.get(index + 1..).unwrap_or_default();
            return Ok(value);
        }
    }
    if input.len() < MAX { Err(Fault::CutOff) } else { Err(Fault::TooLong) }
}

#[inline]
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

#[inline]
fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: i64, bytes: &[u8]) {
        let mut out = [0; MAX_VARLONG];
        let written = put(&mut out, value);
        assert_eq!(&out[..written], bytes, "{value}");
        assert_eq!(length(value), bytes.len(), "{value}");
        let mut input = bytes;
        assert_eq!(take_i64(&mut input), Ok(value));
        assert!(input.is_empty());
        for end in 0..bytes.len() {
            assert_eq!(take_i64(&mut &bytes[..end]), Err(Fault::CutOff), "{value} to {end}");
        }
        if let Ok(value) = i32::try_from(value) {
            assert_eq!(take_i32(&mut &bytes[..]), Ok(value));
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
        check(i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]);
        check(i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]);
        check(i64::MAX, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
        check(i64::MIN, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }

    #[test]
    fn numbers_too_long_for_their_type_are_refused() {
        assert_eq!(take_i32(&mut &[0xff, 0xff, 0xff, 0xff, 0x1f][..]), Err(Fault::TooLong));
        assert_eq!(take_i32(&mut &[0x80; 5][..]), Err(Fault::TooLong));
        assert_eq!(take_i32(&mut &[0x80; 4][..]), Err(Fault::CutOff));
        assert_eq!(take_i64(&mut &[0xff; 10][..]), Err(Fault::TooLong));
        let mut eleven_bits = [0x80; 10];
        eleven_bits[9] = 2;
        assert_eq!(take_i64(&mut &eleven_bits[..]), Err(Fault::TooLong));
    }
}
