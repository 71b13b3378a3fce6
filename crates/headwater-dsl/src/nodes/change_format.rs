//! How an update of a grouped table lies in its repartition topic (feature row D49):
//!
//! | bytes | what |
//! |---|---|
//! | old value, 0 | removed from the group |
//! | new value, 1 | added to the group |
//! | length of new value, new value, old value, 2 | changed within the group (KIP-904) |
//! | as above, one more byte, 3 to 5 | as 0 to 2; the byte says whether the update is the latest of its key |
//!
//! The length is a zigzag varint. Kafka Streams writes 0 to 2 and reads all, and so does this.

use headwater_store::serde::{Payload, SerdeError};

use crate::record::Change;
use crate::serdes::AnySerde;

#[cfg(test)]
mod tests;

const OLD: u8 = 0;
const NEW: u8 = 1;
const BOTH: u8 = 2;
/// Added to the flags above when a byte before the flag says whether the update is the latest.
const WITH_LATEST: u8 = 3;

/// Why bytes are not an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum WrongChange {
    #[error("there are no bytes")]
    Empty,
    #[error("the last byte is {flag}, not 0 to 5")]
    Flag { flag: u8 },
    #[error("the length of the new value does not fit {bytes} bytes")]
    Length { bytes: usize },
    #[error("there is neither a new nor an old value")]
    Nothing,
}

impl From<WrongChange> for SerdeError {
    fn from(wrong: WrongChange) -> Self {
        Self::other("update of a grouped table", wrong)
    }
}

/// Appends an update to `out`. `scratch` is room for a value whose length has to be known.
pub(super) fn write<V>(
    serde: &dyn AnySerde<V>,
    change: Change<'_, V>,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), SerdeError> {
    match (change.new, change.old) {
        (None, None) => return Err(WrongChange::Nothing.into()),
        (None, Some(old)) => {
            serde.serialize(old, out)?;
            out.push(OLD);
        }
        (Some(new), None) => {
            serde.serialize(new, out)?;
            out.push(NEW);
        }
        (Some(new), Some(old)) => {
            serde.serialize(new, scratch)?;
            push_length(scratch.len(), out);
            out.extend_from_slice(scratch);
            serde.serialize(old, out)?;
            out.push(BOTH);
        }
    }
    Ok(())
}

/// The new and the old value of an update.
pub(super) fn read<V>(
    serde: &dyn AnySerde<V>,
    payload: Payload<'_>,
) -> Result<(Option<V>, Option<V>), SerdeError> {
    let (&flag, bytes) = payload.as_slice().split_last().ok_or(WrongChange::Empty)?;
    let (flag, bytes) = if flag >= WITH_LATEST {
        let (_is_latest, bytes) = bytes.split_last().ok_or(WrongChange::Empty)?;
        (flag - WITH_LATEST, bytes)
    } else {
        (flag, bytes)
    };
    let value = |bytes| serde.deserialize(payload.with_slice(bytes)).map(Some);
    match flag {
        OLD => Ok((None, value(bytes)?)),
        NEW => Ok((value(bytes)?, None)),
        BOTH => {
            let wrong = WrongChange::Length { bytes: bytes.len() };
            let (length, bytes) = take_length(bytes).ok_or(wrong)?;
            let (new, old) = bytes.split_at_checked(length).ok_or(wrong)?;
            Ok((value(new)?, value(old)?))
        }
        flag => Err(WrongChange::Flag { flag }.into()),
    }
}

/// Appends a length as a zigzag varint, which for a number that is not negative is that of its double.
fn push_length(length: usize, out: &mut Vec<u8>) {
    let mut rest = length * 2;
    while rest >= 0x80 {
        out.push(low_byte(rest) | 0x80);
        rest >>= 7;
    }
    out.push(low_byte(rest));
}

const fn low_byte(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

/// Reads a length off the front; `None` if it is negative or too large for any record.
fn take_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut zigzag = 0_usize;
    for (at, &byte) in bytes.iter().take(5).enumerate() {
        zigzag |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return zigzag.is_multiple_of(2).then_some((zigzag / 2, &bytes[at + 1..]));
        }
    }
    None
}
