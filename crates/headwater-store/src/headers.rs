//! Headers as stores keep them (KIP-1271, feature row P33).
//!
//! ```text
//! length of what follows | number | per header: length of the name, name, length of the value, value
//! ```
//!
//! All numbers are variable-length integers in zigzag form, as in Kafka's records; a null value has
//! the length −1. Without headers there is only the first length, 0.

use crate::{Damage, RecordProblem};

const RECORD: &str = "headers of a value";

/// A header: its name, and its value if that is not null.
pub type StoredHeader<'h> = (&'h str, Option<&'h [u8]>);

/// Appends headers with their length in front.
pub fn push_headers<'h>(
    headers: impl Iterator<Item = StoredHeader<'h>> + Clone,
    out: &mut Vec<u8>,
) {
    let (number, length) = measured(headers.clone());
    push_varint(signed(length), out);
    if number == 0 {
        return;
    }
    push_varint(number, out);
    for (name, value) in headers {
        push_varint(signed(name.len()), out);
        out.extend_from_slice(name.as_bytes());
        push_varint(value.map_or(-1, |value| signed(value.len())), out);
        out.extend_from_slice(value.unwrap_or_default());
    }
}

/// How many bytes [`push_headers`] appends.
pub(crate) fn headers_length<'h>(headers: impl Iterator<Item = StoredHeader<'h>>) -> usize {
    let (_, length) = measured(headers);
    varint_length(signed(length)) + length
}

/// The number of headers, and the length of what comes behind the first length.
fn measured<'h>(headers: impl Iterator<Item = StoredHeader<'h>>) -> (i32, usize) {
    let (mut number, mut length) = (0, 0);
    for (name, value) in headers {
        number += 1;
        length += varint_length(signed(name.len())) + name.len();
        length += value.map_or(1, |value| varint_length(signed(value.len())) + value.len());
    }
    (number, if number == 0 { 0 } else { length + varint_length(number) })
}

/// Takes the headers off the front of stored bytes: what [`push_headers`] wrote, without the first
/// length, and the rest. `None` when the bytes do not begin with headers.
pub fn split_headers(stored: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = take_varint(stored)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// Reads what [`split_headers`] took off.
///
/// # Errors
/// [`Damage::Record`] when these bytes are no headers.
pub fn read_headers(headers: &[u8]) -> Result<Vec<StoredHeader<'_>>, Damage> {
    if headers.is_empty() {
        return Ok(Vec::new());
    }
    let short = || {
        let problem = RecordProblem::Length { expected: headers.len() + 1, found: headers.len() };
        Damage::Record { record: RECORD, problem }
    };
    let (number, mut rest) = take_varint(headers).ok_or_else(short)?;
    let mut found = Vec::new();
    for _ in 0..number {
        let (length, after) = take_varint(rest).ok_or_else(short)?;
        let (name, after) = usize::try_from(length)
            .ok()
            .and_then(|it| after.split_at_checked(it))
            .ok_or_else(short)?;
        let name = str::from_utf8(name).map_err(|_| {
            let problem = RecordProblem::Text { field: "name" };
            Damage::Record { record: RECORD, problem }
        })?;
        let (length, after) = take_varint(after).ok_or_else(short)?;
        let (value, after) = match usize::try_from(length) {
            Ok(length) => {
                let (value, after) = after.split_at_checked(length).ok_or_else(short)?;
                (Some(value), after)
            }
            Err(_) => (None, after),
        };
        found.push((name, value));
        rest = after;
    }
    Ok(found)
}

fn signed(length: usize) -> i32 {
    i32::try_from(length).expect("headers came in a record, which is smaller than 2 GiB")
}

const fn zigzag(value: i32) -> u32 {
    (value.cast_unsigned() << 1) ^ (value >> 31).cast_unsigned()
}

fn varint_length(value: i32) -> usize {
    let bits = 32 - (zigzag(value) | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

fn push_varint(value: i32, out: &mut Vec<u8>) {
    let mut left = zigzag(value);
    loop {
        let [low, ..] = left.to_le_bytes();
        left >>= 7;
        if left == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

fn take_varint(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let mut value = 0_u32;
    for (at, &byte) in bytes.iter().enumerate().take(5) {
        value |= u32::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let decoded = (value >> 1).cast_signed() ^ -((value & 1).cast_signed());
            return Some((decoded, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }

    /// The original's vectors `headers` and `value_timestamp_headers`.
    #[test]
    fn bytes_are_those_of_the_original() {
        let key = "ключ";
        let meaning = "значение".as_bytes();
        let cases: [(&[StoredHeader<'_>], &str); 4] = [
            (&[], "00"),
            (&[("a", Some(b"1"))], "0a0202610231"),
            (
                &[("a", Some(b"1")), ("a", Some(b"2")), ("b", Some(b"")), ("c", None)],
                "1e080261023102610232026200026301",
            ),
            (
                &[("", Some(b"x")), (key, Some(meaning))],
                "3c0400027810d0bad0bbd18ed18720d0b7d0bdd0b0d187d0b5d0bdd0b8d0b5",
            ),
        ];
        for (headers, expected) in cases {
            let mut bytes = Vec::new();
            push_headers(headers.iter().copied(), &mut bytes);
            assert_eq!(hex(&bytes), expected);
            assert_eq!(headers_length(headers.iter().copied()), bytes.len());
            bytes.extend_from_slice(b"rest");
            let (found, rest) = split_headers(&bytes).unwrap();
            assert_eq!(rest, b"rest");
            assert_eq!(read_headers(found).unwrap(), headers);
        }
    }

    #[test]
    fn what_is_cut_off_is_damage() {
        let mut bytes = Vec::new();
        push_headers([("name", Some(&b"value"[..])), ("n", None)].into_iter(), &mut bytes);
        let (headers, _) = split_headers(&bytes).unwrap();
        for length in 1..headers.len() {
            assert!(read_headers(&headers[..length]).is_err(), "{length} bytes");
        }
        assert!(split_headers(&bytes[..bytes.len() - 1]).is_none());
        assert!(split_headers(b"").is_none());
    }

    #[test]
    fn long_lengths_take_more_bytes() {
        let value = vec![7; 70_000];
        let headers = [("long", Some(value.as_slice()))];
        let mut bytes = Vec::new();
        push_headers(headers.into_iter(), &mut bytes);
        let (found, rest) = split_headers(&bytes).unwrap();
        assert!(rest.is_empty());
        assert_eq!(read_headers(found).unwrap(), headers);
    }
}
