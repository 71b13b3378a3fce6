//! Text that is a slice of the record it came in.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use bytestring::ByteString;

use super::{Deserializer, Format, Payload, SerdeError, Serializer, WrongBytes};

/// UTF-8 text in refcounted bytes: reading it from a record copies nothing, cloning it counts one up.
///
/// It behaves like a `str`, has its order and hash, and so can look things up in maps keyed by
/// `Text` with a `&str`. A `Text` read from a record keeps the whole fetched batch in memory, so
/// what is kept for long should be copied with [`Text::detached`].
///
/// ```
/// use headwater_store::serde::Text;
///
/// let line = Text::from("to be or not");
/// assert_eq!(line.split(' ').count(), 4);
/// assert_eq!(line, "to be or not");
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(ByteString);

impl Text {
    /// The bytes as text, if they are UTF-8.
    ///
    /// # Errors
    /// [`SerdeError::Bytes`] when they are not.
    pub fn from_utf8(bytes: Bytes) -> Result<Self, SerdeError> {
        checked(bytes).map(Self)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The bytes of the text.
    pub fn as_bytes(&self) -> &Bytes {
        self.0.as_bytes()
    }

    /// A copy that holds nothing but its own bytes.
    pub fn detached(&self) -> Self {
        Self::from(self.as_str())
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(ByteString::from(text))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(ByteString::from(text))
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// [`Text`] as UTF-8: the bytes of [`Utf8`](super::Utf8), without an allocation per record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utf8Text;

impl Serializer<Text> for Utf8Text {
    fn serialize(&self, value: &Text, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        out.extend_from_slice(value.as_bytes());
        Ok(())
    }

    fn bytes_of<'v>(&self, value: &'v Text) -> Option<&'v [u8]> {
        Some(value.as_bytes())
    }
}

impl Serializer<str> for Utf8Text {
    fn serialize(&self, value: &str, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        out.extend_from_slice(value.as_bytes());
        Ok(())
    }

    fn bytes_of<'v>(&self, value: &'v str) -> Option<&'v [u8]> {
        Some(value.as_bytes())
    }
}

impl Deserializer<Text> for Utf8Text {
    fn deserialize(&self, payload: Payload<'_>) -> Result<Text, SerdeError> {
        checked(payload.to_bytes()).map(Text)
    }
}

impl Format for Utf8Text {
    fn format(&self) -> String {
        "utf8".to_owned()
    }
}

/// Text over `bytes`, checked once.
fn checked(bytes: Bytes) -> Result<ByteString, SerdeError> {
    ByteString::try_from(bytes).map_err(|error| SerdeError::Bytes {
        format: "utf8",
        source: WrongBytes::Utf8 { valid_up_to: error.valid_up_to() },
    })
}
