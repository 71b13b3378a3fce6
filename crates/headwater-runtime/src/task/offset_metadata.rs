//! The text committed beside an input's offset: its partition time and what processors keep there
//! (feature row R16), in Kafka Streams' format, so that an application can take over a Java one's
//! offsets and the other way round.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use headwater_topology::grown_hash_map;

const VERSION: u8 = 2;

/// What is kept with a committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetMetadata {
    /// Highest timestamp of the partition; −1 for none.
    pub partition_time: i64,
    /// Numbers that processors keep, by key; shared by all inputs of the task.
    pub processor_metadata: BTreeMap<String, i64>,
}

/// Committed metadata that cannot be read. The partition time is then unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the metadata {text:?} of a committed offset is not of version 1 or 2 of Kafka Streams' format"
)]
pub struct UnreadableMetadata {
    /// The text found.
    pub text: String,
}

impl OffsetMetadata {
    /// Nothing known yet.
    pub const fn new() -> Self {
        Self { partition_time: -1, processor_metadata: BTreeMap::new() }
    }

    /// The text to commit.
    pub fn encode(&self) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.partition_time.to_be_bytes());
        if !self.processor_metadata.is_empty() {
            put_len(&mut bytes, self.processor_metadata.len());
            // In the order in which Kafka Streams' map hands them out.
            let mut entries: Vec<_> = self.processor_metadata.iter().collect();
            grown_hash_map(&mut entries, |(key, _)| key);
            for (key, value) in entries {
                put_len(&mut bytes, key.len());
                bytes.extend_from_slice(key.as_bytes());
                bytes.extend_from_slice(&value.to_be_bytes());
            }
        }
        STANDARD.encode(bytes)
    }

    /// Reads a committed text. The empty one, as other consumers commit it, says nothing.
    ///
    /// # Errors
    /// [`UnreadableMetadata`] when the text is of no known version or cut off.
    pub fn decode(text: &str) -> Result<Self, UnreadableMetadata> {
        if text.is_empty() {
            return Ok(Self::new());
        }
        STANDARD
            .decode(text)
            .ok()
            .and_then(|bytes| Self::from_bytes(&bytes))
            .ok_or_else(|| UnreadableMetadata { text: text.to_owned() })
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, mut rest) = bytes.split_first()?;
        let partition_time = take_i64(&mut rest)?;
        let mut processor_metadata = BTreeMap::new();
        match *version {
            1 => {}
            VERSION if rest.is_empty() => {}
            VERSION => {
                for _ in 0..take_len(&mut rest)? {
                    let len = take_len(&mut rest)?;
                    let key = rest.get(..len)?;
                    rest = rest.get(len..)?;
                    let key = String::from_utf8(key.to_vec()).ok()?;
                    processor_metadata.insert(key, take_i64(&mut rest)?);
                }
            }
            _ => return None,
        }
        Some(Self { partition_time, processor_metadata })
    }
}

impl Default for OffsetMetadata {
    fn default() -> Self {
        Self::new()
    }
}

fn put_len(bytes: &mut Vec<u8>, len: usize) {
    let len = i32::try_from(len).expect("keys and their number are below 2^31");
    bytes.extend_from_slice(&len.to_be_bytes());
}

fn take_len(bytes: &mut &[u8]) -> Option<usize> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    usize::try_from(i32::from_be_bytes(*len)).ok()
}

fn take_i64(bytes: &mut &[u8]) -> Option<i64> {
    let (value, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    Some(i64::from_be_bytes(*value))
}

#[cfg(test)]
mod tests {
    use super::OffsetMetadata;

    /// Vectors of group `offset_metadata`, made by Kafka Streams 4.4.0.
    #[track_caller]
    fn check(partition_time: i64, processor_metadata: &[(&str, i64)], text: &str) {
        let metadata = OffsetMetadata {
            partition_time,
            processor_metadata: processor_metadata
                .iter()
                .map(|(key, value)| ((*key).to_owned(), *value))
                .collect(),
        };
        assert_eq!(metadata.encode(), text);
        assert_eq!(OffsetMetadata::decode(text).unwrap(), metadata);
    }

    #[test]
    fn equals_kafka_streams() {
        check(-1, &[], "Av//////////");
        check(0, &[], "AgAAAAAAAAAA");
        check(1_700_000_000_000, &[], "AgAAAYvP5WgA");
        check(i64::MAX, &[], "An//////////");
        check(42, &[("k", 5)], "AgAAAAAAAAAqAAAAAQAAAAFrAAAAAAAAAAU=");
        check(
            42,
            &[("KSTREAM-AGGREGATE-0000000002-STORE", 1_700_000_000_000)],
            "AgAAAAAAAAAqAAAAAQAAACJLU1RSRUFNLUFHR1JFR0FURS0wMDAwMDAwMDAyLVNUT1JFAAABi8/laAA=",
        );
    }

    #[test]
    fn empty_text_says_nothing() {
        assert_eq!(OffsetMetadata::decode("").unwrap(), OffsetMetadata::new());
    }

    #[test]
    fn garbage_is_an_error() {
        for text in ["?", "AA==", "Av///w==", "AgAAAAAAAAAqAAAAAQAAAAFr", "CQAAAAAAAAAA"] {
            assert!(OffsetMetadata::decode(text).is_err(), "{text}");
        }
    }
}
