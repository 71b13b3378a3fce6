//! Keys of windows.

use std::fmt;

use super::{Deserializer, Format, Payload, SerdeError, Serializer};
use crate::{push_session_key, read_session_key};

/// A stretch of time, in milliseconds since 1970.
///
/// The end of a time window does not belong to it; that of a sliding window or of a session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// The first time in it.
    pub start: i64,
    /// Its end.
    pub end: i64,
}

/// A key and one of its windows: the key of a windowed table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Windowed<K> {
    /// The key.
    pub key: K,
    /// The window.
    pub window: Window,
}

impl<K: fmt::Display> fmt::Display for Windowed<K> {
    /// As Kafka Streams prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, window: Window { start, end } } = self;
        write!(f, "[{key}@{start}/{end}]")
    }
}

/// Keys of time windows and sliding windows: the key, then 8 bytes of start, big-endian. The end is
/// the start and the size of the windows.
///
/// ```
/// use headwater_store::serde::{
///     Deserializer, Payload, Serializer, TimeWindowed, Utf8, Window, Windowed,
/// };
///
/// let serde = TimeWindowed::new(Utf8, 60_000);
/// let key = Windowed { key: "a".to_owned(), window: Window { start: 120_000, end: 180_000 } };
/// let mut bytes = Vec::new();
/// serde.serialize(&key, &mut bytes)?;
/// assert_eq!(bytes, b"a\0\0\0\0\0\x01\xd4\xc0");
/// assert_eq!(serde.deserialize(Payload::new(&bytes))?, key);
/// # Ok::<(), headwater_store::serde::SerdeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWindowed<S> {
    inner: S,
    size_ms: i64,
}

impl<S> TimeWindowed<S> {
    /// With this serde of the key, for windows of this size.
    pub const fn new(inner: S, size_ms: i64) -> Self {
        Self { inner, size_ms }
    }
}

/// Keys of sessions: the key, then 8 bytes of end and 8 of start, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionWindowed<S> {
    inner: S,
}

impl<S> SessionWindowed<S> {
    /// With this serde of the key.
    pub const fn new(inner: S) -> Self {
        Self { inner }
    }
}

impl<K, S: Serializer<K>> Serializer<Windowed<K>> for TimeWindowed<S> {
    fn serialize(&self, value: &Windowed<K>, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        self.inner.serialize(&value.key, out)?;
        out.extend_from_slice(&value.window.start.to_be_bytes());
        Ok(())
    }

    fn partitioned_by<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[..bytes.len().saturating_sub(8)]
    }
}

impl<K, S: Deserializer<K>> Deserializer<Windowed<K>> for TimeWindowed<S> {
    fn deserialize(&self, payload: Payload<'_>) -> Result<Windowed<K>, SerdeError> {
        let bytes = payload.as_slice();
        let (key, start) = bytes.split_last_chunk::<8>().ok_or_else(|| too_short(8, bytes))?;
        let start = i64::from_be_bytes(*start);
        let window = Window { start, end: start.saturating_add(self.size_ms) };
        Ok(Windowed { key: self.inner.deserialize(payload.with_slice(key))?, window })
    }
}

impl<S: Format> Format for TimeWindowed<S> {
    fn format(&self) -> String {
        format!("time-windowed({}, {})", self.inner.format(), self.size_ms)
    }
}

impl<K, S: Serializer<K>> Serializer<Windowed<K>> for SessionWindowed<S> {
    fn serialize(&self, value: &Windowed<K>, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        self.inner.serialize(&value.key, out)?;
        push_session_key(&[], value.window.start, value.window.end, out);
        Ok(())
    }

    fn partitioned_by<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[..bytes.len().saturating_sub(16)]
    }
}

impl<K, S: Deserializer<K>> Deserializer<Windowed<K>> for SessionWindowed<S> {
    fn deserialize(&self, payload: Payload<'_>) -> Result<Windowed<K>, SerdeError> {
        let bytes = payload.as_slice();
        let (key, start, end) = read_session_key(bytes).ok_or_else(|| too_short(16, bytes))?;
        let key = self.inner.deserialize(payload.with_slice(key))?;
        Ok(Windowed { key, window: Window { start, end } })
    }
}

impl<S: Format> Format for SessionWindowed<S> {
    fn format(&self) -> String {
        format!("session-windowed({})", self.inner.format())
    }
}

const fn too_short(expected: usize, bytes: &[u8]) -> SerdeError {
    SerdeError::Length { format: "windowed key", expected, found: bytes.len() }
}
