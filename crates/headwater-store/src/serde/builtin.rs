//! The formats of Kafka's `Serdes` class.

use std::str;

use bytes::Bytes;
use uuid::Uuid;

use super::{Deserializer, Format, Payload, SerdeError, Serializer, WrongBytes};

/// Text as UTF-8 (`StringSerializer`). For keys and values that are kept, [`Utf8Text`](super::Utf8Text) spares the
/// allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utf8;

/// `i32` as 4 bytes big-endian (`IntegerSerializer`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Integer;

/// `i64` as 8 bytes big-endian (`LongSerializer`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Long;

/// `i16` as 2 bytes big-endian (`ShortSerializer`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Short;

/// `f32` as 4 bytes IEEE 754 big-endian (`FloatSerializer`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Float;

/// `f64` as 8 bytes IEEE 754 big-endian (`DoubleSerializer`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Double;

/// `bool` as one byte, 01 or 00 (`BooleanSerializer`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boolean;

/// Bytes as they are (`BytesSerializer`, `ByteArraySerializer`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawBytes;

/// [`Uuid`] as the 36 bytes of its lower-case text (`UUIDSerializer`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UuidText;

impl Serializer<String> for Utf8 {
    fn serialize(&self, value: &String, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        out.extend_from_slice(value.as_bytes());
        Ok(())
    }

    fn bytes_of<'v>(&self, value: &'v String) -> Option<&'v [u8]> {
        Some(value.as_bytes())
    }
}

impl Serializer<str> for Utf8 {
    fn serialize(&self, value: &str, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        out.extend_from_slice(value.as_bytes());
        Ok(())
    }

    fn bytes_of<'v>(&self, value: &'v str) -> Option<&'v [u8]> {
        Some(value.as_bytes())
    }
}

impl Deserializer<String> for Utf8 {
    fn deserialize(&self, payload: Payload<'_>) -> Result<String, SerdeError> {
        utf8(payload.as_slice()).map(str::to_owned)
    }
}

impl Serializer<bool> for Boolean {
    fn serialize(&self, value: &bool, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        out.push(u8::from(*value));
        Ok(())
    }
}

impl Deserializer<bool> for Boolean {
    fn deserialize(&self, payload: Payload<'_>) -> Result<bool, SerdeError> {
        match fixed("boolean", payload)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [found] => {
                let source = WrongBytes::Boolean { found };
                Err(SerdeError::Bytes { format: "boolean", source })
            }
        }
    }
}

impl Serializer<Bytes> for RawBytes {
    fn serialize(&self, value: &Bytes, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        out.extend_from_slice(value);
        Ok(())
    }

    fn bytes_of<'v>(&self, value: &'v Bytes) -> Option<&'v [u8]> {
        Some(value)
    }
}

impl Serializer<[u8]> for RawBytes {
    fn serialize(&self, value: &[u8], out: &mut Vec<u8>) -> Result<(), SerdeError> {
        out.extend_from_slice(value);
        Ok(())
    }

    fn bytes_of<'v>(&self, value: &'v [u8]) -> Option<&'v [u8]> {
        Some(value)
    }
}

impl Deserializer<Bytes> for RawBytes {
    fn deserialize(&self, payload: Payload<'_>) -> Result<Bytes, SerdeError> {
        Ok(payload.to_bytes())
    }
}

impl Serializer<Uuid> for UuidText {
    fn serialize(&self, value: &Uuid, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        let mut text = Uuid::encode_buffer();
        out.extend_from_slice(value.hyphenated().encode_lower(&mut text).as_bytes());
        Ok(())
    }
}

impl Deserializer<Uuid> for UuidText {
    fn deserialize(&self, payload: Payload<'_>) -> Result<Uuid, SerdeError> {
        let text: [u8; 36] = fixed("uuid", payload)?;
        Uuid::try_parse_ascii(&text)
            .map_err(|_| SerdeError::Bytes { format: "uuid", source: WrongBytes::Uuid })
    }
}

/// Serdes of numbers: the type's big-endian bytes.
macro_rules! big_endian {
    ($($serde:ident $type:ty, $name:literal;)*) => {$(
        impl Serializer<$type> for $serde {
            fn serialize(&self, value: &$type, out: &mut Vec<u8>) -> Result<(), SerdeError> {
                out.extend_from_slice(&value.to_be_bytes());
                Ok(())
            }
        }

        impl Deserializer<$type> for $serde {
            fn deserialize(&self, payload: Payload<'_>) -> Result<$type, SerdeError> {
                fixed($name, payload).map(<$type>::from_be_bytes)
            }
        }
    )*};
}

big_endian! {
    Short i16, "short";
    Integer i32, "integer";
    Long i64, "long";
    Float f32, "float";
    Double f64, "double";
}

macro_rules! formats {
    ($($serde:ident $name:literal $fixed_size:expr,)*) => {$(
        impl Format for $serde {
            fn format(&self) -> String {
                $name.to_owned()
            }

            fn fixed_size(&self) -> Option<usize> {
                $fixed_size
            }
        }
    )*};
}

formats! {
    Utf8 "utf8" None,
    Short "short" Some(2),
    Integer "integer" Some(4),
    Long "long" Some(8),
    Float "float" Some(4),
    Double "double" Some(8),
    Boolean "boolean" None,
    RawBytes "bytes" None,
    UuidText "uuid" Some(36),
}

/// The bytes as text.
fn utf8(bytes: &[u8]) -> Result<&str, SerdeError> {
    str::from_utf8(bytes).map_err(|error| SerdeError::Bytes {
        format: "utf8",
        source: WrongBytes::Utf8 { valid_up_to: error.valid_up_to() },
    })
}

/// All bytes of a format of fixed length.
fn fixed<const N: usize>(
    format: &'static str,
    payload: Payload<'_>,
) -> Result<[u8; N], SerdeError> {
    let bytes = payload.as_slice();
    bytes.try_into().map_err(|_| SerdeError::Length { format, expected: N, found: bytes.len() })
}
