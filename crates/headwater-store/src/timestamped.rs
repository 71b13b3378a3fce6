//! Values with the timestamp of their last update (feature row P7).

use crate::serde::{Deserializer, Format, Payload, SerdeError, Serializer};

/// Bytes of the timestamp in front of a stored value.
pub const TIMESTAMP_BYTES: usize = 8;

/// A value and the timestamp of the record that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueAndTimestamp<V> {
    /// The value.
    pub value: V,
    /// Milliseconds since the Unix epoch.
    pub timestamp: i64,
}

/// Takes a value in the timestamped layout apart, `None` when it is too short to be one.
///
/// The changelog of a timestamped store holds the value alone, with the timestamp as the record's
/// (feature row P8); so this is also how a change is logged, and the reverse how it is restored.
pub fn split_timestamp(stored: &[u8]) -> Option<(i64, &[u8])> {
    let (timestamp, value) = stored.split_first_chunk()?;
    Some((i64::from_be_bytes(*timestamp), value))
}

/// Appends a value in the timestamped layout: 8-byte big-endian timestamp, then the value.
pub fn push_timestamped(timestamp: i64, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&timestamp.to_be_bytes());
    out.extend_from_slice(value);
}

/// The serde of [`ValueAndTimestamp`] over the serde of the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamped<S>(
    /// The serde of the value.
    pub S,
);

impl<V, S: Serializer<V>> Serializer<ValueAndTimestamp<V>> for Timestamped<S> {
    fn serialize(&self, value: &ValueAndTimestamp<V>, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        out.extend_from_slice(&value.timestamp.to_be_bytes());
        self.0.serialize(&value.value, out)
    }
}

impl<V, S: Deserializer<V>> Deserializer<ValueAndTimestamp<V>> for Timestamped<S> {
    fn deserialize(&self, payload: Payload<'_>) -> Result<ValueAndTimestamp<V>, SerdeError> {
        let stored = payload.as_slice();
        let (timestamp, value) = split_timestamp(stored).ok_or(SerdeError::Length {
            format: "timestamped value",
            expected: TIMESTAMP_BYTES,
            found: stored.len(),
        })?;
        let value = self.0.deserialize(payload.with_slice(value))?;
        Ok(ValueAndTimestamp { value, timestamp })
    }

    fn is_null(&self, bytes: &[u8]) -> bool {
        split_timestamp(bytes).is_some_and(|(_, value)| self.0.is_null(value))
    }
}

impl<S: Format> Format for Timestamped<S> {
    fn format(&self) -> String {
        self.0.format()
    }
}
