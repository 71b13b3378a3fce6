//! From values to bytes and back.
//!
//! A serde is for a *value*; null is no bytes and passes it by, unless the serde has a form for it
//! ([`Serializer::null_form`], [`Deserializer::is_null`]). All serdes here write the bytes that the
//! Java classes of the same purpose write (`org.apache.kafka.common.serialization.Serdes`).

use bytes::Bytes;

mod builtin;
mod error;
#[cfg(feature = "json")]
mod json;
mod list;
#[cfg(feature = "protobuf")]
mod protobuf;
#[cfg(test)]
mod tests;
mod text;
mod windowed;

pub use builtin::{Boolean, Double, Float, Integer, Long, RawBytes, Short, Utf8, UuidText};
pub use error::{SerdeError, WrongBytes};
#[cfg(feature = "json")]
pub use json::Json;
pub use list::{List, NullableList};
#[cfg(feature = "protobuf")]
pub use protobuf::Protobuf;
pub use text::{Text, Utf8Text};
pub use windowed::{SessionWindowed, TimeWindowed, Window, Windowed};

/// Writes values of type `T` as bytes.
pub trait Serializer<T: ?Sized> {
    /// Appends the bytes of `value` to `out`.
    ///
    /// # Errors
    /// When the value has no bytes in this format. What was appended so far is then meaningless.
    fn serialize(&self, value: &T, out: &mut Vec<u8>) -> Result<(), SerdeError>;

    /// The bytes of `value` when they lie in it ready made, exactly as [`serialize`](Self::serialize)
    /// would append them; they then need not be copied. `None` (the default) for every other format.
    fn bytes_of<'v>(&self, _value: &'v T) -> Option<&'v [u8]> {
        None
    }

    /// The part of a key's bytes that decides over its partition where no partitioner is given: of a
    /// windowed key those of the key itself, so that all its windows are in one partition (feature row
    /// D22). All of them (the default) for every other format.
    fn partitioned_by<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        bytes
    }

    /// Appends the bytes that stand for null and answers true, when the format has such bytes.
    /// Without them (the default) null is written as no bytes at all.
    fn null_form(&self, _out: &mut Vec<u8>) -> bool {
        false
    }
}

/// Reads values of type `T` from bytes.
pub trait Deserializer<T> {
    /// Reads one value from all the bytes of `payload`.
    ///
    /// # Errors
    /// When the bytes are not of this format, wrong length included.
    fn deserialize(&self, payload: Payload<'_>) -> Result<T, SerdeError>;

    /// Whether `bytes` are a form of null, to be asked before [`deserialize`](Self::deserialize).
    /// No (the default) for every format that writes null as no bytes at all.
    fn is_null(&self, _bytes: &[u8]) -> bool {
        false
    }
}

/// Both halves, as operators and stores ask for them.
///
/// Implement [`Serializer`], [`Deserializer`] and [`Format`]; this trait follows by itself.
pub trait Serde<T>:
    Serializer<T> + Deserializer<T> + Format + Clone + Send + Sync + 'static
{
}

impl<S, T> Serde<T> for S where
    S: Serializer<T> + Deserializer<T> + Format + Clone + Send + Sync + 'static
{
}

/// The name of a byte format.
pub trait Format {
    /// A short name, such as `utf8` or `long`, kept beside each store so that a reader with another
    /// format is told so. Two serdes that read each other's bytes should share it.
    fn format(&self) -> String;

    /// How many bytes each value has, if all have as many: then a list of them needs no lengths. `None` (the default)
    /// also for formats of one size that Kafka's `ListSerde` writes with lengths.
    fn fixed_size(&self) -> Option<usize> {
        None
    }
}

/// Bytes to read a value from, and, when they are part of a larger refcounted buffer, that buffer.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    bytes: &'a [u8],
    owner: Option<&'a Bytes>,
}

impl<'a> Payload<'a> {
    /// Bytes that must be copied to be kept.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, owner: None }
    }

    /// A payload that is all of `bytes`, which can be kept without copying.
    pub fn shared(bytes: &'a Bytes) -> Self {
        Self { bytes, owner: Some(bytes) }
    }

    /// `bytes` as a part of `owner`, which can be kept without copying.
    ///
    /// # Panics
    /// [`to_bytes`](Self::to_bytes) panics when `bytes` does not lie inside `owner`.
    pub const fn part_of(owner: &'a Bytes, bytes: &'a [u8]) -> Self {
        Self { bytes, owner: Some(owner) }
    }

    /// A part of this payload, of the same owner.
    ///
    /// # Panics
    /// As for [`part_of`](Self::part_of).
    pub const fn with_slice(&self, part: &'a [u8]) -> Self {
        Self { bytes: part, owner: self.owner }
    }

    /// The bytes.
    pub const fn as_slice(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes to keep: a slice of the owner when there is one, a copy otherwise.
    pub fn to_bytes(&self) -> Bytes {
        self.owner
            .map_or_else(|| Bytes::copy_from_slice(self.bytes), |owner| owner.slice_ref(self.bytes))
    }
}
