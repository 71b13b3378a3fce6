//! Lists of values (KIP-466).

use std::collections::BTreeSet;

use super::{Deserializer, Format, Payload, SerdeError, Serializer, WrongBytes};

/// A [`Vec`] of values as Kafka's `ListSerde` writes it, over the serde of its entries.
///
/// Entries of a fixed size ([`Format::fixed_size`]) lie one behind the other: a byte 00, the number of null entries and
/// their indexes, the number of entries, and those that are not null. Others have their lengths: a byte 01, the number
/// of entries, and for each its length, −1 for null, and its bytes. Numbers have four bytes, big-endian. There are no
/// null entries in a `Vec<T>`, and bytes with such are refused; [`NullableList`] has them.
///
/// ```
/// use headwater_store::serde::{Deserializer, List, Long, Payload, Serializer};
///
/// let list = List(Long);
/// let mut bytes = Vec::new();
/// list.serialize(&vec![1, -1], &mut bytes)?;
/// assert_eq!(bytes.len(), 1 + 4 + 4 + 2 * 8);
/// let read: Vec<i64> = list.deserialize(Payload::new(&bytes))?;
/// assert_eq!(read, [1, -1]);
/// # Ok::<(), headwater_store::serde::SerdeError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct List<S>(pub S);

/// As [`List`], of entries that may be null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NullableList<S>(pub S);

const FORMAT: &str = "list";
const FIXED: u8 = 0;
const VARIABLE: u8 = 1;

impl<T, S: Serializer<T> + Format> Serializer<Vec<T>> for List<S> {
    fn serialize(&self, value: &Vec<T>, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        write(&self.0, value.iter().map(Some), out)
    }
}

impl<T, S: Serializer<T> + Format> Serializer<Vec<Option<T>>> for NullableList<S> {
    fn serialize(&self, value: &Vec<Option<T>>, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        write(&self.0, value.iter().map(Option::as_ref), out)
    }
}

impl<T, S: Deserializer<T> + Format> Deserializer<Vec<T>> for List<S> {
    fn deserialize(&self, payload: Payload<'_>) -> Result<Vec<T>, SerdeError> {
        let entries = read(&self.0, payload)?.into_iter();
        let present = |entry: Option<T>| entry.ok_or_else(|| wrong(WrongBytes::NullEntry));
        entries.map(present).collect()
    }
}

impl<T, S: Deserializer<T> + Format> Deserializer<Vec<Option<T>>> for NullableList<S> {
    fn deserialize(&self, payload: Payload<'_>) -> Result<Vec<Option<T>>, SerdeError> {
        read(&self.0, payload)
    }
}

impl<S: Format> Format for List<S> {
    fn format(&self) -> String {
        format!("{FORMAT}({})", self.0.format())
    }
}

impl<S: Format> Format for NullableList<S> {
    fn format(&self) -> String {
        format!("{FORMAT}({})", self.0.format())
    }
}

fn write<'v, T: 'v>(
    serde: &(impl Serializer<T> + Format),
    entries: impl ExactSizeIterator<Item = Option<&'v T>> + Clone,
    out: &mut Vec<u8>,
) -> Result<(), SerdeError> {
    let is_fixed = serde.fixed_size().is_some();
    out.push(if is_fixed { FIXED } else { VARIABLE });
    if is_fixed {
        let nulls = entries.clone().enumerate().filter(|(_, entry)| entry.is_none());
        push_number(nulls.clone().count(), out)?;
        for (index, _) in nulls {
            push_number(index, out)?;
        }
    }
    push_number(entries.len(), out)?;
    for entry in entries {
        let Some(entry) = entry else {
            if !is_fixed {
                out.extend_from_slice(&(-1_i32).to_be_bytes());
            }
            continue;
        };
        let length_at = out.len();
        if !is_fixed {
            out.extend_from_slice(&[0; 4]);
        }
        let start = out.len();
        serde.serialize(entry, out)?;
        if !is_fixed {
            let length = number(out.len() - start)?.to_be_bytes();
            if let Some(place) = out.get_mut(length_at..start) {
                place.copy_from_slice(&length);
            }
        }
    }
    Ok(())
}

fn number(count: usize) -> Result<i32, SerdeError> {
    i32::try_from(count).map_err(|error| SerdeError::other(FORMAT, error))
}

fn push_number(count: usize, out: &mut Vec<u8>) -> Result<(), SerdeError> {
    out.extend_from_slice(&number(count)?.to_be_bytes());
    Ok(())
}

fn read<T>(
    serde: &(impl Deserializer<T> + Format),
    payload: Payload<'_>,
) -> Result<Vec<Option<T>>, SerdeError> {
    let mut rest = Rest(payload.as_slice());
    let fixed = match rest.take(1)? {
        [FIXED] => {
            // Lists of another entry type may be of fixed size where this one is not.
            Some(serde.fixed_size().ok_or_else(|| wrong(WrongBytes::ListOfOtherEntries))?)
        }
        [VARIABLE] => None,
        _ => return Err(wrong(WrongBytes::ListOfOtherEntries)),
    };
    let mut nulls = BTreeSet::new();
    if fixed.is_some() {
        for _ in 0..rest.number()?.ok_or_else(|| wrong(WrongBytes::CutOff))? {
            nulls.insert(rest.number()?.ok_or_else(|| wrong(WrongBytes::CutOff))?);
        }
    }
    let count = rest.number()?.ok_or_else(|| wrong(WrongBytes::CutOff))?;
    let mut entries = Vec::new();
    for index in 0..count {
        let length = match fixed {
            Some(_) if nulls.contains(&index) => None,
            Some(size) => Some(size),
            None => rest.number()?,
        };
        entries.push(match length {
            None => None,
            Some(length) => Some(serde.deserialize(payload.with_slice(rest.take(length)?))?),
        });
    }
    if rest.0.is_empty() { Ok(entries) } else { Err(wrong(WrongBytes::Behind)) }
}

/// What has not been read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], SerdeError> {
        let (taken, rest) =
            self.0.split_at_checked(length).ok_or_else(|| wrong(WrongBytes::CutOff))?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number; `None` for −1.
    fn number(&mut self) -> Result<Option<usize>, SerdeError> {
        let bytes = self.take(4)?.try_into().map_err(|_| wrong(WrongBytes::CutOff))?;
        match i32::from_be_bytes(bytes) {
            -1 => Ok(None),
            number => usize::try_from(number).map(Some).map_err(|_| wrong(WrongBytes::CutOff)),
        }
    }
}

fn wrong(source: WrongBytes) -> SerdeError {
    SerdeError::Bytes { format: FORMAT, source }
}
